/* The sums of the lanes of some vectors, as one vector. */
#ifndef ATTN_KERNEL_LANES_H
#define ATTN_KERNEL_LANES_H

#include "kernel/simd.h"

/* Pairs within 128 bits are added first, one element apart, then two; then 128 bits at a
 * time: each step is one shuffle of one instruction for either operand. */
#if VF_BYTES == 64
#    define EVERY_128(a, b, c, d)                                                        \
        a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4, (a) + 8, (b) + 8, (c) + 8,       \
            (d) + 8, (a) + 12, (b) + 12, (c) + 12, (d) + 12
#elif VF_BYTES == 32
#    define EVERY_128(a, b, c, d) a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4
#else
#    define EVERY_128(a, b, c, d) a, b, c, d
#endif
enum { LANES = VF_BYTES / 4 };

INLINE vf add_singles(vf a, vf b)
{
    return __builtin_shufflevector(a, b, EVERY_128(0, LANES, 1, LANES + 1)) +
           __builtin_shufflevector(a, b, EVERY_128(2, LANES + 2, 3, LANES + 3));
}

INLINE vf add_pairs(vf a, vf b)
{
    return __builtin_shufflevector(a, b, EVERY_128(0, 1, LANES, LANES + 1)) +
           __builtin_shufflevector(a, b, EVERY_128(2, 3, LANES + 2, LANES + 3));
}

#if VF_BYTES == 64
INLINE vf add_halves(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21,
                                   22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                   29, 30, 31);
}

INLINE vf add_quarters(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25,
                                   26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28,
                                   29, 30, 31);
}
#elif VF_BYTES == 32
INLINE vf add_halves(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
#endif

/* Lane n is the sum of all lanes of x[n]. */
INLINE vf sums_of_lanes(vf x[LANES])
{
#pragma GCC unroll 4
    for (size_t i = 0; i < LANES; i += 4)
        x[i / 4] =
            add_pairs(add_singles(x[i], x[i + 1]), add_singles(x[i + 2], x[i + 3]));
#if VF_BYTES == 64
    return add_quarters(add_halves(x[0], x[1]), add_halves(x[2], x[3]));
#elif VF_BYTES == 32
    return add_halves(x[0], x[1]);
#else
    return x[0];
#endif
}

#endif
