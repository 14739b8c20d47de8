/* The backward pass by tiles of bfloat16 in three parts (bf16x3.h), for processors that
 * have them: all five products have the rate of 2.4 of fp32's.
 *
 * A panel's way over a block of keys has three steps: scores, and products of the values
 * with the output's gradients; weights and the scores' gradients, in parts; the queries'
 * gradients.  While one panel is at the second, which is the work of vectors, tiles do
 * the third of the panel before and the first of the next. */
#ifndef ATTN_KERNEL_BACKWARD_TILES_H
#define ATTN_KERNEL_BACKWARD_TILES_H

#include "kernel/dropout.h"
#include "kernel/part_products.h"
#include "kernel/part_split.h"
#include "kernel/score.h"
#include <math.h>

/* ---- Products ---------------------------------------------------------------------- */

/* Of a run's keys, or values, in parts with the queries, or the output's gradients: the
 * rows of the run that the show touches. */
static struct attn_part_product show_product(const struct attn_part_show *show,
                                             const float *left, size_t left_tile,
                                             const float *right, size_t size, float *out)
{
    const size_t vectors = show->panel->forward.vectors, width = vectors * VF_LANES;
    const size_t first_tile = 2 * show->first_step;
    return (struct attn_part_product){
        .left = left + first_tile * left_tile,
        .right = right,
        .left_step = ATTN_PART_FLOATS,
        .right_step = (ptrdiff_t)(vectors * ATTN_PART_FLOATS),
        .left_tile = left_tile,
        .steps = attn_tile_steps(size),
        .out = out + first_tile * ATTN_TILE_EDGE * width,
        .out_row = width,
        .rows = (show->end_step - show->first_step) * ATTN_TILE_STEP,
        .columns = vectors,
    };
}

static void queue_pairs(struct part_queue *queue, const struct attn_part_keys *keys,
                        const struct attn_part_show *show)
{
    const struct attn_panel *const panel = &show->panel->forward;
    const struct attn_part_product scores =
        show_product(show, keys->key, keys->key_tile, show->query, panel->D, show->score);
    const struct attn_part_product by_weight =
        show_product(show, keys->value, keys->value_tile, show->output_gradient,
                     panel->Dv, show->by_weight);
    queue_product(queue, &scores);
    queue_product(queue, &by_weight);
}

static void queue_query(struct part_queue *queue, const struct attn_part_keys *keys,
                        const struct attn_part_show *show)
{
    const size_t vectors = show->panel->forward.vectors;
    const size_t right_step = vectors * ATTN_PART_FLOATS;
    const struct attn_part_product product = {
        .left = keys->turned_key + show->first_step * ATTN_PART_FLOATS,
        .right = show->by_key + show->first_step * right_step,
        .left_step = ATTN_PART_FLOATS,
        .right_step = (ptrdiff_t)right_step,
        .left_tile = keys->turned_tile,
        .steps = show->end_step - show->first_step,
        .out = show->panel->query_gradient,
        .out_row = vectors * VF_LANES,
        .rows = show->panel->forward.D,
        .columns = vectors,
        .adds = true,
    };
    if (show->panel->query_gradient)
        queue_product(queue, &product);
}

/* ---- Weights ----------------------------------------------------------------------- */

/* What the lanes of one vector of a show need. */
struct part_lanes {
    vf reference, delta;
    vf forget_high, forget_low;
    vi draw_low, draw_high;
};

INLINE struct part_lanes load_lanes_of(const struct attn_backward_panel *panel, size_t v)
{
    const size_t lane = v * VF_LANES;
    return (struct part_lanes){
        .reference = vf_load(panel->forward.reference + lane),
        .delta = vf_load(panel->delta + lane),
        .forget_high = vf_load(panel->forward.forget_high + lane),
        .forget_low = vf_load(panel->forward.forget_low + lane),
        .draw_low = vi_load(panel->forward.draw_low + lane),
        .draw_high = vi_load(panel->forward.draw_high + lane),
    };
}

/* From there on a weight counts as 1 if outputs were rounded: its score cannot move it,
 * and it would get the rounding error for a gradient; it gets 0. */
#define WEIGHT_OF_ONE (1.0f - 0x1p-16f)

/* A pair's weight, after dropout, and the gradient of its score.  What lse is finite for
 * has an inverse of 1, and what sees nothing a reference of infinity. */
INLINE void differentiate_pair(const struct attn_part_show *show,
                               const struct part_lanes *lanes, size_t row, size_t v,
                               vf *weight, vf *gradient, const bool plain,
                               const bool gated)
{
    const struct attn_backward_block *const block = &show->block;
    const size_t at = (row * show->panel->forward.vectors + v) * VF_LANES;
    vf s = vf_load(show->score + at);
    if (gated)
        s += gates_between(&block->forward, row - show->first_row, lanes->forget_high,
                           lanes->forget_low);
    vf by_weight = vf_load(show->by_weight + at);
    vf w = vf_exp_flushed(s - lanes->reference);
    *weight = w;
    if (plain) {
        *gradient = w * (by_weight - lanes->delta);
        return;
    }
    /* A hidden key's weight is 0 even in a row whose sum is NaN. */
    w = vf_keep(s != -INFINITY, w);
    *weight = w;
    if (block->dropout) {
        const vi stays = vi_dropout_keeps(lanes->draw_low, lanes->draw_high,
                                          (uint32_t)block->forward.first_key +
                                              (uint32_t)(row - show->first_row),
                                          block->dropout_threshold);
        const vf kept = vf_keep(stays, vf_set1(block->dropout_factor));
        by_weight *= kept;
        *weight *= kept;
    }
    const vf one = vf_set1(block->rounded ? WEIGHT_OF_ONE : INFINITY);
    vf g = vf_keep((w != 0.0f) & ~(w >= one), w * (by_weight - lanes->delta));
    if (show->keeps_gradient)
        vf_store(show->by_weight + at, g);
    if (block->forward.softcap > 0.0f)
        g = vf_keep(g != 0.0f, g * vf_load(show->slope + at));
    *gradient = g;
}

enum { ROWS_SHARES = 3 };

/* Rows i and i + 16 of a step, a pair of the run's keys; between them, shares of the
 * queue. */
INLINE void differentiate_rows(struct part_queue *queue,
                               const struct attn_part_show *show,
                               const struct part_lanes lanes[2], size_t step, size_t i,
                               const size_t vectors, const bool plain, const bool gated)
{
    vf weight[2] = {{0}}, gradient[2][2] = {{{0}}};
#pragma GCC unroll 2
    for (size_t k = 0; k < 2; k++) {
        const size_t tile = 2 * step + k;
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            differentiate_pair(show, &lanes[v], tile * ATTN_TILE_EDGE + i, v, &weight[v],
                               &gradient[k][v], plain, gated);
        float *const sums = show->gate_sums + (tile * ATTN_TILE_EDGE + i) * VF_LANES;
        if (gated)
            vf_store(sums, vf_load(sums) + (gradient[k][0] + gradient[k][1]));
        store_parts(show->weight + tile * show->left_tile + i * VF_LANES,
                    ATTN_TILE_FLOATS, weight[0], weight[1]);
        take_share(queue);
    }
#pragma GCC unroll 2
    for (size_t k = 0; k < 2; k++)
        store_parts(show->gradient + (2 * step + k) * show->left_tile + i * VF_LANES,
                    ATTN_TILE_FLOATS, gradient[k][0], gradient[k][1]);
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; v++)
        store_parts(show->by_key + (step * vectors + v) * ATTN_PART_FLOATS + i * VF_LANES,
                    ATTN_TILE_FLOATS, gradient[0][v], gradient[1][v]);
    take_share(queue);
}

INLINE void differentiate_show(struct part_queue *queue,
                               const struct attn_part_show *show, const size_t vectors,
                               const bool plain, const bool gated)
{
    struct part_lanes lanes[2];
    for (size_t v = 0; v < vectors; v++)
        lanes[v] = load_lanes_of(show->panel, v);
    begin_queue(queue,
                (show->end_step - show->first_step) * ATTN_TILE_EDGE * ROWS_SHARES);
    for (size_t step = show->first_step; step < show->end_step; step++)
        for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
            differentiate_rows(queue, show, lanes, step, i, vectors, plain, gated);
}

/* ---- A step of three shows --------------------------------------------------------- */

/* Rows of the steps that the block does not show. */
static void hide_rows(const struct attn_part_show *show, size_t begin, size_t end)
{
    const size_t width = show->panel->forward.vectors * VF_LANES;
    for (size_t n = begin * width; n < end * width; n += VF_LANES)
        vf_store(show->score + n, vf_set1(-INFINITY));
}

static void bend_show(const struct attn_part_show *show)
{
    const struct attn_panel *const panel = &show->panel->forward;
    const struct attn_block *const keys = &show->block.forward;
    if (show->plain && show->shows_all)
        return;
    if (adds_bias_at_once(panel, keys))
        add_bias(show->block.score, panel, keys, 0, keys->keys, NULL);
    if (keys->softcap > 0.0f)
        cap_slopes(show->block.slope, show->block.score,
                   keys->keys * panel->vectors * VF_LANES, keys->softcap);
    if (show->plain) /* gates are taken later */
        hide_outside(show->block.score, panel, keys, keys->full_begin, keys->full_end,
                     NULL);
    else
        bend_scores(show->block.score, panel, keys, NULL);
    hide_rows(show, show->first_step * ATTN_TILE_STEP, show->first_row);
    hide_rows(show, show->first_row + keys->keys, show->end_step * ATTN_TILE_STEP);
}

static void backward_by_tiles(const struct attn_part_keys *keys,
                              struct attn_part_show *next, struct attn_part_show *now,
                              struct attn_part_show *before)
{
    struct part_queue queue;
    const unsigned flush = vf_flush_begin();
    queue.count = queue.pieces = 0;
    if (before)
        queue_query(&queue, keys, before);
    if (next)
        queue_pairs(&queue, keys, next);
    if (now && now->plain && now->block.forward.forget_high)
        differentiate_show(&queue, now, 2, true, true);
    else if (now && now->plain)
        differentiate_show(&queue, now, 2, true, false);
    else if (now && now->panel->forward.vectors == 2)
        differentiate_show(&queue, now, 2, false, false);
    else if (now)
        differentiate_show(&queue, now, 1, false, false);
    else
        begin_queue(&queue, 0);
    take_rest(&queue);
    vf_flush_end(flush);
    if (next)
        bend_show(next);
}

static const struct attn_part_kernels backward_parts = {
    .by_heads = "one sweep, heads in parallel, fp32 as three bf16, products of "
                "tiles, " ATTN_ISA_NAME,
    .in_turns = "one sweep, queries of a head in turn, fp32 as three bf16, products of "
                "tiles, " ATTN_ISA_NAME,
    .open = tiles_open,
    .close = tiles_close,
    .largest = largest_element,
    .split_left = split_left,
    .split_turned = split_turned,
    .split_right = split_right,
    .split_lanes = split_lanes,
    .step = backward_by_tiles,
    .multiply = multiply_in_parts,
};

#endif
