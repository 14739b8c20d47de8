/* Queries, keys and values as products of tiles take them: pairs of bfloat16, of one part
 * or of three; see tiles.h.  Queries and keys of three parts pair elements 16 apart, so
 * that nothing moves between lanes; values pair neighbouring keys. */
#ifndef ATTN_KERNEL_TILE_ROWS_H
#define ATTN_KERNEL_TILE_ROWS_H

#include "kernel/bf16x3.h"
#include "kernel/call_lines.h"
#include "kernel/pair_rows.h"
#include "kernel/tile_products.h"
#include "kernel/transpose.h"

/* ---- Values of one part --------------------------------------------------------------
 */

/* Of a group: [d][TILE_STEP keys]. */
static size_t place_in_tiles(size_t row, size_t n, size_t stride)
{
    return (row / TILE_STEP * stride + n) * TILE_STEP + row % TILE_STEP;
}

static void clear_in_tiles(float *to, size_t row, size_t n, size_t stride)
{
    ((uint16_t *)(void *)to)[place_in_tiles(row, n, stride)] = 0;
}

/* Elements n and following of the group's rows from `row` on, in pairs of rows, turned;
 * whole if all are there, side by side.  Returns `zero`, which becomes NaN where one is
 * not finite. */
INLINE vf turn_square(float *to, const struct attn_matrix *from, size_t row, size_t n,
                      vf zero, const bool whole)
{
    const uint16_t *const x0 = (const uint16_t *)from->x + n;
    vf x[TILE_EDGE];
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_EDGE; i++) {
        vf half[2] = {{0}, {0}};
        for (size_t k = 0; k < 2; k++) {
            const size_t at = row + 2 * i + k;
            if (whole)
                half[k] = vf_load_bf16(x0 + (ptrdiff_t)at * from->row_stride);
            else if (at < from->rows)
                half[k] = load_elements(from, at, n, ATTN_BF16);
        }
        zero = vf_fma(half[0], zero, zero); /* but for what is special */
        zero = vf_fma(half[1], zero, zero);
        x[i] = (vf)((vu)half[0] >> 16 | (vu)half[1]);
    }
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_EDGE; i++)
        vf_store(to + i * TILE_EDGE, x[i]);
    return zero;
}

static bool turn_values(float *to, float *special, const struct attn_matrix *from)
{
    const struct attn_matrix rows = *from;
    float *at = to;
    vf zero = {0};
    for (size_t row = 0; row < rows.rows; row += TILE_STEP)
        for (size_t n = 0; n < rows.size; n += VF_LANES) {
            const bool whole = rows.element_stride == 1 && row + TILE_STEP <= rows.rows &&
                               n + VF_LANES <= rows.size;
            zero = whole ? turn_square(at, &rows, row, n, zero, true)
                         : turn_square(at, &rows, row, n, zero, false);
            at += TILE_FLOATS;
        }
    if (!vi_any(zero != zero))
        return false;
    sort_out_special(to, special, from, is_special, clear_in_tiles);
    return true;
}

/* Calls 16 elements or more of a row to come into the second cache, if they lie side by
 * side; the row may be beyond the last. */
INLINE void call_row(const struct attn_matrix *from, size_t row, size_t n,
                     const attn_type type)
{
    const ptrdiff_t at = (ptrdiff_t)row * from->row_stride + (ptrdiff_t)n;
    call_line((uintptr_t)from->x + (uintptr_t)at * (type == ATTN_F32 ? 4 : 2));
}

/* ---- Values of three parts -----------------------------------------------------------
 */

/* Of a group: [16 elements][part][element][TILE_STEP keys]. */
static void clear_in_tiles_of_parts(float *to, size_t row, size_t n, size_t stride)
{
    uint16_t *const halves = (uint16_t *)(void *)to;
    const size_t group = row / TILE_STEP * stride + n / TILE_EDGE * TILE_EDGE;
    const size_t first = (BF16_PARTS * group + n % TILE_EDGE) * TILE_STEP;
    for (size_t part = 0; part < BF16_PARTS; part++)
        halves[first + part * TILE_EDGE * TILE_STEP + row % TILE_STEP] = 0;
}

/* Not 0 and below 2⁻⁹⁰, so that parts would be lost; or from 2¹⁰⁰ on, or NaN, so that
 * sums of products with weights might be infinite. */
INLINE vi is_extreme(vf x)
{
    const vi size = vf_bits(vf_abs(x));
    return (size >= vf_bits(vf_set1(0x1p100f))) |
           ((size != 0) & (size < vf_bits(vf_set1(0x1p-90f))));
}

/* Elements n and following of the group's rows from `row` on, turned; whole if all are
 * there, side by side.  Returns which lanes met something extreme, and before. */
INLINE vi turn_parts(float *to, const struct attn_matrix *from, size_t row, size_t n,
                     vi extreme, const attn_type type, const bool whole)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const char *const x0 = (const char *)from->x + (ptrdiff_t)n * bytes;
    vf even[TILE_EDGE], odd[TILE_EDGE];
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_EDGE; i++) {
        vf x[2] = {{0}, {0}};
        for (size_t k = 0; k < 2; k++) {
            const size_t at = row + 2 * i + k;
            call_row(from, at + TILE_STEP, n, type);
            if (whole)
                x[k] = vf_load_as(x0 + (ptrdiff_t)at * from->row_stride * bytes, type);
            else if (at < from->rows)
                x[k] = load_elements(from, at, n, type);
            extreme |= is_extreme(x[k]);
        }
        even[i] = x[0], odd[i] = x[1];
    }
    transpose_square(even);
    transpose_square(odd);
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_EDGE; i++)
        store_parts(to + i * TILE_EDGE, TILE_FLOATS, even[i], odd[i]);
    return extreme;
}

INLINE bool turn_value_parts_of(float *to, float *special, const struct attn_matrix *from,
                                const attn_type type)
{
    const struct attn_matrix rows = *from;
    float *at = to;
    vi extreme = {0};
    for (size_t row = 0; row < rows.rows; row += TILE_STEP)
        for (size_t n = 0; n < rows.size; n += VF_LANES) {
            const bool whole = rows.element_stride == 1 && row + TILE_STEP <= rows.rows &&
                               n + VF_LANES <= rows.size;
            extreme = whole ? turn_parts(at, &rows, row, n, extreme, type, true)
                            : turn_parts(at, &rows, row, n, extreme, type, false);
            at += BF16_PARTS * TILE_FLOATS;
        }
    if (!vi_any(extreme))
        return false;
    sort_out_special(to, special, from, is_extreme, clear_in_tiles_of_parts);
    return true;
}

static bool turn_value_parts(float *to, float *special, const struct attn_matrix *from)
{
    if (from->type == ATTN_F16)
        return turn_value_parts_of(to, special, from, ATTN_F16);
    if (from->type == ATTN_BF16)
        return turn_value_parts_of(to, special, from, ATTN_BF16);
    return turn_value_parts_of(to, special, from, ATTN_F32);
}

/* ---- Keys and queries of three parts -------------------------------------------------
 */

/* From 2⁶⁰ on NaN, which tells whoever looks at a score to take the numbers as they are;
 * below, what is lost of a product with a part under 2⁻¹²⁶ is nothing to a score. */
INLINE vf moderate_or_nan(vf x)
{
    return vf_where_greater(vf_set1(0x1p60f), vf_abs(x), x, vf_set1(NAN));
}

INLINE vf load_moderate(const struct attn_matrix *from, size_t row, size_t n, float scale,
                        const attn_type type)
{
    if (row >= from->rows || n >= from->size)
        return vf_set1(0.0f);
    return moderate_or_nan(load_elements(from, row, n, type) * scale);
}

INLINE void split_keys_of(float *to, const struct attn_matrix *from, const attn_type type)
{
    const struct attn_matrix rows = *from;
    for (size_t row = 0; row < rows.rows; row++)
        for (size_t n = 0; n < rows.size; n += TILE_STEP) {
            call_row(&rows, row + TILE_EDGE, n, type);
            call_row(&rows, row + TILE_EDGE, n + VF_LANES, type);
            store_parts(to, VF_LANES, load_moderate(&rows, row, n, 1.0f, type),
                        load_moderate(&rows, row, n + VF_LANES, 1.0f, type));
            to += BF16_PARTS * VF_LANES;
        }
}

static void split_keys(float *to, const struct attn_matrix *from)
{
    if (from->type == ATTN_F16)
        split_keys_of(to, from, ATTN_F16);
    else if (from->type == ATTN_BF16)
        split_keys_of(to, from, ATTN_BF16);
    else
        split_keys_of(to, from, ATTN_F32);
}

INLINE void load_query_parts_of(float *to, size_t width, const struct attn_matrix *from,
                                float scale, const attn_type type)
{
    for (size_t row = 0; row < width; row += VF_LANES)
        for (size_t n = 0; n < from->size; n += TILE_STEP) {
            float *const at = to + n / TILE_STEP * BF16_PARTS * TILE_EDGE * width + row;
            vf x[TILE_EDGE], y[TILE_EDGE];
#pragma GCC unroll 16
            for (size_t i = 0; i < TILE_EDGE; i++) {
                call_row(from, row + TILE_EDGE + i, n, type);
                call_row(from, row + TILE_EDGE + i, n + VF_LANES, type);
                x[i] = load_moderate(from, row + i, n, scale, type);
                y[i] = load_moderate(from, row + i, n + VF_LANES, scale, type);
            }
            transpose_square(x);
            transpose_square(y);
#pragma GCC unroll 16
            for (size_t i = 0; i < TILE_EDGE; i++)
                store_parts(at + i * width, TILE_EDGE * width, x[i], y[i]);
        }
}

static void load_query_parts(float *to, size_t width, const struct attn_matrix *from,
                             float scale)
{
    if (from->type == ATTN_F16)
        load_query_parts_of(to, width, from, scale, ATTN_F16);
    else if (from->type == ATTN_BF16)
        load_query_parts_of(to, width, from, scale, ATTN_BF16);
    else
        load_query_parts_of(to, width, from, scale, ATTN_F32);
}

#endif
