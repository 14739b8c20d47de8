/* Rows side by side, pooling and convolutions: values against plain loops, gradients
 * against central differences. */
#include "nn/convolution.h"
#include "tensor_test.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 7, WIDTH = 3, OUT = 4 };
static const int64_t starts[] = {0, 3, 3, 7}; /* the second sequence is empty */
static const attn_packing packing = {3, starts};

static attn_tensor *leaf(attn_tape *tape, float *data, int64_t rows, int64_t columns)
{
    return attn_tape_leaf(tape, data, NULL, 2, (const int64_t[]){rows, columns});
}

static void pools_are_the_mean_and_the_largest_of_each_sequence(void **state)
{
    (void)state;
    float x[TOKENS * WIDTH];
    test_fill(x, TOKENS * WIDTH, 1);
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        attn_tensor *const rows = leaf(tape, x, TOKENS, WIDTH);
        const attn_tensor *const mean = attn_pool(tape, rows, ATTN_POOL_MEAN, 3, starts);
        const attn_tensor *const largest =
            attn_pool(tape, rows, ATTN_POOL_MAX, 3, starts);
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < WIDTH; i++) {
                double sum = 0.0, most = -HUGE_VAL;
                for (int64_t row = starts[s]; row < starts[s + 1]; row++) {
                    sum += (double)x[row * WIDTH + i];
                    most = fmax(most, (double)x[row * WIDTH + i]);
                }
                const double count = (double)(starts[s + 1] - starts[s]);
                const size_t at = (size_t)(s * WIDTH + i);
                test_close((double)mean->data[at], count > 0.0 ? sum / count : 0.0, 1e-6,
                           "mean", at);
                test_close((double)largest->data[at], count > 0.0 ? most : 0.0, 0.0,
                           "largest", at);
            }
    }
}

static void a_nan_is_the_largest(void **state)
{
    (void)state;
    float x[] = {1.0f, NAN, NAN, 2.0f, 3.0f, 1.0f};
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const y = attn_pool(tape, leaf(tape, x, 3, 2), ATTN_POOL_MAX,
                                               1, (const int64_t[]){0, 3});
        assert_true(isnan(y->data[0]) && isnan(y->data[1]));
    }
}

static attn_tensor *build_pools(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    (void)user;
    return attn_join(tape, attn_pool(tape, leaves[0], ATTN_POOL_MEAN, 3, starts),
                     attn_pool(tape, leaves[0], ATTN_POOL_MAX, 3, starts));
}

static attn_tensor *build_gather(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    (void)user;
    static const int32_t rows[] = {0, -1, 2, 2, 6, 0};
    return attn_gather(tape, leaves[0], rows, 3, 2);
}

/* x twice, and what is below it once. */
static attn_tensor *build_stack(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    (void)user;
    attn_tensor *const parts[] = {leaves[0], leaves[1], leaves[0]};
    return attn_stack(tape, parts, 3);
}

static void a_stack_has_the_rows_of_its_parts_below_each_other(void **state)
{
    (void)state;
    float x[TOKENS * WIDTH], below[2 * WIDTH];
    test_fill(x, TOKENS * WIDTH, 2);
    test_fill(below, 2 * WIDTH, 3);
    const test_leaf leaves[] = {{x, 2, {TOKENS, WIDTH}, false},
                                {below, 2, {2, WIDTH}, false}};
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        attn_tensor *const none = leaf(tape, x, 0, WIDTH);
        attn_tensor *const parts[] = {leaf(tape, x, TOKENS, WIDTH), none,
                                      leaf(tape, below, 2, WIDTH)};
        const attn_tensor *const y = attn_stack(tape, parts, 3);
        assert_int_equal(y->extent[0], TOKENS + 2);
        assert_memory_equal(y->data, x, sizeof x);
        assert_memory_equal(y->data + TOKENS * WIDTH, below, sizeof below);
        test_gradients(tape, build_stack, NULL, leaves, 2, 0.01f, 2e-3);
    }
}

static void a_stack_of_two_widths_or_of_nothing_is_refused(void **state)
{
    (void)state;
    float x[TOKENS * WIDTH] = {0};
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        attn_tensor *const parts[] = {leaf(tape, x, 3, 2), leaf(tape, x, 2, 3)};
        assert_null(attn_stack(tape, parts, 2));
        assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
        attn_tape_begin(tape, false, 0);
        assert_null(attn_stack(tape, parts, 0));
        assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    }
}

static void pools_and_gathers_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float x[TOKENS * WIDTH];
    test_fill(x, TOKENS * WIDTH, 2);
    const test_leaf leaves[] = {{x, 2, {TOKENS, WIDTH}, false}};
    EACH_TAPE(tape)
    {
        test_gradients(tape, build_pools, NULL, leaves, 1, 0.01f, 2e-3);
        test_gradients(tape, build_gather, NULL, leaves, 1, 0.01f, 2e-3);
    }
}

/* ---- Convolutions ---------------------------------------------------------------------
 */

static void fill_layer(attn_linear_layer *layer, attn_parameters *parameters, int64_t in)
{
    assert_int_equal(attn_linear_layer_add(layer, parameters, "conv", in, OUT), ATTN_OK);
    assert_int_equal(attn_parameters_allocate(parameters), ATTN_OK);
    test_fill(parameters->values, parameters->floats, 3);
}

static void a_convolution_sees_its_neighbours_and_no_other_sequence(void **state)
{
    (void)state;
    enum { TAPS = 3 };
    float x[TOKENS * WIDTH];
    test_fill(x, TOKENS * WIDTH, 4);
    attn_parameters parameters = {0};
    attn_linear_layer layer;
    fill_layer(&layer, &parameters, TAPS * WIDTH);
    const float *const weight = parameters.values + parameters.list[layer.weight].offset;
    const float *const bias = parameters.values + parameters.list[layer.bias].offset;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_pass pass = {tape, &parameters, NULL, NULL};
        const attn_tensor *const y =
            attn_convolve(&layer, &pass, leaf(tape, x, TOKENS, WIDTH), packing, TAPS);
        for (int s = 0; s < 3; s++)
            for (int64_t i = starts[s]; i < starts[s + 1]; i++)
                for (int o = 0; o < OUT; o++) {
                    double sum = (double)bias[o];
                    for (int64_t tap = 0; tap < TAPS; tap++) {
                        const int64_t from = i + tap - 1;
                        for (int n = 0;
                             n < WIDTH && from >= starts[s] && from < starts[s + 1]; n++)
                            sum += (double)weight[(o * TAPS + tap) * WIDTH + n] *
                                   (double)x[from * WIDTH + n];
                    }
                    test_close((double)y->data[i * OUT + o], sum, 2e-6, "y",
                               (size_t)(i * OUT + o));
                }
    }
    attn_parameters_free(&parameters);
}

static void a_convolution_of_pictures_strides_over_rows_and_columns(void **state)
{
    (void)state;
    enum { PICTURES = 2, ROWS = 5, COLUMNS = 4, CHANNELS = 2, TAPS = 3, STRIDE = 2 };
    float x[PICTURES * ROWS * COLUMNS * CHANNELS];
    test_fill(x, sizeof x / sizeof *x, 5);
    attn_parameters parameters = {0};
    attn_linear_layer layer;
    fill_layer(&layer, &parameters, TAPS * TAPS * CHANNELS);
    const float *const weight = parameters.values + parameters.list[layer.weight].offset;
    const float *const bias = parameters.values + parameters.list[layer.bias].offset;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_pass pass = {tape, &parameters, NULL, NULL};
        attn_grid grid = {PICTURES, ROWS, COLUMNS};
        const attn_tensor *const y = attn_convolve_grid(
            &layer, &pass, leaf(tape, x, PICTURES * ROWS * COLUMNS, CHANNELS), &grid,
            TAPS, STRIDE);
        assert_int_equal(grid.rows, 3);
        assert_int_equal(grid.columns, 2);
        for (int64_t at = 0; at < PICTURES * 3 * 2 * OUT; at++) {
            const int64_t o = at % OUT, place = at / OUT, p = place / 6;
            const int64_t row = place / 2 % 3 * STRIDE, column = place % 2 * STRIDE;
            double sum = (double)bias[o];
            for (int64_t tap = 0; tap < TAPS * TAPS; tap++) {
                const int64_t r = row + tap / TAPS - 1, c = column + tap % TAPS - 1;
                for (int64_t n = 0; n < CHANNELS; n++)
                    if (r >= 0 && r < ROWS && c >= 0 && c < COLUMNS)
                        sum += (double)weight[(o * TAPS * TAPS + tap) * CHANNELS + n] *
                               (double)x[((p * ROWS + r) * COLUMNS + c) * CHANNELS + n];
            }
            test_close((double)y->data[at], sum, 2e-6, "y", (size_t)at);
        }
    }
    attn_parameters_free(&parameters);
}

static void rows_that_are_not_there_are_named(void **state)
{
    (void)state;
    float x[TOKENS * WIDTH] = {0};
    const int32_t beyond[] = {0, 7}, below[] = {-2};
    EACH_TAPE(tape)
    {
        const attn_context *const context = attn_tape_context(tape);
        attn_tape_begin(tape, true, 0);
        assert_null(attn_gather(tape, leaf(tape, x, TOKENS, WIDTH), beyond, 1, 2));
        assert_non_null(strstr(attn_context_message(context),
                               "id 7 at place 1, expected -1 to 6: x has 7 rows"));
        attn_tape_begin(tape, true, 0);
        assert_null(attn_gather(tape, leaf(tape, x, TOKENS, WIDTH), below, 1, 1));
        attn_tape_begin(tape, true, 0);
        assert_null(attn_pool(tape, leaf(tape, x, TOKENS, WIDTH), ATTN_POOL_MAX, 1,
                              (const int64_t[]){0, 6}));
        assert_non_null(strstr(attn_context_message(context),
                               "starts of 1 sequences do not rise from 0 to the 7 rows"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_are_the_mean_and_the_largest_of_each_sequence),
        cmocka_unit_test(a_nan_is_the_largest),
        cmocka_unit_test(pools_and_gathers_have_the_gradients_of_differences),
        cmocka_unit_test(a_stack_has_the_rows_of_its_parts_below_each_other),
        cmocka_unit_test(a_stack_of_two_widths_or_of_nothing_is_refused),
        cmocka_unit_test(a_convolution_sees_its_neighbours_and_no_other_sequence),
        cmocka_unit_test(a_convolution_of_pictures_strides_over_rows_and_columns),
        cmocka_unit_test(rows_that_are_not_there_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
