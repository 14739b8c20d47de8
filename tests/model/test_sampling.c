/* Sampling: each cut keeps exactly what it says, and draws have the probabilities. */
#include "base/context.h"
#include "model/sampling.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VOCABULARY = 6 };

/* Logarithms of .4 .05 .3 .15 .1 and of nothing. */
static void fill_logits(float *logits)
{
    const double probabilities[] = {0.4, 0.05, 0.3, 0.15, 0.1, 0.0};
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = (float)log(probabilities[i]);
}

static attn_sampling_options with_temperature(double temperature)
{
    attn_sampling_options options;
    attn_sampling_options_init(&options);
    options.temperature = temperature;
    return options;
}

/* The ids that are left, in order, and their probabilities. */
static void expect_over(const attn_sampling_options *options, const float *logits,
                        const int32_t *before, size_t before_count, const int32_t *ids,
                        const double *probabilities, size_t expected)
{
    attn_candidate candidates[VOCABULARY];
    attn_error error;
    size_t count;
    if (attn_sampling_candidates(options, logits, VOCABULARY, before, before_count,
                                 (double)INFINITY, candidates, &count, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(count, expected);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(candidates[i].id, ids[i]);
        if (fabs(candidates[i].probability - probabilities[i]) > 1e-7)
            fail_msg("candidate %zu has %g, expected %g", i, candidates[i].probability,
                     probabilities[i]);
    }
}

static void expect(const attn_sampling_options *options, const int32_t *ids,
                   const double *probabilities, size_t expected)
{
    float logits[VOCABULARY];
    fill_logits(logits);
    expect_over(options, logits, NULL, 0, ids, probabilities, expected);
}

static void temperature_0_is_the_largest_and_the_lower_id_on_a_tie(void **state)
{
    (void)state;
    const float logits[VOCABULARY] = {1.0f, 3.0f, -2.0f, 3.0f, 3.0f, 0.0f};
    const attn_sampling_options options = with_temperature(0.0);
    expect_over(&options, logits, NULL, 0, (const int32_t[]){1}, (const double[]){1.0},
                1);
}

static void temperature_1_is_the_distribution(void **state)
{
    (void)state;
    const attn_sampling_options options = with_temperature(1.0);
    expect(&options, (const int32_t[]){0, 2, 3, 4, 1},
           (const double[]){0.4, 0.3, 0.15, 0.1, 0.05}, 5);
}

/* Half the temperature squares the probabilities: .16 .09 .0225 .01 .0025 of .285. */
static void a_lower_temperature_sharpens(void **state)
{
    (void)state;
    const attn_sampling_options options = with_temperature(0.5);
    expect(&options, (const int32_t[]){0, 2, 3, 4, 1},
           (const double[]){0.16 / 0.285, 0.09 / 0.285, 0.0225 / 0.285, 0.01 / 0.285,
                            0.0025 / 0.285},
           5);
}

static void top_k_keeps_the_k_largest(void **state)
{
    (void)state;
    attn_sampling_options options = with_temperature(1.0);
    options.top_k = 2;
    expect(&options, (const int32_t[]){0, 2}, (const double[]){4.0 / 7.0, 3.0 / 7.0}, 2);
    options.top_k = 100;
    expect(&options, (const int32_t[]){0, 2, 3, 4, 1},
           (const double[]){0.4, 0.3, 0.15, 0.1, 0.05}, 5);
}

static void top_p_keeps_the_one_that_reaches_it(void **state)
{
    (void)state;
    attn_sampling_options options = with_temperature(1.0);
    options.top_p = 0.69;
    expect(&options, (const int32_t[]){0, 2}, (const double[]){4.0 / 7.0, 3.0 / 7.0}, 2);
    options.top_p = 0.71;
    expect(&options, (const int32_t[]){0, 2, 3},
           (const double[]){0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85}, 3);
    options.top_p = 1e-9;
    expect(&options, (const int32_t[]){0}, (const double[]){1.0}, 1);
}

/* After the k largest are 4/7 and 3/7, .57 is reached by the first alone. */
static void top_p_is_of_what_top_k_left(void **state)
{
    (void)state;
    attn_sampling_options options = with_temperature(1.0);
    options.top_k = 2;
    options.top_p = 0.57;
    expect(&options, (const int32_t[]){0}, (const double[]){1.0}, 1);
}

static void min_p_keeps_a_part_of_the_largest(void **state)
{
    (void)state;
    attn_sampling_options options = with_temperature(1.0);
    options.min_p = 0.3; /* at least .12 */
    expect(&options, (const int32_t[]){0, 2, 3},
           (const double[]){0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85}, 3);
    options.min_p = 1.0;
    expect(&options, (const int32_t[]){0}, (const double[]){1.0}, 1);
}

/* 2 is divided where it is positive, −1 multiplied, once however often it came. */
static void the_penalty_lowers_what_was_there_once(void **state)
{
    (void)state;
    const float logits[VOCABULARY] = {2.0f, 1.5f, -1.0f, -1e30f, -1e30f, -1e30f};
    const int32_t before[] = {0, 2, 0, 0, 77};
    attn_sampling_options options = with_temperature(0.0);
    expect_over(&options, logits, before, 5, (const int32_t[]){0}, (const double[]){1.0},
                1);
    options.repetition_penalty = 2.0;
    expect_over(&options, logits, before, 5, (const int32_t[]){1}, (const double[]){1.0},
                1);
    options.temperature = 1.0;
    options.top_k = 3;
    const double sum = exp(1.0) + exp(1.5) + exp(-2.0);
    expect_over(&options, logits, before, 5, (const int32_t[]){1, 0, 2},
                (const double[]){exp(1.5) / sum, exp(1.0) / sum, exp(-2.0) / sum}, 3);
}

static void what_is_never_written_is_left_out(void **state)
{
    (void)state;
    const int32_t never[] = {0, 3, -1, 99};
    attn_sampling_options options = with_temperature(1.0);
    options.never = never;
    options.never_count = 4;
    expect(&options, (const int32_t[]){2, 4, 1},
           (const double[]){0.3 / 0.45, 0.1 / 0.45, 0.05 / 0.45}, 3);
}

static void draws_have_the_probabilities(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    static const double probabilities[] = {0.3, 0.1, 0.6};
    const attn_sampling_options options = with_temperature(1.0);
    int times[3] = {0}, same = 0;
    float logits[3];
    for (int i = 0; i < 3; i++)
        logits[i] = (float)log(probabilities[i]);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        int32_t drawn[2];
        for (uint64_t seed = 1; seed <= 2; seed++) {
            attn_candidate candidates[3];
            attn_error error;
            size_t count;
            assert_int_equal(attn_sampling_candidates(&options, logits, 3, NULL, 0,
                                                      attn_sampling_point(seed, draw),
                                                      candidates, &count, &error),
                             ATTN_OK);
            drawn[seed - 1] = candidates[count - 1].id;
        }
        same += drawn[0] == drawn[1];
        times[drawn[0]]++;
    }
    for (int i = 0; i < 3; i++) { /* within 5 standard deviations */
        const double p = probabilities[i];
        assert_true(fabs(times[i] - p * DRAWS) < 5.0 * sqrt(p * (1.0 - p) * DRAWS));
    }
    /* Another seed is another text: equal by chance only, .36 + .09 + .01. */
    assert_true(fabs(same - 0.46 * DRAWS) < 5.0 * sqrt(0.46 * 0.54 * DRAWS));
}

/* A draw sorts no more than it needs: what it sees is as if all were sorted. */
static void a_draw_sees_the_first_of_all_candidates(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static float logits[MANY];
    static attn_candidate all[MANY], seen[MANY];
    attn_sampling_options options = with_temperature(1.0);
    for (int i = 0; i < MANY; i++) /* in steps that make ties */
        logits[i] = floorf(16.0f * (float)sin(7.0 * i) * (float)cos(3.0 * i)) / 2.0f;
    for (int round = 0; round < 40; round++) {
        attn_error error;
        size_t count, seen_count;
        const double point = attn_sampling_point(3, (uint64_t)round);
        options.temperature = round % 4 == 0 ? 5.0 : 1.0;
        options.top_p = round % 3 == 0 ? 0.8 : 1.0;
        options.top_k = round % 5 == 0 ? 700 : 0;
        options.min_p = round % 7 == 0 ? 0.01 : 0.0;
        assert_int_equal(attn_sampling_candidates(&options, logits, MANY, NULL, 0,
                                                  (double)INFINITY, all, &count, &error),
                         ATTN_OK);
        assert_int_equal(attn_sampling_candidates(&options, logits, MANY, NULL, 0, point,
                                                  seen, &seen_count, &error),
                         ATTN_OK);
        assert_true(seen_count <= count);
        double sum = 0.0;
        for (size_t i = 0; i < seen_count; i++) {
            assert_true(sum <= point);
            assert_memory_equal(&seen[i], &all[i], sizeof all[i]);
            sum += seen[i].probability;
            assert_true(
                i == 0 || seen[i - 1].logit > seen[i].logit ||
                (seen[i - 1].logit == seen[i].logit && seen[i - 1].id < seen[i].id));
        }
        assert_true(sum > point);
    }
}

static void refuses(const attn_sampling_options *options, const char *fragment)
{
    attn_error error;
    assert_int_equal(attn_sampling_check(options, &error), ATTN_EINVAL);
    if (!strstr(error.message, fragment))
        fail_msg("\"%s\" without \"%s\"", error.message, fragment);
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    attn_sampling_options options = with_temperature(-1.0);
    refuses(&options, "temperature is -1, expected 0 to");
    options = with_temperature((double)NAN);
    refuses(&options, "temperature is nan");
    options = with_temperature(1.0);
    options.top_p = 0.0;
    refuses(&options, "top_p is 0, expected more than 0 to 1");
    options.top_p = 1.0;
    options.min_p = 1.5;
    refuses(&options, "min_p is 1.5");
    options.min_p = 0.0;
    options.top_k = -1;
    refuses(&options, "top_k is -1");
    options.top_k = 0;
    options.repetition_penalty = 0.0;
    refuses(&options, "repetition_penalty is 0, expected more than 0");
}

static void logits_of_a_broken_model_are_refused(void **state)
{
    (void)state;
    const attn_sampling_options options = with_temperature(1.0);
    attn_candidate candidates[2];
    attn_error error;
    size_t count;
    assert_int_equal(attn_sampling_candidates(&options, (const float[]){0.0f, NAN}, 2,
                                              NULL, 0, 0.5, candidates, &count, &error),
                     ATTN_ENOTFINITE);
    assert_non_null(strstr(error.message, "token 1 is nan"));
    assert_int_equal(attn_sampling_candidates(&options,
                                              (const float[]){-INFINITY, -INFINITY}, 2,
                                              NULL, 0, 0.5, candidates, &count, &error),
                     ATTN_ENOTFINITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_0_is_the_largest_and_the_lower_id_on_a_tie),
        cmocka_unit_test(temperature_1_is_the_distribution),
        cmocka_unit_test(a_lower_temperature_sharpens),
        cmocka_unit_test(top_k_keeps_the_k_largest),
        cmocka_unit_test(top_p_keeps_the_one_that_reaches_it),
        cmocka_unit_test(top_p_is_of_what_top_k_left),
        cmocka_unit_test(min_p_keeps_a_part_of_the_largest),
        cmocka_unit_test(the_penalty_lowers_what_was_there_once),
        cmocka_unit_test(what_is_never_written_is_left_out),
        cmocka_unit_test(draws_have_the_probabilities),
        cmocka_unit_test(a_draw_sees_the_first_of_all_candidates),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(logits_of_a_broken_model_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
