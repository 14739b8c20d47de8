/* e^x as weights are computed, reached through `weigh` and through `softmax`: with
 * reference 0 and a factor of 1 the weight of a score is its exponential. */
#include "kernel/table.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 128, FLOATS = KEYS * ATTN_PANEL_LANES };

typedef void take_exponentials(const struct attn_kernels *kernels, float *x);

static void take_by_weigh(const struct attn_kernels *kernels, float *x)
{
    static struct attn_panel panel;
    static float inverse[ATTN_PANEL_LANES];
    panel.vectors = ATTN_PANEL_VECTORS;
    for (size_t i = 0; i < ATTN_PANEL_LANES; i++)
        inverse[i] = 1.0f;
    kernels->weigh(x, &panel, inverse, KEYS);
}

static void take_by_softmax(const struct attn_kernels *kernels, float *x)
{
    static const struct attn_block block = {.keys = KEYS, .full_end = KEYS};
    static const struct attn_sweep sweep = {.entropy = false};
    static struct attn_panel panel;
    panel.vectors = ATTN_PANEL_VECTORS;
    kernels->softmax(&panel, x, &block, &sweep);
}

static void on_every_level(void (*check)(const struct attn_kernels *))
{
    static const char *const levels[] = {"generic",    "avx2", "avx512",
                                         "avx512bf16", "amx",  "neon"};
    size_t ran = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const struct attn_kernels *const kernels = attn_kernels_find(levels[i]);
        if (!kernels) {
            print_message("%s: not on this machine\n", levels[i]);
            continue;
        }
        check(kernels);
        ran++;
    }
    assert_true(ran > 0);
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* See vf_exp_flushed. */
static bool is_short(const struct attn_kernels *kernels, take_exponentials *take)
{
    return strcmp(kernels->isa, "amx") == 0 && take == take_by_softmax;
}

/* What |x| times this adds, in parts of the result: log2 e has 24 bits, and without fused
 * multiply-adds, or where steps are few, its product with x has no more. */
static double reduction_error(const struct attn_kernels *kernels, take_exponentials *take)
{
    const bool rounds = strcmp(kernels->isa, "generic") == 0 || is_short(kernels, take);
    return rounds ? 0x1.4p-24 : 0x1p-26;
}

/* Both signs, from 2⁻⁴⁰ to 87, every 419th float: two million of them. */
static void check_errors(const struct attn_kernels *kernels, take_exponentials *take)
{
    static float x[FLOATS], y[FLOATS];
    uint32_t bits = 0x2b800000;
    const size_t width = kernels->lanes * ATTN_PANEL_VECTORS;
    double largest = 0.0;
    while (bits < 0x42ae0000) {
        size_t n = 0;
        for (; n < KEYS * width; n++, bits += 419)
            x[n] = bits < 0x42ae0000 ? float_of(bits | (uint32_t)(n & 1) << 31) : 0.0f;
        memcpy(y, x, sizeof y);
        take(kernels, y);
        for (size_t i = 0; i < n; i++) {
            const double right = exp((double)x[i]);
            int exponent;
            frexp(right, &exponent);
            const double ulp = ldexp(1.0, exponent - 24);
            const double error =
                fabs((double)y[i] - right) -
                fabs((double)x[i]) * reduction_error(kernels, take) * right;
            largest = fmax(largest, error / ulp);
        }
    }
    print_message("%s: %.2f ulp\n", kernels->isa, largest);
    assert_true(largest <= (is_short(kernels, take) ? 2.5 : 2.0));
}

static void check_errors_of_both(const struct attn_kernels *kernels)
{
    check_errors(kernels, take_by_weigh);
    check_errors(kernels, take_by_softmax);
}

static void exp_is_right_to_its_bound(void **state)
{
    (void)state;
    on_every_level(check_errors_of_both);
}

static void check_ends(const struct attn_kernels *kernels, take_exponentials *take)
{
    static float x[FLOATS];
    static const float ends[] = {0.0f, -0.0f, -INFINITY, -88.03f, -1000.0f, NAN, -87.5f};
    for (size_t i = 0; i < FLOATS; i++)
        x[i] = ends[i % 7];
    take(kernels, x);
    for (size_t i = 0; i < KEYS * kernels->lanes * ATTN_PANEL_VECTORS; i++) {
        const size_t which = i % 7;
        if (which < 2)
            assert_true(x[i] == 1.0f);
        else if (which < 5)
            assert_true(x[i] == 0.0f);
        else if (which == 5)
            assert_true(isnan(x[i]));
        else
            assert_true(x[i] >= 0.0f && x[i] <= 0x1p-126f);
    }
}

static void check_ends_of_both(const struct attn_kernels *kernels)
{
    check_ends(kernels, take_by_weigh);
    check_ends(kernels, take_by_softmax);
}

static void exp_of_0_is_1_and_below_the_floor_0_and_of_nan_nan(void **state)
{
    (void)state;
    on_every_level(check_ends_of_both);
}

static void check_subnormal(const struct attn_kernels *kernels)
{
    static float x[FLOATS];
    volatile float smallest_normal = 0x1p-126f;
    take_by_softmax(kernels, x);
    assert_true(smallest_normal * 0.5f == 0x1p-127f);
}

static void softmax_leaves_the_caller_its_subnormal_numbers(void **state)
{
    (void)state;
    on_every_level(check_subnormal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_right_to_its_bound),
        cmocka_unit_test(exp_of_0_is_1_and_below_the_floor_0_and_of_nan_nan),
        cmocka_unit_test(softmax_leaves_the_caller_its_subnormal_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
