/* The kernels of the backward pass; backward_table.h says what each is to do. */
#ifndef ATTN_KERNEL_BACKWARD_H
#define ATTN_KERNEL_BACKWARD_H

#include "kernel/backward_additive.h"
#include "kernel/backward_bias.h"
#include "kernel/backward_product.h"
#include "kernel/backward_table.h"
#if defined(__AMX_BF16__)
#    include "kernel/backward_tiles.h"
#endif
#include "kernel/convert.h"
#include "kernel/dropout.h"
#include "kernel/finite.h"
#include "kernel/score.h"
#include "kernel/transpose.h"
#include <math.h>

/* Nothing of keys begin ≤ key < end. */
INLINE void clear_column(float *weight, float *gradient, size_t row, size_t begin,
                         size_t end)
{
    for (size_t key = begin; key < end; key++) {
        vf_store(weight + key * row, vf_set1(0.0f));
        vf_store(gradient + key * row, vf_set1(0.0f));
    }
}

/* One vector of queries: its columns of the panel's and of the group's matrices. */
INLINE void differentiate_column(const struct attn_backward_panel *panel,
                                 const struct attn_backward_block *block, size_t v,
                                 const bool dropout)
{
    const size_t width = panel->forward.vectors * VF_LANES, lane = v * VF_LANES;
    const size_t row = block->row;
    const struct segment seen = seen_by_vector(&block->forward, v);
    const vf reference = vf_load(panel->forward.reference + lane);
    const vf inverse = vf_load(panel->inverse + lane);
    const vf delta = vf_load(panel->delta + lane);
    const vi draw_low = vi_load(panel->forward.draw_low + lane);
    const vi draw_high = vi_load(panel->forward.draw_high + lane);
    /* As near to 1 as one key's score in two orders of its sum. */
    const vf alone = vf_set1(block->rounded ? 1.0f - 0x1p-16f : INFINITY);
    const uint32_t first_draw = (uint32_t)block->forward.first_key;
    const float *score = block->score + seen.begin * width + lane;
    float *weight = block->weight + panel->column + lane;
    float *gradient = block->gradient + panel->column + lane;
    clear_column(weight, gradient, row, 0, seen.begin);
    clear_column(weight, gradient, row, seen.end, block->forward.keys);
    weight += seen.begin * row;
    gradient += seen.begin * row;

    for (size_t key = seen.begin; key < seen.end; key++) {
        const vf s = vf_load(score);
        /* A hidden key's weight is 0 even in a row whose sum is NaN. */
        const vf exponent = vf_max(vf_set1(VF_EXP_FLOOR), s - reference);
        const vf w = vf_keep(s != -INFINITY, vf_exp(exponent) * inverse);
        vf by_weight = vf_load(gradient);
        vf dropped = w;
        if (dropout) {
            const vi stays =
                vi_dropout_keeps(draw_low, draw_high, first_draw + (uint32_t)key,
                                 block->dropout_threshold);
            const vf kept = vf_keep(stays, vf_set1(block->dropout_factor));
            by_weight *= kept;
            dropped *= kept;
        }
        vf_store(weight, dropped);
        vf_store(gradient, vf_keep((w != 0.0f) & ~(w >= alone), w * (by_weight - delta)));
        score += width;
        weight += row;
        gradient += row;
    }
}

/* Products of the values with the output's gradients, by vectors that see a key. */
static void multiply_values(const struct attn_backward_panel *panel,
                            const struct attn_backward_block *block)
{
    const struct attn_block *const keys = &block->forward;
    const size_t vectors = panel->forward.vectors;
    struct backward_product p = {
        .out_stride = (ptrdiff_t)block->row,
        .row_stride = keys->value_stride,
        .step_stride = keys->value_element_stride,
        .right_stride = (ptrdiff_t)(vectors * VF_LANES),
        .end = panel->forward.Dv,
    };
    for (size_t key = 0; key < keys->keys; key += p.rows) {
        const struct segment segment = segment_from(keys, vectors, key);
        const size_t lane = segment.first_vector * VF_LANES;
        p.out = block->gradient + key * block->row + panel->column + lane;
        p.left = keys->value + (ptrdiff_t)key * keys->value_stride;
        p.right = panel->output_gradient + lane;
        p.rows = segment.end - key;
        if (segment.vectors > 0)
            backward_lanes(&p, segment.vectors, PRODUCT_SET, PRODUCT_PLAIN);
    }
}

static void backward_differentiate(const struct attn_backward_panel *panel,
                                   const struct attn_backward_block *block)
{
    const struct attn_block *const keys = &block->forward;
    const size_t width = panel->forward.vectors * VF_LANES;
    plain_scores(block->score, &panel->forward, keys, NULL);
    if (keys->softcap > 0.0f)
        cap_slopes(block->slope, block->score, keys->keys * width, keys->softcap);
    bend_scores(block->score, &panel->forward, keys, NULL);

    multiply_values(panel, block);
    /* Each weight below 2⁻¹²⁶ would cost a hundred cycles in every product with it. */
    const unsigned before = vf_flush_begin();
    for (size_t v = 0; v < panel->forward.vectors; v++) {
        if (block->dropout)
            differentiate_column(panel, block, v, true);
        else
            differentiate_column(panel, block, v, false);
    }
    vf_flush_end(before);
}

static void multiply_slopes(const struct attn_backward_panel *panel,
                            const struct attn_backward_block *block)
{
    const size_t width = panel->forward.vectors * VF_LANES;
    for (size_t key = 0; key < block->forward.keys; key++) {
        float *const gradient = block->gradient + key * block->row + panel->column;
        const float *const slope = block->slope + key * width;
        for (size_t lane = 0; lane < width; lane += VF_LANES) {
            /* A hidden key's slope may be NaN. */
            const vf before = vf_load(gradient + lane);
            const vf after = before * vf_load(slope + lane);
            vf_store(gradient + lane, vf_keep(before != 0.0f, after));
        }
    }
}

static void backward_query(const struct attn_backward_panel *panel,
                           const struct attn_backward_block *block)
{
    const struct attn_block *const keys = &block->forward;
    const size_t vectors = panel->forward.vectors;
    if (keys->softcap > 0.0f)
        multiply_slopes(panel, block);
    if (!panel->query_gradient || panel->forward.additive.vector)
        return;
    struct backward_product p = {
        .out = panel->query_gradient,
        .out_stride = (ptrdiff_t)(vectors * VF_LANES),
        .left = keys->key,
        .row_stride = keys->key_element_stride,
        .step_stride = keys->key_stride,
        .right = block->gradient + panel->column,
        .right_stride = (ptrdiff_t)block->row,
        .rows = panel->forward.D,
        .end = keys->keys,
    };
    if (block->careful) {
        backward_lanes(&p, vectors, PRODUCT_ADD, PRODUCT_ZERO_RIGHT);
        return;
    }
    if (sees_all(keys, 0, keys->keys)) {
        backward_lanes(&p, vectors, PRODUCT_ADD, PRODUCT_PLAIN);
        return;
    }
    /* One vector at a time, what it sees: a sum stays one chain. */
    for (size_t v = 0; v < vectors; v++, p.out += VF_LANES, p.right += VF_LANES) {
        const struct segment seen = seen_by_vector(keys, v);
        p.begin = seen.begin;
        p.end = seen.end;
        if (seen.begin < seen.end)
            backward_rows(&p, PRODUCT_ADD, PRODUCT_PLAIN, 1);
    }
}

/* Some keys, and one or two vectors of their rows from element d on.  From the last lane
 * back: with causal the first queries give a key its largest weights, and a sum that
 * takes these last rounds small sums until then: the value's gradient at length 512 errs
 * by .56 of what PyTorch's does, 1.63 from the first lane on. */
INLINE void gather_strip(const struct attn_gather *g, size_t key, size_t d,
                         const size_t rows, const size_t vectors,
                         const enum product_to to, const enum product_zeros zeros)
{
    const size_t begin = (size_t)g->lane_begin[key];
    const size_t end = (size_t)g->lane_end[key + rows - 1];
    const size_t width = vectors * VF_LANES;
    if (begin >= end) {
        for (size_t row = key; row < key + rows && to != PRODUCT_ADD; row++)
            memset(g->out + (ptrdiff_t)row * g->out_stride + d, 0, width * sizeof(float));
        return;
    }
    const float *const right = g->right + (g->right_stride ? d : d * g->lanes);
    const ptrdiff_t right_stride = g->right_stride ? g->right_stride : (ptrdiff_t)width;
    const struct backward_product p = {
        .out = g->out + (ptrdiff_t)key * g->out_stride + d,
        .out_stride = g->out_stride,
        .left = g->left + key * g->left_stride + end - 1,
        .row_stride = (ptrdiff_t)g->left_stride,
        .step_stride = -1,
        .right = right + (ptrdiff_t)(end - 1) * right_stride,
        .right_stride = -right_stride,
        .end = end - begin,
        .scale = g->scale,
    };
    struct attn_lines lines;
    if (rows == GATHER_ROWS && take_lines(g->calls, p.end, &lines))
        backward_tile(&p, 0, to, zeros, rows, vectors, &lines);
    else
        backward_tile(&p, 0, to, zeros, rows, vectors, NULL);
}

/* Another processor may have written the sums last, and then they take long to come:
 * those of the next strip are called while one is multiplied. */
INLINE void call_strip(const struct attn_gather *g, size_t key, size_t d,
                       const size_t vectors)
{
    for (size_t row = key; row < key + GATHER_ROWS && row < g->keys; row++)
        for (size_t v = 0; v < vectors; v++)
            __builtin_prefetch(g->out + (ptrdiff_t)row * g->out_stride + d + v * VF_LANES,
                               1);
}

INLINE void gather_column(const struct attn_gather *g, size_t d, const size_t vectors,
                          const enum product_to to, const enum product_zeros zeros)
{
    size_t key = 0;
    call_strip(g, key, d, vectors);
    for (; key + GATHER_ROWS <= g->keys; key += GATHER_ROWS) {
        call_strip(g, key + GATHER_ROWS, d, vectors);
        gather_strip(g, key, d, GATHER_ROWS, vectors, to, zeros);
    }
    for (; key + 2 <= g->keys; key += 2)
        gather_strip(g, key, d, 2, vectors, to, zeros);
    for (; key < g->keys; key++)
        gather_strip(g, key, d, 1, vectors, to, zeros);
}

INLINE void gather_columns(const struct attn_gather *g, const enum product_to to,
                           const enum product_zeros zeros)
{
    size_t d = 0;
    for (; d + GATHER_VECTORS * VF_LANES <= g->size; d += GATHER_VECTORS * VF_LANES)
        gather_column(g, d, GATHER_VECTORS, to, zeros);
    for (; d < g->size; d += VF_LANES)
        gather_column(g, d, 1, to, zeros);
}

static void backward_gather(const struct attn_gather *gather)
{
    if (gather->careful && gather->sets)
        gather_columns(gather, PRODUCT_SCALED, PRODUCT_ZERO_LEFT);
    else if (gather->careful)
        gather_columns(gather, PRODUCT_ADD, PRODUCT_ZERO_LEFT);
    else if (gather->sets)
        gather_columns(gather, PRODUCT_SCALED, PRODUCT_PLAIN);
    else
        gather_columns(gather, PRODUCT_ADD, PRODUCT_PLAIN);
}

/* One vector of every row, from element first on, where rows lie side by side. */
INLINE void pack_turned(float *to, size_t width, const struct attn_matrix *from,
                        size_t first, const attn_type type)
{
    const struct attn_matrix turned = turned_matrix(from);
    for (size_t row = 0; row < from->rows; row += VF_LANES) {
        vf x[VF_BYTES / 4];
#pragma GCC unroll 16
        for (size_t i = 0; i < VF_LANES; i++)
            x[i] = first + i < from->size ? load_elements(&turned, first + i, row, type)
                                          : vf_set1(0.0f);
        transpose_square(x);
#pragma GCC unroll 16
        for (size_t i = 0; i < VF_LANES; i++)
            if (row + i < from->rows)
                vf_store(to + (row + i) * width, x[i]);
    }
}

/* Rows that are called ahead: a few vectors of each are no stream to the processor. */
enum { PACK_AHEAD = 16 };

/* Elements first to first + width − 1 of every row, 0 beyond the last. */
INLINE float *pack_column(float *to, const struct attn_matrix *from, size_t first,
                          size_t width, const attn_type type)
{
    if (is_turned(from->row_stride, from->element_stride)) {
        for (size_t n = 0; n < width; n += VF_LANES)
            pack_turned(to + n, width, from, first + n, type);
        return to + from->rows * width;
    }
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    for (size_t row = 0; row < from->rows; row++) {
        const uintptr_t ahead =
            (uintptr_t)from->x +
            (uintptr_t)(((ptrdiff_t)(row + PACK_AHEAD) * from->row_stride +
                         (ptrdiff_t)first * from->element_stride) *
                        bytes);
        for (size_t n = 0; n < width; n += VF_LANES) {
            __builtin_prefetch((const void *)(ahead + n * (size_t)bytes));
            vf_store(to + n, load_elements(from, row, first + n, type));
        }
        to += width;
    }
    return to;
}

INLINE void pack_columns(float *to, const struct attn_matrix *from, const attn_type type)
{
    const size_t whole = whole_vectors(from->size);
    const size_t wide = GATHER_VECTORS * VF_LANES;
    size_t first = 0;
    for (; first + wide <= whole; first += wide)
        to = pack_column(to, from, first, wide, type);
    for (; first < whole; first += VF_LANES)
        to = pack_column(to, from, first, VF_LANES, type);
}

static void backward_pack(float *to, const struct attn_matrix *from)
{
    if (from->type == ATTN_F16)
        pack_columns(to, from, ATTN_F16);
    else if (from->type == ATTN_BF16)
        pack_columns(to, from, ATTN_BF16);
    else
        pack_columns(to, from, ATTN_F32);
}

/* The chain is that of g·v, so that g·o of a query with one visible key, whose output is
 * its value, is the same number, and its gradients are exactly 0. */
static void backward_delta(struct attn_backward_panel *panel, const float *output)
{
    const size_t width = panel->forward.vectors * VF_LANES;
    for (size_t lane = 0; lane < width; lane += VF_LANES) {
        vf sum = {0};
        for (size_t d = 0; d < panel->forward.Dv; d++) {
            const vf o = vf_load(output + d * width + lane);
            const vf g = vf_load(panel->output_gradient + d * width + lane);
            sum = vf_fma(o, vf_keep(o != 0.0f, g), sum);
        }
        vf_store(panel->delta + lane, sum);
    }
}

static void backward_store(const struct attn_target *to, const float *from, size_t width,
                           float scale)
{
    float factors[ATTN_PANEL_LANES];
    for (size_t lane = 0; lane < ATTN_PANEL_LANES; lane++)
        factors[lane] = scale;
    store_transposed(to, from, width, factors);
}

static const struct attn_backward_kernels backward_kernels = {
    .differentiate = backward_differentiate,
    .query = backward_query,
    .gather = backward_gather,
    .additive = backward_additive,
    .pack = backward_pack,
    .load = load_transposed,
    .store = backward_store,
    .put = put,
    .delta = backward_delta,
    .add_pairs = backward_add_pairs,
    .is_finite = is_finite,
#if defined(__AMX_BF16__)
    .parts = &backward_parts,
#endif
};

#endif
