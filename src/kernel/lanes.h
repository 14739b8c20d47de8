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

#if VF_BYTES == 64
/* Quarters as a square: out[i] has quarter i of each of the four vectors. */
INLINE void turn_quarters(const vi x[4], vi out[4])
{
    vi low[2], high[2];
#    pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        low[i] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7,
                                         16, 17, 18, 19, 20, 21, 22, 23);
        high[i] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], 8, 9, 10, 11, 12, 13,
                                          14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    out[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18,
                                     19, 24, 25, 26, 27);
    out[1] = __builtin_shufflevector(low[0], low[1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21,
                                     22, 23, 28, 29, 30, 31);
    out[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17,
                                     18, 19, 24, 25, 26, 27);
    out[3] = __builtin_shufflevector(high[0], high[1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21,
                                     22, 23, 28, 29, 30, 31);
}
#endif

/* a[0] b[0] a[1] b[1] … of the lower halves, and of the upper ones. */
INLINE void interleave(vf a, vf b, vf *low, vf *high)
{
#if VF_BYTES == 64
    *low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                   7, 23);
    *high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                    14, 30, 15, 31);
#elif VF_BYTES == 32
    *low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    *low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    *high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

/* count vectors, a power of two: lane n of all of them, then lane n + 1, … */
INLINE void interleave_all(vf x[LANES], const size_t count)
{
    vf old[LANES];
#pragma GCC unroll 4
    for (size_t step = 1; step < count; step *= 2) {
#pragma GCC unroll 16
        for (size_t i = 0; i < count; i++)
            old[i] = x[i];
#pragma GCC unroll 8
        for (size_t i = 0; i < count / 2; i++)
            interleave(old[i], old[i + count / 2], &x[2 * i], &x[2 * i + 1]);
    }
}

#if VF_BYTES == 64
/* The opposite of interleave_all. */
INLINE void separate_all(vi x[LANES], const size_t count)
{
    vi old[LANES];
#    pragma GCC unroll 4
    for (size_t step = 1; step < count; step *= 2) {
#    pragma GCC unroll 16
        for (size_t i = 0; i < count; i++)
            old[i] = x[i];
#    pragma GCC unroll 8
        for (size_t i = 0; i < count / 2; i++) {
            const vi a = old[2 * i], b = old[2 * i + 1];
            x[i] = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                           22, 24, 26, 28, 30);
            x[i + count / 2] = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15,
                                                       17, 19, 21, 23, 25, 27, 29, 31);
        }
    }
}
#endif

/* Lane n of every 128 bits is what those of x[n] add up to. */
INLINE vf sums_of_four(const vf x[4])
{
    return add_pairs(add_singles(x[0], x[1]), add_singles(x[2], x[3]));
}

/* Four lanes for each of some vectors of four sums. */
INLINE vf sums_of_fours(const vf x[LANES / 4])
{
#if VF_BYTES == 64
    return add_quarters(add_halves(x[0], x[1]), add_halves(x[2], x[3]));
#elif VF_BYTES == 32
    return add_halves(x[0], x[1]);
#else
    return x[0];
#endif
}

/* Lane n is the sum of all lanes of x[n]. */
INLINE vf sums_of_lanes(const vf x[LANES])
{
    vf fours[LANES / 4];
#pragma GCC unroll 4
    for (size_t i = 0; i < LANES / 4; i++)
        fours[i] = sums_of_four(x + 4 * i);
    return sums_of_fours(fours);
}

#endif
