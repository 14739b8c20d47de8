/* Matrices of fp32 into tiles of their parts; see part_table.h. */
#ifndef ATTN_KERNEL_PART_SPLIT_H
#define ATTN_KERNEL_PART_SPLIT_H

#include "kernel/bf16x3.h"
#include "kernel/part_table.h"
#include "kernel/transpose.h"

/* Elements n and following of a row, 0 where there are none; whole if all are there, side
 * by side. */
INLINE vf load_part_of(const struct attn_matrix *from, size_t row, size_t n,
                       const bool whole)
{
    if (whole)
        return vf_load((const float *)from->x + (ptrdiff_t)row * from->row_stride + n);
    if (row >= from->rows || n >= from->size)
        return vf_set1(0.0f);
    return load_elements(from, row, n, ATTN_F32);
}

INLINE bool has_all(const struct attn_matrix *from, size_t rows, size_t size)
{
    return from->element_stride == 1 && from->rows >= rows && from->size >= size;
}

/* In each lane the bits of the largest size so far; those of NaN are above all others. */
INLINE vi larger_bits(vi most, vf x)
{
    return vi_max(most, vf_bits(vf_abs(x)));
}

static int32_t most_of_lanes(vi most)
{
    int32_t largest = 0;
    for (size_t lane = 0; lane < VF_LANES; lane++)
        largest = most[lane] > largest ? most[lane] : largest;
    return largest;
}

/* A row's parts, a step a tile. */
INLINE vi split_row(float *to, const struct attn_matrix *from, size_t row, vi most,
                    const bool whole)
{
    for (size_t n = 0; n < from->size; n += ATTN_TILE_STEP) {
        const vf first = load_part_of(from, row, n, whole);
        const vf second = load_part_of(from, row, n + VF_LANES, whole);
        store_parts(to, ATTN_TILE_FLOATS, first, second);
        most = larger_bits(larger_bits(most, first), second);
        to += ATTN_PART_FLOATS;
    }
    return most;
}

static int32_t split_left(float *to, const struct attn_matrix *given)
{
    const struct attn_matrix from = *given;
    const size_t steps = attn_tile_steps(from.size);
    const size_t whole = has_all(&from, 0, steps * ATTN_TILE_STEP) ? from.rows : 0;
    vi most = {0};
    for (size_t row = 0; row < attn_tile_steps(from.rows) * ATTN_TILE_STEP; row++) {
        float *const at = to + row / ATTN_TILE_EDGE * steps * ATTN_PART_FLOATS +
                          row % ATTN_TILE_EDGE * VF_LANES;
        most = row < whole ? split_row(at, &from, row, most, true)
                           : split_row(at, &from, row, most, false);
    }
    return most_of_lanes(most);
}

/* A step of rows by a tile of elements. */
INLINE vi split_pairs(float *to, const struct attn_matrix *from, size_t row, size_t n,
                      vi most, const bool whole)
{
#pragma GCC unroll 2
    for (size_t i = row; i < row + ATTN_TILE_EDGE; i++) {
        const vf first = load_part_of(from, i, n, whole);
        const vf second = load_part_of(from, i + ATTN_TILE_EDGE, n, whole);
        store_parts(to, ATTN_TILE_FLOATS, first, second);
        most = larger_bits(larger_bits(most, first), second);
        to += VF_LANES;
    }
    return most;
}

static int32_t split_right(float *to, const struct attn_matrix *given)
{
    const struct attn_matrix from = *given;
    vi most = {0};
    for (size_t row = 0; row < from.rows; row += ATTN_TILE_STEP)
        for (size_t n = 0; n < from.size; n += VF_LANES) {
            const bool whole = has_all(&from, row + ATTN_TILE_STEP, n + VF_LANES);
            most = whole ? split_pairs(to, &from, row, n, most, true)
                         : split_pairs(to, &from, row, n, most, false);
            to += ATTN_PART_FLOATS;
        }
    return most_of_lanes(most);
}

/* Squares of 16 rows times a factor, turned, as pairs: a row's element with that of the
 * row 16 further, or with its own element 16 further. */
INLINE void split_squares(float *to, const struct attn_matrix *from, size_t row, size_t n,
                          size_t other_row, size_t other_n, float factor,
                          const bool whole)
{
    vf x[ATTN_TILE_EDGE], y[ATTN_TILE_EDGE];
#pragma GCC unroll 16
    for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
        x[i] = load_part_of(from, row + i, n, whole) * factor;
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
        y[i] = load_part_of(from, other_row + i, other_n, whole) * factor;
    transpose_square(y);
#pragma GCC unroll 16
    for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
        store_parts(to + i * VF_LANES, ATTN_TILE_FLOATS, x[i], y[i]);
}

static void split_turned(float *to, const struct attn_matrix *given)
{
    const struct attn_matrix from = *given;
    const size_t steps = attn_tile_steps(from.rows), edge = ATTN_TILE_EDGE;
    for (size_t n = 0; n < from.size; n += edge)
        for (size_t step = 0; step < steps; step++) {
            const size_t row = step * ATTN_TILE_STEP;
            if (has_all(&from, row + ATTN_TILE_STEP, n + edge))
                split_squares(to, &from, row, n, row + edge, n, 1.0f, true);
            else
                split_squares(to, &from, row, n, row + edge, n, 1.0f, false);
            to += ATTN_PART_FLOATS;
        }
}

static void split_lanes(float *to, size_t columns, const struct attn_matrix *given,
                        float scale)
{
    const struct attn_matrix from = *given;
    const size_t edge = ATTN_TILE_EDGE;
    for (size_t n = 0; n < from.size; n += ATTN_TILE_STEP)
        for (size_t row = 0; row < columns; row += edge) {
            if (has_all(&from, row + edge, n + ATTN_TILE_STEP))
                split_squares(to, &from, row, n, row, n + edge, scale, true);
            else
                split_squares(to, &from, row, n, row, n + edge, scale, false);
            to += ATTN_PART_FLOATS;
        }
}

enum { LARGEST_CHAINS = 4 };

INLINE int32_t largest_element_of(const struct attn_matrix *matrix, const attn_type type)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const size_t together = LARGEST_CHAINS * VF_LANES;
    vi most[LARGEST_CHAINS] = {{0}};
    for (size_t row = 0; row < matrix->rows; row++) {
        const char *const x =
            (const char *)matrix->x + (ptrdiff_t)row * matrix->row_stride * bytes;
        size_t n = 0;
        for (; matrix->element_stride == 1 && n + together <= matrix->size; n += together)
#pragma GCC unroll 4
            for (size_t i = 0; i < LARGEST_CHAINS; i++)
                most[i] = larger_bits(
                    most[i], vf_load_as(x + (ptrdiff_t)(n + i * VF_LANES) * bytes, type));
        for (; n < matrix->size; n += VF_LANES)
            most[0] = larger_bits(most[0], load_elements(matrix, row, n, type));
    }
    for (size_t i = 1; i < LARGEST_CHAINS; i++)
        most[0] = vi_max(most[0], most[i]);
    return most_of_lanes(most[0]);
}

static int32_t largest_element(const struct attn_matrix *given)
{
    const struct attn_matrix turned = turned_matrix(given);
    const struct attn_matrix *const matrix =
        is_turned(given->row_stride, given->element_stride) ? &turned : given;
    if (matrix->type == ATTN_F16)
        return largest_element_of(matrix, ATTN_F16);
    if (matrix->type == ATTN_BF16)
        return largest_element_of(matrix, ATTN_BF16);
    return largest_element_of(matrix, ATTN_F32);
}

#endif
