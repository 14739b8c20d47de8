/* What linear attention asks of the kernels: features, and a product of matrices in rows.
 * Rows of the results are whole vectors, whatever the size. */
#ifndef ATTN_KERNEL_LINEAR_TABLE_H
#define ATTN_KERNEL_LINEAR_TABLE_H

#include "attn/linear.h"
#include "kernel/table.h"

/* out[row][column] (+)= Σ left[row · left_stride + step · step_stride] · right[step]
 * [column] */
struct attn_multiply {
    float *out;
    const float *left, *right;
    ptrdiff_t out_stride, left_stride, step_stride, right_stride;
    size_t rows, steps, columns; /* columns: whole vectors */
    bool add;
    bool careful; /* 0 on the left makes 0 of a NaN on the right */
};

struct attn_linear_kernels {
    void (*multiply)(const struct attn_multiply *product);

    /* x[row][n] becomes its feature, for n < size; rows lie row_stride apart. */
    void (*features)(float *x, size_t rows, size_t size, size_t row_stride,
                     attn_feature feature);

    /* gradient[row][n] *= the slope of the feature at x[row][n]; whole vectors. */
    void (*slopes)(float *gradient, const float *x, size_t floats, attn_feature feature);
};

#endif
