#include "near.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void assert_near(float got, float expected, double bound, const char *what, size_t i)
{
    const bool same = got == expected || (isnan(got) && isnan(expected));
    if (!same && !(fabs((double)got - (double)expected) <=
                   bound * fmax(1.0, fabs((double)expected))))
        fail_msg("seed %d: %s %d is %.9g, expected %.9g", (int)problem_seed(), what,
                 (int)i, (double)got, (double)expected);
}

void assert_all_near(const float *got, const float *expected, size_t count, double bound,
                     const char *what)
{
    for (size_t i = 0; i < count; i++)
        assert_near(got[i], expected[i], bound, what, i);
}

void assert_statistics_near(const struct problem *p, const struct results *got,
                            const struct results *expected)
{
    const attn_statistics *const g = &got->statistics, *const e = &expected->statistics;
    const size_t rows = got->rows;
    assert_all_near(got->lse, expected->lse, rows, 4e-6, "lse");
    assert_all_near(g->entropy, e->entropy, rows, 2e-5, "entropy");
    assert_all_near(g->largest_weight, e->largest_weight, rows, 8e-6, "largest weight");
    assert_all_near(g->distance, e->distance, rows, 8e-6, "distance");
    /* A difference of what lies before and after: relative to the distance. */
    for (size_t i = 0; i < rows; i++)
        assert_near(g->signed_distance[i], e->signed_distance[i],
                    8e-6 * fmax(1.0, (double)e->distance[i]), "signed distance", i);
    assert_all_near(g->first_key_mass, e->first_key_mass, rows, 8e-6, "first key mass");
    assert_all_near(g->own_mass, e->own_mass, rows, 8e-6, "own mass");
    assert_all_near(g->previous_mass, e->previous_mass, rows, 8e-6, "previous mass");
    assert_all_near(g->next_mass, e->next_mass, rows, 8e-6, "next mass");
    assert_all_near(g->class_mass, e->class_mass, rows * RESULT_CLASSES, 8e-6, "class");
    assert_all_near(g->received, e->received,
                    (size_t)(p->shape.B * p->shape.H * p->shape.Lk), 8e-6, "received");
    assert_all_near(g->top_weight, e->top_weight, rows * RESULT_TOP, 8e-6, "top weight");
    for (size_t i = 0; i < rows; i++)
        if (g->visible_keys[i] != e->visible_keys[i])
            fail_msg("seed %d: visible keys %d are %d, expected %d", (int)problem_seed(),
                     (int)i, (int)g->visible_keys[i], (int)e->visible_keys[i]);
}
