/* AdamW against the formulas written out in double precision. */
#include "base/mix.h"
#include "train/optimiser.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.10g is not within %g of %.10g", value, tolerance, expected);
}

/* A matrix longer than a chunk, a vector, a matrix of odd size; with gaps between. */
enum { SIZE = 64 * 600 + 48 + 32, STEPS = 12, SHARDS = 3 };

struct fixture {
    attn_parameter list[3];
    attn_parameters parameters;
    float *gradients[SHARDS];
};

static float random_float(uint64_t seed, uint64_t n)
{
    return (float)(2.0 * attn_mix_unit(seed, n) - 1.0);
}

static void set_up(struct fixture *fixture)
{
    *fixture = (struct fixture){
        .list = {{"a", 2, {64, 600}, 0, 38400, ATTN_INITIAL_ZEROS, true},
                 {"b", 1, {41}, 38400, 41, ATTN_INITIAL_ZEROS, false},
                 {"c", 2, {3, 7}, 38448, 21, ATTN_INITIAL_ZEROS, true}},
    };
    fixture->parameters =
        (attn_parameters){fixture->list, 3, 3, SIZE, attn_floats_allocate(SIZE)};
    for (size_t s = 0; s < SHARDS; s++)
        fixture->gradients[s] = attn_floats_allocate(SIZE);
    for (size_t p = 0; p < 3; p++)
        for (size_t n = 0; n < fixture->list[p].count; n++)
            fixture->parameters.values[fixture->list[p].offset + n] =
                random_float(99, fixture->list[p].offset + n);
}

static void tear_down(struct fixture *fixture)
{
    free(fixture->parameters.values);
    for (size_t s = 0; s < SHARDS; s++)
        free(fixture->gradients[s]);
}

static void fill_gradients(struct fixture *fixture, int64_t step)
{
    for (size_t s = 0; s < SHARDS; s++)
        for (size_t p = 0; p < 3; p++)
            for (size_t n = 0; n < fixture->list[p].count; n++) {
                const size_t at = fixture->list[p].offset + n;
                fixture->gradients[s][at] =
                    random_float((uint64_t)step * SHARDS + s, at) *
                    (step % 2 ? 1.0f : 1e-3f);
            }
}

static const attn_optimiser_options OPTIONS = {
    .beta1 = 0.9,
    .beta2 = 0.98,
    .epsilon = 1e-9,
    .weight_decay = 0.1,
    .clip = 1.0,
    .average = 0.9,
};

static void run(struct fixture *fixture, attn_optimiser *optimiser, pthreadpool_t pool)
{
    for (int64_t step = 1; step <= STEPS; step++) {
        fill_gradients(fixture, step);
        const double norm =
            attn_optimiser_reduce(optimiser, pool, fixture->gradients, SHARDS);
        attn_optimiser_step(optimiser, pool, fixture->parameters.values,
                            fixture->gradients[0], norm, 1e-2 / (double)step, step);
    }
}

struct reference {
    double value, first, second, average;
};

static void step_reference(struct reference *reference, const struct fixture *fixture,
                           int64_t step)
{
    static double gradient[SIZE];
    const attn_optimiser_options *const o = &OPTIONS;
    const double t = (double)step, rate = 1e-2 / t;
    double squares = 0.0;
    memset(gradient, 0, sizeof gradient);
    for (size_t n = 0; n < SIZE; n++) {
        for (size_t s = 0; s < SHARDS; s++)
            gradient[n] += (double)fixture->gradients[s][n];
        squares += gradient[n] * gradient[n];
    }
    const double norm = sqrt(squares);
    const double scale = norm > o->clip ? o->clip / norm : 1.0;
    const double kept = fmin(o->average, (1.0 + t) / (10.0 + t));
    for (size_t p = 0; p < 3; p++)
        for (size_t n = 0; n < fixture->list[p].count; n++) {
            struct reference *const r = &reference[fixture->list[p].offset + n];
            const double g = gradient[fixture->list[p].offset + n] * scale;
            r->first = o->beta1 * r->first + (1.0 - o->beta1) * g;
            r->second = o->beta2 * r->second + (1.0 - o->beta2) * g * g;
            const double m = r->first / (1.0 - pow(o->beta1, t));
            const double v = r->second / (1.0 - pow(o->beta2, t));
            const double decay = fixture->list[p].decays ? o->weight_decay : 0.0;
            r->value -= rate * (m / (sqrt(v) + o->epsilon) + decay * r->value);
            r->average += (1.0 - kept) * (r->value - r->average);
        }
}

static void steps_agree_with_the_formulas_in_double(void **state)
{
    (void)state;
    static struct reference reference[SIZE];
    struct fixture fixture;
    attn_optimiser optimiser;
    attn_error error;
    set_up(&fixture);
    for (size_t n = 0; n < SIZE; n++)
        reference[n].value = reference[n].average = (double)fixture.parameters.values[n];
    assert_int_equal(
        attn_optimiser_create(&optimiser, &OPTIONS, &fixture.parameters, &error),
        ATTN_OK);
    run(&fixture, &optimiser, NULL);
    for (int64_t step = 1; step <= STEPS; step++) {
        fill_gradients(&fixture, step);
        step_reference(reference, &fixture, step);
    }
    for (size_t n = 0; n < SIZE; n++) {
        assert_near((double)fixture.parameters.values[n], reference[n].value, 2e-6);
        assert_near((double)optimiser.average[n], reference[n].average, 2e-6);
    }
    attn_optimiser_free(&optimiser);
    tear_down(&fixture);
}

static void the_norm_is_that_of_the_sum(void **state)
{
    (void)state;
    struct fixture fixture;
    attn_optimiser optimiser;
    attn_error error;
    set_up(&fixture);
    assert_int_equal(
        attn_optimiser_create(&optimiser, &OPTIONS, &fixture.parameters, &error),
        ATTN_OK);
    fill_gradients(&fixture, 1);
    double squares = 0.0;
    for (size_t n = 0; n < SIZE; n++) {
        double sum = 0.0;
        for (size_t s = 0; s < SHARDS; s++)
            sum += (double)fixture.gradients[s][n];
        squares += sum * sum;
    }
    const double norm =
        attn_optimiser_reduce(&optimiser, NULL, fixture.gradients, SHARDS);
    assert_near(norm / sqrt(squares), 1.0, 1e-4);
    attn_optimiser_free(&optimiser);
    tear_down(&fixture);
}

static void two_threads_give_the_bits_of_one(void **state)
{
    (void)state;
    struct fixture one, two;
    attn_optimiser first, second;
    attn_error error;
    set_up(&one);
    set_up(&two);
    assert_int_equal(attn_optimiser_create(&first, &OPTIONS, &one.parameters, &error),
                     ATTN_OK);
    assert_int_equal(attn_optimiser_create(&second, &OPTIONS, &two.parameters, &error),
                     ATTN_OK);
    pthreadpool_t pool = pthreadpool_create(2);
    run(&one, &first, NULL);
    run(&two, &second, pool);
    pthreadpool_destroy(pool);
    assert_memory_equal(one.parameters.values, two.parameters.values,
                        SIZE * sizeof(float));
    assert_memory_equal(first.average, second.average, SIZE * sizeof(float));
    attn_optimiser_free(&first);
    attn_optimiser_free(&second);
    tear_down(&one);
    tear_down(&two);
}

static void a_gradient_that_is_not_a_number_gives_such_a_norm(void **state)
{
    (void)state;
    struct fixture fixture;
    attn_optimiser optimiser;
    attn_error error;
    set_up(&fixture);
    assert_int_equal(
        attn_optimiser_create(&optimiser, &OPTIONS, &fixture.parameters, &error),
        ATTN_OK);
    fill_gradients(&fixture, 1);
    fixture.gradients[2][38448] = NAN;
    assert_false(
        isfinite(attn_optimiser_reduce(&optimiser, NULL, fixture.gradients, SHARDS)));
    attn_optimiser_free(&optimiser);
    tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_agree_with_the_formulas_in_double),
        cmocka_unit_test(the_norm_is_that_of_the_sum),
        cmocka_unit_test(two_threads_give_the_bits_of_one),
        cmocka_unit_test(a_gradient_that_is_not_a_number_gives_such_a_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
