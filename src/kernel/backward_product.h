/* The register tile of the backward pass: rows of any stride on all three sides,
 *
 *     out[row][column] = (0 or out) + Σ left[row][step] · right[step][column].
 *
 * Right and out have their columns side by side, left is broadcast float by float.  Each
 * element's sum is one chain in the order of the steps, added to out at its end. */
#ifndef ATTN_KERNEL_BACKWARD_PRODUCT_H
#define ATTN_KERNEL_BACKWARD_PRODUCT_H

#include "kernel/call_lines.h"
#include "kernel/simd.h"
#include "kernel/table.h"

enum product_to {
    PRODUCT_SET,
    PRODUCT_ADD,
    PRODUCT_SCALED, /* out = scale · Σ */
};

/* With ZERO_LEFT a factor 0 on the left makes a term 0 whatever is on the right; with
 * ZERO_RIGHT the other way round. */
enum product_zeros { PRODUCT_PLAIN, PRODUCT_ZERO_LEFT, PRODUCT_ZERO_RIGHT };

/* Rows of the largest tile for 1, 2 and 3 vectors: 12 accumulators + 3 + 1 or + 2 + 1 of
 * 16 registers, or twice as many of 32. */
#if VF_REGISTERS == 32
enum { ROWS_OF_1 = 16, ROWS_OF_2 = 12, ROWS_OF_3 = 8 };
enum { GATHER_ROWS = 8, GATHER_VECTORS = 2 }; /* 12 rows measured 5 % slower */
#else
enum { ROWS_OF_1 = 8, ROWS_OF_2 = 6, ROWS_OF_3 = 4 };
enum { GATHER_ROWS = 6, GATHER_VECTORS = 2 };
#endif
enum { MOST_ROWS = ROWS_OF_1, MOST_VECTORS = 3 };

struct backward_product {
    float *out;
    ptrdiff_t out_stride;
    const float *left;
    ptrdiff_t row_stride, step_stride;
    const float *right;
    ptrdiff_t right_stride;
    size_t rows, begin, end; /* steps begin ≤ step < end: at least one */
    float scale;
};

INLINE vf product_result(vf sum, const float *out, float scale, const enum product_to to)
{
    if (to == PRODUCT_ADD)
        return vf_load(out) + sum;
    return to == PRODUCT_SCALED ? sum * scale : sum;
}

INLINE vf product_term(vf factor, vf right, vf sum, const enum product_zeros zeros)
{
    if (zeros == PRODUCT_ZERO_LEFT)
        return vf_fma(factor, vf_keep(factor != 0.0f, right), sum);
    if (zeros == PRODUCT_ZERO_RIGHT)
        return vf_fma(vf_keep(right != 0.0f, factor), right, sum);
    return vf_fma(factor, right, sum);
}

/* The arguments after row but lines, which is NULL or not, are constants at every call,
 * and the loops over them unroll: only so do the accumulators stay in registers. */
INLINE void backward_tile(const struct backward_product *p, size_t row,
                          const enum product_to to, const enum product_zeros zeros,
                          const size_t rows, const size_t vectors,
                          const struct attn_lines *lines)
{
    const ptrdiff_t row_stride = p->row_stride, step_stride = p->step_stride;
    const float *left[MOST_ROWS / 4]; /* of every fourth row: few registers for strides */
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r += 4)
        left[r / 4] = p->left + (ptrdiff_t)(row + r) * row_stride +
                      (ptrdiff_t)p->begin * step_stride;
    const float *right = p->right + (ptrdiff_t)p->begin * p->right_stride;
    vf sum[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (size_t v = 0; v < vectors; v++)
            sum[r][v] = vf_set1(0.0f);

    size_t steps = p->end - p->begin; /* never none; see product.h for the do … while */
    struct line_caller caller = begin_calling(lines, steps);
    do {
        if (lines)
            call_next(&caller, steps);
        vf x[MOST_VECTORS];
#pragma GCC unroll 3
        for (size_t v = 0; v < vectors; v++)
            x[v] = vf_load(right + v * VF_LANES);
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; r++) {
            const vf factor = vf_set1(left[r / 4][(ptrdiff_t)(r % 4) * row_stride]);
#pragma GCC unroll 3
            for (size_t v = 0; v < vectors; v++)
                sum[r][v] = product_term(factor, x[v], sum[r][v], zeros);
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r += 4)
            left[r / 4] += step_stride;
        right += p->right_stride;
    } while (--steps > 0);

    float *out = p->out + (ptrdiff_t)row * p->out_stride;
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (size_t v = 0; v < vectors; v++) {
            float *const at = out + v * VF_LANES;
            vf_store(at, product_result(sum[r][v], at, p->scale, to));
        }
        out += p->out_stride;
    }
}

INLINE void backward_rows(const struct backward_product *p, const enum product_to to,
                          const enum product_zeros zeros, const size_t vectors)
{
    const size_t most = vectors == 3 ? ROWS_OF_3 : vectors == 2 ? ROWS_OF_2 : ROWS_OF_1;
    size_t row = 0;
    for (; row + most <= p->rows; row += most)
        backward_tile(p, row, to, zeros, most, vectors, NULL);
    for (; most > 4 && row + 4 <= p->rows; row += 4)
        backward_tile(p, row, to, zeros, 4, vectors, NULL);
    for (; row < p->rows; row++)
        backward_tile(p, row, to, zeros, 1, vectors, NULL);
}

/* The columns are the lanes of a panel. */
INLINE void backward_lanes(const struct backward_product *p, size_t vectors,
                           const enum product_to to, const enum product_zeros zeros)
{
    if (vectors == 3)
        backward_rows(p, to, zeros, 3);
    else if (vectors == 2)
        backward_rows(p, to, zeros, 2);
    else
        backward_rows(p, to, zeros, 1);
}

#endif
