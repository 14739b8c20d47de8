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

/* A row's parts, a step a tile. */
INLINE void split_row(float *to, const struct attn_matrix *from, size_t row,
                      const bool whole)
{
    for (size_t n = 0; n < from->size; n += ATTN_TILE_STEP) {
        store_parts(to, ATTN_TILE_FLOATS, load_part_of(from, row, n, whole),
                    load_part_of(from, row, n + VF_LANES, whole));
        to += ATTN_PART_FLOATS;
    }
}

static void split_left(float *to, const struct attn_matrix *given)
{
    const struct attn_matrix from = *given;
    const size_t steps = attn_tile_steps(from.size);
    const size_t whole = has_all(&from, 0, steps * ATTN_TILE_STEP) ? from.rows : 0;
    for (size_t row = 0; row < attn_tile_steps(from.rows) * ATTN_TILE_STEP; row++) {
        float *const at = to + row / ATTN_TILE_EDGE * steps * ATTN_PART_FLOATS +
                          row % ATTN_TILE_EDGE * VF_LANES;
        if (row < whole)
            split_row(at, &from, row, true);
        else
            split_row(at, &from, row, false);
    }
}

/* A step of rows by a tile of elements. */
INLINE void split_pairs(float *to, const struct attn_matrix *from, size_t row, size_t n,
                        const bool whole)
{
#pragma GCC unroll 2
    for (size_t i = row; i < row + ATTN_TILE_EDGE; i++) {
        store_parts(to, ATTN_TILE_FLOATS, load_part_of(from, i, n, whole),
                    load_part_of(from, i + ATTN_TILE_EDGE, n, whole));
        to += VF_LANES;
    }
}

static void split_right(float *to, const struct attn_matrix *given)
{
    const struct attn_matrix from = *given;
    for (size_t row = 0; row < from.rows; row += ATTN_TILE_STEP)
        for (size_t n = 0; n < from.size; n += VF_LANES) {
            if (has_all(&from, row + ATTN_TILE_STEP, n + VF_LANES))
                split_pairs(to, &from, row, n, true);
            else
                split_pairs(to, &from, row, n, false);
            to += ATTN_PART_FLOATS;
        }
}

/* The same, turned. */
INLINE void split_square(float *to, const struct attn_matrix *from, size_t row, size_t n,
                         const bool whole)
{
    vf part[BF16_PARTS][ATTN_TILE_EDGE];
#pragma GCC unroll 16
    for (size_t i = 0; i < ATTN_TILE_EDGE; i++) {
        vf a[BF16_PARTS], b[BF16_PARTS];
        split_in_parts(load_part_of(from, row + i, n, whole), a);
        split_in_parts(load_part_of(from, row + i + ATTN_TILE_EDGE, n, whole), b);
#pragma GCC unroll 3
        for (size_t k = 0; k < BF16_PARTS; k++)
            part[k][i] = pair_parts(a[k], b[k]);
    }
#pragma GCC unroll 3
    for (size_t k = 0; k < BF16_PARTS; k++) {
        transpose_square(part[k]);
#pragma GCC unroll 16
        for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
            vf_store(to + k * ATTN_TILE_FLOATS + i * VF_LANES, part[k][i]);
    }
}

static void split_turned(float *to, const struct attn_matrix *given)
{
    const struct attn_matrix from = *given;
    const size_t steps = attn_tile_steps(from.rows);
    for (size_t n = 0; n < from.size; n += ATTN_TILE_EDGE)
        for (size_t step = 0; step < steps; step++) {
            const size_t row = step * ATTN_TILE_STEP;
            if (has_all(&from, row + ATTN_TILE_STEP, n + ATTN_TILE_EDGE))
                split_square(to, &from, row, n, true);
            else
                split_square(to, &from, row, n, false);
            to += ATTN_PART_FLOATS;
        }
}

/* Products of three such numbers, and sums of many, stay far from both ends of fp32. */
#define PART_LEAST 0x1p-30f
#define PART_MOST 0x1p30f

INLINE vi larger_bits(vi most, vf x)
{
    const vi bits = vf_bits(vf_abs(x)); /* those of NaN are above all others */
    return vi_select(bits > most, bits, most);
}

enum { FITS_CHAINS = 4 };

INLINE bool fits_of(const struct attn_matrix *matrix, const attn_type type)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    vi most[FITS_CHAINS] = {{0}};
    for (size_t row = 0; row < matrix->rows; row++) {
        const char *const x =
            (const char *)matrix->x + (ptrdiff_t)row * matrix->row_stride * bytes;
        size_t n = 0;
        for (; matrix->element_stride == 1 && n + FITS_CHAINS * VF_LANES <= matrix->size;
             n += FITS_CHAINS * VF_LANES)
#pragma GCC unroll 4
            for (size_t i = 0; i < FITS_CHAINS; i++)
                most[i] = larger_bits(
                    most[i], vf_load_as(x + (ptrdiff_t)(n + i * VF_LANES) * bytes, type));
        for (; n < matrix->size; n += VF_LANES)
            most[0] = larger_bits(most[0], load_elements(matrix, row, n, type));
    }
    for (size_t i = 1; i < FITS_CHAINS; i++)
        most[0] = larger_bits(most[0], vf_from_bits(most[i]));
    const vf largest = vf_from_bits(most[0]);
    return !vi_any(~(largest <= PART_MOST)) &&
           (vi_any(largest >= PART_LEAST) || !vi_any(largest != 0.0f));
}

static bool fits_parts(const struct attn_matrix *given)
{
    const struct attn_matrix turned = turned_matrix(given);
    const struct attn_matrix *const matrix =
        is_turned(given->row_stride, given->element_stride) ? &turned : given;
    if (matrix->type == ATTN_F16)
        return fits_of(matrix, ATTN_F16);
    if (matrix->type == ATTN_BF16)
        return fits_of(matrix, ATTN_BF16);
    return fits_of(matrix, ATTN_F32);
}

#endif
