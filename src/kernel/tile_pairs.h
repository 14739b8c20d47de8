/* The pipeline for numbers of one part: a share of the products goes with every 16 keys.
 */
#ifndef ATTN_KERNEL_TILE_PAIRS_H
#define ATTN_KERNEL_TILE_PAIRS_H

#include "kernel/tile_pipeline.h"

INLINE void note_chunk(const struct pipe *pipe, struct pipe_column *c, size_t chunk)
{
    const size_t begin = chunk * CHUNK_KEYS, end = begin + CHUNK_KEYS;
    if (pipe->factor == 1.0f)
        note_rows(c, begin, end, 1.0f, 1);
    else
        note_rows(c, begin, end, pipe->factor, 1);
}

/* By tiles 0 to 2. */
INLINE void score_chunk(const struct tile_product *p, size_t chunk)
{
    const float *key = p->left + chunk * p->next_left;
    const size_t key_row = p->left_row * sizeof *key, row = p->right_row * sizeof *key;
    const float *query = p->right;
    tile_clear(0);
    for (size_t n = 0; n < p->steps; n++) {
        tile_load(1, key, key_row);
        tile_load(2, query, row);
        tile_add_product(0, 1, 2);
        key += p->left_step;
        query += p->right_step;
    }
    tile_store(0, p->out + chunk * CHUNK_FLOATS, (size_t)TILE_BYTES);
}

/* Half of a chunk's weights; returns the sum and them. */
INLINE vf weigh_half(const struct pipe_column *c, size_t half, vf shift, vf sum)
{
    enum { PAIRS = CHUNK_KEYS / 4 };
    const float *score = c->scores + half * CHUNK_FLOATS / 2;
    float *weights = c->weights + half * PAIRS * VF_LANES;
#pragma GCC unroll 2
    for (size_t pair = 0; pair < PAIRS; pair++) {
        const vf first = vf_exp_flushed(vf_load(score) - shift);
        const vf second = vf_exp_flushed(vf_load(score + VF_LANES) - shift);
        sum += first;
        sum += second;
        vf_store(weights, vf_pair(first, second));
        score += 2 * VF_LANES;
        weights += VF_LANES;
    }
    return sum;
}

/* Keeps the column's weights in tiles 4 to 7. */
INLINE void load_weights(const struct pipe_column *c)
{
    tile_load(4, c->weights, (size_t)TILE_BYTES);
    tile_load(5, c->weights + TILE_FLOATS, (size_t)TILE_BYTES);
    tile_load(6, c->weights + 2 * TILE_FLOATS, (size_t)TILE_BYTES);
    tile_load(7, c->weights + 3 * TILE_FLOATS, (size_t)TILE_BYTES);
}

/* Adds to 16 rows of the output by tiles 1, 3 and the weights; distances in bytes. */
INLINE void add_value_tile(float *out, size_t out_row, const float *value,
                           size_t value_row, size_t group)
{
    const char *const from = (const char *)value;
    tile_load(3, out, out_row);
    tile_load(1, from, value_row);
    tile_add_product(3, 1, 4);
    tile_load(1, from + group, value_row);
    tile_add_product(3, 1, 5);
    tile_load(1, from + 2 * group, value_row);
    tile_add_product(3, 1, 6);
    tile_load(1, from + 3 * group, value_row);
    tile_add_product(3, 1, 7);
    tile_store(3, out, out_row);
}

/* A share of the rows of the output; with the first, the sums of rounded weights, as if
 * one more row of values were ones. */
INLINE void value_chunk(const struct tile_product *p, const struct pipe_column *c,
                        size_t chunk)
{
    const size_t bytes = sizeof *p->left, end = p->tiles * (chunk + 1) / CHUNKS;
    for (size_t tile = p->tiles * chunk / CHUNKS; tile < end; tile++)
        add_value_tile(p->out + tile * p->next_out, p->out_row * bytes,
                       p->left + tile * p->next_left, (size_t)TILE_BYTES,
                       p->left_step * bytes);
    if (chunk == 0)
        add_value_tile(c->show->panel->rounded_sum + c->lane, 0,
                       (const float *)(const void *)pairs_of_ones, 0, 0);
}

/* Three columns go a step further.  A chunk's scores are noted when those of the next are
 * on the way. */
static void go_on_with_pairs(const struct pipe *pipe, struct pipe_column *next,
                             struct pipe_column *now, struct pipe_column *before)
{
    struct tile_product scores = {.left = NULL}, values = {.left = NULL};
    vf sum = {0}, shift = {0};
    if (now->show) {
        const struct column column = column_in_softmax(pipe, now);
        note_chunk(pipe, now, CHUNKS - 1);
        raise_reference_of(pipe, &column, largest_of(now));
        shift = shift_from(vf_load(now->show->panel->reference + now->lane));
    }
    if (before->show) {
        values = values_of(before->show->panel, &before->show->block, before->lane,
                           before->weights, VF_LANES, 1);
        load_weights(before);
    }
    if (next->show)
        scores = scores_of(next->show->panel, &next->show->block, next->lane,
                           next->scores, VF_LANES, 1);
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (next->show)
            score_chunk(&scores, chunk);
        if (now->show)
            sum = weigh_half(now, 2 * chunk, shift, sum);
        if (before->show)
            value_chunk(&values, before, chunk);
        if (now->show)
            sum = weigh_half(now, 2 * chunk + 1, shift, sum);
        if (next->show && chunk > 0)
            note_chunk(pipe, next, chunk - 1);
    }
    if (now->show)
        add_in_place(now->show->panel->sum + now->lane, sum);
}

static void attend_by_tiles(struct attn_pipeline *pipeline, const struct attn_show *shows,
                            size_t count, const struct attn_sweep *sweep)
{
    const struct pipe pipe = {
        .sweep = sweep,
        .factor = factor_of_scores(&shows->block, 1),
        .before_flush = vf_flush_begin(),
    };
    struct pipe_column columns[3];
    for (size_t n = 0; n < 3; n++) {
        columns[n] =
            (struct pipe_column){.scores = pipeline->scratch + n * COLUMN_SCORES};
        columns[n].weights = columns[n].scores;
    }
    struct place at = {.shows = shows, .count = count};
    for (size_t n = 0, last = SIZE_MAX; n != last; n++) {
        struct pipe_column *const next = &columns[n % 3];
        take_column(next, &at);
        if (!next->show && last == SIZE_MAX)
            last = n + 2;
        go_on_with_pairs(&pipe, next, &columns[(n + 2) % 3], &columns[(n + 1) % 3]);
    }
    vf_flush_end(pipe.before_flush);
}

static_assert(PAIR_SCRATCH <= 3 * COLUMN_SCORES, "columns need more than pairs");

static const struct attn_pair_kernels pair_kernels = {
    .one_pass = "panels of queries, bf16 products of tiles, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, bf16 products of tiles, weights kept for "
                    "received mass, " ATTN_ISA_NAME,
    .decoding_too = "panels of queries, bf16 products of tiles, single ones in splits of "
                    "keys, " ATTN_ISA_NAME,
    .parts = 1,
    .scratch = 3 * COLUMN_SCORES,
    .keys_together = TILE_STEP,
    .open = tiles_open,
    .close = tiles_close,
    .load = load_query_pairs,
    .copy_keys = copy_key_pairs,
    .pair_values = turn_values,
    .score = score_by_tiles,
    .value = value_by_tiles,
    .attend = attend_by_tiles,
    .attends_plain = true,
};

#endif
