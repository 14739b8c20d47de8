/* What becomes of a column's scores in the pipeline before they are weights: they are
 * mended and bent as the separate kernels do it, and those are remembered that statistics
 * ask for. */
#ifndef ATTN_KERNEL_TILE_SCORES_H
#define ATTN_KERNEL_TILE_SCORES_H

#include "kernel/tile_pipeline.h"

/* What its lanes see of the block. */
INLINE struct segment seen_by_column(const struct pipe_column *c)
{
    return (struct segment){c->begin - c->first_row, c->end - c->first_row,
                            c->lane / VF_LANES, 1};
}

/* Finds scores again that are not finite. */
static __attribute__((noinline)) void mend_column(struct pipe_column *c)
{
    const struct segment seen = seen_by_column(c);
    float *const scores = c->scores + c->begin * VF_LANES;
    mend_scores(scores, VF_LANES, c->show->panel, &c->show->block, c->lane, &seen,
                c->gated);
    clear_most(c);
    for (size_t row = c->begin, next; row < c->end; row = next) {
        next = (row / CHUNK_KEYS + 1) * CHUNK_KEYS;
        next = next < c->end ? next : c->end;
        note_rows(c, row, next, 1.0f, BF16_PARTS);
    }
}

/* Softcap and what comes after it, as bend_scores does it; returns the largest. */
static vf bend_column(const struct pipe_column *c, vf largest)
{
    const struct attn_panel *const panel = c->show->panel;
    const struct attn_block *const block = &c->show->block;
    const struct segment seen = seen_by_column(c);
    const struct strip strip = {c->scores + c->first_row * VF_LANES, VF_LANES,
                                c->lane / VF_LANES, seen.begin, seen.end};
    if (block->softcap > 0.0f)
        cap_scores(c->scores + c->begin * VF_LANES, (c->end - c->begin) * VF_LANES,
                   block->softcap);
    if (block->alibi_slope != 0.0f)
        lean_strip(&strip, panel, block);
    if (block->forget_high && !c->gated)
        largest = forget_strip(&strip, panel, block);
    if (block->bias.x)
        largest = add_bias_to_strip(&strip, block);
    if (block->keep) {
        struct keep_view view;
        view_keep(&view, panel, block);
        largest = hide_strip_by_keep(&strip, panel, block, &view);
    }
    const bool moved = block->softcap > 0.0f || block->alibi_slope != 0.0f;
    if (moved || !sees_all(block, 0, block->keys))
        largest = hide_strip(&strip, block, vf_set1(-INFINITY));
    return largest;
}

/* Takes what gates do from rows of one chunk. */
static __attribute__((noinline)) void note_gated_rows(struct pipe_column *c, size_t begin,
                                                      size_t end)
{
    const struct strip strip = {c->scores + c->first_row * VF_LANES, VF_LANES,
                                c->lane / VF_LANES, begin - c->first_row,
                                end - c->first_row};
    vf *const most = &c->most[begin / CHUNK_KEYS];
    struct noted noted;
    clear_noted(&noted);
    note_forgotten(&noted, &strip, c->show->panel, &c->show->block);
    *most = vf_max(*most, most_of_all(&noted));
    c->zero += noted.zero;
}

INLINE void note_products(struct pipe_column *c, size_t begin, size_t end)
{
    if (c->gated)
        note_gated_rows(c, begin, end);
    else
        note_rows(c, begin, end, 1.0f, BF16_PARTS);
}

/* Whether some lanes see each of a chunk's keys. */
INLINE bool is_inside(const struct pipe_column *c, size_t chunk)
{
    const size_t row = chunk * CHUNK_KEYS;
    return row >= c->begin && row + CHUNK_KEYS <= c->end;
}

/* Once its products are done. */
INLINE void note_if_inside(struct pipe_column *c, size_t chunk)
{
    if (is_inside(c, chunk))
        note_products(c, chunk * CHUNK_KEYS, (chunk + 1) * CHUNK_KEYS);
}

/* The last chunk, and rows of those that are not inside. */
INLINE void note_edges(struct pipe_column *c, size_t last_chunk)
{
    const size_t first = (c->begin + CHUNK_KEYS - 1) / CHUNK_KEYS * CHUNK_KEYS;
    const size_t last = c->end / CHUNK_KEYS * CHUNK_KEYS;
    note_if_inside(c, last_chunk);
    if (first > last) {
        note_products(c, c->begin, c->end);
        return;
    }
    if (c->begin < first)
        note_products(c, c->begin, first);
    if (last < c->end)
        note_products(c, last, c->end);
}

/* Ends what the products began; returns the largest score. */
INLINE vf finish_column(struct pipe_column *c, size_t last_chunk)
{
    note_edges(c, last_chunk);
    if (vi_any(c->zero != 0.0f))
        mend_column(c);
    if (c->whole)
        return largest_of(c);
    const vf largest = bend_column(c, largest_of(c));
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        c->most[chunk] = largest; /* at least what it is */
    if (c->begin % 2 == 1)        /* the other key of its pair */
        vf_store(c->scores + (c->begin - 1) * VF_LANES, vf_set1(-INFINITY));
    if (c->end % 2 == 1)
        vf_store(c->scores + c->end * VF_LANES, vf_set1(-INFINITY));
    return largest;
}

/* ---- What is kept of scores -----------------------------------------------------------
 */

/* Looks for keys in those chunks alone that may have them. */
static void keep_largest_of(const struct column *column, const struct pipe_column *c,
                            vf largest)
{
    const unsigned grown = lanes_grown(column, largest);
    vf first = (vf)vi_set1(0);
    for (size_t chunk = CHUNKS; grown && chunk-- > 0;) {
        if (!(grown & ~vf_lanes_greater(largest, c->most[chunk])))
            continue;
        const size_t begin = chunk * CHUNK_KEYS;
        for (size_t row = begin + CHUNK_KEYS; row-- > begin;)
            if (row >= c->begin && row < c->end)
                first = vf_select_equal(vf_load(c->scores + row * VF_LANES), largest,
                                        (vf)vi_set1((int32_t)row), first);
    }
    if (grown)
        keep_largest(column, largest, (vi)first, column->first_key - (int64_t)c->begin);
}

/* A function of its own, whose list is 8 KB of stack. */
static __attribute__((noinline)) void keep_top_of(const struct column *column,
                                                  const struct pipe_column *c)
{
    struct top_column top = top_column_of(column);
    top.first_key -= (int64_t)c->begin; /* the list counts rows */
    struct top_list list;
    list.least = vf_load(top_least(&top));
    size_t count = 0;
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        const size_t begin = chunk * CHUNK_KEYS, end = begin + CHUNK_KEYS;
        if (!vf_lanes_greater(c->most[chunk], list.least))
            continue;
        for (size_t row = c->begin > begin ? c->begin : begin; row < end && row < c->end;
             row++)
            count = top_note(&list, count, row, vf_load(c->scores + row * VF_LANES));
    }
    list.count = count;
    keep_top(&top, &list);
}

INLINE void keep_scores_of(const struct column *column, const struct pipe_column *c,
                           vf largest)
{
    if (column->sweep->largest)
        keep_largest_of(column, c, largest);
    if (column->sweep->top > 0)
        keep_top_of(column, c);
    if (column->sweep->places)
        note_places(column);
}

#endif
