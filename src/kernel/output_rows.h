/* The output of a panel that sees no block of keys but one, row by row:
 *
 *     output[row][d] = factor[row] · Σ_key weight[key][row] · value[key][d]
 *
 * Weights are broadcast here and elements lie in the lanes, as values do in memory and
 * the output will: nothing is turned, and lanes without a query cost nothing.  Each sum
 * is the chain of multiply-adds that product.h makes, whatever the tile around it. */
#ifndef ATTN_KERNEL_OUTPUT_ROWS_H
#define ATTN_KERNEL_OUTPUT_ROWS_H

#include "kernel/call_lines.h"
#include "kernel/segment.h"

/* Accumulators + vectors of values + 1 fit the registers. */
#if VF_REGISTERS == 32
enum { OUTPUT_ROWS = 6, OUTPUT_VECTORS = 4 };
#else
enum { OUTPUT_ROWS = 6, OUTPUT_VECTORS = 2 };
#endif

struct output_rows {
    const struct attn_target *to;
    const struct attn_weighted_rows *from;
    const struct attn_block *block;
    size_t row, begin, end; /* the tile's first row, and what keys its rows see */
};

/* The arguments after d are constants at every call, and the loops over them unroll: only
 * so do the accumulators stay in registers. */
INLINE void output_tile(const struct output_rows *p, size_t d, const size_t rows,
                        const size_t vectors, const struct attn_lines *lines)
{
    const ptrdiff_t value_stride = p->from->row_stride, out_stride = p->to->row_stride;
    const size_t width = p->from->width;
    const float *weight = p->from->weights + p->begin * width + p->row;
    const float *value = p->from->rows + (ptrdiff_t)p->begin * value_stride + d;
    vf sum[OUTPUT_ROWS][OUTPUT_VECTORS];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sum[r][v] = vf_set1(0.0f);

    size_t keys = p->end - p->begin; /* never none; see product.h for the do … while */
    struct line_caller caller = begin_calling(lines, keys);
    do {
        if (lines)
            call_next(&caller, keys);
        vf x[OUTPUT_VECTORS];
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            x[v] = vf_load(value + v * VF_LANES);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            const vf factor = vf_set1(weight[r]);
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++)
                sum[r][v] = vf_fma(factor, x[v], sum[r][v]);
        }
        weight += width;
        value += value_stride;
    } while (--keys > 0);

    float *out = (float *)p->to->x + (ptrdiff_t)p->row * out_stride + d;
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
        const vf factor = vf_set1(p->from->factors[p->row + r]);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            vf_store(out + v * VF_LANES, vf_one_nan(sum[r][v] * factor));
        out += out_stride;
    }
}

/* The same, calling lines if there are any left to call. */
INLINE void output_calling_tile(const struct output_rows *p, size_t d, const size_t rows,
                                const size_t vectors)
{
    struct attn_lines lines;
    struct attn_calls *const calls = p->block->calls;
    if (take_lines(calls, p->end - p->begin, &lines))
        output_tile(p, d, rows, vectors, &lines);
    else
        output_tile(p, d, rows, vectors, NULL);
}

/* The last vector ends where the row does, and may find some elements again. */
INLINE void output_strip(const struct output_rows *p, size_t size, const size_t rows)
{
    size_t d = 0;
    for (; d + OUTPUT_VECTORS * VF_LANES <= size; d += OUTPUT_VECTORS * VF_LANES)
        output_calling_tile(p, d, rows, OUTPUT_VECTORS);
    if (OUTPUT_VECTORS > 2 && d + 2 * VF_LANES <= size) {
        output_tile(p, d, rows, 2, NULL);
        d += 2 * VF_LANES;
    }
    for (; d < size; d += VF_LANES)
        output_tile(p, d + VF_LANES <= size ? d : size - VF_LANES, rows, 1, NULL);
}

/* What any of so many rows sees: a key hidden from one of them weighs 0 there. */
INLINE void look_at_rows(struct output_rows *p, size_t rows)
{
    const struct attn_block *const block = p->block;
    p->begin = 0, p->end = block->keys;
    if (!sees_all(block, 0, block->keys)) {
        p->begin = (size_t)block->first[p->row];
        p->end = (size_t)block->end[p->row + rows - 1];
    }
    if (p->begin >= p->end)
        p->begin = 0, p->end = 1; /* which weighs 0 in all of them */
}

static void store_weighted(const struct attn_target *to,
                           const struct attn_weighted_rows *from,
                           const struct attn_block *block)
{
    struct output_rows p = {.to = to, .from = from, .block = block};
    for (; p.row + OUTPUT_ROWS <= to->rows; p.row += OUTPUT_ROWS) {
        look_at_rows(&p, OUTPUT_ROWS);
        output_strip(&p, to->size, OUTPUT_ROWS);
    }
    for (; p.row + 4 <= to->rows; p.row += 4) {
        look_at_rows(&p, 4);
        output_strip(&p, to->size, 4);
    }
    for (; p.row + 2 <= to->rows; p.row += 2) {
        look_at_rows(&p, 2);
        output_strip(&p, to->size, 2);
    }
    if (p.row < to->rows) {
        look_at_rows(&p, 1);
        output_strip(&p, to->size, 1);
    }
}

#endif
