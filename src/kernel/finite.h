/* Whether a matrix holds neither NaN nor ∞: then a weight of 0 takes its rows out of a
 * product, and nobody need look at who sees what. */
#ifndef ATTN_KERNEL_FINITE_H
#define ATTN_KERNEL_FINITE_H

#include "kernel/simd.h"
#include "kernel/table.h"

/* x · 0 is 0 for what is finite and NaN for what is not. */
static bool is_finite(const struct attn_matrix *matrix)
{
    vf vectors = {0};
    float rest = 0.0f;
    for (size_t row = 0; row < matrix->rows; row++) {
        const float *const x = matrix->x + (ptrdiff_t)row * matrix->row_stride;
        size_t n = 0;
        if (matrix->element_stride == 1)
            for (; n + VF_LANES <= matrix->size; n += VF_LANES)
                vectors += vf_load(x + n) * vf_set1(0.0f);
        for (; n < matrix->size; n++)
            rest += x[(ptrdiff_t)n * matrix->element_stride] * 0.0f;
    }
    return !vi_any(vectors != 0.0f) && rest == 0.0f;
}

#endif
