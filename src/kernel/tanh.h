/* tanh, for softcaps.  Below .625 the polynomial of Moshier's Cephes (tanhf), above it
 * 1 − 2/(e^2|x| + 1), with the sign of x; at most 2 ulp.  ±∞ gives ±1, NaN stays NaN. */
#ifndef ATTN_KERNEL_TANH_H
#define ATTN_KERNEL_TANH_H

#include "kernel/exp2.h"

INLINE vf vf_tanh(vf x)
{
    const vf size = vf_abs(x);
    const vf square = x * x;
    vf p = vf_set1(-5.70498872745e-3f);
    p = vf_fma(p, square, vf_set1(2.06390887954e-2f));
    p = vf_fma(p, square, vf_set1(-5.37397155531e-2f));
    p = vf_fma(p, square, vf_set1(1.33314422036e-1f));
    p = vf_fma(p, square, vf_set1(-3.33332819422e-1f));
    const vf small = vf_fma(p * square, x, x);

    /* e^(2|x|) as a power of 2, at most 2^127, where tanh has long been 1. */
    const vf power = size * vf_set1(0x1.715476p+1f);
    const vf exponential = vf_exp2(-vf_max(vf_set1(-127.0f), -power));
    const vf large = vf_set1(1.0f) - vf_set1(2.0f) / (exponential + vf_set1(1.0f));
    const vi sign = vf_bits(x) & vi_set1(INT32_MIN);
    return vf_select(size < vf_set1(0.625f), small, vf_from_bits(vf_bits(large) | sign));
}

#endif
