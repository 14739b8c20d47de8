/* Rows into lanes and back: queries lie in memory one after the other, and kernels want
 * one to a lane.  Squares are turned in registers (square.h); the rest goes float by
 * float. */
#ifndef ATTN_KERNEL_TRANSPOSE_H
#define ATTN_KERNEL_TRANSPOSE_H

#include "kernel/convert.h"
#include "kernel/square.h"

/* Elements first ≤ n < size of some rows, float by float. */
INLINE void load_plain(float *to, size_t width, const struct attn_matrix *from,
                       size_t row, size_t rows, size_t first, float scale)
{
    for (size_t i = row; i < row + rows; i++) {
        const float *const x = (const float *)from->x + (ptrdiff_t)i * from->row_stride;
#pragma GCC unroll 8
        for (size_t n = first; n < from->size; n++)
            to[n * width + i] = x[(ptrdiff_t)n * from->element_stride] * scale;
    }
}

/* Calls what the square of the next rows will touch, which likely lie in no near cache:
 * a square takes 100 cycles, a line from memory several times that.  What lies beyond the
 * last row may be the next panel's, and costs nothing if not. */
INLINE void fetch_next_rows(const void *x, ptrdiff_t row_stride, ptrdiff_t offset,
                            const attn_type type, const int to_write)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    uintptr_t next =
        (uintptr_t)x + (uintptr_t)((offset + (ptrdiff_t)VF_LANES * row_stride) * bytes);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++) {
        if (to_write) /* clang wants a constant */
            __builtin_prefetch((const void *)next, 1);
        else
            __builtin_prefetch((const void *)next, 0);
        next += (uintptr_t)(row_stride * bytes);
    }
}

/* A square from row and element n on, of which `rows` rows are there; whole if all of it
 * is, side by side. */
INLINE void load_square(float *to, size_t width, const struct attn_matrix *from,
                        size_t row, size_t rows, size_t n, float scale,
                        const attn_type type, const bool whole)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2, stride = from->row_stride;
    const ptrdiff_t offset = (ptrdiff_t)row * stride + (ptrdiff_t)n;
    const char *const x0 = (const char *)from->x + offset * bytes;
    const size_t left = from->size - n;
    vf x[VF_BYTES / 4];
    if (whole)
        fetch_next_rows(from->x, stride, offset, type, 0);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = whole      ? vf_load_as(x0 + (ptrdiff_t)i * stride * bytes, type) * scale
               : i < rows ? load_elements(from, row + i, n, type) * scale
                          : vf_set1(0.0f);
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        if (whole || i < left)
            vf_store(to + (n + i) * width + row, x[i]);
}

INLINE bool is_whole(size_t rows, size_t size, size_t n, ptrdiff_t element_stride)
{
    return rows == VF_LANES && n + VF_LANES <= size && element_stride == 1;
}

INLINE void load_squares(float *to, size_t width, const struct attn_matrix *from,
                         float scale, const attn_type type)
{
    for (size_t row = 0; row < width; row += VF_LANES) {
        const size_t left = from->rows > row ? from->rows - row : 0;
        const size_t rows = left < VF_LANES ? left : VF_LANES;
        for (size_t n = 0; n < from->size; n += VF_LANES)
            if (is_whole(rows, from->size, n, from->element_stride))
                load_square(to, width, from, row, rows, n, scale, type, true);
            else
                load_square(to, width, from, row, rows, n, scale, type, false);
    }
}

static void load_fp32(float *to, size_t width, const struct attn_matrix *from,
                      float scale)
{
    for (size_t row = 0; row < width; row += VF_LANES) {
        const size_t left = from->rows > row ? from->rows - row : 0;
        const size_t rows = left < VF_LANES ? left : VF_LANES;
        size_t n = 0;
        for (; from->element_stride == 1 && n + VF_LANES <= from->size; n += VF_LANES)
            if (rows == VF_LANES)
                load_square(to, width, from, row, rows, n, scale, ATTN_F32, true);
            else
                load_square(to, width, from, row, rows, n, scale, ATTN_F32, false);
        for (size_t rest = n; rest < from->size; rest++)
            vf_store(to + rest * width + row, vf_set1(0.0f));
        load_plain(to, width, from, row, rows, n, scale);
    }
}

/* Rows side by side: they are lanes already. */
INLINE void load_lanes(float *to, size_t width, const struct attn_matrix *from,
                       float scale, const attn_type type)
{
    const struct attn_matrix turned = turned_matrix(from);
    for (size_t n = 0; n < from->size; n++)
        for (size_t row = 0; row < width; row += VF_LANES)
            vf_store(to + n * width + row,
                     row < from->rows ? load_elements(&turned, n, row, type) * scale
                                      : vf_set1(0.0f));
}

INLINE void load_rows(float *to, size_t width, const struct attn_matrix *from,
                      float scale, const attn_type type)
{
    if (is_turned(from->row_stride, from->element_stride))
        load_lanes(to, width, from, scale, type);
    else if (type == ATTN_F32)
        load_fp32(to, width, from, scale);
    else
        load_squares(to, width, from, scale, type);
}

static void load_transposed(float *to, size_t width, const struct attn_matrix *from,
                            float scale)
{
    if (from->type == ATTN_F16)
        load_rows(to, width, from, scale, ATTN_F16);
    else if (from->type == ATTN_BF16)
        load_rows(to, width, from, scale, ATTN_BF16);
    else
        load_rows(to, width, from, scale, ATTN_F32);
}

INLINE void store_square(const struct attn_target *to, const float *from, size_t width,
                         size_t row, size_t rows, size_t n, vf factor,
                         const attn_type type, const bool whole)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2, stride = to->row_stride;
    const ptrdiff_t offset = (ptrdiff_t)row * stride + (ptrdiff_t)n;
    char *const to0 = (char *)to->x + offset * bytes;
    const size_t left = to->size - n;
    vf x[VF_BYTES / 4];
    if (whole)
        fetch_next_rows(to->x, stride, offset, type, 1);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = whole || i < left
                   ? vf_one_nan(vf_load(from + (n + i) * width + row) * factor)
                   : vf_set1(0.0f);
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        if (whole)
            vf_store_as(to0 + (ptrdiff_t)i * stride * bytes, x[i], type);
        else if (i < rows)
            store_elements(to, row + i, n, x[i], type);
}

INLINE void store_squares(const struct attn_target *to, const float *from, size_t width,
                          const float *factors, const attn_type type)
{
    for (size_t row = 0; row < to->rows; row += VF_LANES) {
        const size_t rows = to->rows - row < VF_LANES ? to->rows - row : VF_LANES;
        const vf factor = vf_load(factors + row);
        for (size_t n = 0; n < to->size; n += VF_LANES)
            if (is_whole(rows, to->size, n, to->element_stride))
                store_square(to, from, width, row, rows, n, factor, type, true);
            else
                store_square(to, from, width, row, rows, n, factor, type, false);
    }
}

INLINE void store_rows(const struct attn_target *to, const float *from, size_t width,
                       const float *factors, const attn_type type)
{
    if (!is_turned(to->row_stride, to->element_stride)) {
        store_squares(to, from, width, factors, type);
        return;
    }
    const struct attn_target turned = turned_target(to);
    for (size_t n = 0; n < to->size; n++)
        for (size_t row = 0; row < to->rows; row += VF_LANES)
            store_elements(
                &turned, n, row,
                vf_one_nan(vf_load(from + n * width + row) * vf_load(factors + row)),
                type);
}

static void store_transposed(const struct attn_target *to, const float *from,
                             size_t width, const float *factors)
{
    if (to->type == ATTN_F16)
        store_rows(to, from, width, factors, ATTN_F16);
    else if (to->type == ATTN_BF16)
        store_rows(to, from, width, factors, ATTN_BF16);
    else
        store_rows(to, from, width, factors, ATTN_F32);
}

/* Rows side by side: turned on the way. */
INLINE void put_columns(const struct attn_target *to, const float *from,
                        size_t row_stride, float scale, const attn_type type)
{
    const struct attn_target turned = turned_target(to);
    for (size_t row = 0; row < to->rows; row += VF_LANES)
        for (size_t n = 0; n < to->size; n += VF_LANES) {
            vf x[VF_BYTES / 4];
#pragma GCC unroll 16
            for (size_t i = 0; i < VF_LANES; i++)
                x[i] = row + i < to->rows
                           ? vf_load(from + (row + i) * row_stride + n) * scale
                           : vf_set1(0.0f);
            transpose_square(x);
#pragma GCC unroll 16
            for (size_t i = 0; i < VF_LANES; i++)
                if (n + i < to->size)
                    store_elements(&turned, n + i, row, x[i], type);
        }
}

INLINE void put_rows(const struct attn_target *to, const float *from, size_t row_stride,
                     float scale, const attn_type type)
{
    if (is_turned(to->row_stride, to->element_stride)) {
        put_columns(to, from, row_stride, scale, type);
        return;
    }
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const size_t size = to->size;
    for (size_t row = 0; row < to->rows; row++) {
        char *const x = (char *)to->x + (ptrdiff_t)row * to->row_stride * bytes;
        const float *const sums = from + row * row_stride;
        size_t n = 0;
        for (; to->element_stride == 1 && n + VF_LANES <= size; n += VF_LANES)
            vf_store_as(x + (ptrdiff_t)n * bytes, vf_load(sums + n) * scale, type);
        for (; n < size; n += VF_LANES)
            store_elements(to, row, n, vf_load(sums + n) * scale, type);
    }
}

static void put(const struct attn_target *to, const float *from, size_t row_stride,
                float scale)
{
    if (to->type == ATTN_F16)
        put_rows(to, from, row_stride, scale, ATTN_F16);
    else if (to->type == ATTN_BF16)
        put_rows(to, from, row_stride, scale, ATTN_BF16);
    else
        put_rows(to, from, row_stride, scale, ATTN_F32);
}

#endif
