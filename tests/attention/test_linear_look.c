/* A look into linear attention: statistics and log-sum-exp of attn_linear_forward against
 * the reference, what they may not change, rows worked by hand, and what is refused. */
#include "attention/reference.h"
#include "attn/linear.h"
#include "dense.h"
#include "near.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Random problems ------------------------------------------------------------------
 */

enum { RULES = RULE_LENGTHS | RULE_PACKED | RULE_LINEAR };

/* Whether linear attention has all that the problem asks for. */
static bool is_linear(const struct problem *p)
{
    return p->options.window_left < 0 && p->options.window_right < 0;
}

static void linear_forward(attn_context *context, const struct problem *p,
                           const attn_tensors *tensors)
{
    assert_ok(context,
              attn_linear_forward(context, &p->shape, tensors, &p->options, NULL));
}

static void assert_outputs_near(const struct results *got, const struct results *expected)
{
    const int64_t *const e = got->output.extent;
    for (int64_t b = 0; b < e[0]; b++)
        for (int64_t h = 0; h < e[1]; h++)
            for (int64_t l = 0; l < e[2]; l++)
                for (int64_t d = 0; d < e[3]; d++)
                    assert_near(*tensor_at(&got->output, b, h, l, d),
                                *tensor_at(&expected->output, b, h, l, d), 2e-5, "output",
                                (size_t)((b * e[1] + h) * e[2] + l));
}

static void check_statistics(attn_context *context)
{
    int tried = 0;
    for (uint64_t seed = 0; tried < 60; seed++) {
        struct problem p = problem_create(seed, RULES);
        if (is_linear(&p)) {
            struct results got = results_create(&p), expected = results_create(&p);
            const attn_tensors to_expected = problem_tensors(&p, &expected);
            const attn_tensors to_got = problem_tensors(&p, &got);
            assert_int_equal(attn_forward_reference(&p.shape, &to_expected, &p.options),
                             ATTN_OK);
            linear_forward(context, &p, &to_got);
            assert_outputs_near(&got, &expected);
            assert_statistics_near(&p, &got, &expected);
            results_destroy(&got), results_destroy(&expected);
            tried++;
        }
        problem_destroy(&p);
    }
}

static void statistics_agree_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_statistics);
}

static void check_output_alone(attn_context *context)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct problem p = problem_create(seed, RULES);
        if (is_linear(&p)) {
            struct results results = results_create(&p);
            const size_t bytes = results.output.floats * sizeof(float);
            float *const looked_at = malloc(bytes);
            assert_non_null(looked_at);
            attn_tensors tensors = problem_tensors(&p, &results);
            linear_forward(context, &p, &tensors);
            memcpy(looked_at, results.output.memory, bytes);
            tensors.lse = NULL;
            tensors.statistics = (attn_statistics){0};
            linear_forward(context, &p, &tensors);
            assert_memory_equal(looked_at, results.output.memory, bytes);
            free(looked_at);
            results_destroy(&results);
        }
        problem_destroy(&p);
    }
}

static void asking_for_statistics_changes_no_bit_of_the_output(void **state)
{
    (void)state;
    on_every_level(check_output_alone);
}

/* ---- Threads --------------------------------------------------------------------------
 */

enum { B = 1, H = 3, L = 411, D = 12, Dv = 9, TOP = 3 };

/* Everything in one block of floats; keys beside it. */
struct look {
    float output[B * H * L * Dv], lse[B * H * L], entropy[B * H * L];
    float distance[B * H * L], received[B * H * L], top_weight[B * H * L * TOP];
    int64_t top_key[B * H * L * TOP];
};

static void look_at(attn_context *context, const void *x, attn_type type,
                    struct look *look)
{
    const attn_shape shape = {B, H, 1, L, L, D, Dv};
    attn_options options;
    attn_options_init_linear(&options, &shape, ATTN_FEATURE_ELU);
    options.causal = true;
    const char *const key = (const char *)x + B * H * L * D * attn_type_bytes(type);
    attn_tensors tensors = {
        .query = attn_input_dense(x, H, L, D),
        .key = attn_input_dense(key, 1, L, D),
        .value = attn_input_dense(x, 1, L, Dv),
        .output = attn_output_dense(look->output, H, L, Dv),
        .lse = look->lse,
        .statistics = {.entropy = look->entropy,
                       .distance = look->distance,
                       .received = look->received,
                       .top = TOP,
                       .top_weight = look->top_weight,
                       .top_key = look->top_key},
    };
    tensors.query.type = tensors.key.type = tensors.value.type = type;
    assert_ok(context, attn_linear_forward(context, &shape, &tensors, &options, NULL));
}

static void check_threads(attn_context *context)
{
    float *const x = floats(B * (H + 1) * L * D);
    struct look *const looks = allocate(2, sizeof *looks);
    look_at(context, x, ATTN_F32, &looks[0]);
    for (size_t threads = 2; threads <= 7; threads += 5) {
        const attn_context_options options = {.isa = attn_context_isa(context),
                                              .threads = threads,
                                              .parallel_for = thread_each};
        attn_context *threaded = NULL;
        assert_int_equal(attn_context_create(&threaded, &options), ATTN_OK);
        memset(&looks[1], 0, sizeof looks[1]);
        look_at(threaded, x, ATTN_F32, &looks[1]);
        assert_memory_equal(&looks[0], &looks[1], sizeof looks[0]);
        attn_context_destroy(threaded);
    }
    free(x), free(looks);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    on_every_level(check_threads);
}

/* Numbers that bfloat16 holds, in either type. */
static void check_halves(attn_context *context)
{
    enum { COUNT = B * (H + 1) * L * D };
    float *const x = floats(COUNT);
    uint16_t *const halves = allocate(COUNT, sizeof *halves);
    struct look *const looks = allocate(2, sizeof *looks);
    for (size_t n = 0; n < COUNT; n++) {
        uint32_t bits;
        memcpy(&bits, x + n, sizeof bits);
        halves[n] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(x + n, &bits, sizeof bits);
    }
    look_at(context, x, ATTN_F32, &looks[0]);
    look_at(context, halves, ATTN_BF16, &looks[1]);
    assert_memory_equal(&looks[0], &looks[1], sizeof looks[0]);
    free(x), free(halves), free(looks);
}

static void numbers_of_16_bits_are_looked_at_as_what_they_hold(void **state)
{
    (void)state;
    on_every_level(check_halves);
}

/* ---- By hand --------------------------------------------------------------------------
 */

enum { KEYS = 3 };

/* Two queries of two features, which see three keys. */
struct small {
    float query[4], key[2 * KEYS], value[KEYS];
    float output[2], lse[2], entropy[2], largest_weight[2], received[KEYS];
    float top_weight[2 * KEYS], weights[2 * KEYS];
    int64_t largest_key[2], visible_keys[2], top_key[2 * KEYS];
};

static void look_at_small(attn_context *context, struct small *s, attn_feature feature)
{
    const attn_shape shape = {1, 1, 1, 2, KEYS, 2, 1};
    attn_options options;
    attn_options_init_linear(&options, &shape, feature);
    attn_tensors tensors = {
        .query = attn_input_dense(s->query, 1, 2, 2),
        .key = attn_input_dense(s->key, 1, KEYS, 2),
        .value = attn_input_dense(s->value, 1, KEYS, 1),
        .output = attn_output_dense(s->output, 1, 2, 1),
        .lse = s->lse,
        .statistics = {.entropy = s->entropy,
                       .largest_weight = s->largest_weight,
                       .largest_key = s->largest_key,
                       .visible_keys = s->visible_keys,
                       .received = s->received,
                       .top = KEYS,
                       .top_weight = s->top_weight,
                       .top_key = s->top_key},
    };
    assert_int_equal(attn_linear_forward(context, &shape, &tensors, &options, NULL),
                     ATTN_OK);
    const attn_rectangle all = {.queries = 2, .keys = KEYS};
    assert_int_equal(
        attn_weights(context, &shape, &tensors, &options, &all, s->weights, KEYS),
        ATTN_OK);
}

static void assert_close(float got, double expected)
{
    if (!(fabs((double)got - expected) <= 1e-6))
        fail_msg("got %.9g, expected %.9g", (double)got, expected);
}

static void check_by_hand(attn_context *context)
{
    /* Products 1, 2, 5 of the first query and 0, 6, 0 of the second. */
    struct small s = {
        .query = {1, 1, 3, 0}, .key = {-4, 1, 2, -1, -7, 5}, .value = {10, 20, 40}};
    look_at_small(context, &s, ATTN_FEATURE_RELU);
    const float weights[] = {0.125f, 0.25f, 0.625f, 0.0f, 1.0f, 0.0f};
    for (size_t n = 0; n < sizeof weights / sizeof *weights; n++)
        assert_close(s.weights[n], (double)weights[n]);
    assert_close(s.output[0], 10 * 0.125 + 20 * 0.25 + 40 * 0.625);
    assert_close(s.output[1], 20);
    assert_close(s.lse[0], log(8.0));
    assert_close(s.lse[1], log(6.0));
    assert_close(s.entropy[0],
                 0.125 * log(8.0) + 0.25 * log(4.0) + 0.625 * log(1.0 / 0.625));
    assert_true(s.entropy[1] == 0.0f);
    assert_close(s.largest_weight[0], 0.625);
    assert_int_equal(s.largest_key[0], 2);
    assert_int_equal(s.largest_key[1], 1);
    assert_close(s.received[0], 0.125);
    assert_close(s.received[1], 1.25);
    assert_int_equal(s.top_key[1], 1);
    /* What is seen and weighs nothing is counted, and is not among the largest. */
    assert_int_equal(s.visible_keys[1], KEYS);
    assert_int_equal(s.top_key[4], -1);
    assert_true(s.top_weight[4] == 0.0f);

    /* A row whose products all are 0 weighs nothing, as its output is 0. */
    s.query[2] = -1.0f;
    look_at_small(context, &s, ATTN_FEATURE_RELU);
    assert_true(s.output[1] == 0.0f && s.lse[1] == -INFINITY && s.entropy[1] == 0.0f);
    assert_int_equal(s.largest_key[1], -1);
    assert_int_equal(s.visible_keys[1], KEYS);
    assert_true(s.weights[3] == 0.0f && s.weights[4] == 0.0f && s.weights[5] == 0.0f);

    /* A negative product makes its row NaN, and no other. */
    const struct small negative = {
        .query = {1, 1, 3, -1}, .key = {4, 1, 2, 1, 1, 5}, .value = {10, 20, 40}};
    s = negative;
    look_at_small(context, &s, ATTN_FEATURE_IDENTITY);
    assert_close(s.entropy[0], 5.0 / 14 * log(14.0 / 5) + 3.0 / 14 * log(14.0 / 3) +
                                   6.0 / 14 * log(14.0 / 6));
    assert_true(isnan(s.lse[1]) && isnan(s.entropy[1]) && isnan(s.largest_weight[1]));
    assert_true(isfinite(s.output[1]));
}

static void rows_worked_by_hand(void **state)
{
    (void)state;
    on_every_level(check_by_hand);
}

/* One key: lse is the logarithm of the product, which is that of every size. */
static void check_logarithms(attn_context *context)
{
    enum { COUNT = 4000 };
    static float query[COUNT], lse[COUNT], output[COUNT];
    const float one = 1.0f;
    for (int n = 0; n < COUNT; n++)
        query[n] = n % 4 == 0 ? 1.0f + 0.01f * random_float()
                              : ldexpf(1.0f + fabsf(random_float()), n % 270 - 145);
    const attn_shape shape = {1, 1, 1, COUNT, 1, 1, 1};
    attn_options options;
    attn_options_init_linear(&options, &shape, ATTN_FEATURE_IDENTITY);
    const attn_tensors tensors = {.query = attn_input_dense(query, 1, COUNT, 1),
                                  .key = attn_input_dense(&one, 1, 1, 1),
                                  .value = attn_input_dense(&one, 1, 1, 1),
                                  .output = attn_output_dense(output, 1, COUNT, 1),
                                  .lse = lse};
    assert_int_equal(attn_linear_forward(context, &shape, &tensors, &options, NULL),
                     ATTN_OK);
    for (int n = 0; n < COUNT; n++) {
        const double expected = log((double)query[n]);
        const double bound = ldexp(fabs(expected), -23) + ldexp(1.0, -149);
        if (!(fabs((double)lse[n] - expected) <= bound))
            fail_msg("ln %.9g is %.9g, expected %.9g", (double)query[n], (double)lse[n],
                     expected);
    }
}

static void logarithms_are_within_two_units_in_the_last_place(void **state)
{
    (void)state;
    on_every_level(check_logarithms);
}

/* ---- Errors ---------------------------------------------------------------------------
 */

static void assert_refused(const attn_context *context, attn_status got,
                           attn_status expected, const char *message)
{
    assert_int_equal(got, expected);
    assert_non_null(strstr(attn_context_message(context), message));
}

static void what_cannot_be_looked_at_is_refused_by_name(void **state)
{
    (void)state;
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    float x[5] = {0.0f}, lse = 7.0f, output = 7.0f;
    const attn_shape shape = {1, 1, 1, 1, 1, 1, 1};
    const attn_tensors t = {.query = attn_input_dense(x, 1, 1, 1),
                            .key = attn_input_dense(x + 1, 1, 1, 1),
                            .value = attn_input_dense(x + 2, 1, 1, 1),
                            .output = attn_output_dense(&output, 1, 1, 1),
                            .lse = &lse};
    attn_options o;
    attn_options_init_linear(&o, &shape, ATTN_FEATURE_RELU);
    attn_linear_options linear = {.feature = ATTN_FEATURE_RELU, .state = x + 3};
    assert_refused(c, attn_linear_forward(c, &shape, &t, &o, &linear), ATTN_EUNSUPPORTED,
                   "attn_linear_forward: linear.state is given with lse or statistics");
    linear = (attn_linear_options){.feature = ATTN_FEATURE_ELU};
    assert_refused(c, attn_linear_forward(c, &shape, &t, &o, &linear), ATTN_EINVAL,
                   "linear.feature is 0 and options.feature 1");
    attn_tensors odd = t;
    odd.statistics.top_weight = x + 3, odd.statistics.top = 65;
    assert_refused(c, attn_linear_forward(c, &shape, &odd, &o, NULL), ATTN_EINVAL,
                   "attn_linear_forward: statistics.top is 65");
    const attn_gradients g = {.output = attn_input_dense(x, 1, 1, 1)};
    assert_refused(c, attn_backward(c, &shape, &t, &o, &g), ATTN_EUNSUPPORTED,
                   "attn_backward: options.score is ATTN_SCORE_LINEAR");
    o.feature = (attn_feature)3;
    assert_refused(c, attn_forward(c, &shape, &t, &o), ATTN_EINVAL,
                   "attn_forward: options.feature is 3, expected 0 to 2");
    assert_true(lse == 7.0f && output == 7.0f);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_agree_with_the_reference),
        cmocka_unit_test(asking_for_statistics_changes_no_bit_of_the_output),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(numbers_of_16_bits_are_looked_at_as_what_they_hold),
        cmocka_unit_test(rows_worked_by_hand),
        cmocka_unit_test(logarithms_are_within_two_units_in_the_last_place),
        cmocka_unit_test(what_cannot_be_looked_at_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
