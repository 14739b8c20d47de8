/* The kernels of linear attention; linear_table.h says what each is to do. */
#ifndef ATTN_KERNEL_LINEAR_H
#define ATTN_KERNEL_LINEAR_H

#include "kernel/backward_product.h"
#include "kernel/exp.h"
#include "kernel/linear_table.h"

INLINE void multiply_columns(const struct attn_multiply *m, size_t column,
                             const size_t vectors, const enum product_to to,
                             const enum product_zeros zeros)
{
    const struct backward_product p = {
        .out = m->out + column,
        .out_stride = m->out_stride,
        .left = m->left,
        .row_stride = m->left_stride,
        .step_stride = m->step_stride,
        .right = m->right + column,
        .right_stride = m->right_stride,
        .end = m->steps,
    };
    size_t row = 0;
    for (; row + GATHER_ROWS <= m->rows; row += GATHER_ROWS)
        backward_tile(&p, row, to, zeros, GATHER_ROWS, vectors, NULL);
    for (; row < m->rows; row++)
        backward_tile(&p, row, to, zeros, 1, vectors, NULL);
}

INLINE void multiply_all(const struct attn_multiply *m, const enum product_to to,
                         const enum product_zeros zeros)
{
    const size_t wide = GATHER_VECTORS * VF_LANES;
    size_t column = 0;
    for (; column + wide <= m->columns; column += wide)
        multiply_columns(m, column, GATHER_VECTORS, to, zeros);
    for (; column < m->columns; column += VF_LANES)
        multiply_columns(m, column, 1, to, zeros);
}

static void linear_multiply(const struct attn_multiply *m)
{
    if (m->careful)
        multiply_all(m, m->add ? PRODUCT_ADD : PRODUCT_SET, PRODUCT_ZERO_LEFT);
    else if (m->add)
        multiply_all(m, PRODUCT_ADD, PRODUCT_PLAIN);
    else
        multiply_all(m, PRODUCT_SET, PRODUCT_PLAIN);
}

/* elu(x) + 1: e^x up to 0 and x + 1 from there on. */
INLINE vf feature_of(vf x, const attn_feature feature)
{
    if (feature == ATTN_FEATURE_IDENTITY)
        return x;
    if (feature == ATTN_FEATURE_RELU)
        return vf_max(vf_set1(0.0f), x);
    const vf falling = vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), x));
    return vf_select(x <= 0.0f, falling, x + 1.0f);
}

INLINE void map_rows(float *x, size_t rows, size_t size, size_t row_stride,
                     const attn_feature feature)
{
    const vi last = vf_iota() < (float)(size % VF_LANES);
    for (size_t row = 0; row < rows; row++) {
        float *const to = x + row * row_stride;
        size_t n = 0;
        for (; n + VF_LANES <= size; n += VF_LANES)
            vf_store(to + n, feature_of(vf_load(to + n), feature));
        if (n < size)
            vf_store(to + n, vf_keep(last, feature_of(vf_load(to + n), feature)));
    }
}

static void linear_features(float *x, size_t rows, size_t size, size_t row_stride,
                            attn_feature feature)
{
    if (feature == ATTN_FEATURE_ELU)
        map_rows(x, rows, size, row_stride, ATTN_FEATURE_ELU);
    else if (feature == ATTN_FEATURE_RELU)
        map_rows(x, rows, size, row_stride, ATTN_FEATURE_RELU);
}

static void linear_slopes(float *gradient, const float *x, size_t floats,
                          attn_feature feature)
{
    for (size_t n = 0; n < floats && feature != ATTN_FEATURE_IDENTITY; n += VF_LANES) {
        const vf at = vf_load(x + n);
        vf slope = vf_keep(at > 0.0f, vf_set1(1.0f));
        if (feature == ATTN_FEATURE_ELU)
            slope += vf_keep(at <= 0.0f, vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), at)));
        vf_store(gradient + n, vf_load(gradient + n) * slope);
    }
}

static const struct attn_linear_kernels linear_kernels = {
    .multiply = linear_multiply,
    .features = linear_features,
    .slopes = linear_slopes,
};

#endif
