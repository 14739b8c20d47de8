/* The hyperbolic tangent: softcaps, and additive scores of large elements. */
#ifndef ATTN_KERNEL_TANH_H
#define ATTN_KERNEL_TANH_H

#include "kernel/exp.h"

/* tanh x, to 2 ulp: near 0 an odd polynomial (Cephes, Moshier), where 1 − 2/(e^2x + 1)
 * would cancel. */
INLINE vf vf_tanh(vf x)
{
    const vf size = vf_abs(x), square = x * x;
    vf p = vf_set1(-5.70498872745e-3f);
    p = vf_fma(p, square, vf_set1(2.06390887954e-2f));
    p = vf_fma(p, square, vf_set1(-5.37397155531e-2f));
    p = vf_fma(p, square, vf_set1(1.33314422036e-1f));
    p = vf_fma(p, square, vf_set1(-3.33332819422e-1f));
    const vf near = vf_fma(p * square, x, x);

    /* e^−2|x| cannot overflow. */
    const vf exponent = size * -2.0f;
    const vf e = vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), exponent));
    const vf far = (1.0f - e) / (1.0f + e);
    const vi sign = vf_bits(x) & vi_set1(INT32_MIN);
    return vf_select(size < 0.625f, near, vf_from_bits(vf_bits(far) | sign));
}

#endif
