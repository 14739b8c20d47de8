/* Numbers of fp32 in three parts of bfloat16, so that products of tiles (simd_tiles.h),
 * which know only these, serve fp32:
 *
 *     x = high + middle + low        exactly: 3 · 8 = 24 bits of fraction
 *
 * high is x rounded to bfloat16, middle what that lacks rounded, low the rest.  Of the
 * nine products of two such numbers six are taken,
 *
 *     x·y ≈ hh + (hm + mh) + (hl + mm + lh)
 *
 * and the other three, 2⁻²⁴ of x·y at most, are as large as the rounding of one product
 * of fp32.  Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence
 * Datatype for Higher-Precision Computations", ARITH 2019.
 *
 * The sum is exact for 2⁻¹⁰² ≤ |x| ≤ 2¹²⁷, and 0.  Parts below 2⁻¹²⁶ count as 0 in a
 * product of tiles, so that of a smaller x less than 3·2⁻¹²⁶ is lost.  From 0x1.ffp127 on
 * and of what is not finite, parts are not to be used. */
#ifndef ATTN_KERNEL_BF16X3_H
#define ATTN_KERNEL_BF16X3_H

#include "kernel/simd_types.h"

enum { BF16_PARTS = 3 };

/* To the nearest bfloat16, as fp32, ties away from 0. */
INLINE vf nearest_bf16(vf x)
{
    return (vf)(((vu)x + 0x8000) & 0xffff0000);
}

/* part[0] + part[1] + part[2] = x, the largest first. */
INLINE void split_in_parts(vf x, vf part[BF16_PARTS])
{
    part[0] = nearest_bf16(x);
    x -= part[0];
    part[1] = nearest_bf16(x);
    part[2] = x - part[1];
}

/* Pairs of the parts of two vectors, the largest first, `distance` floats apart. */
INLINE void store_parts(float *to, size_t distance, vf first, vf second)
{
    vf a[BF16_PARTS], b[BF16_PARTS];
    split_in_parts(first, a);
    split_in_parts(second, b);
#pragma GCC unroll 3
    for (size_t part = 0; part < BF16_PARTS; part++)
        vf_store(to + part * distance, vf_pair_upper(a[part], b[part]));
}

#endif
