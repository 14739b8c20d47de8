/* fp32 in three parts of bfloat16. */
#include "kernel/bf16x3.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static vf all_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return vf_set1(x);
}

static bool is_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0xffff) == 0;
}

/* Of every 97th float of both signs. */
static void three_parts_are_the_number(void **state)
{
    (void)state;
    const uint32_t least = 0x0c800000 /* 2⁻¹⁰² */, end = 0x7f7f8000 /* 0x1.ffp127 */;
    for (uint32_t bits = least; bits < end; bits += 97) {
        vf part[BF16_PARTS];
        const vf x = all_of(bits | (bits & 1) << 31);
        split_in_parts(x, part);
        assert_true(is_bf16(part[0][0]) && is_bf16(part[1][0]) && is_bf16(part[2][0]));
        assert_true(part[2][0] + part[1][0] + part[0][0] == x[0]);
        assert_true(fabsf(part[1][0]) <= 0x1p-8f * fabsf(x[0]));
        assert_true(fabsf(part[2][0]) <= 0x1p-16f * fabsf(x[0]));
    }
    vf part[BF16_PARTS];
    split_in_parts(vf_set1(-0.0f), part);
    assert_true(part[0][0] == 0.0f && part[1][0] == 0.0f && part[2][0] == 0.0f);
}

/* Where parts below 2⁻¹²⁶ count as 0. */
static void little_is_lost_of_a_tiny_number(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x0c800000; bits += 97) {
        vf part[BF16_PARTS];
        const vf x = all_of(bits | (bits & 1) << 31);
        double sum = 0.0;
        split_in_parts(x, part);
        for (size_t n = 0; n < BF16_PARTS; n++)
            sum += fabsf(part[n][0]) < 0x1p-126f ? 0.0 : (double)part[n][0];
        assert_true(fabs(sum - (double)x[0]) < 3.0 * 0x1p-126);
    }
}

static void pairs_hold_the_upper_halves(void **state)
{
    (void)state;
    const vf pair = vf_pair_upper(all_of(0x3f810000), all_of(0xc0420000));
    assert_int_equal((uint32_t)vf_bits(pair)[0], 0xc0423f81);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_parts_are_the_number),
        cmocka_unit_test(little_is_lost_of_a_tiny_number),
        cmocka_unit_test(pairs_hold_the_upper_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
