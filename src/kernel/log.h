/* ln x = e·ln 2 + ln m, where x = m·2^e and m lies between √½ and √2, and with f = m − 1
 *
 *     ln m = f − f²/2 + f³·P(f)
 *
 * P being the polynomial of Cephes (Moshier, logf): 1 ulp, but for x near 1, where it is
 * 2⁻²⁴ of |x − 1|.  ln 2 is taken in two parts, the first exact times any e. */
#ifndef ATTN_KERNEL_LOG_H
#define ATTN_KERNEL_LOG_H

#include "kernel/simd.h"

/* −∞ for 0, NaN for negative numbers. */
INLINE vf vf_log(vf x)
{
    static const float coefficients[] = {
        7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
        -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
        2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f,
    };
    const vi is_small = x < 0x1p-126f;
    const vf normal = vf_select(is_small, x * 0x1p23f, x);
    const vi above = (vi)((vu)normal - 0x3f3504f3u); /* √½; unsigned: it wraps around */
    const vi exponent = (above >> 23) - (is_small & 23);
    const vf f = (vf)((vu)normal - ((vu)above & 0xff800000u)) - 1.0f;
    const vf e = __builtin_convertvector(exponent, vf), square = f * f;
    vf p = vf_set1(coefficients[0]);
#pragma GCC unroll 8
    for (int i = 1; i < 9; i++)
        p = vf_fma(p, f, vf_set1(coefficients[i]));
    p = vf_fma(p * f, square, e * -2.12194440e-4f);
    p = vf_fma(vf_set1(-0.5f), square, p);
    const vf log = vf_fma(e, vf_set1(0.693359375f), f + p);
    const vf special = vf_select(x == 0.0f, vf_set1(-INFINITY), x * NAN);
    return vf_select((x > 0.0f) & (x < INFINITY), log,
                     vf_select(x == INFINITY, x, special));
}

#endif
