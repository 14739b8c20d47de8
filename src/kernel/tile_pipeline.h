/* Whole blocks that panels see all of, with plain scores: all of a block's work on a few
 * panels at once, one vector of lanes (a column) after the other.  While one column's
 * scores become weights, tiles multiply the scores of the next and the output of the one
 * before, a share of each to every 16 keys, so that products, which other units of the
 * processor do, take no time of their own.
 *
 * Every number is found as by the separate kernels, to the bit. */
#ifndef ATTN_KERNEL_TILE_PIPELINE_H
#define ATTN_KERNEL_TILE_PIPELINE_H

#include "kernel/tiles.h"
#include <assert.h>

enum {
    CHUNK_KEYS = TILE_EDGE,
    CHUNKS = ATTN_BLOCK_KEYS / CHUNK_KEYS,
    CHUNK_FLOATS = CHUNK_KEYS * TILE_EDGE,
};

/* A vector of lanes, and the block's scores of it, [key][lane]; then from the front on
 * the weights that they become, [pair][lane]. */
struct pipe_column {
    struct attn_panel *panel; /* NULL: there is none */
    size_t lane, width;
    float *scores;
    vf most[MOST_CHAINS];
};

/* Results are flushed all the way, but where sums are rescaled. */
struct pipe {
    const struct attn_block *block;
    float factor;          /* of the products */
    unsigned before_flush; /* for vf_flush_end */
};

/* By tiles 0 to 2. */
INLINE void score_chunk(const struct pipe *pipe, const struct pipe_column *c,
                        size_t chunk)
{
    const size_t key_stride = (size_t)pipe->block->key_stride;
    const size_t key_row = key_stride * sizeof(float), row = c->width * sizeof(float);
    const float *key = pipe->block->key + chunk * CHUNK_KEYS * key_stride;
    const float *query = c->panel->query + c->lane;
    tile_clear(0);
    for (size_t d = 0; d < c->panel->D; d += TILE_STEP) {
        tile_load(1, key, key_row);
        tile_load(2, query, row);
        tile_add_product(0, 1, 2);
        key += VF_LANES;
        query += TILE_EDGE * c->width;
    }
    tile_store(0, c->scores + chunk * CHUNK_FLOATS, (size_t)TILE_BYTES);
}

/* Scales the scores and notes the largest. */
INLINE void note_chunk(const struct pipe *pipe, struct pipe_column *c, size_t chunk)
{
    float *const scores = c->scores + chunk * CHUNK_FLOATS;
    const bool scales = pipe->factor != 1.0f;
#pragma GCC unroll 16
    for (size_t key = 0; key < CHUNK_KEYS; key++) {
        vf score = vf_load(scores + key * VF_LANES);
        if (scales) {
            score *= pipe->factor;
            vf_store(scores + key * VF_LANES, score);
        }
        c->most[key % MOST_CHAINS] = vf_max(c->most[key % MOST_CHAINS], score);
    }
}

/* Half of a chunk's weights; returns the sum and them. */
INLINE vf weigh_half(const struct pipe_column *c, size_t half, vf shift, vf sum)
{
    const float *score = c->scores + half * CHUNK_FLOATS / 2;
    float *weights = c->scores + half * CHUNK_FLOATS / 4;
#pragma GCC unroll 2
    for (size_t pair = 0; pair < CHUNK_KEYS / 4; pair++) {
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
    tile_load(4, c->scores, (size_t)TILE_BYTES);
    tile_load(5, c->scores + TILE_EDGE * VF_LANES, (size_t)TILE_BYTES);
    tile_load(6, c->scores + 2 * TILE_EDGE * VF_LANES, (size_t)TILE_BYTES);
    tile_load(7, c->scores + 3 * TILE_EDGE * VF_LANES, (size_t)TILE_BYTES);
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
INLINE void value_chunk(const struct pipe *pipe, const struct pipe_column *c,
                        size_t chunk)
{
    const size_t group = TILE_EDGE * (size_t)pipe->block->value_stride * sizeof(float);
    const size_t tiles = (c->panel->Dv + TILE_EDGE - 1) / TILE_EDGE;
    for (size_t tile = tiles * chunk / CHUNKS; tile < tiles * (chunk + 1) / CHUNKS;
         tile++)
        add_value_tile(c->panel->output + tile * TILE_EDGE * c->width + c->lane,
                       c->width * sizeof(float),
                       pipe->block->value + tile * TILE_EDGE * TILE_EDGE,
                       (size_t)TILE_BYTES, group);
    if (chunk == 0)
        add_value_tile(c->panel->rounded_sum + c->lane, 0,
                       (const float *)(const void *)pairs_of_ones, 0, 0);
}

/* Raises the references to scores that are all there, even if sums are still 0; returns
 * what scores are less. */
static vf shift_of(const struct pipe *pipe, const struct pipe_column *c)
{
    static const struct attn_sweep nothing_else = {.entropy = false};
    const struct column column = {
        .panel = c->panel, .sweep = &nothing_else, .lane = c->lane, .width = c->width};
    const vf largest = most_of_all(c->most);
    if (vi_any(outgrows(&column, largest))) {
        vf_flush_end(pipe->before_flush);
        raise_reference(&column, largest);
        vf_flush_begin();
    }
    const vf reference = vf_load(c->panel->reference + c->lane);
    return vf_select(reference == -INFINITY, vf_set1(0.0f), reference);
}

/* Three columns go a step further.  A chunk's scores are noted when those of the next are
 * on the way. */
static void go_on(const struct pipe *pipe, struct pipe_column *next,
                  struct pipe_column *now, struct pipe_column *before)
{
    vf sum = {0}, shift = {0};
    if (now->panel) {
        note_chunk(pipe, now, CHUNKS - 1);
        shift = shift_of(pipe, now);
    }
    if (before->panel)
        load_weights(before);
    clear_most(next->most);
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (next->panel)
            score_chunk(pipe, next, chunk);
        if (now->panel)
            sum = weigh_half(now, 2 * chunk, shift, sum);
        if (before->panel)
            value_chunk(pipe, before, chunk);
        if (now->panel)
            sum = weigh_half(now, 2 * chunk + 1, shift, sum);
        if (next->panel && chunk > 0)
            note_chunk(pipe, next, chunk - 1);
    }
    if (now->panel)
        add_in_place(now->panel->sum + now->lane, sum);
}

static void attend_by_tiles(struct attn_panel *const *panels, size_t count,
                            const struct attn_block *block, float *scores)
{
    const struct pipe pipe = {
        .block = block,
        .factor = goes_with_queries(block->scale) ? 1.0f : block->scale,
        .before_flush = vf_flush_begin(),
    };
    struct pipe_column columns[3];
    static_assert(sizeof columns / sizeof *columns <= ATTN_PANEL_VECTORS,
                  "scores of a panel are room for three columns");
    for (size_t n = 0; n < 3; n++)
        columns[n] = (struct pipe_column){.panel = NULL,
                                          .scores = scores + n * CHUNKS * CHUNK_FLOATS};
    size_t panel = 0, v = 0;
    for (size_t n = 0, last = SIZE_MAX; n != last; n++) {
        struct pipe_column *const next = &columns[n % 3];
        next->panel = panel < count ? panels[panel] : NULL;
        if (next->panel) {
            next->lane = v * VF_LANES;
            next->width = next->panel->vectors * VF_LANES;
            v++;
        }
        if (next->panel && v == next->panel->vectors)
            panel++, v = 0;
        else if (!next->panel && last == SIZE_MAX)
            last = n + 2;
        go_on(&pipe, next, &columns[(n + 2) % 3], &columns[(n + 1) % 3]);
    }
    vf_flush_end(pipe.before_flush);
}

static const struct attn_pair_kernels pair_kernels = {
    .one_pass = "panels of queries, bf16 products of tiles, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, bf16 products of tiles, weights kept for "
                    "received mass, " ATTN_ISA_NAME,
    .decoding_too = "panels of queries, bf16 products of tiles, single ones in splits of "
                    "keys, " ATTN_ISA_NAME,
    .keys_together = TILE_STEP,
    .open = tiles_open,
    .close = tiles_close,
    .load = load_query_pairs,
    .copy_keys = copy_key_pairs,
    .pair_values = turn_values,
    .score = score_by_tiles,
    .value = value_by_tiles,
    .attend = attend_by_tiles,
};

#endif
