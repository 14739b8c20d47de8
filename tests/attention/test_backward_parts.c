/* The backward pass of fp32 in three parts of bfloat16, where a processor has tiles: as
 * exact as multiply-adds, under every rule of what is visible, and with the same bits for
 * any number of threads. */
#include "attention/reference.h"
#include "dense.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GRADIENTS = 3 };
static const char *const names[GRADIENTS] = {"query", "key", "value"};

struct copies {
    float *x[GRADIENTS];
    int64_t count[GRADIENTS];
};

static struct copies take_gradients(const struct dense *c)
{
    const attn_shape *const s = &c->shape;
    struct copies copies = {
        .count = {s->B * s->H * s->Lq * s->D, s->B * s->Hk * s->Lk * s->D,
                  s->B * s->Hk * s->Lk * s->Dv},
    };
    const float *const from[GRADIENTS] = {c->query_slope, c->key_slope, c->value_slope};
    for (int n = 0; n < GRADIENTS; n++)
        copies.x[n] = copied(from[n], copies.count[n]);
    return copies;
}

static struct copies gradients_by(attn_context *context, const struct dense *c)
{
    dense_forward(context, c);
    dense_backward(context, c);
    return take_gradients(c);
}

static struct copies gradients_of_reference(const struct dense *c)
{
    const attn_tensors tensors = dense_tensors(c);
    const attn_gradients gradients = dense_gradients(c);
    assert_int_equal(
        attn_backward_reference(&c->shape, &tensors, &c->options, &gradients), ATTN_OK);
    return take_gradients(c);
}

static void drop(struct copies *copies)
{
    for (int n = 0; n < GRADIENTS; n++)
        free(copies->x[n]);
}

/* Root mean square of the difference. */
static double distance(const struct copies *a, const struct copies *b, int n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < a->count[n]; i++) {
        const double difference = (double)a->x[n][i] - (double)b->x[n][i];
        sum += difference * difference;
    }
    return sqrt(sum / (double)a->count[n]);
}

static bool goes_by_parts(attn_context *context, const struct dense *c)
{
    const attn_tensors tensors = dense_tensors(c);
    const attn_gradients gradients = dense_gradients(c);
    attn_plan plan;
    assert_ok(context, attn_plan_backward(context, &c->shape, &tensors, &c->options,
                                          &gradients, &plan));
    return strstr(plan.path, "products of tiles") != NULL;
}

static void errors_are_no_larger_than_those_of_multiply_adds(void **state)
{
    (void)state;
    attn_context *const tiles = context_of("amx", 1);
    attn_context *const lanes = context_of("avx512", 1);
    for (int n = 0; n < 4; n++) {
        const attn_shape shape = {1, 1, 1, 600, 900 - 100 * n, 64, 64 - 4 * n};
        struct dense c = dense_create(shape, false);
        c.options.causal = n % 2;
        for (int64_t i = 0; i < shape.Lk * shape.Dv && n >= 2; i++)
            c.value[i] += 10.0f;
        struct copies exact = gradients_of_reference(&c);
        struct copies by_tiles = gradients_by(tiles, &c),
                      by_lanes = gradients_by(lanes, &c);
        assert_true(goes_by_parts(tiles, &c));
        for (int g = 0; g < GRADIENTS; g++) {
            const double of_tiles = distance(&by_tiles, &exact, g);
            const double of_lanes = distance(&by_lanes, &exact, g);
            print_message("%s: %.2g and %.2g\n", names[g], of_tiles, of_lanes);
            assert_true(of_tiles <= 1.1 * of_lanes);
        }
        drop(&exact), drop(&by_tiles), drop(&by_lanes);
        dense_destroy(&c);
    }
    attn_context_destroy(tiles), attn_context_destroy(lanes);
}

/* ---- What is visible, and how scores are bent ------------------------------------- */

enum { LENGTH = 560, HEADS = 4 };

struct given {
    uint8_t keep[LENGTH];
    float bias[HEADS * LENGTH], bias_slope[HEADS * LENGTH];
    float forget[HEADS * LENGTH], forget_slope[HEADS * LENGTH];
    float slopes[HEADS], sinks[HEADS], sink_slopes[HEADS];
    int64_t starts[3];
};

static void fill_given(struct given *given)
{
    for (int n = 0; n < LENGTH; n++)
        given->keep[n] = n % 7 != 3 && n / 40 != 5;
    for (int n = 0; n < HEADS * LENGTH; n++) {
        given->bias[n] = random_float();
        given->forget[n] = -0.01f * fabsf(random_float());
    }
    for (int h = 0; h < HEADS; h++)
        given->slopes[h] = 0.01f * (float)(h + 1), given->sinks[h] = random_float();
    given->starts[0] = 0, given->starts[1] = 17, given->starts[2] = LENGTH;
}

enum { RULES = 13 };

static void take_rule(struct dense *c, struct given *given, int rule, attn_gradients *g)
{
    attn_options *const o = &c->options;
    o->causal = rule % 2 || rule == 8;
    o->dropout = rule == 2 || rule == 3 ? 0.2 : 0.0;
    o->softcap = rule == 4 || rule == 8 ? 2.0f : 0.0f;
    o->window_left = rule == 5 || rule == 6 ? 400 : -1;
    o->window_right = rule == 6 ? 30 : -1;
    o->sink_keys = rule == 5 ? 3 : 0;
    o->alibi_slopes = rule == 7 ? given->slopes : NULL;
    if (rule == 8 || rule == 9) {
        o->log_forget = (attn_input){given->forget, {0, LENGTH, 1, 0}, ATTN_F32};
        g->log_forget = (attn_output){given->forget_slope, {0, LENGTH, 1, 0}, ATTN_F32};
    }
    if (rule == 10)
        o->keep = (attn_keep){given->keep, {0, 0, 0, 1}};
    if (rule == 4 || rule == 11) {
        o->bias = (attn_input){given->bias, {0, LENGTH, 0, 1}, ATTN_F32};
        g->bias = (attn_output){given->bias_slope, {0, LENGTH, 0, 1}, ATTN_F32};
    }
    if (rule == 12) {
        o->sequences = 2, o->query_starts = o->key_starts = given->starts;
        o->sinks = given->sinks, g->sinks = given->sink_slopes;
    }
}

static void backward_to(attn_context *context, const struct dense *c,
                        const attn_gradients *gradients)
{
    const attn_tensors tensors = dense_tensors(c);
    dense_forward(context, c);
    assert_ok(context,
              attn_backward(context, &c->shape, &tensors, &c->options, gradients));
}

static void assert_like(const float *got, const float *expected, int64_t count,
                        const char *what, int rule)
{
    float largest = 0.0f, apart = 0.0f;
    for (int64_t n = 0; n < count; n++) {
        largest = fmaxf(largest, fabsf(expected[n]));
        apart = fmaxf(apart, fabsf(got[n] - expected[n]));
    }
    if (!(apart <= 1e-5f * largest))
        fail_msg("rule %d, %s: %g apart, of %g", rule, what, (double)apart,
                 (double)largest);
}

static void every_rule_gives_the_gradients_of_multiply_adds(void **state)
{
    (void)state;
    static struct given given;
    attn_context *const tiles = context_of("amx", 1);
    attn_context *const lanes = context_of("avx512", 1);
    fill_given(&given);
    for (int rule = 0; rule < RULES; rule++) {
        const int64_t H = rule == 1 ? HEADS : 2, Hk = rule == 1 ? 2 : H;
        const attn_shape shape = {1, H, Hk, LENGTH, LENGTH, 64, rule == 3 ? 80 : 64};
        struct dense c = dense_create(shape, false);
        attn_gradients gradients = dense_gradients(&c);
        take_rule(&c, &given, rule, &gradients);
        assert_true(goes_by_parts(tiles, &c));
        backward_to(lanes, &c, &gradients);
        struct copies expected = take_gradients(&c);
        const struct given before = given;
        backward_to(tiles, &c, &gradients);
        struct copies got = take_gradients(&c);
        for (int g = 0; g < GRADIENTS; g++)
            assert_like(got.x[g], expected.x[g], got.count[g], names[g], rule);
        assert_like(given.bias_slope, before.bias_slope, H * LENGTH, "bias", rule);
        assert_like(given.forget_slope, before.forget_slope, H * LENGTH, "gates", rule);
        assert_like(given.sink_slopes, before.sink_slopes, H, "sinks", rule);
        drop(&got), drop(&expected);
        dense_destroy(&c);
    }
    attn_context_destroy(tiles), attn_context_destroy(lanes);
}

/* ---- Threads, and what is not finite ------------------------------------------------
 */

static void threads_change_no_bit(void **state)
{
    (void)state;
    attn_context *const one = context_of("amx", 1), *const three = context_of("amx", 3);
    for (int n = 0; n < 4; n++) {
        const int64_t H = n < 2 ? 1 : 6;
        struct dense c = dense_create((attn_shape){1, H, H, 1000, 1100, 64, 32}, false);
        c.options.causal = n % 2;
        struct copies alone = gradients_by(one, &c), together = gradients_by(three, &c);
        for (int g = 0; g < GRADIENTS; g++)
            assert_memory_equal(alone.x[g], together.x[g],
                                (size_t)alone.count[g] * sizeof(float));
        drop(&alone), drop(&together);
        dense_destroy(&c);
    }
    attn_context_destroy(one), attn_context_destroy(three);
}

static int kind_of(float x)
{
    return isnan(x) ? 2 : isinf(x) ? 1 : 0;
}

/* An extreme number in one tensor, in a row that those before it do not see: as with
 * multiply-adds. */
static void check_extreme(attn_context *tiles, attn_context *lanes, float extreme,
                          int tensor)
{
    struct dense c = dense_create((attn_shape){1, 1, 1, 600, 600, 64, 64}, false);
    c.options.causal = true;
    float *const x[] = {c.query, c.key, c.value, c.slope};
    x[tensor][300 * 64 + 5] = extreme;
    struct copies expected = gradients_by(lanes, &c), got = gradients_by(tiles, &c);
    for (int g = 0; g < GRADIENTS; g++) {
        float largest = 1.0f;
        for (int64_t n = 0; n < got.count[g]; n++) {
            const float b = expected.x[g][n];
            assert_int_equal(kind_of(got.x[g][n]), kind_of(b));
            largest = kind_of(b) == 0 ? fmaxf(largest, fabsf(b)) : largest;
        }
        for (int64_t n = 0; n < got.count[g]; n++) {
            const float a = got.x[g][n], b = expected.x[g][n];
            if (kind_of(b) == 0 && !(fabsf(a - b) <= 1e-5f * largest))
                fail_msg("%g in %d: %s's [%lld] is %g, expected %g", (double)extreme,
                         tensor, names[g], (long long)n, (double)a, (double)b);
        }
    }
    drop(&expected), drop(&got);
    dense_destroy(&c);
}

static void extreme_numbers_do_what_they_do_to_multiply_adds(void **state)
{
    (void)state;
    static const float extremes[] = {NAN,     INFINITY, -INFINITY, 3.4e38f,
                                     0x1p30f, 1e-30f,   1e-44f};
    attn_context *const tiles = context_of("amx", 1);
    attn_context *const lanes = context_of("avx512", 1);
    for (size_t n = 0; n < sizeof extremes / sizeof *extremes; n++)
        for (int tensor = 0; tensor < 4; tensor++)
            check_extreme(tiles, lanes, extremes[n], tensor);
    attn_context_destroy(tiles), attn_context_destroy(lanes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_no_larger_than_those_of_multiply_adds),
        cmocka_unit_test(every_rule_gives_the_gradients_of_multiply_adds),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(extreme_numbers_do_what_they_do_to_multiply_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
