/* Whether a matrix holds neither NaN nor ∞: then a weight of 0 takes its rows out of a
 * product, and nobody need look at who sees what. */
#ifndef ATTN_KERNEL_FINITE_H
#define ATTN_KERNEL_FINITE_H

#include "kernel/convert.h"

enum { FINITE_SUMS = 4 }; /* chains that do not wait for each other */

/* x · 0 is 0 for what is finite and NaN for what is not. */
INLINE bool is_finite_of(const struct attn_matrix *matrix, const attn_type type)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const vf zero = {0};
    vf sum[FINITE_SUMS] = {zero, zero, zero, zero};
    for (size_t row = 0; row < matrix->rows; row++) {
        const char *x =
            (const char *)matrix->x + (ptrdiff_t)row * matrix->row_stride * bytes;
        size_t n = 0;
        for (; matrix->element_stride == 1 && n + FINITE_SUMS * VF_LANES <= matrix->size;
             n += FINITE_SUMS * VF_LANES)
#pragma GCC unroll 4
            for (size_t i = 0; i < FINITE_SUMS; i++)
                sum[i] =
                    vf_fma(vf_load_as(x + (ptrdiff_t)(n + i * VF_LANES) * bytes, type),
                           zero, sum[i]);
        for (; n < matrix->size; n += VF_LANES)
            sum[0] = vf_fma(load_elements(matrix, row, n, type), zero, sum[0]);
    }
    return !vi_any((sum[0] + sum[1]) + (sum[2] + sum[3]) != zero);
}

static bool is_finite(const struct attn_matrix *given)
{
    const struct attn_matrix turned = turned_matrix(given);
    const struct attn_matrix *const matrix =
        is_turned(given->row_stride, given->element_stride) ? &turned : given;
    if (matrix->type == ATTN_F16)
        return is_finite_of(matrix, ATTN_F16);
    if (matrix->type == ATTN_BF16)
        return is_finite_of(matrix, ATTN_BF16);
    return is_finite_of(matrix, ATTN_F32);
}

#endif
