/* A square of LANES x LANES floats, turned in registers. */
#ifndef ATTN_KERNEL_SQUARE_H
#define ATTN_KERNEL_SQUARE_H

#include "kernel/simd.h"
#include <stddef.h>

#if VF_BYTES == 64
#    define INTERLEAVE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#    define INTERLEAVE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VF_BYTES == 32
#    define INTERLEAVE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#    define INTERLEAVE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#    define INTERLEAVE_LOW 0, 4, 1, 5
#    define INTERLEAVE_HIGH 2, 6, 3, 7
#endif

INLINE void transpose_square(vf x[VF_BYTES / 4])
{
    vf y[VF_BYTES / 4];
#pragma GCC unroll 4
    for (size_t round = 1; round < VF_LANES; round *= 2) {
#pragma GCC unroll 8
        for (size_t i = 0; i < VF_LANES / 2; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + VF_LANES / 2], INTERLEAVE_LOW);
            y[2 * i + 1] =
                __builtin_shufflevector(x[i], x[i + VF_LANES / 2], INTERLEAVE_HIGH);
        }
#pragma GCC unroll 16
        for (size_t i = 0; i < VF_LANES; i++)
            x[i] = y[i];
    }
}

#endif
