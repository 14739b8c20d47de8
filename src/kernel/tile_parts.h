/* The pipeline for numbers of three parts, which is fp32.  Six products in place of one
 * take longer than exponentials, and what they wait for is the second cache: so columns
 * go by twos, and a tile of keys or values that is loaded serves both.  The processor
 * looks only a few products ahead: two keys' weights go after every three. */
#ifndef ATTN_KERNEL_TILE_PARTS_H
#define ATTN_KERNEL_TILE_PARTS_H

#include "kernel/tile_weights.h"

/* Two columns, or one and none, or none; and the groups of keys that either sees. */
struct couple {
    struct pipe_column column[2];
    size_t first_group, end_group;
};

INLINE size_t columns_of(const struct couple *c)
{
    return (size_t)(c->column[0].show != NULL) + (size_t)(c->column[1].show != NULL);
}

/* ---- Products -------------------------------------------------------------------------
 */

/* One step of those of a tile, the n-th; next may be NULL. */
INLINE void multiply_step(const struct parts_of_step *step,
                          const struct parts_of_step *next, ptrdiff_t distance, size_t n,
                          const struct beside beside)
{
    if (n % 2 == 0)
        add_two_parts_products(step, next, distance, false, beside);
    else
        add_two_parts_products(step, next, distance, true, beside);
}

/* One tile of the left operand by the right ones of both columns, which lie at some
 * distance from each other. */
INLINE void multiply_both(const struct tile_product *p, size_t tile, ptrdiff_t distance,
                          const struct beside beside)
{
    struct parts_of_step step = first_step(p, tile), next = step;
    tile_load(2, step.left + 2 * step.left_part, step.left_row);
    tile_load(4, step.right, step.right_row);
    tile_load(5, step.right + distance, step.right_row);
    tile_clear(0);
    tile_clear(1);
    size_t n = 0;
    for (; n + 1 < p->steps; n++) {
        go_to_next(&next, p);
        multiply_step(&step, &next, distance, n, beside);
        step = next;
    }
    multiply_step(&step, NULL, distance, n, beside);
}

INLINE void multiply_one(const struct tile_product *p, size_t tile,
                         const struct beside beside)
{
    struct parts_of_step step = first_step(p, tile);
    tile_clear(0);
    for (size_t n = 0; n < p->steps; n++, go_to_next(&step, p))
        add_parts_product(&step, beside);
}

/* Of tiles 0 and 1, of both columns or one. */
INLINE void multiply_tiles_of(const struct tile_product p[2], size_t columns, size_t tile,
                              float *to, float *other_to, const struct beside beside)
{
    if (columns == 1) {
        multiply_one(p, tile, beside);
        tile_store(0, to, (size_t)TILE_BYTES);
        return;
    }
    const ptrdiff_t distance = (const char *)p[1].right - (const char *)p[0].right;
    multiply_both(p, tile, distance, beside);
    tile_store(0, to, (size_t)TILE_BYTES);
    tile_store(1, other_to, (size_t)TILE_BYTES);
}

INLINE void score_chunk_of(const struct tile_product scores[2], size_t columns,
                           size_t chunk, const struct beside beside)
{
    const size_t first = chunk * CHUNK_FLOATS;
    multiply_tiles_of(scores, columns, chunk, scores[0].out + first,
                      columns > 1 ? scores[1].out + first : NULL, beside);
}

INLINE void add_value_tile_of(const struct tile_product values[2], size_t columns,
                              size_t tile, const struct beside beside)
{
    float sums[2][TILE_FLOATS] __attribute__((aligned(TILE_BYTES)));
    multiply_tiles_of(values, columns, tile, sums[0], sums[1], beside);
    for (size_t i = 0; i < columns; i++)
        add_sums(sums[i], values[i].out + tile * values[i].next_out, values[i].out_row);
}

/* ---- The pipeline ---------------------------------------------------------------------
 */

INLINE void plan_scores(const struct couple *next, struct tile_product scores[2])
{
    for (size_t i = 0; i < columns_of(next); i++) {
        const struct pipe_column *const c = &next->column[i];
        const size_t first = next->first_group * TILE_STEP;
        const struct attn_block *const block = &c->show->block;
        scores[i] = scores_of(c->show->panel, block, c->lane,
                              c->scores + first * VF_LANES, VF_LANES, BF16_PARTS);
        scores[i].left +=
            ((ptrdiff_t)first - (ptrdiff_t)c->first_row) * block->key_stride;
    }
}

INLINE void plan_values(const struct couple *before, struct tile_product values[2])
{
    for (size_t i = 0; i < columns_of(before); i++) {
        const struct pipe_column *const c = &before->column[i];
        const ptrdiff_t first = (ptrdiff_t)before->first_group;
        const float *const weights =
            c->weights + before->first_group * BF16_PARTS * TILE_FLOATS;
        values[i] = values_of(c->show->panel, &c->show->block, c->lane, weights, VF_LANES,
                              BF16_PARTS);
        values[i].left += (first - (ptrdiff_t)(c->first_row / TILE_STEP)) *
                          (ptrdiff_t)values[i].left_step;
        values[i].steps = before->end_group - before->first_group;
    }
}

/* To take a share of the weights beside each of so many steps of products, if any. */
INLINE void plan_weights(struct weighing *w, struct weighing_start start[2],
                         const struct pipe *pipe, struct couple *now, size_t steps,
                         struct column_notes *notes, const enum noting noting)
{
    w->notes = notes;
    for (size_t i = 0; i < columns_of(now); i++) {
        struct pipe_column *const c = &now->column[i];
        const vf largest = finish_column(c, 2 * now->end_group - 1);
        const struct column column = column_in_softmax(pipe, c);
        keep_scores_of(&column, c, largest);
        raise_reference_of(pipe, &column, largest);
        if (notes)
            begin_notes(&notes[i], &column, c);
        if (!c->whole) {
            clear_pairs(c->weights, now->first_group * TILE_EDGE, c->begin / 2);
            clear_pairs(c->weights, (c->end + 1) / 2, now->end_group * TILE_EDGE);
        }
        start[i] = start_of(c);
        if (noting == NOTE_ROWS && !c->whole) /* any more */
            shift_scores(&start[i], c);
        w->end += start[i].pairs;
    }
    w->share = steps > 0 ? (w->end << 8) / (4 * steps) : 0;
    if (w->end > 0)
        begin_column(w, start);
}

/* Three couples go a step further.  Scores are noted a chunk late. */
INLINE void go_on_with_parts(const struct pipe *pipe, struct couple *next,
                             struct couple *now, const struct couple *before,
                             struct column_notes *notes, const enum noting noting)
{
    const size_t to_score = columns_of(next), to_add = columns_of(before);
    struct tile_product scores[2] = {{.steps = 0}}, values[2] = {{.tiles = 0}};
    struct weighing_start start[2];
    struct weighing w = {.pair = 0};
    const struct beside beside = {.state = &w,
                                  .do_share = noting == NOTE_NOTHING
                                                  ? weigh_share_of_nothing
                                              : noting == NOTE_ROWS ? weigh_share_of_rows
                                                                    : weigh_share_of_all};
    plan_scores(next, scores);
    plan_values(before, values);
    const size_t chunks = to_score > 0 ? 2 * (next->end_group - next->first_group) : 1;
    const size_t steps = chunks * scores[0].steps + values[0].tiles * values[0].steps;
    plan_weights(&w, start, pipe, now, steps, notes, noting);
    if (to_score > 0) {
        w.lines = lines_of_bias(&next->column[0], to_score);
        take_lines(next->column[0].show->block.calls, LINES_OF_SHARE * 4 * steps,
                   &w.ahead);
    }
    for (size_t chunk = 0, tile = 0, due = 0; chunk < chunks; chunk++) {
        if (to_score > 0)
            score_chunk_of(scores, to_score, chunk, beside);
        for (size_t i = 0; chunk > 0 && i < to_score; i++)
            note_if_inside(&next->column[i], 2 * next->first_group + chunk - 1);
        for (due += values[0].tiles; due >= chunks; due -= chunks)
            add_value_tile_of(values, to_add, tile++, beside);
    }
    while (w.pair < w.end)
        weigh_pair(&w, noting);
}

static void go_on_plainly(const struct pipe *pipe, struct couple *next,
                          struct couple *now, const struct couple *before)
{
    go_on_with_parts(pipe, next, now, before, NULL, NOTE_NOTHING);
}

static void go_on_with_rows(const struct pipe *pipe, struct couple *next,
                            struct couple *now, const struct couple *before)
{
    struct column_notes notes[2];
    go_on_with_parts(pipe, next, now, before, notes, NOTE_ROWS);
}

static void go_on_with_all(const struct pipe *pipe, struct couple *next,
                           struct couple *now, const struct couple *before)
{
    struct column_notes notes[2];
    go_on_with_parts(pipe, next, now, before, notes, NOTE_ALL);
}

/* What is to be noted of a couple. */
static enum noting noting_of(const struct pipe *pipe, const struct couple *now)
{
    const struct attn_sweep *const sweep = pipe->sweep;
    const bool others = uses_each_weight(sweep);
    if (!sweep->entropy && !sweep->distance && !others)
        return NOTE_NOTHING;
    bool by_sums = true;
    for (size_t i = 0; i < columns_of(now); i++) {
        const struct pipe_column *const c = &now->column[i];
        const struct column column = column_in_softmax(pipe, c);
        const enum distance distances = distance_sums_of(&column);
        by_sums = by_sums && c->whole && !c->hides && !c->biased && /* none is −∞ */
                  distances <= DISTANCE_BY_SUMS;
    }
    return by_sums && !others ? NOTE_ROWS : NOTE_ALL;
}

static void go_on(const struct pipe *pipe, struct couple *next, struct couple *now,
                  const struct couple *before)
{
    const enum noting noting = noting_of(pipe, now);
    if (noting == NOTE_NOTHING)
        go_on_plainly(pipe, next, now, before);
    else if (noting == NOTE_ROWS)
        go_on_with_rows(pipe, next, now, before);
    else
        go_on_with_all(pipe, next, now, before);
}

/* Of panels that are equally wide, as their queries' rows are then. */
static void take_couple(struct couple *couple, struct place *at)
{
    struct pipe_column *const one = &couple->column[0], *const other = one + 1;
    take_column(one, at);
    other->show = NULL;
    if (!one->show)
        return;
    const struct place before = *at;
    take_column(other, at);
    if (other->show && other->show->panel->vectors != one->show->panel->vectors) {
        other->show = NULL;
        *at = before;
    }
    size_t begin = one->begin, end = one->end;
    if (other->show) {
        begin = other->begin < begin ? other->begin : begin;
        end = other->end > end ? other->end : end;
    }
    couple->first_group = begin / TILE_STEP;
    couple->end_group = (end + TILE_STEP - 1) / TILE_STEP;
}

/* The pipeline in scratch: couples by turns, of which two are undone between calls, and
 * memory for two, by turns: scores of one become weights before the next but one writes
 * its own, and weights are added.  Rows of different columns lie apart within a page, or
 * loads of one wait for stores of another (2 % of a pass). */
enum {
    APART = 256,
    SCORES_PLACE = COLUMN_SCORES + APART,
    WEIGHTS_PLACE = COLUMN_WEIGHTS + APART,
    COUPLES_PLACE = 2048,
    PARTS_SCRATCH = COUPLES_PLACE + 4 * (SCORES_PLACE + WEIGHTS_PLACE) + APART / 2
};

static_assert(BF16_PARTS * ATTN_BLOCK_KEYS / 2 * ATTN_PANEL_LANES <= PARTS_SCRATCH,
              "weights of a panel, which value takes");

static void place_couple(struct couple *couple, float *memory, size_t turn)
{
    for (size_t i = 0; i < 2; i++) {
        const size_t n = 2 * turn + i;
        couple->column[i].scores = memory + n * SCORES_PLACE;
        couple->column[i].weights =
            memory + 4 * SCORES_PLACE + APART / 2 + n * WEIGHTS_PLACE;
    }
}

/* The next couple, or an empty one where `last` has one of its columns: references are
 * not raised while weights wait to be added. */
static void take_turn(struct couple *next, const struct couple *last, struct place *at)
{
    const struct place before = *at;
    take_couple(next, at);
    for (size_t i = 0; i < columns_of(next); i++)
        for (size_t j = 0; j < columns_of(last); j++)
            if (next->column[i].show->panel == last->column[j].show->panel &&
                next->column[i].lane == last->column[j].lane) {
                *at = before;
                next->column[0].show = next->column[1].show = NULL;
                return;
            }
}

/* Takes turns until no show is left, and `more` after that. */
static void take_turns(struct attn_pipeline *pipeline, struct place at, size_t more,
                       const struct attn_sweep *sweep)
{
    const struct pipe pipe = {.sweep = sweep, .before_flush = vf_flush_begin()};
    struct couple *const couples = (struct couple *)(void *)pipeline->scratch;
    static_assert(3 * sizeof *couples <= COUPLES_PLACE * sizeof(float), "room for them");
    for (size_t *n = &pipeline->turn; at.show < at.count || more > 0; ++*n) {
        struct couple *const next = &couples[*n % 3];
        struct couple *const now = &couples[(*n + 2) % 3];
        struct couple *const before = &couples[(*n + 1) % 3];
        more -= at.show >= at.count;
        place_couple(next, pipeline->scratch + COUPLES_PLACE, *n % 2);
        take_turn(next, now, &at);
        go_on(&pipe, next, now, before);
    }
    vf_flush_end(pipe.before_flush);
}

static void attend_by_parts(struct attn_pipeline *pipeline, const struct attn_show *shows,
                            size_t count, const struct attn_sweep *sweep)
{
    const struct place at = {.shows = shows, .count = count};
    if (pipeline->turn == 0)
        memset(pipeline->scratch, 0, 3 * sizeof(struct couple));
    take_turns(pipeline, at, 0, sweep);
}

static void drain_parts(struct attn_pipeline *pipeline, const struct attn_sweep *sweep)
{
    if (pipeline->turn > 0)
        take_turns(pipeline, (struct place){.count = 0}, 2, sweep);
    pipeline->turn = 0;
}

static const struct attn_pair_kernels part_kernels = {
    .one_pass = "panels of queries, fp32 products of tiles, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, fp32 products of tiles, weights kept for "
                    "received mass, " ATTN_ISA_NAME,
    .decoding_too = "panels of queries, fp32 products of tiles, single ones in splits of "
                    "keys, " ATTN_ISA_NAME,
    .parts = BF16_PARTS,
    .scratch = PARTS_SCRATCH,
    .keys_together = TILE_STEP,
    .open = tiles_open,
    .close = tiles_close,
    .load = load_query_parts,
    .copy_keys = split_keys,
    .pair_values = turn_value_parts,
    .score = score_by_parts,
    .value = value_by_parts,
    .attend = attend_by_parts,
    .drain = drain_parts,
};

#endif
