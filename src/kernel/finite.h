/* Whether a matrix holds neither NaN nor ∞: then a weight of 0 takes its rows out of a
 * product, and nobody need look at who sees what. */
#ifndef ATTN_KERNEL_FINITE_H
#define ATTN_KERNEL_FINITE_H

#include "kernel/convert.h"

/* x · 0 is 0 for what is finite and NaN for what is not. */
INLINE bool is_finite_of(const struct attn_matrix *matrix, const attn_type type)
{
    vf sum = {0};
    for (size_t row = 0; row < matrix->rows; row++)
        for (size_t n = 0; n < matrix->size; n += VF_LANES)
            sum += load_elements(matrix, row, n, type) * vf_set1(0.0f);
    return !vi_any(sum != 0.0f);
}

static bool is_finite(const struct attn_matrix *matrix)
{
    if (matrix->type == ATTN_F16)
        return is_finite_of(matrix, ATTN_F16);
    if (matrix->type == ATTN_BF16)
        return is_finite_of(matrix, ATTN_BF16);
    return is_finite_of(matrix, ATTN_F32);
}

#endif
