/* The pipeline for numbers of three parts, which is fp32.  Six products in place of one
 * take longer than exponentials, and the processor looks only a few products ahead: so a
 * share of the exponentials goes after every three. */
#ifndef ATTN_KERNEL_TILE_PARTS_H
#define ATTN_KERNEL_TILE_PARTS_H

#include "kernel/tile_pipeline.h"

/* Scores of a column on their way to weights, pair by pair. */
struct weighing {
    const float *scores; /* of the next pair of keys */
    float *weights;
    vf shift, sum;
    size_t pair, end;
    size_t due, share; /* pairs · 256 */
};

INLINE void weigh_next(struct weighing *w)
{
    const vf first = vf_exp_flushed(vf_load(w->scores) - w->shift);
    const vf second = vf_exp_flushed(vf_load(w->scores + VF_LANES) - w->shift);
    w->sum += first;
    w->sum += second;
    store_parts(w->weights, TILE_FLOATS, first, second);
    w->scores += 2 * VF_LANES;
    w->weights += VF_LANES;
    if (++w->pair % TILE_EDGE == 0)
        w->weights += (BF16_PARTS - 1) * TILE_FLOATS;
}

INLINE void weigh_share(void *weighing)
{
    struct weighing *const w = weighing;
    w->due += w->share;
    while (w->pair < w->due >> 8)
        weigh_next(w);
}

/* Three columns go a step further. */
static void go_on_with_parts(const struct pipe *pipe, struct pipe_column *next,
                             struct pipe_column *now, struct pipe_column *before)
{
    enum { PAIRS = ATTN_BLOCK_KEYS / 2, GROUPS = ATTN_BLOCK_KEYS / TILE_STEP };
    struct tile_product scores = {.left = NULL}, values = {.left = NULL};
    struct weighing w = {.scores = now->scores, .weights = now->weights};
    size_t steps = 0, tile = 0;
    if (now->panel) {
        note_chunk(pipe, now, CHUNKS - 1, BF16_PARTS);
        w.shift = shift_of(pipe, now, largest_of(pipe, now, BF16_PARTS));
        w.end = PAIRS;
    }
    if (before->panel) {
        values = values_of(before->panel, pipe->block, before->lane, before->weights,
                           VF_LANES, BF16_PARTS);
        values.steps = GROUPS;
        steps += values.tiles * GROUPS;
    }
    if (next->panel) {
        scores = scores_of(next->panel, pipe->block, next->lane, next->scores, VF_LANES,
                           BF16_PARTS);
        steps += CHUNKS * scores.steps;
    }
    clear_noted(&next->noted);
    if (now->panel && steps > 0)
        w.share = (PAIRS << 8) / (2 * steps);
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (next->panel) {
            sum_parts_products(&scores, scores.left + chunk * scores.next_left,
                               weigh_share, &w);
            tile_store(0, scores.out + chunk * CHUNK_FLOATS, (size_t)TILE_BYTES);
        }
        for (; tile < values.tiles * (chunk + 1) / CHUNKS; tile++) {
            sum_parts_products(&values, values.left + tile * values.next_left,
                               weigh_share, &w);
            put_sums(values.out + tile * values.next_out, values.out_row, true);
        }
        if (next->panel && chunk > 0)
            note_chunk(pipe, next, chunk - 1, BF16_PARTS);
    }
    while (w.pair < w.end)
        weigh_next(&w);
    if (now->panel)
        add_in_place(now->panel->sum + now->lane, w.sum);
}

static void attend_by_parts(struct attn_panel *const *panels, size_t count,
                            const struct attn_block *block, float *scores)
{
    attend_by(panels, count, block, scores, go_on_with_parts, BF16_PARTS);
}

static const struct attn_pair_kernels part_kernels = {
    .one_pass = "panels of queries, fp32 products of tiles, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, fp32 products of tiles, weights kept for "
                    "received mass, " ATTN_ISA_NAME,
    .decoding_too = "panels of queries, fp32 products of tiles, single ones in splits of "
                    "keys, " ATTN_ISA_NAME,
    .parts = BF16_PARTS,
    .keys_together = TILE_STEP,
    .open = tiles_open,
    .close = tiles_close,
    .load = load_query_parts,
    .copy_keys = split_keys,
    .pair_values = turn_value_parts,
    .score = score_by_parts,
    .value = value_by_parts,
    .attend = attend_by_parts,
};

#endif
