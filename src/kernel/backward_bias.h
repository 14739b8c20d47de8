/* The gradient of a bias is that of the scores, and takes the way back that the bias
 * took: keys lie in the rows of the group's matrix and side by side in memory, so squares
 * are turned in registers.  An axis with a stride of 0 is summed over in its order. */
#ifndef ATTN_KERNEL_BACKWARD_BIAS_H
#define ATTN_KERNEL_BACKWARD_BIAS_H

#include "kernel/convert.h"
#include "kernel/transpose.h"

static struct attn_matrix matrix_of_target(const struct attn_target *to)
{
    return (struct attn_matrix){to->x,    to->row_stride, to->element_stride,
                                to->rows, to->size,       ATTN_F32};
}

/* Keys side by side, in a row for each query or in one for all. */
INLINE void add_pairs_square(const struct attn_target *to, const float *from,
                             size_t from_stride, size_t row, size_t key)
{
    const struct attn_matrix before = matrix_of_target(to);
    const size_t keys = to->size - key, rows = to->rows - row;
    vf x[VF_BYTES / 4];
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = i < keys ? vf_load(from + (key + i) * from_stride + row) : vf_set1(0.0f);
    transpose_square(x);
    if (to->row_stride == 0) {
        vf sum = load_elements(&before, 0, key, ATTN_F32);
#pragma GCC unroll 16
        for (size_t i = 0; i < VF_LANES; i++)
            sum = i < rows ? sum + x[i] : sum;
        store_elements(to, 0, key, sum, ATTN_F32);
        return;
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        if (i < rows)
            store_elements(to, row + i, key,
                           load_elements(&before, row + i, key, ATTN_F32) + x[i],
                           ATTN_F32);
}

/* to[row][key] += from[key · from_stride + row] */
static void backward_add_pairs(const struct attn_target *to, const float *from,
                               size_t from_stride)
{
    if (to->element_stride == 1) {
        for (size_t row = 0; row < to->rows; row += VF_LANES)
            for (size_t key = 0; key < to->size; key += VF_LANES)
                add_pairs_square(to, from, from_stride, row, key);
        return;
    }
    if (to->row_stride == 0) {
        float *const sums = to->x;
        for (size_t row = 0; row < to->rows; row++)
            for (size_t key = 0; key < to->size; key++)
                sums[(ptrdiff_t)key * to->element_stride] +=
                    from[key * from_stride + row];
        return;
    }
    const struct attn_target turned = {to->x,    to->element_stride, to->row_stride,
                                       to->size, to->rows,           ATTN_F32};
    const struct attn_matrix before = matrix_of_target(&turned);
    for (size_t key = 0; key < to->size; key++)
        for (size_t row = 0; row < to->rows; row += VF_LANES)
            store_elements(&turned, key, row,
                           load_elements(&before, key, row, ATTN_F32) +
                               vf_load(from + key * from_stride + row),
                           ATTN_F32);
}

#endif
