/* attn_forward on every instruction set of this machine, against the double-precision
 * reference: hundreds of random problems with every option and all statistics, then the
 * properties the header promises. */
#include "attention/reference.h"
#include "near.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed; /* names the problem in a failure */

/* Keys may differ from the reference's where weights are equal within the error.  A key
 * with a score of −∞ is seen and counted, but has no place. */
static void assert_keys_of_row_right(const struct attn_reference_row *row,
                                     const struct results *got, const int64_t *places,
                                     size_t n)
{
    const int64_t *const top = got->statistics.top_key + n * RESULT_TOP;
    assert_int_equal(got->statistics.largest_key[n], top[0]);
    for (int t = 0; t < RESULT_TOP; t++) {
        if (places[t] == -1) {
            assert_int_equal(top[t], -1);
            continue;
        }
        assert_in_range(top[t], 0, row->keys - 1);
        assert_near(got->statistics.top_weight[n * RESULT_TOP + (size_t)t],
                    (float)row->weight[top[t]], 8e-6, "weight of top key", n);
        for (int other = 0; other < t; other++)
            assert_int_not_equal(top[t], top[other]);
    }
}

static void assert_keys_right(const struct problem *p, const struct results *got,
                              size_t levels, const struct results *expected)
{
    const attn_shape *const s = &p->shape;
    const attn_tensors tensors = problem_tensors(p, expected);
    struct attn_reference_row row;
    assert_true(attn_reference_row_create(&row, s));
    for (size_t n = 0; n < expected->rows; n++) {
        const int64_t i = (int64_t)n % s->Lq, h = (int64_t)n / s->Lq % s->H;
        const int64_t b = (int64_t)n / s->Lq / s->H;
        attn_reference_attend(&row, s, &tensors, &p->options, b, h, i);
        if (isnan(row.lse))
            continue;
        const int64_t *const places = expected->statistics.top_key + n * RESULT_TOP;
        for (size_t level = 0; level < levels; level++)
            assert_keys_of_row_right(&row, &got[level], places, n);
    }
    attn_reference_row_destroy(&row);
}

static void assert_results_near(const struct problem *p, const struct results *got,
                                const struct results *expected)
{
    const int64_t *const extent = got->output.extent;
    const double growth =
        p->options.dropout > 0.0 ? 1.0 / (1.0 - p->options.dropout) : 1.0;
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t l = 0; l < extent[2]; l++)
                for (int64_t d = 0; d < extent[3]; d++)
                    assert_near(*tensor_at(&got->output, b, h, l, d),
                                *tensor_at(&expected->output, b, h, l, d),
                                4e-6 * 2.0 * growth, "output",
                                (size_t)((b * extent[1] + h) * extent[2] + l));
    assert_statistics_near(p, got, expected);
}

/* Whatever was not an output element is still NaN: nothing was written between or behind.
 */
static void assert_gaps_untouched(const struct tensor *t)
{
    int64_t written = 0, elements = 1;
    for (size_t i = 0; i < t->floats; i++)
        written += !isnan(t->memory[i]);
    for (int axis = 0; axis < 4; axis++)
        elements *= t->extent[axis];
    if (written > elements)
        fail_msg("seed %d: %d floats written, expected %d", (int)seed, (int)written,
                 (int)elements);
}

/* The reference takes longer than all levels together: it computes a problem once. */
static void check_random(uint64_t problems, unsigned rules)
{
    attn_context *contexts[LEVELS_MOST];
    const size_t levels = contexts_create(contexts);
    for (seed = 0; seed < problems; seed++) {
        struct problem p = problem_create(seed, rules);
        struct results got[LEVELS_MOST], expected = results_create(&p);
        const attn_tensors to_expected = problem_tensors(&p, &expected);
        assert_int_equal(attn_forward_reference(&p.shape, &to_expected, &p.options),
                         ATTN_OK);
        for (size_t n = 0; n < levels; n++) {
            got[n] = results_create(&p);
            problem_forward(contexts[n], &p, &got[n]);
            assert_results_near(&p, &got[n], &expected);
            assert_gaps_untouched(&got[n].output);
        }
        assert_keys_right(&p, got, levels, &expected);
        for (size_t n = 0; n < levels; n++)
            results_destroy(&got[n]);
        results_destroy(&expected), problem_destroy(&p);
    }
    contexts_destroy(contexts, levels);
}

static void every_level_agrees_with_the_reference(void **state)
{
    (void)state;
    check_random(150, 0);
}

/* As many as are multiplied by tiles where there are such. */
static void many_queries_agree_with_the_reference(void **state)
{
    (void)state;
    check_random(60, RULES_ALL | RULE_MANY);
}

static void padded_and_packed_sequences_agree_with_the_reference(void **state)
{
    (void)state;
    check_random(100, RULE_LENGTHS | RULE_PACKED);
}

static void every_rule_agrees_with_the_reference(void **state)
{
    (void)state;
    check_random(250, RULES_ALL);
}

static void linear_scores_with_every_rule_agree_with_the_reference(void **state)
{
    (void)state;
    check_random(150, (RULES_ALL & ~RULE_ADDITIVE) | RULE_LINEAR);
}

static void sequences_of_one_query_agree_with_the_reference(void **state)
{
    (void)state;
    check_random(250, RULES_ALL | RULE_ONE_QUERY);
}

static void assert_same_bits(const struct results *a, const struct results *b)
{
    if (memcmp(a->output.memory, b->output.memory, a->output.floats * sizeof(float)) != 0)
        fail_msg("seed %d: outputs differ", (int)seed);
    assert_memory_equal(a->lse, b->lse, a->rows * sizeof(float));
}

static void check_statistics_leave_output_alone(attn_context *context)
{
    for (seed = 0; seed < 120; seed++) {
        struct problem p =
            problem_create(seed, seed % 2 ? RULES_ALL : RULES_ALL | RULE_ONE_QUERY);
        struct results with = results_create(&p), without = with;
        without.output.memory = malloc(with.output.floats * sizeof(float));
        without.lse = malloc(with.rows * sizeof(float) + 1);
        assert_true(without.output.memory && without.lse);
        memcpy(without.output.memory, with.output.memory,
               with.output.floats * sizeof(float));
        without.output.data =
            without.output.memory + (with.output.data - with.output.memory);
        without.statistics = (attn_statistics){0};
        problem_forward(context, &p, &with);
        problem_forward(context, &p, &without);
        assert_same_bits(&with, &without);
        free(without.output.memory), free(without.lse);
        results_destroy(&with), problem_destroy(&p);
    }
}

static void asking_for_statistics_changes_no_bit_of_the_output(void **state)
{
    (void)state;
    on_every_level(check_statistics_leave_output_alone);
}

/* Causal, 70 queries and keys: rows from 20 on see the NaN, and only they may change. */
static void check_nan_reaches_rows_that_see_it(attn_context *context)
{
    enum { L = 70, D = 9, SEEN_FROM = 20, COLUMN = 3 };
    float query[L * D], key[L * D], value[L * D], clean[L * D], got[L * D];
    for (int i = 0; i < L * D; i++) {
        query[i] = random_float();
        key[i] = random_float();
        value[i] = random_float();
    }
    const attn_shape shape = {1, 1, 1, L, L, D, D};
    attn_tensors tensors = {.query = attn_input_dense(query, 1, L, D),
                            .key = attn_input_dense(key, 1, L, D),
                            .value = attn_input_dense(value, 1, L, D),
                            .output = attn_output_dense(clean, 1, L, D)};
    attn_options options;
    attn_options_init(&options, &shape);
    options.causal = true;
    assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_OK);

    tensors.output.data = got;
    float *const poisoned[] = {key, value};
    for (int which = 0; which < 2; which++) {
        float *const x = &poisoned[which][SEEN_FROM * D + COLUMN];
        const float kept = *x;
        *x = NAN;
        assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_OK);
        *x = kept;
        for (int i = 0; i < L * D; i++) {
            const bool hit = i / D >= SEEN_FROM &&
                             (x != value + SEEN_FROM * D + COLUMN || i % D == COLUMN);
            assert_true(hit ? isnan(got[i]) : got[i] == clean[i]);
        }
    }
}

static void nan_reaches_the_rows_that_see_it_and_no_other(void **state)
{
    (void)state;
    on_every_level(check_nan_reaches_rows_that_see_it);
}

/* A stride that wraps around would look like one that fits. */
static void sizes_whose_products_overflow_are_refused(void **state)
{
    (void)state;
    const int64_t huge = (int64_t)1 << 40;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    float x[6] = {0.0f}, mass[3], output[3];
    const uint8_t classes[3] = {0};
    const attn_shape shape = {3, 1, 1, 1, 1, 1, 1};
    attn_options options;
    attn_options_init(&options, &shape);
    attn_tensors tensors = {.query = attn_input_dense(x, 1, huge, huge),
                            .key = attn_input_dense(x, 1, 1, 1),
                            .value = attn_input_dense(x, 1, 1, 1),
                            .output = attn_output_dense(output, 1, 1, 1)};
    assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_EINVAL);
    assert_non_null(strstr(attn_context_message(context), "tensors.query.stride[0]"));

    tensors.query = attn_input_dense(x, 1, 1, 1);
    tensors.statistics = (attn_statistics){.key_class = classes,
                                           .key_class_stride = (int64_t)1 << 62,
                                           .classes = 1,
                                           .class_mass = mass};
    assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_EINVAL);
    assert_non_null(
        strstr(attn_context_message(context), "statistics.key_class.stride[0]"));
    attn_context_destroy(context);
}

static void assert_message(const attn_context *context, attn_status status,
                           const char *expected)
{
    assert_int_equal(status, ATTN_EINVAL);
    assert_string_equal(attn_context_message(context), expected);
}

static void what_is_not_given_is_named(void **state)
{
    (void)state;
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    struct problem p = problem_create(1, 0);
    struct results r = results_create(&p);
    const attn_tensors t = problem_tensors(&p, &r);
    const attn_shape *const s = &p.shape;
    const attn_options *const o = &p.options;
    attn_plan plan;
    float weights = 0.0f;
#define GIVEN " is NULL, expected it to be given"
    assert_message(c, attn_forward(c, NULL, &t, o), "attn_forward: shape" GIVEN);
    assert_message(c, attn_forward(c, s, NULL, o), "attn_forward: tensors" GIVEN);
    assert_message(c, attn_forward(c, s, &t, NULL), "attn_forward: options" GIVEN);
    assert_message(c, attn_plan_forward(c, s, &t, o, NULL),
                   "attn_plan_forward: plan" GIVEN);
    assert_message(c, attn_backward(c, s, &t, o, NULL), "attn_backward: gradients" GIVEN);
    assert_message(c, attn_plan_backward(c, s, &t, o, NULL, &plan),
                   "attn_plan_backward: gradients" GIVEN);
    assert_message(c, attn_plan_backward(c, s, &t, o, &(attn_gradients){0}, NULL),
                   "attn_plan_backward: plan" GIVEN);
    assert_message(c, attn_weights(c, s, &t, o, NULL, &weights, 1),
                   "attn_weights: rectangle" GIVEN);
#undef GIVEN
    results_destroy(&r), problem_destroy(&p);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_given_is_named),
        cmocka_unit_test(sizes_whose_products_overflow_are_refused),
        cmocka_unit_test(every_level_agrees_with_the_reference),
        cmocka_unit_test(many_queries_agree_with_the_reference),
        cmocka_unit_test(padded_and_packed_sequences_agree_with_the_reference),
        cmocka_unit_test(every_rule_agrees_with_the_reference),
        cmocka_unit_test(linear_scores_with_every_rule_agree_with_the_reference),
        cmocka_unit_test(sequences_of_one_query_agree_with_the_reference),
        cmocka_unit_test(asking_for_statistics_changes_no_bit_of_the_output),
        cmocka_unit_test(nan_reaches_the_rows_that_see_it_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
