/* Root-mean-square norm.  With n = x·inverse and g = dy·gain,
 * dx = inverse·(g − n·Σ(g·n)/columns). */
#ifndef ATTN_TENSOR_ROWS_RMS_H
#define ATTN_TENSOR_ROWS_RMS_H

#include "tensor/rows_vector.h"

/* Lanes beyond a row are loaded as 0 and add nothing. */
INLINE float row_dot(const float *a, const float *b, size_t n)
{
    vf sum[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        sum[0] = vf_fma(vf_load(a + i), vf_load(b + i), sum[0]);
        sum[1] = vf_fma(vf_load(a + i + VF_LANES), vf_load(b + i + VF_LANES), sum[1]);
    }
    for (; i < n; i += VF_LANES)
        sum[0] = vf_fma(load_some(a + i, n - i), load_some(b + i, n - i), sum[0]);
    return sum_lanes(sum[0] + sum[1]);
}

static void rms_norm(float *y, float *inverse, const float *x, const float *gain,
                     size_t rows, size_t columns, float epsilon)
{
    const float per_column = 1.0f / (float)columns;
    for (size_t row = 0; row < rows; row++, x += columns, y += columns) {
        inverse[row] = 1.0f / sqrtf(row_dot(x, x, columns) * per_column + epsilon);
        const vf factor = vf_set1(inverse[row]);
        for (size_t i = 0; i < columns; i += VF_LANES) {
            const size_t left = columns - i;
            store_some(y + i, load_some(x + i, left) * factor * load_some(gain + i, left),
                       left);
        }
    }
}

INLINE void rms_norm_backward_row(float *dx, float *dgain, const float *dy,
                                  const float *x, vf inverse, const float *gain,
                                  size_t columns, bool add)
{
    vf sum = {0};
    for (size_t i = 0; i < columns; i += VF_LANES) {
        const size_t left = columns - i;
        const vf dn = load_some(dy + i, left) * (load_some(x + i, left) * inverse);
        sum = vf_fma(dn, load_some(gain + i, left), sum);
        store_some(dgain + i, load_some(dgain + i, left) + dn, left);
    }
    if (!dx)
        return;
    const vf mean = vf_set1(sum_lanes(sum) / (float)columns);
    for (size_t i = 0; i < columns; i += VF_LANES) {
        const size_t left = columns - i;
        const vf n = load_some(x + i, left) * inverse;
        const vf g = load_some(dy + i, left) * load_some(gain + i, left);
        vf d = inverse * (g - n * mean);
        if (add)
            d = d + load_some(dx + i, left);
        store_some(dx + i, d, left);
    }
}

static void rms_norm_backward(float *dx, float *dgain, const float *dy, const float *x,
                              const float *inverse, const float *gain, size_t rows,
                              size_t columns, bool add)
{
    for (size_t row = 0; row < rows; row++) {
        const size_t at = row * columns;
        rms_norm_backward_row(dx ? dx + at : NULL, dgain, dy + at, x + at,
                              vf_set1(inverse[row]), gain, columns, add);
    }
}

#endif
