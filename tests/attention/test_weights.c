/* attn_weights: rectangles of random problems against the reference, with lse and
 * without. */
#include "attention/reference.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed;

static attn_rectangle choose_rectangle(const attn_shape *s)
{
    attn_rectangle r = {.b = random_below(s->B), .h = random_below(s->H)};
    r.first_query = random_below(s->Lq + 1);
    r.queries = random_below(s->Lq - r.first_query + 1);
    r.first_key = random_below(s->Lk + 1);
    r.keys = random_below(s->Lk - r.first_key + 1);
    return r;
}

static void assert_weights_near(const struct problem *p, const attn_tensors *tensors,
                                const attn_rectangle *r, const float *weights,
                                int64_t stride)
{
    struct attn_reference_row row;
    assert_true(attn_reference_row_create(&row, &p->shape));
    for (int64_t i = 0; i < r->queries; i++) {
        attn_reference_attend(&row, &p->shape, tensors, &p->options, r->b, r->h,
                              r->first_query + i);
        for (int64_t j = 0; j < stride; j++) {
            const float got = weights[i * stride + j];
            const int64_t key = r->first_key + j - row.first_key;
            const bool inside = key >= 0 && key < row.keys;
            const double expected = j >= r->keys ? 77.0 : inside ? row.weight[key] : 0.0;
            if (!(fabs((double)got - expected) <= 8e-6) &&
                !(isnan(got) && isnan(expected)))
                fail_msg("seed %d: weight %d %d is %.9g, expected %.9g", (int)seed,
                         (int)i, (int)j, (double)got, expected);
        }
    }
    attn_reference_row_destroy(&row);
}

static void check_rectangles(attn_context *context)
{
    for (seed = 1000; seed < 1200; seed++) {
        struct problem p = problem_create(
            seed, seed % 4 ? RULES_ALL : (RULES_ALL & ~RULE_ADDITIVE) | RULE_LINEAR);
        struct results results = results_create(&p);
        attn_tensors tensors = problem_tensors(&p, &results);
        assert_int_equal(attn_forward(context, &p.shape, &tensors, &p.options), ATTN_OK);
        const attn_rectangle r = choose_rectangle(&p.shape);
        const int64_t stride = r.keys + random_below(3);
        const size_t floats = (size_t)(r.queries * stride);
        float *const weights = allocate(floats, sizeof *weights);
        for (int with_lse = 0; with_lse < 2; with_lse++) {
            for (size_t n = 0; n < floats; n++)
                weights[n] = 77.0f;
            tensors.lse = with_lse ? results.lse : NULL;
            assert_ok(context, attn_weights(context, &p.shape, &tensors, &p.options, &r,
                                            weights, stride));
            assert_weights_near(&p, &tensors, &r, weights, stride);
        }
        free(weights);
        results_destroy(&results), problem_destroy(&p);
    }
}

static void any_rectangle_agrees_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_rectangles);
}

static void a_rectangle_beyond_the_shape_is_refused(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    const float x[4] = {0};
    float weights[4] = {7.0f};
    const attn_shape shape = {1, 1, 1, 2, 2, 1, 1};
    const attn_tensors tensors = {.query = attn_input_dense(x, 1, 2, 1),
                                  .key = attn_input_dense(x, 1, 2, 1)};
    attn_options options;
    attn_options_init(&options, &shape);
    const struct {
        attn_rectangle rectangle;
        int64_t stride;
        const char *message;
    } cases[] = {
        {{0, 0, 1, 2, 0, 2},
         2,
         "attn_weights: rectangle has 2 queries from 1 on, expected them within 0 to 2"},
        {{0, 0, 0, 2, -1, 2},
         2,
         "attn_weights: rectangle has 2 keys from -1 on, expected them within 0 to 2"},
        {{0, 1, 0, 2, 0, 2},
         2,
         "attn_weights: rectangle has 1 head from 1 on, expected them within 0 to 1"},
        {{0, 0, 0, 2, 0, 2},
         1,
         "attn_weights: row_stride is 1, expected at least the rectangle's keys, 2"},
        {{0, 0, 0, 2, 0, 2},
         INT64_MAX,
         "attn_weights: weights.stride[2] is 9223372036854775807 for 1 steps, expected "
         "offsets that fit 64 bits"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        assert_int_equal(attn_weights(context, &shape, &tensors, &options,
                                      &cases[n].rectangle, weights, cases[n].stride),
                         ATTN_EINVAL);
        assert_string_equal(attn_context_message(context), cases[n].message);
        assert_true(weights[0] == 7.0f);
    }
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_rectangle_agrees_with_the_reference),
        cmocka_unit_test(a_rectangle_beyond_the_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
