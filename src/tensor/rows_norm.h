/* Layer norm, and sums over rows.  Moments are taken of x − x[0], so that a constant row
 * has a deviation of exactly 0. */
#ifndef ATTN_TENSOR_ROWS_NORM_H
#define ATTN_TENSOR_ROWS_NORM_H

#include "tensor/rows_vector.h"

INLINE float row_sum(const float *x, float shift, size_t n)
{
    vf sum[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        sum[0] = sum[0] + (vf_load(x + i) - vf_set1(shift));
        sum[1] = sum[1] + (vf_load(x + i + VF_LANES) - vf_set1(shift));
    }
    for (; i < n; i += VF_LANES) {
        const vf d = load_some(x + i, n - i) - vf_set1(shift);
        sum[0] = sum[0] + vf_select(first_lanes(n - i), d, vf_set1(0.0f));
    }
    return sum_lanes(sum[0] + sum[1]);
}

INLINE float row_squares(const float *x, float shift, float mean, size_t n)
{
    vf sum[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        const vf a = (vf_load(x + i) - vf_set1(shift)) - vf_set1(mean);
        const vf b = (vf_load(x + i + VF_LANES) - vf_set1(shift)) - vf_set1(mean);
        sum[0] = vf_fma(a, a, sum[0]);
        sum[1] = vf_fma(b, b, sum[1]);
    }
    for (; i < n; i += VF_LANES) {
        const vf d = (load_some(x + i, n - i) - vf_set1(shift)) - vf_set1(mean);
        sum[0] = sum[0] + vf_select(first_lanes(n - i), d * d, vf_set1(0.0f));
    }
    return sum_lanes(sum[0] + sum[1]);
}

static void norm(float *y, float *moments, const float *x, const float *gain,
                 const float *bias, size_t rows, size_t columns, float epsilon)
{
    const float per_column = 1.0f / (float)columns;
    for (size_t row = 0; row < rows; row++, x += columns, y += columns, moments += 2) {
        const float shift = x[0];
        const float mean = row_sum(x, shift, columns) * per_column;
        const float variance = row_squares(x, shift, mean, columns) * per_column;
        const float inverse = 1.0f / sqrtf(variance + epsilon);
        moments[0] = mean;
        moments[1] = inverse;
        for (size_t i = 0; i < columns; i += VF_LANES) {
            const size_t left = columns - i;
            const vf d = (load_some(x + i, left) - vf_set1(shift)) - vf_set1(mean);
            store_some(y + i,
                       vf_fma(d * vf_set1(inverse), load_some(gain + i, left),
                              load_some(bias + i, left)),
                       left);
        }
    }
}

/* With n = (x − mean)·inverse and g = dy·gain:
 * dx = inverse·(g − Σg/columns − n·Σ(g·n)/columns). */
INLINE void norm_backward_row(float *dx, float *gain_sum, float *bias_sum,
                              const float *dy, const float *x, const float *moments,
                              const float *gain, size_t columns, bool add)
{
    const vf shift = vf_set1(x[0]), mean = vf_set1(moments[0]);
    const vf inverse = vf_set1(moments[1]);
    vf g_sum = {0}, gn_sum = {0};
    for (size_t i = 0; i < columns; i += VF_LANES) {
        const size_t left = columns - i;
        const vf d = load_some(dy + i, left);
        vf n = ((load_some(x + i, left) - shift) - mean) * inverse;
        if (left < VF_LANES)
            n = vf_keep(first_lanes(left), n);
        const vf g = d * load_some(gain + i, left);
        g_sum = g_sum + g;
        gn_sum = vf_fma(g, n, gn_sum);
        store_some(gain_sum + i, vf_fma(d, n, load_some(gain_sum + i, left)), left);
        store_some(bias_sum + i, d + load_some(bias_sum + i, left), left);
    }
    if (!dx)
        return;
    const vf g_mean = vf_set1(sum_lanes(g_sum) / (float)columns);
    const vf gn_mean = vf_set1(sum_lanes(gn_sum) / (float)columns);
    for (size_t i = 0; i < columns; i += VF_LANES) {
        const size_t left = columns - i;
        const vf n = ((load_some(x + i, left) - shift) - mean) * inverse;
        const vf g = load_some(dy + i, left) * load_some(gain + i, left);
        vf d = inverse * (g - g_mean - n * gn_mean);
        if (add)
            d = d + load_some(dx + i, left);
        store_some(dx + i, d, left);
    }
}

static void norm_backward(float *dx, float *gain_bias, const float *dy, const float *x,
                          const float *moments, const float *gain, size_t rows,
                          size_t columns, bool add)
{
    for (size_t row = 0; row < rows; row++) {
        const size_t at = row * columns;
        norm_backward_row(dx ? dx + at : NULL, gain_bias, gain_bias + columns, dy + at,
                          x + at, moments + 2 * row, gain, columns, add);
    }
}

static void sum_rows(float *sum, const float *x, size_t rows, size_t columns)
{
    for (size_t row = 0; row < rows; row++, x += columns) {
        for (size_t i = 0; i < columns; i += VF_LANES) {
            const size_t left = columns - i;
            store_some(sum + i, load_some(sum + i, left) + load_some(x + i, left), left);
        }
    }
}

#endif
