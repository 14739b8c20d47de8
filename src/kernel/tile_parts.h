/* The pipeline for numbers of three parts, which is fp32.  Six products in place of one
 * take longer than exponentials, and what they wait for is the second cache: so columns
 * go by twos, and a tile of keys or values that is loaded serves both.  The processor
 * looks only a few products ahead: a share of the exponentials goes after every three. */
#ifndef ATTN_KERNEL_TILE_PARTS_H
#define ATTN_KERNEL_TILE_PARTS_H

#include "kernel/tile_pipeline.h"

enum {
    BLOCK_PAIRS = ATTN_BLOCK_KEYS / 2,
    BLOCK_GROUPS = ATTN_BLOCK_KEYS / TILE_STEP,
    COLUMN_SCORES = CHUNKS * CHUNK_FLOATS,
    COLUMN_WEIGHTS = BLOCK_GROUPS * BF16_PARTS * TILE_FLOATS
};

/* Two columns, or one and none, or none. */
struct couple {
    struct pipe_column column[2];
};

INLINE size_t columns_of(const struct couple *c)
{
    return (size_t)(c->column[0].panel != NULL) + (size_t)(c->column[1].panel != NULL);
}

/* ---- Weights --------------------------------------------------------------------------
 */

/* Scores on their way to weights, pair by pair, of one column after the other. */
struct weighing {
    const struct pipe_column *column;
    const float *scores; /* of the next pair of keys */
    float *weights;
    vf shift, next_shift, sum;
    size_t pair, end;  /* of all columns */
    size_t due, share; /* pairs · 256 */
};

INLINE void begin_weighing(struct weighing *w, const struct pipe_column *column)
{
    w->column = column;
    w->scores = column->scores;
    w->weights = column->weights;
    w->sum = vf_set1(0.0f);
}

INLINE void weigh_next(struct weighing *w)
{
    const vf first = vf_exp_flushed(vf_load(w->scores) - w->shift);
    const vf second = vf_exp_flushed(vf_load(w->scores + VF_LANES) - w->shift);
    w->sum += first;
    w->sum += second;
    store_parts(w->weights, TILE_FLOATS, first, second);
    w->scores += 2 * VF_LANES;
    w->weights += VF_LANES;
    if (++w->pair % TILE_EDGE != 0)
        return;
    w->weights += (BF16_PARTS - 1) * TILE_FLOATS;
    if (w->pair % BLOCK_PAIRS == 0) {
        add_in_place(w->column->panel->sum + w->column->lane, w->sum);
        w->shift = w->next_shift;
        if (w->pair < w->end)
            begin_weighing(w, w->column + 1);
    }
}

INLINE void weigh_share(void *weighing)
{
    struct weighing *const w = weighing;
    w->due += w->share;
    while (w->pair < w->due >> 8)
        weigh_next(w);
}

/* ---- Products -------------------------------------------------------------------------
 */

/* Of the only column. */
INLINE void add_one_product(const struct parts_of_step *p, struct weighing *w)
{
    add_parts_product(p);
    for (size_t i = 0; i < 4; i++)
        weigh_share(w);
}

/* One tile of the left operand by the right ones of both columns, which lie at some
 * distance from each other. */
INLINE void multiply_tile(const struct tile_product *p, size_t tile, ptrdiff_t distance,
                          const bool both, struct weighing *w)
{
    struct parts_of_step step = first_step(p, tile);
    tile_clear(0);
    if (both)
        tile_clear(1);
    for (size_t n = 0; n < p->steps; n++, go_to_next(&step, p))
        if (both)
            add_two_parts_products(&step, distance, weigh_share, w);
        else
            add_one_product(&step, w);
}

/* Of tiles 0 and 1, of both columns or one. */
INLINE void multiply_tiles_of(const struct tile_product p[2], size_t columns, size_t tile,
                              float *to, float *other_to, struct weighing *w)
{
    if (columns == 1) {
        multiply_tile(p, tile, 0, false, w);
        tile_store(0, to, (size_t)TILE_BYTES);
        return;
    }
    const ptrdiff_t distance = (const char *)p[1].right - (const char *)p[0].right;
    multiply_tile(p, tile, distance, true, w);
    tile_store(0, to, (size_t)TILE_BYTES);
    tile_store(1, other_to, (size_t)TILE_BYTES);
}

INLINE void score_chunk_of(const struct tile_product scores[2], size_t columns,
                           size_t chunk, struct weighing *w)
{
    const size_t first = chunk * CHUNK_FLOATS;
    multiply_tiles_of(scores, columns, chunk, scores[0].out + first,
                      columns > 1 ? scores[1].out + first : NULL, w);
}

INLINE void add_value_tile_of(const struct tile_product values[2], size_t columns,
                              size_t tile, struct weighing *w)
{
    float sums[2][TILE_FLOATS] __attribute__((aligned(TILE_BYTES)));
    multiply_tiles_of(values, columns, tile, sums[0], sums[1], w);
    for (size_t i = 0; i < columns; i++)
        add_sums(sums[i], values[i].out + tile * values[i].next_out, values[i].out_row);
}

/* ---- The pipeline ---------------------------------------------------------------------
 */

static void plan_products(const struct pipe *pipe, const struct couple *next,
                          const struct couple *before, struct tile_product scores[2],
                          struct tile_product values[2])
{
    for (size_t i = 0; i < columns_of(next); i++) {
        const struct pipe_column *const c = &next->column[i];
        scores[i] =
            scores_of(c->panel, pipe->block, c->lane, c->scores, VF_LANES, BF16_PARTS);
    }
    for (size_t i = 0; i < columns_of(before); i++) {
        const struct pipe_column *const c = &before->column[i];
        values[i] =
            values_of(c->panel, pipe->block, c->lane, c->weights, VF_LANES, BF16_PARTS);
        values[i].steps = BLOCK_GROUPS;
    }
}

static struct weighing plan_weights(const struct pipe *pipe, struct couple *now,
                                    size_t steps)
{
    struct weighing w = {.end = columns_of(now) * BLOCK_PAIRS};
    for (size_t i = 0; i < columns_of(now); i++) {
        struct pipe_column *const c = &now->column[i];
        note_chunk(pipe, c, CHUNKS - 1, BF16_PARTS);
        w.next_shift = shift_of(pipe, c, largest_of(pipe, c, BF16_PARTS));
        if (i == 0)
            w.shift = w.next_shift;
    }
    begin_weighing(&w, now->column);
    w.share = steps > 0 ? (w.end << 8) / (4 * steps) : 0;
    return w;
}

/* Three couples go a step further.  Scores are noted a chunk late. */
static void go_on_with_parts(const struct pipe *pipe, struct couple *next,
                             struct couple *now, const struct couple *before)
{
    const size_t to_score = columns_of(next), to_add = columns_of(before);
    struct tile_product scores[2] = {{.steps = 0}}, values[2] = {{.tiles = 0}};
    plan_products(pipe, next, before, scores, values);
    struct weighing w = plan_weights(
        pipe, now, CHUNKS * scores[0].steps + values[0].tiles * values[0].steps);
    for (size_t i = 0; i < to_score; i++)
        clear_noted(&next->column[i].noted);
    for (size_t chunk = 0, tile = 0; chunk < CHUNKS; chunk++) {
        if (to_score > 0)
            score_chunk_of(scores, to_score, chunk, &w);
        for (; tile < values[0].tiles * (chunk + 1) / CHUNKS; tile++)
            add_value_tile_of(values, to_add, tile, &w);
        for (size_t i = 0; chunk > 0 && i < to_score; i++)
            note_chunk(pipe, &next->column[i], chunk - 1, BF16_PARTS);
    }
    while (w.pair < w.end)
        weigh_next(&w);
}

/* Of panels that are equally wide, as their queries' rows are then. */
static void take_couple(struct couple *couple, struct place *at)
{
    take_column(&couple->column[0], at);
    const struct attn_panel *const panel = couple->column[0].panel;
    couple->column[1].panel = NULL;
    if (panel && at->panel < at->count &&
        at->panels[at->panel]->vectors == panel->vectors)
        take_column(&couple->column[1], at);
}

/* Of more columns than `scores` has room for: they lie with the weights. */
static void attend_by_parts(struct attn_panel *const *panels, size_t count,
                            const struct attn_block *block, float *scores)
{
    const struct pipe pipe = {
        .block = block, .factor = 1.0f, .before_flush = vf_flush_begin()};
    struct couple couples[3];
    float *scratch = block->weight_pairs;
    (void)scores;
    for (size_t n = 0; n < 6; n++) {
        couples[n / 2].column[n % 2] = (struct pipe_column){
            .panel = NULL, .scores = scratch, .weights = scratch + COLUMN_SCORES};
        scratch += COLUMN_SCORES + COLUMN_WEIGHTS;
    }
    struct place at = {panels, count, 0, 0};
    for (size_t n = 0, last = SIZE_MAX; n != last; n++) {
        struct couple *const next = &couples[n % 3];
        take_couple(next, &at);
        if (columns_of(next) == 0 && last == SIZE_MAX)
            last = n + 2;
        go_on_with_parts(&pipe, next, &couples[(n + 2) % 3], &couples[(n + 1) % 3]);
    }
    vf_flush_end(pipe.before_flush);
}

static const struct attn_pair_kernels part_kernels = {
    .one_pass = "panels of queries, fp32 products of tiles, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, fp32 products of tiles, weights kept for "
                    "received mass, " ATTN_ISA_NAME,
    .decoding_too = "panels of queries, fp32 products of tiles, single ones in splits of "
                    "keys, " ATTN_ISA_NAME,
    .parts = BF16_PARTS,
    .scratch = 6 * (COLUMN_SCORES + COLUMN_WEIGHTS),
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
