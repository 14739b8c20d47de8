/* e^x = 2^n · 2^f with n the integer nearest to x·log2 e: the exponent field gets n, and
 * a polynomial of degree 6 (minimax on [−½, ½], constant term 1) gives 2^f.  Largest
 * error 0.95 ulp for small |x|, and |x|·2⁻²⁶ more of the result, from log2 e in 24 bits:
 * nothing to a softmax, where that is a part of a weight below e^x. */
#ifndef ATTN_KERNEL_EXP_H
#define ATTN_KERNEL_EXP_H

#include "kernel/simd.h"

/* −127·ln 2.  From here down the result is exactly 0, so a hidden key's −∞ needs no case
 * of its own. */
#define VF_EXP_FLOOR (-88.03f)

/* Wants VF_EXP_FLOOR ≤ x ≤ 88, or NaN, which stays NaN.  e^0 is exactly 1. */
INLINE vf vf_exp(vf x)
{
    /* Adding 1.5·2²³ leaves the rounded number in the low bits of the sum; 127 is fp32's
     * exponent bias. */
    const vf shifter = vf_set1(0x1.8p23f + 127.0f), log2_e = vf_set1(0x1.715476p+0f);
    const vf shifted = vf_fma(x, log2_e, shifter);
    const vf f = vf_fma(x, log2_e, shifter - shifted);
    const vf power = vf_from_bits(vf_bits(shifted) << 23);

    vf p = vf_set1(0x1.41d334p-13f);
    p = vf_fma(p, f, vf_set1(0x1.5f456ap-10f));
    p = vf_fma(p, f, vf_set1(0x1.3b2dbcp-7f));
    p = vf_fma(p, f, vf_set1(0x1.c6aed4p-5f));
    p = vf_fma(p, f, vf_set1(0x1.ebfbdap-3f));
    p = vf_fma(p, f, vf_set1(0x1.62e430p-1f));
    p = vf_fma(p, f, vf_set1(1.0f));
    return p * power;
}

#endif
