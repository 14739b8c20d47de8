/* fp32 multiplied in three parts of bfloat16, where a processor has tiles: as exact as
 * multiply-adds, whatever the numbers, and with the same bits whichever way it goes. */
#include "attention/reference.h"
#include "dense.h"
#include "near.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t outputs_of(const struct dense *c)
{
    return c->shape.B * c->shape.H * c->shape.Lq * c->shape.Dv;
}

/* A few times N(0, 1), nearly. */
static void make_normal(float *x, int64_t count, float scale, float offset)
{
    for (int64_t n = 0; n < count; n++) {
        float sum = 0.0f;
        for (int i = 0; i < 9; i++)
            sum += random_float(); /* of variance 4/3 */
        x[n] = offset + scale * sum / sqrtf(12.0f);
    }
}

static double largest_error(const char *isa, struct dense *c, const float *exact)
{
    attn_context *const context = context_of(isa, 1);
    double largest = 0.0;
    dense_forward(context, c);
    for (int64_t n = 0; n < outputs_of(c); n++)
        largest = fmax(largest, fabs((double)c->output[n] - (double)exact[n]));
    attn_context_destroy(context);
    return largest;
}

static void errors_are_no_larger_than_those_of_multiply_adds(void **state)
{
    (void)state;
    enum { QUERIES = 520, KEYS = 3000 };
    const attn_shape shape = {1, 1, 1, QUERIES, KEYS, 64, 64};
    static const float scales[][2] = {{1, 0}, {1, 10}, {3, 0}, {1e-20f, 0}, {1e20f, 0}};
    for (int s = 0; s < 5; s++) {
        struct dense c = dense_create(shape, false);
        make_normal(c.query, QUERIES * 64, 1.0f, 0.0f);
        make_normal(c.key, KEYS * 64, s == 2 ? 3.0f : 1.0f, 0.0f);
        make_normal(c.value, KEYS * 64, scales[s][0], scales[s][1]);
        const attn_tensors tensors = dense_tensors(&c);
        assert_int_equal(attn_forward_reference(&shape, &tensors, &c.options), ATTN_OK);
        float *const exact = copied(c.output, outputs_of(&c));
        const double by_tiles = largest_error("amx", &c, exact);
        const double by_lanes = largest_error("avx512", &c, exact);
        const double size = fabs((double)scales[s][0]) + fabs((double)scales[s][1]);
        print_message("values of %g + %g: %.2g and %.2g of them\n", (double)scales[s][1],
                      (double)scales[s][0], by_tiles / size, by_lanes / size);
        assert_true(by_tiles <= 1.1 * by_lanes);
        free(exact);
        dense_destroy(&c);
    }
}

/* With received mass panels go by separate steps; without, columns go side by side. */
static void side_by_side_changes_no_bit(void **state)
{
    (void)state;
    attn_context *const one = context_of("amx", 1), *const eight = context_of("amx", 8);
    for (int n = 0; n < 6; n++) {
        const attn_shape shape = {1,           2,          1, 700 - n, 650 + 17 * n,
                                  40 + 11 * n, 24 + 13 * n};
        struct dense c = dense_create(shape, false);
        c.options.causal = n % 2;
        c.options.window_left = n == 3 ? 300 : -1;
        c.value[13] = n == 4 ? 1e-35f : c.value[13];
        c.key[shape.D * 300 + 5] = n == 5 ? 1e25f : c.key[5];
        float *const received = floats(2 * shape.Lk);
        attn_tensors tensors = dense_tensors(&c);
        dense_forward(one, &c);
        float *const before = copied(c.output, outputs_of(&c));
        dense_forward(eight, &c);
        assert_memory_equal(before, c.output, (size_t)outputs_of(&c) * sizeof *before);
        tensors.statistics.received = received;
        assert_ok(one, attn_forward(one, &shape, &tensors, &c.options));
        assert_memory_equal(before, c.output, (size_t)outputs_of(&c) * sizeof *before);
        free(before), free(received);
        dense_destroy(&c);
    }
    attn_context_destroy(one), attn_context_destroy(eight);
}

static int kind_of(float x)
{
    return isnan(x) ? 3 : isinf(x) ? (x > 0 ? 2 : 1) : 0;
}

enum place { IN_QUERY, IN_KEY, IN_VALUE };

/* What an extreme number does to the rows that meet it, and that it does nothing to
 * others: those of other queries, or before its key. */
static void check_extreme(attn_context *tiles, attn_context *lanes, float extreme,
                          enum place place)
{
    enum { D = 40, LENGTH = 600, ROW = 77 };
    const attn_shape shape = {1, 1, 1, LENGTH, LENGTH, D, D};
    struct dense c = dense_create(shape, false);
    float *const of[] = {[IN_QUERY] = c.query, [IN_KEY] = c.key, [IN_VALUE] = c.value};
    c.options.causal = true;
    dense_forward(tiles, &c);
    float *const clean = copied(c.output, outputs_of(&c));
    of[place][ROW * D + 3] = extreme;
    dense_forward(lanes, &c);
    float *const expected = copied(c.output, outputs_of(&c));
    dense_forward(tiles, &c);
    for (int i = 0; i < LENGTH; i++)
        for (int d = i * D; d < (i + 1) * D; d++) {
            if (place == IN_QUERY ? i != ROW : i < ROW)
                assert_true(memcmp(&c.output[d], &clean[d], sizeof *clean) == 0);
            else if (kind_of(expected[d]) == 0)
                assert_near(c.output[d], expected[d], 4e-6, "output", (size_t)d);
            else
                assert_int_equal(kind_of(c.output[d]), kind_of(expected[d]));
        }
    free(clean), free(expected);
    dense_destroy(&c);
}

static void extreme_numbers_do_what_they_do_to_multiply_adds(void **state)
{
    (void)state;
    static const float extremes[] = {NAN,    INFINITY, -INFINITY, 3.4e38f, -3.4e38f,
                                     1e30f,  -1e19f,   0x1p60f,   0x1p59f, 1e-30f,
                                     1e-38f, 1e-44f,   -1e-40f};
    attn_context *const tiles = context_of("amx", 1);
    attn_context *const lanes = context_of("avx512", 1);
    for (size_t n = 0; n < sizeof extremes / sizeof *extremes; n++) {
        check_extreme(tiles, lanes, extremes[n], IN_QUERY);
        check_extreme(tiles, lanes, extremes[n], IN_KEY);
        check_extreme(tiles, lanes, extremes[n], IN_VALUE);
    }
    attn_context_destroy(tiles), attn_context_destroy(lanes);
}

/* A product of theirs is ∞, which makes the row NaN, or −∞, which hides the key: as of
 * any numbers but 0. */
static void the_smallest_queries_are_not_0_to_an_infinite_key(void **state)
{
    (void)state;
    enum { D = 40, LENGTH = 600, KEY = 77 };
    const attn_shape shape = {1, 1, 1, LENGTH, LENGTH, D, D};
    attn_context *const tiles = context_of("amx", 1);
    for (int causal = 0; causal < 2; causal++) {
        struct dense c = dense_create(shape, false);
        c.options.causal = causal;
        for (int n = 0; n < LENGTH * D; n++)
            c.query[n] *= 1e-40f;
        for (int row = 0; row < LENGTH; row++)
            c.query[row * D + 3] = row % 2 ? 1e-40f : -1e-40f;
        c.key[KEY * D + 3] = INFINITY;
        dense_forward(tiles, &c);
        for (int row = KEY; row < LENGTH; row++)
            assert_int_equal(kind_of(c.output[row * D]), row % 2 ? 3 : 0);
        dense_destroy(&c);
    }
    attn_context_destroy(tiles);
}

/* A key of tiny elements by a query of huge ones. */
static void huge_by_tiny_is_as_exact_as_anything(void **state)
{
    (void)state;
    enum { D = 33, LENGTH = 520 };
    const attn_shape shape = {1, 1, 1, LENGTH, LENGTH, D, D};
    for (int exponent = 20; exponent <= 120; exponent += 20) {
        struct dense c = dense_create(shape, false);
        for (int n = 0; n < LENGTH * D; n++) {
            c.query[n] = ldexpf(c.query[n], exponent);
            c.key[n] = ldexpf(c.key[n], -exponent);
        }
        const attn_tensors tensors = dense_tensors(&c);
        assert_int_equal(attn_forward_reference(&shape, &tensors, &c.options), ATTN_OK);
        float *const exact = copied(c.output, outputs_of(&c));
        assert_true(largest_error("amx", &c, exact) <= 4e-6 * 2.0);
        free(exact);
        dense_destroy(&c);
    }
}

/* Sums of gates go with products: with those of a key that is mended too, whatever the
 * number of keys, and side by side as one by one. */
static void gates_leave_rows_exact_and_their_bits_to_them_alone(void **state)
{
    (void)state;
    enum { D = 40, LENGTH = 700, LESS = 643, CLOSED = 400, HUGE_KEY = 300 };
    attn_context *const context = context_of("amx", 1);
    float *const gates = floats(LENGTH), *const received = floats(LENGTH);
    for (int j = 0; j < LENGTH; j++)
        gates[j] = j % 7 == 0 ? -9.0f : -0.1f * fabsf(random_float());
    gates[CLOSED] = -INFINITY;
    for (int mended = 0; mended < 2; mended++) {
        struct dense c = dense_create((attn_shape){1, 1, 1, LENGTH, LENGTH, D, D}, false);
        attn_tensors tensors = dense_tensors(&c);
        c.options.causal = true;
        c.options.window_left = mended ? 333 : -1;
        c.options.log_forget = attn_input_dense(gates, 1, LENGTH, 1);
        c.key[HUGE_KEY * D + 5] = mended ? 0x1p61f : c.key[5];
        assert_int_equal(attn_forward_reference(&c.shape, &tensors, &c.options), ATTN_OK);
        float *const exact = copied(c.output, LENGTH * D);
        dense_forward(context, &c);
        for (int n = 0; n < (mended ? HUGE_KEY : LENGTH) * D; n++)
            assert_near(c.output[n], exact[n], 4e-6, "output", (size_t)n);
        float *const before = copied(c.output, LENGTH * D);
        tensors.statistics.received = received;
        assert_ok(context, attn_forward(context, &c.shape, &tensors, &c.options));
        assert_memory_equal(before, c.output, LENGTH * D * sizeof *before);
        c.shape.Lq = c.shape.Lk = LESS;
        dense_forward(context, &c);
        assert_memory_equal(before, c.output, LESS * D * sizeof *before);
        free(exact), free(before);
        dense_destroy(&c);
    }
    free(gates), free(received);
    attn_context_destroy(context);
}

/* A weight of 0 takes nothing of a score of −∞, whoever hides it, in blocks that all
 * queries see; entropy is asked for alone. */
static void entropy_of_hidden_keys_is_a_number(void **state)
{
    (void)state;
    enum { D = 64, LENGTH = 512 };
    attn_context *const context = context_of("amx", 1);
    float *const entropy = floats(LENGTH), *const bias = floats(LENGTH * LENGTH);
    uint8_t *const keep = malloc(LENGTH * LENGTH);
    assert_non_null(keep);
    for (int n = 0; n < LENGTH * LENGTH; n++) {
        keep[n] = (n / LENGTH + 3 * n) % 5 != 0;
        bias[n] = keep[n] ? 0.0f : -INFINITY;
    }
    for (int by_bias = 0; by_bias < 2; by_bias++) {
        struct dense c = dense_create((attn_shape){1, 1, 1, LENGTH, LENGTH, D, D}, false);
        attn_tensors tensors = dense_tensors(&c);
        if (by_bias)
            c.options.bias = attn_input_dense(bias, 1, LENGTH, LENGTH);
        else
            c.options.keep = (attn_keep){keep, {0, 0, LENGTH, 1}};
        tensors.statistics.entropy = entropy;
        assert_int_equal(attn_forward_reference(&c.shape, &tensors, &c.options), ATTN_OK);
        float *const exact = copied(entropy, LENGTH);
        assert_ok(context, attn_forward(context, &c.shape, &tensors, &c.options));
        for (size_t n = 0; n < LENGTH; n++)
            assert_near(entropy[n], exact[n], 2e-5, "entropy", n);
        free(exact);
        dense_destroy(&c);
    }
    free(keep), free(bias), free(entropy);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_no_larger_than_those_of_multiply_adds),
        cmocka_unit_test(side_by_side_changes_no_bit),
        cmocka_unit_test(extreme_numbers_do_what_they_do_to_multiply_adds),
        cmocka_unit_test(the_smallest_queries_are_not_0_to_an_infinite_key),
        cmocka_unit_test(huge_by_tiny_is_as_exact_as_anything),
        cmocka_unit_test(gates_leave_rows_exact_and_their_bits_to_them_alone),
        cmocka_unit_test(entropy_of_hidden_keys_is_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
