/* The hyperbolic tangent: softcaps, and additive scores of large elements. */
#ifndef ATTN_KERNEL_TANH_H
#define ATTN_KERNEL_TANH_H

#include "kernel/exp.h"

/* tanh x, to 2 ulp (1.91 of every 16th float): near 0 an odd polynomial, minimax on
 * [−0.9, 0.9], where 1 − 2/(e^2x + 1) would cancel.  Beyond, an error of e^−2|x| counts
 * for a third at most, which leaves room for that of a short vf_exp. */
INLINE vf vf_tanh(vf x)
{
    const vf size = vf_abs(x), square = x * x;
    vf p = vf_set1(0x1.55d324p-10f);
    p = vf_fma(p, square, vf_set1(-0x1.c19494p-8f));
    p = vf_fma(p, square, vf_set1(0x1.567e4p-6f));
    p = vf_fma(p, square, vf_set1(-0x1.b8162p-5f));
    p = vf_fma(p, square, vf_set1(0x1.11017ap-3f));
    p = vf_fma(p, square, vf_set1(-0x1.555504p-2f));
    const vf near = vf_fma(p * square, x, x);

    /* e^−2|x| cannot overflow. */
    const vf exponent = size * -2.0f;
    const vf e = vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), exponent));
    const vf far = (1.0f - e) / (1.0f + e);
    const vi sign = vf_bits(x) & vi_set1(INT32_MIN);
    return vf_select(size < 0.9f, near, vf_from_bits(vf_bits(far) | sign));
}

#endif
