/* Operations over elements and rows: values against loops in double, gradients against
 * central differences, on every instruction set of this processor. */
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double STEP = 0.01, TOLERANCE = 2e-3;

/* ---- element by element ---- */

static attn_tensor *build_add(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    (void)user;
    /* a is read twice, b three times: gradients meet in every order. */
    attn_tensor *const sum = attn_add(tape, leaves[0], leaves[1]);
    return attn_add(tape, attn_add(tape, sum, sum), leaves[1]);
}

static attn_tensor *build_add_dropout(attn_tape *tape, attn_tensor *const *leaves,
                                      void *user)
{
    const float *const probability = user;
    attn_tensor *const sum = attn_add_dropout(tape, leaves[0], leaves[1], *probability);
    return attn_dropout(tape, attn_add_dropout(tape, sum, sum, *probability),
                        *probability);
}

static void sums_and_dropout_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float a[3 * 7], b[3 * 7];
    test_fill(a, 21, 1), test_fill(b, 21, 2);
    const test_leaf leaves[] = {{a, 2, {3, 7}, false}, {b, 2, {3, 7}, false}};
    EACH_TAPE(tape)
    {
        test_gradients(tape, build_add, NULL, leaves, 2, (float)STEP, TOLERANCE);
        float probability = 0.3f;
        test_gradients(tape, build_add_dropout, &probability, leaves, 2, (float)STEP,
                       TOLERANCE);
        probability = 0.0f;
        test_gradients(tape, build_add_dropout, &probability, leaves, 2, (float)STEP,
                       TOLERANCE);
    }
}

static double activation_value(attn_activation activation, double x)
{
    switch (activation) {
    case ATTN_RELU:
        return x > 0.0 ? x : 0.0;
    case ATTN_GELU:
        return x * 0.5 * erfc(-x / sqrt(2.0));
    case ATTN_GELU_TANH:
        return 0.5 * x *
               (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ATTN_SILU:
        return x / (1.0 + exp(-x));
    case ATTN_TANH:
        return tanh(x);
    }
    return 0.0;
}

static void activations_are_the_functions_they_are_named_after(void **state)
{
    (void)state;
    enum { N = 4001 };
    float *const x = malloc(N * sizeof *x);
    for (size_t i = 0; i < N; i++)
        x[i] = ((float)i - 2000.0f) / 100.0f;
    x[0] = -200.0f, x[N - 1] = 200.0f, x[1] = 1e-30f, x[2] = 1e20f;
    EACH_TAPE(tape)
    {
        for (int activation = ATTN_RELU; activation <= ATTN_TANH; activation++) {
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const y = attn_activate(
                tape, attn_tape_leaf(tape, x, NULL, 1, (const int64_t[]){N}),
                (attn_activation)activation);
            for (size_t i = 0; i < N; i++)
                test_close((double)y->data[i],
                           activation_value((attn_activation)activation, (double)x[i]),
                           1e-6, "activation", i);
        }
    }
    free(x);
}

static attn_tensor *build_activate(attn_tape *tape, attn_tensor *const *leaves,
                                   void *user)
{
    const attn_activation *const activation = user;
    return attn_activate(tape, leaves[0], *activation);
}

static void activations_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float x[35];
    for (size_t i = 0; i < 35; i++)
        x[i] = ((float)i - 17.3f) / 5.0f; /* none within a step of 0, where relu bends */
    const test_leaf leaf = {x, 1, {35}, false};
    EACH_TAPE(tape)
    {
        for (int i = ATTN_RELU; i <= ATTN_TANH; i++) {
            attn_activation activation = (attn_activation)i;
            test_gradients(tape, build_activate, &activation, &leaf, 1, (float)STEP,
                           TOLERANCE);
        }
    }
}

static void a_nan_stays_a_nan_through_every_activation(void **state)
{
    (void)state;
    float x[] = {NAN, 1.0f};
    EACH_TAPE(tape)
    {
        for (int i = ATTN_RELU; i <= ATTN_TANH; i++) {
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const y = attn_activate(
                tape, attn_tape_leaf(tape, x, NULL, 1, (const int64_t[]){2}),
                (attn_activation)i);
            assert_true(isnan(y->data[0]) && !isnan(y->data[1]));
        }
    }
}

enum { DRAWS = 300000 };

static attn_tensor *drop_ones(attn_tape *tape, float *ones, uint64_t seed,
                              float probability)
{
    attn_tape_begin(tape, true, seed);
    return attn_dropout(
        tape, attn_tape_leaf(tape, ones, NULL, 1, (const int64_t[]){DRAWS}), probability);
}

static void dropout_keeps_its_share_and_the_mean(void **state)
{
    (void)state;
    float *const ones = malloc(DRAWS * sizeof *ones);
    for (size_t i = 0; i < DRAWS; i++)
        ones[i] = 1.0f;
    EACH_TAPE(tape)
    {
        for (int tenths = 1; tenths < 10; tenths += 2) {
            const double p = tenths / 10.0;
            const attn_tensor *const y = drop_ones(tape, ones, 11, (float)p);
            double kept = 0.0, pairs = 0.0;
            for (size_t i = 0; i < DRAWS; i++) {
                assert_true(y->data[i] == 0.0f || y->data[i] == 1.0f / (1.0f - (float)p));
                kept += y->data[i] != 0.0f;
                pairs += i > 0 && y->data[i] != 0.0f && y->data[i - 1] != 0.0f;
            }
            const double q = 1.0 - p;
            assert_true(fabs(kept - DRAWS * q) < 5.0 * sqrt(DRAWS * p * q));
            assert_true(fabs(pairs - DRAWS * q * q) <
                        5.0 * sqrt(3.0 * DRAWS * q * q * (1.0 - q * q)));
        }
    }
    free(ones);
}

static void dropout_of_one_seed_is_one_draw_on_every_instruction_set(void **state)
{
    (void)state;
    float *const ones = malloc(DRAWS * sizeof *ones), *first = NULL;
    for (size_t i = 0; i < DRAWS; i++)
        ones[i] = 1.0f;
    EACH_TAPE(tape)
    {
        const attn_tensor *y = drop_ones(tape, ones, 3, 0.1f);
        if (!first) {
            first = malloc(DRAWS * sizeof *first);
            memcpy(first, y->data, DRAWS * sizeof *first);
        }
        assert_memory_equal(first, y->data, DRAWS * sizeof *first);
        y = drop_ones(tape, ones, 4, 0.1f);
        size_t both = 0;
        for (size_t i = 0; i < DRAWS; i++)
            both += y->data[i] == 0.0f && first[i] == 0.0f;
        assert_true(fabs((double)both - DRAWS * 0.01) < 5.0 * sqrt(DRAWS * 0.01));
    }
    free(ones), free(first);
}

static void dropout_of_all_is_zero_and_of_none_is_the_tensor_itself(void **state)
{
    (void)state;
    float *const ones = malloc(DRAWS * sizeof *ones);
    for (size_t i = 0; i < DRAWS; i++)
        ones[i] = 1.0f;
    EACH_TAPE(tape)
    {
        const attn_tensor *const y = drop_ones(tape, ones, 3, 1.0f);
        for (size_t i = 0; i < DRAWS; i++)
            assert_true(y->data[i] == 0.0f);
        assert_ptr_equal(drop_ones(tape, ones, 3, 0.0f)->data, ones);
        attn_tape_begin(tape, false, 3);
        attn_tensor *const x =
            attn_tape_leaf(tape, ones, NULL, 1, (const int64_t[]){DRAWS});
        assert_ptr_equal(attn_dropout(tape, x, 0.5f), x);
    }
    free(ones);
}

/* ---- layer norm ---- */

struct norm_case {
    float epsilon, expected;
};

static void layer_norm_of_a_tiny_row_depends_on_epsilon_as_it_should(void **state)
{
    (void)state;
    static const struct norm_case cases[] = {
        {1e-12f, 1.0f}, {1e-6f, 0.707106781f}, {1e-5f, 0.301511345f}};
    float x[] = {0.001f, -0.001f}, gain[] = {1.0f, 1.0f}, bias[] = {0.0f, 0.0f};
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < 3; c++) {
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const y = attn_layer_norm(
                tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){1, 2}),
                attn_tape_leaf(tape, gain, NULL, 1, (const int64_t[]){2}),
                attn_tape_leaf(tape, bias, NULL, 1, (const int64_t[]){2}),
                cases[c].epsilon);
            test_close((double)y->data[0], (double)cases[c].expected, 3e-6, "norm", c);
            test_close((double)y->data[1], -(double)cases[c].expected, 3e-6, "norm", c);
        }
    }
}

static attn_tensor *build_norm(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    const float *const epsilon = user;
    return attn_layer_norm(tape, leaves[0], leaves[1], leaves[2], *epsilon);
}

static void layer_norm_of_a_constant_row_is_exactly_the_bias(void **state)
{
    (void)state;
    enum { WIDTH = 257 };
    float x[WIDTH], gain[WIDTH], bias[WIDTH];
    test_fill(gain, WIDTH, 1), test_fill(bias, WIDTH, 2);
    for (size_t i = 0; i < WIDTH; i++)
        x[i] = 0.1f;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const y = attn_layer_norm(
            tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){1, WIDTH}),
            attn_tape_leaf(tape, gain, NULL, 1, (const int64_t[]){WIDTH}),
            attn_tape_leaf(tape, bias, NULL, 1, (const int64_t[]){WIDTH}), 1e-12f);
        assert_memory_equal(y->data, bias, sizeof bias);
    }
}

static void layer_norm_is_the_formula(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 69 };
    float x[ROWS * WIDTH], gain[WIDTH], bias[WIDTH], epsilon = 1e-5f;
    test_fill(x, ROWS * WIDTH, 3), test_fill(gain, WIDTH, 1), test_fill(bias, WIDTH, 2);
    for (size_t i = 0; i < WIDTH; i++)
        x[WIDTH + i] += 1000.0f;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        attn_tensor *const leaves[] = {
            attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){ROWS, WIDTH}),
            attn_tape_leaf(tape, gain, NULL, 1, (const int64_t[]){WIDTH}),
            attn_tape_leaf(tape, bias, NULL, 1, (const int64_t[]){WIDTH})};
        const attn_tensor *const y = build_norm(tape, leaves, &epsilon);
        for (size_t r = 0; r < ROWS; r++) {
            double mean = 0.0, variance = 0.0;
            for (size_t i = 0; i < WIDTH; i++)
                mean += (double)x[r * WIDTH + i] / WIDTH;
            for (size_t i = 0; i < WIDTH; i++)
                variance += pow((double)x[r * WIDTH + i] - mean, 2.0) / WIDTH;
            for (size_t i = 0; i < WIDTH; i++)
                test_close((double)y->data[r * WIDTH + i],
                           ((double)x[r * WIDTH + i] - mean) / sqrt(variance + 1e-5) *
                                   (double)gain[i] +
                               (double)bias[i],
                           4e-6, "norm", r * WIDTH + i);
        }
    }
}

static void layer_norm_has_the_gradients_of_differences(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 21 };
    float x[ROWS * WIDTH], gain[WIDTH], bias[WIDTH], epsilon = 1e-5f;
    test_fill(x, ROWS * WIDTH, 3), test_fill(gain, WIDTH, 1), test_fill(bias, WIDTH, 2);
    const test_leaf leaves[] = {{x, 2, {ROWS, WIDTH}, false},
                                {gain, 1, {WIDTH}, false},
                                {bias, 1, {WIDTH}, false}};
    EACH_TAPE(tape)
    {
        test_gradients(tape, build_norm, &epsilon, leaves, 3, (float)STEP, TOLERANCE);
    }
}

/* ---- embedding ---- */

static attn_tensor *build_embedding(attn_tape *tape, attn_tensor *const *leaves,
                                    void *user)
{
    static const int32_t ids[] = {2, 0, 2, 3}, others[] = {0, 0, 1, 3};
    (void)user;
    attn_tensor *const once = attn_embedding(tape, leaves[0], ids, 4, 1.5f);
    return attn_add(tape, once, attn_embedding(tape, leaves[0], others, 4, 1.0f));
}

static void embedding_has_the_gradients_of_differences(void **state)
{
    (void)state;
    float table[4 * 5];
    test_fill(table, 20, 1);
    const test_leaf leaf = {table, 2, {4, 5}, false};
    EACH_TAPE(tape)
    {
        test_gradients(tape, build_embedding, NULL, &leaf, 1, (float)STEP, TOLERANCE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_dropout_have_the_gradients_of_differences),
        cmocka_unit_test(activations_are_the_functions_they_are_named_after),
        cmocka_unit_test(activations_have_the_gradients_of_differences),
        cmocka_unit_test(a_nan_stays_a_nan_through_every_activation),
        cmocka_unit_test(dropout_keeps_its_share_and_the_mean),
        cmocka_unit_test(dropout_of_one_seed_is_one_draw_on_every_instruction_set),
        cmocka_unit_test(dropout_of_all_is_zero_and_of_none_is_the_tensor_itself),
        cmocka_unit_test(layer_norm_of_a_tiny_row_depends_on_epsilon_as_it_should),
        cmocka_unit_test(layer_norm_of_a_constant_row_is_exactly_the_bias),
        cmocka_unit_test(layer_norm_is_the_formula),
        cmocka_unit_test(layer_norm_has_the_gradients_of_differences),
        cmocka_unit_test(embedding_has_the_gradients_of_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
