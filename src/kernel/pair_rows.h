/* What kernels of pairs of bfloat16 share, whatever multiplies them: queries and keys as
 * rows of pairs, and what becomes of values that are not finite. */
#ifndef ATTN_KERNEL_PAIR_ROWS_H
#define ATTN_KERNEL_PAIR_ROWS_H

#include "kernel/convert.h"
#include "kernel/pair_table.h"
#include "kernel/simd_types.h"
#include "kernel/softmax.h"
#include <math.h>

enum {
    PAIR_LANES = VF_BYTES / 2, /* elements of 16 bits in a vector */
    PAIR_SCRATCH = (ATTN_BLOCK_KEYS / 2 + 1) * ATTN_PANEL_VECTORS * (VF_BYTES / 4)
};

/* Elements n to n + PAIR_LANES − 1 of a row, 0 beyond its last. */
INLINE vf load_row_pairs(const struct attn_matrix *from, size_t row, size_t n)
{
    const uint16_t *const x = (const uint16_t *)from->x +
                              (ptrdiff_t)row * from->row_stride +
                              (ptrdiff_t)n * from->element_stride;
    const size_t left = from->size - n;
    uint16_t lanes[PAIR_LANES] = {0};
    vf pairs;
    if (from->element_stride == 1 && left >= PAIR_LANES) {
        memcpy(&pairs, x, sizeof pairs);
        return pairs;
    }
    for (size_t i = 0; i < PAIR_LANES && i < left; i++)
        lanes[i] = x[(ptrdiff_t)i * from->element_stride];
    memcpy(&pairs, lanes, sizeof pairs);
    return pairs;
}

/* A power of two changes nothing but exponents: queries take it without rounding, and
 * scores need no multiplication. */
INLINE bool goes_with_queries(float scale)
{
    int exponent = 0;
    const float fraction = frexpf(scale, &exponent);
    return fabsf(fraction) == 0.5f && exponent > -16 && exponent <= 1;
}

INLINE vf scale_pairs(vf pairs, float scale)
{
    const vu upper = (vu){0} + 0xffff0000;
    const vf first = (vf)((vu)pairs << 16) * scale;
    const vf second = (vf)((vu)pairs & upper) * scale;
    return (vf)((vu)first >> 16 | ((vu)second & upper));
}

/* Rows into lanes: to[p][row] = the pair p of the row, scaled if that is exact; filled up
 * with zeros to a whole vector's elements of the row. */
static void load_query_pairs(float *to, size_t width, const struct attn_matrix *from,
                             float scale)
{
    const float factor = goes_with_queries(scale) ? scale : 1.0f;
    for (size_t row = 0; row < width; row += VF_LANES)
        for (size_t n = 0; n < from->size; n += PAIR_LANES) {
            vf x[VF_BYTES / 4];
#pragma GCC unroll 16
            for (size_t i = 0; i < VF_LANES; i++)
                x[i] = row + i < from->rows
                           ? scale_pairs(load_row_pairs(from, row + i, n), factor)
                           : vf_set1(0.0f);
            transpose_square(x);
#pragma GCC unroll 16
            for (size_t i = 0; i < VF_LANES; i++)
                vf_store(to + (n / 2 + i) * width + row, x[i]);
        }
}

/* Rows of keys one after the other, each filled up to whole vectors of pairs. */
static void copy_key_pairs(float *to, const struct attn_matrix *from)
{
    const struct attn_matrix rows = *from;
    const size_t whole =
        rows.element_stride == 1 ? rows.size - rows.size % PAIR_LANES : 0;
    for (size_t row = 0; row < rows.rows; row++) {
        const uint16_t *const x =
            (const uint16_t *)rows.x + (ptrdiff_t)row * rows.row_stride;
        for (size_t n = 0; n < whole; n += PAIR_LANES, to += VF_LANES)
            memcpy(to, x + n, VF_BYTES);
        for (size_t n = whole; n < rows.size; n += PAIR_LANES, to += VF_LANES)
            vf_store(to, load_row_pairs(&rows, row, n));
    }
}

INLINE vi is_special(vf x)
{
    return (vf_bits(x) & vi_set1(0x7f800000)) == vi_set1(0x7f800000);
}

INLINE vf load_any(const struct attn_matrix *from, size_t row, size_t n)
{
    return from->type == ATTN_F32   ? load_elements(from, row, n, ATTN_F32)
           : from->type == ATTN_F16 ? load_elements(from, row, n, ATTN_F16)
                                    : load_elements(from, row, n, ATTN_BF16);
}

/* Moves what is special from the pairs to `special`; stride is of its rows. */
INLINE void sort_out_special(float *to, float *special, const struct attn_matrix *from,
                             vi (*const which)(vf x),
                             void (*const clear)(float *to, size_t row, size_t n,
                                                 size_t stride))
{
    const size_t stride = whole_vectors(from->size);
    for (size_t row = 0; row < from->rows; row++)
        for (size_t n = 0; n < from->size; n += VF_LANES) {
            const vf x = load_any(from, row, n);
            const vi special_here = which(x);
            vf_store(special + row * stride + n, vf_keep(special_here, x));
            for (size_t i = 0; i < VF_LANES; i++)
                if (special_here[i])
                    clear(to, row, n + i, stride);
        }
}

/* table_tmpl.c */
static void value(struct attn_panel *panel, const float *weights,
                  const struct attn_block *block);

/* Adds what the pairs lack. */
static void add_special(struct attn_panel *panel, const float *weights,
                        const struct attn_block *block)
{
    struct attn_block special = *block;
    special.value = block->special;
    special.value_element_stride = 1;
    special.careful = block->keep || block->bias.x || !sees_all(block, 0, block->keys);
    special.opens = false;
    value(panel, weights, &special);
}

#endif
