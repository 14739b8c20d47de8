/* The product of inference, y = x·weightᵀ + bias: each element is one dot product whose
 * order depends on `in` alone, so a row has the same bits in any batch.  Both operands
 * are read along their rows, and weights of a few rows of x at memory's speed. */
#ifndef ATTN_TENSOR_ROWS_PRODUCT_H
#define ATTN_TENSOR_ROWS_PRODUCT_H

#include "tensor/rows_vector.h"

enum {
    DOT_OUTS = 4,
    /* 16 accumulators + 4 + 1 of 32 registers; 8 + 4 + 1 of 16 */
    DOT_ROWS = VF_BYTES == 64 ? 4 : 2
};

/* Lane o of the result is the sum of all lanes of sum[o]. */
INLINE quarter sum_four(const vf *sum)
{
    const quarter a = sum_quarters(sum[0]), b = sum_quarters(sum[1]);
    const quarter c = sum_quarters(sum[2]), d = sum_quarters(sum[3]);
    const quarter ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) +
                       __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const quarter cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) +
                       __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* rows × outs elements; both are constants at every call. */
INLINE void dot_tile(float *y, const float *x, const float *weight, const float *bias,
                     size_t in, size_t out, const size_t rows, const size_t outs)
{
    vf sum[4][DOT_OUTS];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
#pragma GCC unroll 4
        for (size_t o = 0; o < DOT_OUTS; o++)
            sum[r][o] = vf_set1(0.0f);

    size_t i = 0;
    for (; i + VF_LANES <= in; i += VF_LANES) {
        vf w[DOT_OUTS];
#pragma GCC unroll 4
        for (size_t o = 0; o < outs; o++)
            w[o] = vf_load(weight + o * in + i);
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            const vf left = vf_load(x + r * in + i);
#pragma GCC unroll 4
            for (size_t o = 0; o < outs; o++)
                sum[r][o] = vf_fma(left, w[o], sum[r][o]);
        }
    }
    if (i < in) {
        vf w[DOT_OUTS];
#pragma GCC unroll 4
        for (size_t o = 0; o < outs; o++)
            w[o] = load_first(weight + o * in + i, in - i);
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            const vf left = load_first(x + r * in + i, in - i);
#pragma GCC unroll 4
            for (size_t o = 0; o < outs; o++)
                sum[r][o] = vf_fma(left, w[o], sum[r][o]);
        }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r++) {
        const quarter total = sum_four(sum[r]);
        for (size_t o = 0; o < outs; o++)
            y[r * out + o] = total[o] + (bias ? bias[o] : 0.0f);
    }
}

INLINE void dot_outs(float *y, const float *x, const float *weight, const float *bias,
                     size_t rows, size_t in, size_t out, const size_t outs)
{
    size_t row = 0;
    for (; row + DOT_ROWS <= rows; row += DOT_ROWS)
        dot_tile(y + row * out, x + row * in, weight, bias, in, out, DOT_ROWS, outs);
    for (; row < rows; row++)
        dot_tile(y + row * out, x + row * in, weight, bias, in, out, 1, outs);
}

static void dot(float *y, const float *x, const float *weight, const float *bias,
                size_t rows, size_t in, size_t out)
{
    size_t o = 0;
    for (; o + DOT_OUTS <= out; o += DOT_OUTS)
        dot_outs(y + o, x, weight + o * in, bias ? bias + o : NULL, rows, in, out,
                 DOT_OUTS);
    for (; o < out; o++)
        dot_outs(y + o, x, weight + o * in, bias ? bias + o : NULL, rows, in, out, 1);
}

#endif
