/* Small inputs that broke other attention libraries, each with the value that is right by
 * hand: what is hidden, numerics, shapes, windows, sinks, dropout. */
#include "problems.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 16 };

/* One head with D = Dv = 1: the score of query i and key j is q[i]·k[j]. */
struct small {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
    float q[MOST], k[MOST], v[MOST], o[MOST], lse[MOST];
};

static struct small *small_create(int64_t Lq, int64_t Lk, const float *v)
{
    struct small *const s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->shape = (attn_shape){1, 1, 1, Lq, Lk, 1, 1};
    attn_options_init(&s->options, &s->shape);
    s->tensors = (attn_tensors){.query = attn_input_dense(s->q, 1, Lq, 1),
                                .key = attn_input_dense(s->k, 1, Lk, 1),
                                .value = attn_input_dense(s->v, 1, Lk, 1),
                                .output = attn_output_dense(s->o, 1, Lq, 1),
                                .lse = s->lse};
    memcpy(s->v, v, (size_t)Lk * sizeof *v);
    for (int i = 0; i < MOST; i++)
        s->o[i] = s->lse[i] = 77.0f;
    return s;
}

/* Scores are q·k with one query of 1. */
static struct small *small_scores(int64_t Lk, const float *scores, const float *v)
{
    struct small *const s = small_create(1, Lk, v);
    s->q[0] = 1.0f;
    memcpy(s->k, scores, (size_t)Lk * sizeof *scores);
    return s;
}

static void attend(attn_context *context, struct small *s)
{
    if (attn_forward(context, &s->shape, &s->tensors, &s->options) != ATTN_OK)
        fail_msg("%s", attn_context_message(context));
}

static void assert_close(double got, double expected, double bound)
{
    if (!(fabs(got - expected) <= bound) && got != expected)
        fail_msg("got %.9g, expected %.9g", got, expected);
}

static void assert_outputs(const struct small *s, const double *expected)
{
    for (int64_t i = 0; i < s->shape.Lq; i++)
        assert_close((double)s->o[i], expected[i], 3e-7 * (1.0 + fabs(expected[i])));
}

static void use_keep(struct small *s, const uint8_t *keep)
{
    s->options.keep.data = keep;
    s->options.keep.stride[2] = s->shape.Lk;
    s->options.keep.stride[3] = 1;
}

static void use_bias(struct small *s, const float *bias)
{
    s->options.bias.data = bias;
    s->options.bias.stride[2] = s->shape.Lk;
    s->options.bias.stride[3] = 1;
}

/* Attends, compares, and frees. */
static void expect(attn_context *context, struct small *s, const double *expected)
{
    attend(context, s);
    assert_outputs(s, expected);
    free(s);
}

#define FLOATS(...) ((const float[]){__VA_ARGS__})
#define DOUBLES(...) ((const double[]){__VA_ARGS__})
#define BYTES(...) ((const uint8_t[]){__VA_ARGS__})

/* ---- What is hidden -------------------------------------------------------------------
 */

static void check_empty_row(attn_context *context)
{
    struct small *const s = small_create(2, 2, FLOATS(10, 20));
    float entropy[2];
    int64_t largest[2];
    s->tensors.statistics.entropy = entropy;
    s->tensors.statistics.largest_key = largest;
    use_keep(s, BYTES(1, 0, 0, 0));
    attend(context, s);
    assert_true(s->o[0] == 10.0f && s->o[1] == 0.0f);
    assert_true(s->lse[0] == 0.0f && s->lse[1] == -INFINITY);
    assert_true(entropy[0] == 0.0f && entropy[1] == 0.0f);
    assert_true(largest[0] == 0 && largest[1] == -1);
    free(s);
}

static void an_empty_row_gives_zero_and_minus_infinity(void **state)
{
    (void)state;
    on_every_level(check_empty_row);
}

static void check_finite_bias(attn_context *context)
{
    struct small *s = small_scores(2, FLOATS(1, 2), FLOATS(0, 1));
    use_bias(s, FLOATS(-FLT_MAX, -FLT_MAX));
    attend(context, s);
    assert_true(s->o[0] >= 0.49f && s->o[0] < 0.7312f);
    free(s);

    /* The sum of two saturated masks is −∞ where both are, and hides; the rest is finite.
     */
    const float both = -FLT_MAX + -FLT_MAX;
    assert_true(both == -INFINITY);
    s = small_create(3, 3, FLOATS(1, 2, 3));
    use_bias(s, FLOATS(-FLT_MAX, both, both, -FLT_MAX, 0, -FLT_MAX, -FLT_MAX, 0, 0));
    expect(context, s, DOUBLES(1.0, 2.0, 2.5));
}

/* −FLT_MAX + ln 4 is −FLT_MAX: lse cannot hold the sum, and nothing may rest on it. */
static void check_saturated_row(attn_context *context)
{
    enum { KEYS = 4 };
    struct small *const s = small_create(1, KEYS, FLOATS(1, 2, 3, 6));
    const double expected[KEYS] = {-0.5, -0.25, 0.0, 0.75}; /* ¼ (value − 3) */
    float entropy = 77.0f, weights[KEYS], to_value[KEYS], to_bias[KEYS];
    const float from_output = 1.0f;
    const attn_rectangle all = {.queries = 1, .keys = KEYS};
    use_bias(s, FLOATS(-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX));
    s->tensors.statistics.entropy = &entropy;
    attend(context, s);
    assert_outputs(s, DOUBLES(3));
    assert_close((double)entropy, log(4.0), 1e-6);

    const attn_gradients gradients = {
        .output = attn_input_dense(&from_output, 1, 1, 1),
        .value = attn_output_dense(to_value, 1, KEYS, 1),
        .bias = {to_bias, {0, 0, KEYS, 1}},
    };
    assert_int_equal(
        attn_weights(context, &s->shape, &s->tensors, &s->options, &all, weights, KEYS),
        ATTN_OK);
    assert_int_equal(
        attn_backward(context, &s->shape, &s->tensors, &s->options, &gradients), ATTN_OK);
    for (int key = 0; key < KEYS; key++) {
        assert_close((double)weights[key], 0.25, 1e-7);
        assert_close((double)to_value[key], 0.25, 1e-7);
        assert_close((double)to_bias[key], expected[key], 1e-6);
    }
    free(s);
}

static void a_row_of_the_least_bias_has_weights_that_sum_to_one(void **state)
{
    (void)state;
    on_every_level(check_saturated_row);
}

static void a_finite_bias_however_negative_hides_nothing(void **state)
{
    (void)state;
    on_every_level(check_finite_bias);
}

static void check_polarity(attn_context *context)
{
    struct small *s = small_create(1, 2, FLOATS(10, 20));
    use_keep(s, BYTES(1, 0));
    expect(context, s, DOUBLES(10.0));
    s = small_create(1, 2, FLOATS(10, 20));
    use_bias(s, FLOATS(1, 0));
    expect(context, s, DOUBLES(12.6894142137));
    s = small_create(1, 2, FLOATS(0, 1));
    use_bias(s, FLOATS(0, 1));
    expect(context, s, DOUBLES(0.731058579));
    s = small_create(1, 2, FLOATS(1, 3));
    use_keep(s, BYTES(1, 255));
    expect(context, s, DOUBLES(2.0));
}

static void keep_shows_and_bias_adds(void **state)
{
    (void)state;
    on_every_level(check_polarity);
}

static void check_poison(attn_context *context)
{
    struct small *s = small_scores(2, FLOATS(1, NAN), FLOATS(5, NAN));
    use_keep(s, BYTES(1, 0));
    attend(context, s);
    assert_true(s->o[0] == 5.0f);
    free(s);
    s = small_scores(2, FLOATS(1, INFINITY), FLOATS(5, -INFINITY));
    use_bias(s, FLOATS(0, -INFINITY));
    attend(context, s);
    assert_true(s->o[0] == 5.0f);
    free(s);
}

static void a_hidden_nan_is_never_multiplied(void **state)
{
    (void)state;
    on_every_level(check_poison);
}

static void check_softcap(attn_context *context)
{
    struct small *s = small_create(1, 2, FLOATS(1, 0));
    s->options.softcap = 2.0f;
    use_keep(s, BYTES(1, 0));
    expect(context, s, DOUBLES(1.0));
    const float scores[] = {1e4f, -1e4f, 4400.0f};
    for (int i = 0; i < 3; i++) {
        s = small_scores(1, scores + i, FLOATS(1));
        s->options.softcap = 50.0f;
        attend(context, s);
        assert_close((double)s->lse[0], i == 1 ? -50.0 : 50.0, 4e-6);
        free(s);
    }
    s = small_scores(2, FLOATS(1e4f, 0), FLOATS(0, 1e22f));
    s->options.softcap = 50.0f;
    attend(context, s);
    assert_close((double)s->o[0], 1.92874984796, 1e-5);
    free(s);
}

static void softcap_comes_before_hiding_and_never_overflows(void **state)
{
    (void)state;
    on_every_level(check_softcap);
}

/* ---- Numerics -------------------------------------------------------------------------
 */

static void check_large_scores(attn_context *context)
{
    struct small *s = small_scores(2, FLOATS(1e4f, 9999), FLOATS(1, 0));
    attend(context, s);
    assert_close((double)s->o[0], 0.731058579, 2e-7);
    free(s);
    s = small_scores(2, FLOATS(-1e4f, -9999), FLOATS(1, 0));
    attend(context, s);
    assert_close((double)s->o[0], 0.268941421, 2e-7);
    free(s);
    s = small_scores(2, FLOATS(1, 2), FLOATS(0, 0));
    attend(context, s);
    assert_close((double)s->lse[0], 2.313261688, 1e-6);
    free(s);
}

static void large_scores_do_not_overflow_and_lse_is_natural(void **state)
{
    (void)state;
    on_every_level(check_large_scores);
}

static void check_infinite_score(attn_context *context)
{
    struct small *const s = small_create(2, 2, FLOATS(1, 3));
    s->q[0] = 1.0f, s->q[1] = 0.5f;
    s->k[0] = INFINITY;
    use_keep(s, BYTES(1, 1, 0, 1));
    attend(context, s);
    assert_true(isnan(s->o[0]) && isnan(s->lse[0]));
    assert_true(s->o[1] == 3.0f && s->lse[1] == 0.0f);
    s->k[0] = -INFINITY; /* visible, with weight 0 */
    attend(context, s);
    assert_true(s->o[0] == 3.0f && s->lse[0] == 0.0f);
    free(s);
}

static void an_infinite_score_makes_its_row_nan_and_no_other(void **state)
{
    (void)state;
    on_every_level(check_infinite_score);
}

static void check_scales(attn_context *context)
{
    struct small *s = small_scores(2, FLOATS(3, -5), FLOATS(1, 3));
    s->options.scale = 0.0f;
    expect(context, s, DOUBLES(2.0));
    s = small_scores(2, FLOATS(-1, -2), FLOATS(0, 1));
    s->options.scale = -1.0f;
    expect(context, s, DOUBLES(0.731058579));
    s = small_create(1, 2, FLOATS(1, 3));
    s->q[0] = 1.0f;
    s->options.scale = 9e15f;
    expect(context, s, DOUBLES(2.0));
}

static void scale_means_what_it_says(void **state)
{
    (void)state;
    on_every_level(check_scales);
}

static void check_many_keys(attn_context *context)
{
    static const float zero = 0.0f, one = 1.0f;
    float output = 0.0f, lse = 0.0f;
    const attn_shape shape = {1, 1, 1, 1, 33728, 1, 1};
    const attn_tensors tensors = {.query = {&zero, {0}},
                                  .key = {&zero, {0}},
                                  .value = {&one, {0}},
                                  .output = {&output, {0}},
                                  .lse = &lse};
    attn_options options;
    attn_options_init(&options, &shape);
    assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_OK);
    assert_close((double)output, 1.0, 2e-7);
    assert_close((double)lse, log(33728.0), 4e-6);
}

static void more_keys_than_16_bits_count_are_all_counted(void **state)
{
    (void)state;
    on_every_level(check_many_keys);
}

/* ---- Shapes ---------------------------------------------------------------------------
 */

static void check_no_keys(attn_context *context)
{
    struct small *s = small_create(2, 0, FLOATS(0));
    s->tensors.key.data = s->tensors.value.data = NULL;
    attend(context, s);
    assert_true(s->o[0] == 0.0f && s->o[1] == 0.0f);
    assert_true(s->lse[0] == -INFINITY && s->lse[1] == -INFINITY);
    free(s);
    s = small_create(0, 2, FLOATS(1, 2));
    attend(context, s);
    assert_true(s->o[0] == 77.0f && s->lse[0] == 77.0f);
    free(s);
}

static void no_keys_is_an_empty_row_and_no_queries_is_no_work(void **state)
{
    (void)state;
    on_every_level(check_no_keys);
}

static void check_one_key(attn_context *context)
{
    struct small *const s = small_scores(1, FLOATS(0.3f), FLOATS(1.7f));
    float entropy = 5.0f, largest = 5.0f;
    s->tensors.statistics.entropy = &entropy;
    s->tensors.statistics.largest_weight = &largest;
    attend(context, s);
    assert_true(s->o[0] == 1.7f && largest == 1.0f && entropy == 0.0f);
    free(s);
}

static void one_key_has_weight_one_and_entropy_zero(void **state)
{
    (void)state;
    on_every_level(check_one_key);
}

static void check_groups(attn_context *context)
{
    const struct {
        int64_t H, Hk;
    } cases[] = {{4, 2}, {4, 1}, {8, 2}, {3, 3}};
    for (size_t n = 0; n < 4; n++) {
        const int64_t H = cases[n].H, Hk = cases[n].Hk;
        const float zeros[8] = {0}, v[] = {10, 20, 30};
        float o[8];
        const attn_shape shape = {1, H, Hk, 1, 1, 1, 1};
        const attn_tensors tensors = {.query = attn_input_dense(zeros, H, 1, 1),
                                      .key = attn_input_dense(zeros, Hk, 1, 1),
                                      .value = attn_input_dense(v, Hk, 1, 1),
                                      .output = attn_output_dense(o, H, 1, 1)};
        attn_options options;
        attn_options_init(&options, &shape);
        assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_OK);
        for (int64_t h = 0; h < H; h++)
            assert_true(o[h] == v[h / (H / Hk)]);
    }
}

static void neighbouring_query_heads_share_a_key_head(void **state)
{
    (void)state;
    on_every_level(check_groups);
}

/* ---- Positions ------------------------------------------------------------------------
 */

static void check_causal_corner(attn_context *context)
{
    struct small *s = small_create(2, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.causal = true;
    expect(context, s, DOUBLES(2.5, 3.0));
    s = small_create(2, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.causal = true;
    s->options.alignment = ATTN_ALIGN_TOP_LEFT;
    expect(context, s, DOUBLES(1.0, 1.5));
    s = small_create(1, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.causal = true;
    expect(context, s, DOUBLES(3.0));
    s = small_create(2, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.causal = true;
    s->options.alignment = ATTN_ALIGN_OFFSET;
    s->options.query_offset = -1;
    expect(context, s, DOUBLES(0.0, 1.0));
}

static void causal_is_aligned_as_asked(void **state)
{
    (void)state;
    on_every_level(check_causal_corner);
}

static void check_window(attn_context *context)
{
    struct small *s = small_create(5, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.causal = true;
    s->options.window_left = 1; /* "a window of two keys" */
    expect(context, s, DOUBLES(1.0, 1.5, 2.5, 3.5, 4.5));
    s = small_create(5, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.window_left = s->options.window_right = 1;
    expect(context, s, DOUBLES(1.5, 2.0, 3.0, 4.0, 4.5));
    s = small_create(5, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.window_left = s->options.window_right = 0;
    expect(context, s, DOUBLES(1.0, 2.0, 3.0, 4.0, 5.0));

    s = small_create(5, 5, FLOATS(1, 2, 4, 8, 16));
    for (int i = 0; i < 5; i++)
        s->q[i] = s->k[i] = 0.3f * (float)i;
    s->options.causal = true;
    attend(context, s);
    float plain[5];
    memcpy(plain, s->o, sizeof plain);
    s->options.window_left = 5;
    attend(context, s);
    assert_memory_equal(plain, s->o, sizeof plain);
    free(s);
}

static void a_window_counts_the_keys_beside_the_own_position(void **state)
{
    (void)state;
    on_every_level(check_window);
}

/* ALiBi of slope ½: three keys seen from the last have scores −1, −½, 0. */
static void check_alibi(attn_context *context)
{
    static const float slope = 0.5f;
    struct small *const s = small_create(1, 3, FLOATS(0, 1, 2));
    s->options.alibi_slopes = &slope;
    const double e1 = exp(-1.0), e2 = exp(-0.5);
    expect(context, s, DOUBLES((e2 + 2.0) / (e1 + e2 + 1.0)));
}

static void alibi_measures_from_the_aligned_position(void **state)
{
    (void)state;
    on_every_level(check_alibi);
}

/* The authors' code, and not the paper's sentence, which gives .39685 first of 6. */
static void alibi_slopes_are_those_of_released_models(void **state)
{
    (void)state;
    static const struct {
        int64_t heads;
        double slopes[12];
    } cases[] = {
        {1, {0.00390625}},
        {6, {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
        {8, {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}},
        {12,
         {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625, 0.70710678,
          0.35355339, 0.1767767, 0.08838835}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        float slopes[13];
        slopes[cases[n].heads] = 77.0f;
        assert_int_equal(attn_alibi_slopes_fill(slopes, cases[n].heads), ATTN_OK);
        for (int64_t h = 0; h < cases[n].heads; h++)
            assert_close((double)slopes[h], cases[n].slopes[h], 3e-8);
        assert_true(slopes[cases[n].heads] == 77.0f);
    }
    assert_int_equal(attn_alibi_slopes_fill(NULL, 0), ATTN_OK);
    assert_int_equal(attn_alibi_slopes_fill(NULL, 2), ATTN_EINVAL);
    assert_int_equal(attn_alibi_slopes_fill((float[1]){0}, -1), ATTN_EINVAL);
}

/* Of six tokens a ring of four holds 5 6 3 4: the window of the last four. */
static void check_ring(attn_context *context)
{
    const float k[] = {0.3f, -1, 2, 0.5f, -0.2f, 1}, v[] = {1, 2, 4, 8, 16, 32};
    struct small *const whole = small_create(1, 6, v);
    struct small *const ring = small_create(1, 4, FLOATS(v[4], v[5], v[2], v[3]));
    whole->q[0] = ring->q[0] = 0.7f;
    memcpy(whole->k, k, sizeof k);
    memcpy(ring->k, FLOATS(k[4], k[5], k[2], k[3]), 4 * sizeof *k);
    whole->options.causal = true;
    whole->options.window_left = 3;
    attend(context, whole), attend(context, ring);
    assert_close((double)ring->o[0], (double)whole->o[0], 1e-5);
    assert_close((double)ring->lse[0], (double)whole->lse[0], 1e-6);
    free(whole), free(ring);
}

static void a_ring_of_keys_is_the_window_whatever_their_order(void **state)
{
    (void)state;
    on_every_level(check_ring);
}

/* ---- Sinks and dropout ----------------------------------------------------------------
 */

/* The first key stays, the window moves on. */
static void check_sink_key(attn_context *context)
{
    struct small *const s = small_create(5, 5, FLOATS(1, 2, 3, 4, 5));
    s->options.causal = true;
    s->options.window_left = 1;
    s->options.sink_keys = 1;
    expect(context, s, DOUBLES(1, 1.5, 2, 8.0 / 3.0, 10.0 / 3.0));
}

static void a_sink_key_is_seen_beside_the_window(void **state)
{
    (void)state;
    on_every_level(check_sink_key);
}

static void check_sink(attn_context *context)
{
    static const float zero = 0.0f, none = -INFINITY, large = 30.0f;
    struct small *s = small_create(1, 2, FLOATS(3, 3));
    float largest = 0.0f;
    s->tensors.statistics.largest_weight = &largest;
    s->options.sinks = &zero;
    attend(context, s);
    assert_close((double)s->o[0], 2.0, 1e-6);
    assert_close((double)largest, 1.0 / 3.0, 1e-6);
    assert_close((double)s->lse[0], log(3.0), 1e-6);
    float weights[2];
    const attn_rectangle all = {.queries = 1, .keys = 2};
    assert_int_equal(
        attn_weights(context, &s->shape, &s->tensors, &s->options, &all, weights, 2),
        ATTN_OK);
    assert_close((double)weights[0], 1.0 / 3.0, 1e-7);
    assert_close((double)weights[1], 1.0 / 3.0, 1e-7);
    free(s);
    s = small_create(1, 2, FLOATS(3, 3));
    s->options.sinks = &none;
    expect(context, s, DOUBLES(3.0));
    s = small_create(1, 1, FLOATS(1e13f));
    s->options.sinks = &large;
    attend(context, s);
    assert_close((double)s->o[0], 0.935762297, 1e-5); /* e^−30, not clamped */
    free(s);

    s = small_create(1, 1, FLOATS(3)); /* an empty row with a sink has its logit */
    s->options.sinks = &large;
    use_keep(s, BYTES(0));
    attend(context, s);
    assert_true(s->o[0] == 0.0f);
    assert_close((double)s->lse[0], 30.0, 4e-6);
    free(s);
}

static void a_sink_joins_the_sum_and_has_no_value(void **state)
{
    (void)state;
    on_every_level(check_sink);
}

static void check_dropout(attn_context *context)
{
    struct small *const s = small_scores(4, FLOATS(0, 0.5f, 1, -1), FLOATS(1, 2, 3, 4));
    attend(context, s);
    const double plain = (double)s->o[0];
    const float plain_lse = s->lse[0];
    float largest = 0.0f, entropy = 0.0f, no_drop[2];
    s->tensors.statistics.largest_weight = &largest;
    s->tensors.statistics.entropy = &entropy;
    attend(context, s);
    no_drop[0] = largest, no_drop[1] = entropy;

    enum { DRAWS = 10000 };
    s->options.dropout = 0.25;
    double sum = 0.0, squares = 0.0;
    for (int n = 0; n < DRAWS; n++) {
        s->options.dropout_seed = (uint64_t)n;
        attend(context, s);
        const double x = (double)s->o[0];
        sum += x, squares += x * x;
        assert_true(largest == no_drop[0] && entropy == no_drop[1]);
        assert_true(s->lse[0] == plain_lse);
    }
    const double mean = sum / DRAWS, variance = squares / DRAWS - mean * mean;
    assert_close(mean, plain, 5.0 * sqrt(variance / DRAWS));
    const float once = s->o[0];
    attend(context, s);
    assert_true(s->o[0] == once);
    s->options.dropout = 1.0;
    attend(context, s);
    assert_true(s->o[0] == 0.0f);
    free(s);
}

static void dropout_keeps_the_mean_and_leaves_weights_alone(void **state)
{
    (void)state;
    on_every_level(check_dropout);
}

/* ---- Errors ---------------------------------------------------------------------------
 */

static void assert_refused(struct small *s, const char *expected)
{
    attn_context *context = NULL;
    attn_plan plan;
    char message[512];
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    assert_int_equal(attn_forward(context, &s->shape, &s->tensors, &s->options),
                     ATTN_EINVAL);
    snprintf(message, sizeof message, "attn_forward: %s", expected);
    assert_string_equal(attn_context_message(context), message);
    assert_int_equal(
        attn_plan_forward(context, &s->shape, &s->tensors, &s->options, &plan),
        ATTN_EINVAL);
    snprintf(message, sizeof message, "attn_plan_forward: %s", expected);
    assert_string_equal(attn_context_message(context), message);
    assert_true(s->o[0] == 77.0f);
    attn_context_destroy(context);
    free(s);
}

static struct small *any(void)
{
    return small_create(2, 3, FLOATS(1, 2, 3));
}

static void every_bad_argument_is_named_and_outputs_stay(void **state)
{
    (void)state;
    static const int64_t long_lengths[] = {4}, starts[] = {0, 2}, late[] = {1, 2};
    static const int64_t falling[] = {0, 2, 1}, short_keys[] = {0, 2};
    static const uint8_t classes[] = {0, 1, 2};
    struct small *s = any();
    s->shape.H = 3, s->shape.Hk = 2;
    assert_refused(s, "shape.H is 3, expected a multiple of shape.Hk, 2");
    s = any();
    s->shape.D = 0;
    assert_refused(s, "shape.D is 0, expected 1 to 1048576");
    s = any();
    s->options.scale = NAN;
    assert_refused(s, "options.scale is nan, expected a finite number");
    s = any();
    s->options.softcap = -1.0f;
    assert_refused(s, "options.softcap is -1, expected 0 or a positive finite number");
    s = any();
    s->options.dropout = 1.5;
    assert_refused(s, "options.dropout is 1.5, expected 0 to 1");
    s = any();
    s->options.dropout = (double)NAN;
    assert_refused(s, "options.dropout is nan, expected 0 to 1");
    s = any();
    s->options.window_left = -2;
    assert_refused(s, "options.window_left is -2, expected -1 to 281474976710656");
    s = any();
    s->options.key_lengths = long_lengths;
    assert_refused(s, "options.key_lengths[0] is 4, expected 0 to 3");
    s = any();
    s->options.query_starts = starts;
    assert_refused(s, "options.key_starts is NULL, expected both starts or neither");
    s = any();
    s->options.sequences = 1;
    s->options.query_starts = starts, s->options.key_starts = late;
    assert_refused(s, "options.key_starts[0] is 1, expected 0");
    s = any();
    s->options.sequences = 2;
    s->options.query_starts = falling, s->options.key_starts = falling;
    assert_refused(s, "options.query_starts[2] is 1, expected 2 to 2");
    s = any();
    s->options.sequences = 1;
    s->options.query_starts = starts, s->options.key_starts = short_keys;
    assert_refused(s, "options.key_starts[1], the last, is 2, expected the length in the "
                      "shape, 3");
    s = any();
    s->tensors.key.data = NULL;
    assert_refused(s, "tensors.key is NULL, expected data");
    s = any();
    s->tensors.query.stride[2] = INT64_MAX / 2;
    assert_refused(s, "tensors.query.stride[2] is 4611686018427387903 for 1 steps, "
                      "expected offsets that fit 64 bits");
    s = any();
    s->tensors.query.data = s->o;
    assert_refused(s, "tensors.output is at the address of an input, expected memory of "
                      "its own");
    s = any();
    s->tensors.statistics.top = 65;
    s->tensors.statistics.top_weight = s->lse;
    assert_refused(s, "statistics.top is 65, expected 1 to 64");
    s = any();
    s->tensors.statistics.top = 1;
    s->tensors.statistics.top_weight = s->lse;
    s->shape.Lk = ((int64_t)1 << 32) + 1;
    assert_refused(s, "shape.Lk is 4294967297, expected at most 2^32 where "
                      "statistics.top is wanted");
    s = any();
    s->tensors.statistics.classes = 2;
    s->tensors.statistics.class_mass = s->lse;
    s->tensors.statistics.key_class = classes;
    assert_refused(s, "statistics.key_class[2] is 2, expected less than classes, 2");
}

static void a_level_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    attn_context *context = NULL;
    attn_context_options options = {.isa = "avx3", .threads = 1};
    assert_int_equal(attn_context_create(&context, &options), ATTN_EUNSUPPORTED);
    assert_null(context);
    options = (attn_context_options){.threads = 0};
    assert_int_equal(attn_context_create(&context, &options), ATTN_EINVAL);
    setenv("ATTN_ISA", "mmx", 1);
    assert_int_equal(attn_context_create(&context, NULL), ATTN_EUNSUPPORTED);
    setenv("ATTN_ISA", "", 1);
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    attn_context_destroy(context);
}

/* These would take days if anybody counted to the sizes, or wrap. */
static void what_is_not_there_takes_no_time_however_large(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    float in[4] = {0}, out[4] = {7.0f, 7.0f, 7.0f, 7.0f}, entropy[1];
    attn_shape shape = {.B = (int64_t)1 << 44, .H = 1, .Hk = 1, .Lk = 4, .D = 4, .Dv = 4};
    attn_tensors t = {.query = {.data = in},
                      .key = {.data = in},
                      .value = {.data = in},
                      .output = {.data = out, .stride = {4, 4, 4, 1}},
                      .lse = in};
    attn_options options;
    attn_plan plan;
    attn_options_init(&options, &shape);
    assert_int_equal(attn_plan_forward(context, &shape, &t, &options, &plan), ATTN_OK);
    assert_true(plan.visible_pairs == 0.0);
    assert_int_equal(attn_forward(context, &shape, &t, &options), ATTN_OK);
    const attn_gradients gradients = {.output = {.data = in}};
    assert_int_equal(attn_plan_backward(context, &shape, &t, &options, &gradients, &plan),
                     ATTN_OK);

    /* Partial results of 4 MiB a head, of 2^47 heads. */
    t.key.stride[3] = t.value.stride[3] = 1;
    shape = (attn_shape){1, (int64_t)1 << 47, (int64_t)1 << 43, 1, 1, 1 << 20, 1 << 20};
    assert_int_equal(attn_plan_forward(context, &shape, &t, &options, &plan),
                     ATTN_ENOMEM);

    /* An empty row, a number of top keys that nobody wants, strides that nobody takes. */
    shape = (attn_shape){1, 1, 1, 1, 1, 1, 1};
    t.statistics = (attn_statistics){.entropy = entropy, .top = INT64_MAX};
    t.lse = NULL;
    for (int axis = 0; axis < 4; axis++)
        t.key.stride[axis] = t.value.stride[axis] = axis == 3 ? 1 : INT64_MAX;
    options.window_right = 0;
    options.alignment = ATTN_ALIGN_OFFSET;
    options.query_offset = -2;
    assert_int_equal(attn_forward(context, &shape, &t, &options), ATTN_OK);
    assert_true(out[0] == 0.0f && entropy[0] == 0.0f);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_row_gives_zero_and_minus_infinity),
        cmocka_unit_test(a_finite_bias_however_negative_hides_nothing),
        cmocka_unit_test(a_row_of_the_least_bias_has_weights_that_sum_to_one),
        cmocka_unit_test(keep_shows_and_bias_adds),
        cmocka_unit_test(a_hidden_nan_is_never_multiplied),
        cmocka_unit_test(softcap_comes_before_hiding_and_never_overflows),
        cmocka_unit_test(large_scores_do_not_overflow_and_lse_is_natural),
        cmocka_unit_test(an_infinite_score_makes_its_row_nan_and_no_other),
        cmocka_unit_test(scale_means_what_it_says),
        cmocka_unit_test(more_keys_than_16_bits_count_are_all_counted),
        cmocka_unit_test(no_keys_is_an_empty_row_and_no_queries_is_no_work),
        cmocka_unit_test(one_key_has_weight_one_and_entropy_zero),
        cmocka_unit_test(neighbouring_query_heads_share_a_key_head),
        cmocka_unit_test(causal_is_aligned_as_asked),
        cmocka_unit_test(a_window_counts_the_keys_beside_the_own_position),
        cmocka_unit_test(alibi_measures_from_the_aligned_position),
        cmocka_unit_test(alibi_slopes_are_those_of_released_models),
        cmocka_unit_test(a_ring_of_keys_is_the_window_whatever_their_order),
        cmocka_unit_test(a_sink_key_is_seen_beside_the_window),
        cmocka_unit_test(a_sink_joins_the_sum_and_has_no_value),
        cmocka_unit_test(dropout_keeps_the_mean_and_leaves_weights_alone),
        cmocka_unit_test(every_bad_argument_is_named_and_outputs_stay),
        cmocka_unit_test(a_level_that_is_not_there_is_an_error),
        cmocka_unit_test(what_is_not_there_takes_no_time_however_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
