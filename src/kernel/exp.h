/* e^x = 2^n · 2^(i/S) · 2^f, where n + i/S is the multiple of 1/S nearest to x·log2 e:
 * the exponent field gets n, a table held in registers gives 2^(i/S), and a polynomial
 * (minimax for its degree, constant term 1) gives 2^f.  The larger the table, the shorter
 * the polynomial; and multiply-adds are what a softmax waits for, while lookups and
 * shifts go on other units beside them.
 *
 * Largest error 1 ulp (S = 1), 1.2 ulp (S = 8), 1.8 ulp (S = 32) for small |x|, and
 * |x|·2⁻²⁶ more of the result, from log2 e in 24 bits (without fused multiply-adds
 * |x|·2⁻²⁴): nothing to a softmax, where that is a part of a weight below e^x.  Below
 * 2⁻¹²⁶ results are off by less than that. */
#ifndef ATTN_KERNEL_EXP_H
#define ATTN_KERNEL_EXP_H

#include "kernel/simd.h"

/* −127·ln 2.  From here down the result is exactly 0, so a hidden key's −∞ needs no case
 * of its own. */
#define VF_EXP_FLOOR (-88.03f)

/* The table has the bits of 2^(i/S) less those of 1 and less i·2²³/S, so that it and
 * (n + i/S)·2²³ add up to the bits of 2^(n + i/S).  The coefficients are those of f, f²,
 * … */
#if VF_TABLE == 32
static const int32_t exp_table[VF_TABLE] = {
    0,       -78457,  -152893, -223217, -289342, -351174, -408621, -461584,
    -509968, -553670, -592590, -626621, -655657, -679589, -698305, -711690,
    -719629, -722001, -718684, -709555, -694486, -673346, -646004, -612322,
    -572163, -525384, -471841, -411385, -343865, -269126, -187011, -97357,
};
static const float exp_coefficients[] = {0x1.62e584p-1f, 0x1.ebfbdep-3f};
#elif VF_TABLE == 8
static const int32_t exp_table[VF_TABLE] = {
    0, -289342, -509968, -655657, -719629, -694486, -572163, -343865,
};
static const float exp_coefficients[] = {0x1.62e432p-1f, 0x1.ec0c32p-3f, 0x1.c6a004p-5f};
#else
static const float exp_coefficients[] = {0x1.62e430p-1f,  0x1.ebfbdap-3f,
                                         0x1.c6aed4p-5f,  0x1.3b2dbcp-7f,
                                         0x1.5f456ap-10f, 0x1.41d334p-13f};
#endif
enum { EXP_DEGREE = sizeof exp_coefficients / sizeof *exp_coefficients };

/* Wants VF_EXP_FLOOR ≤ x ≤ 88, or NaN, which stays NaN.  e^0 is exactly 1. */
INLINE vf vf_exp(vf x)
{
    /* Adding 1.5·2²³/S leaves n·S + i, rounded, in the low bits of the sum; 127 is fp32's
     * exponent bias. */
    const vf shifter = vf_set1(0x1.8p23f / VF_TABLE + 127.0f);
    const vf log2_e = vf_set1(0x1.715476p+0f);
    const vf shifted = vf_fma(x, log2_e, shifter);
    const vf f = vf_fma(x, log2_e, shifter - shifted);
    vu bits = (vu)shifted * (0x800000u / VF_TABLE); /* unsigned: it wraps around */
#if VF_TABLE > 1
    bits += (vu)vi_lookup(exp_table, vf_bits(shifted));
#endif
    const vf power = (vf)bits;

    vf p = vf_set1(exp_coefficients[EXP_DEGREE - 1]);
#pragma GCC unroll 6
    for (int i = EXP_DEGREE - 2; i >= 0; i--)
        p = vf_fma(p, f, vf_set1(exp_coefficients[i]));
    return vf_fma(power * f, p, power);
}

/* The same of any x ≤ 88, −∞ too, between vf_flush_begin and vf_flush_end.  Where scaling
 * by 2^floor(y) is one step, and so is taking the rest, 2^y needs neither a table nor a
 * bound on x: a softmax takes ten steps in place of twelve.  Largest error 1.9 ulp of
 * 2^y, which is 2.2 of e^x for small |x|, and |x|·2⁻²⁴ more of the result, since y =
 * x·log2 e is rounded. */
INLINE vf vf_exp_flushed(vf x)
{
#if VF_TWO_MULTIPLIERS
    static const float coefficients[] = {0x1.62e500p-1f, 0x1.ebd04cp-3f, 0x1.c9a39cp-5f,
                                         0x1.24f44cp-7f, 0x1.f1bdfep-10f};
    const vf y = x * vf_set1(0x1.715476p+0f), f = vf_fraction(y);
    vf p = vf_set1(coefficients[4]);
#    pragma GCC unroll 4
    for (int i = 3; i >= 0; i--)
        p = vf_fma(p, f, vf_set1(coefficients[i]));
    return vf_scale(vf_fma(p, f, vf_set1(1.0f)), y);
#else
    return vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), x));
#endif
}

#endif
