/* Squares of LANES x LANES floats turned in registers, first within 128 bits and then by
 * 128 bits, in log2 LANES rounds. */
#ifndef ATTN_KERNEL_SQUARE_H
#define ATTN_KERNEL_SQUARE_H

#include "kernel/lanes.h"

#if VF_BYTES == 64
#    define EVEN_128 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#    define ODD_128 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#elif VF_BYTES == 32
#    define EVEN_128 0, 1, 2, 3, 8, 9, 10, 11
#    define ODD_128 4, 5, 6, 7, 12, 13, 14, 15
#endif
#define LOW_SINGLES EVERY_128(0, LANES, 1, LANES + 1)
#define HIGH_SINGLES EVERY_128(2, LANES + 2, 3, LANES + 3)
#define LOW_PAIRS EVERY_128(0, 1, LANES, LANES + 1)
#define HIGH_PAIRS EVERY_128(2, 3, LANES + 2, LANES + 3)

/* Columns n + 4q of four rows, 128 bits each, n being where they end up: two rounds
 * within 128 bits. */
INLINE void transpose_within_128(vf x[4])
{
    const vf a = __builtin_shufflevector(x[0], x[1], LOW_SINGLES);
    const vf b = __builtin_shufflevector(x[0], x[1], HIGH_SINGLES);
    const vf c = __builtin_shufflevector(x[2], x[3], LOW_SINGLES);
    const vf d = __builtin_shufflevector(x[2], x[3], HIGH_SINGLES);
    x[0] = __builtin_shufflevector(a, c, LOW_PAIRS);
    x[1] = __builtin_shufflevector(a, c, HIGH_PAIRS);
    x[2] = __builtin_shufflevector(b, d, LOW_PAIRS);
    x[3] = __builtin_shufflevector(b, d, HIGH_PAIRS);
}

/* By instructions that leave their operands alone: what crosses 128 bits at once,
 * vpermt2ps, overwrites one, and took a copy each. */
INLINE void transpose_square(vf x[VF_BYTES / 4])
{
#pragma GCC unroll 4
    for (size_t row = 0; row < VF_LANES; row += 4)
        transpose_within_128(x + row);
#if VF_BYTES == 64
#    pragma GCC unroll 4
    for (size_t n = 0; n < 4; n++) {
        const vf even = __builtin_shufflevector(x[n], x[n + 4], EVEN_128);
        const vf odd = __builtin_shufflevector(x[n], x[n + 4], ODD_128);
        const vf later_even = __builtin_shufflevector(x[n + 8], x[n + 12], EVEN_128);
        const vf later_odd = __builtin_shufflevector(x[n + 8], x[n + 12], ODD_128);
        x[n] = __builtin_shufflevector(even, later_even, EVEN_128);
        x[n + 4] = __builtin_shufflevector(odd, later_odd, EVEN_128);
        x[n + 8] = __builtin_shufflevector(even, later_even, ODD_128);
        x[n + 12] = __builtin_shufflevector(odd, later_odd, ODD_128);
    }
#elif VF_BYTES == 32
#    pragma GCC unroll 4
    for (size_t n = 0; n < 4; n++) {
        const vf even = __builtin_shufflevector(x[n], x[n + 4], EVEN_128);
        x[n + 4] = __builtin_shufflevector(x[n], x[n + 4], ODD_128);
        x[n] = even;
    }
#endif
}

#endif
