/* Whether a matrix holds neither NaN nor ∞: then a weight of 0 takes its rows out of a
 * product, and nobody need look at who sees what. */
#ifndef ATTN_KERNEL_FINITE_H
#define ATTN_KERNEL_FINITE_H

#include "kernel/convert.h"

/* x · 0 is 0 for what is finite and NaN for what is not. */
INLINE bool is_finite_of(const struct attn_matrix *matrix, const attn_type type)
{
    vf sum[4] = {{0}}; /* no addition waits for the one before */
    for (size_t row = 0; row < matrix->rows; row++)
        for (size_t n = 0; n < matrix->size; n += 4 * VF_LANES)
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++)
                if (n + i * VF_LANES < matrix->size)
                    sum[i] += load_elements(matrix, row, n + i * VF_LANES, type) * 0.0f;
    return !vi_any(sum[0] + sum[1] + sum[2] + sum[3] != 0.0f);
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
