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
                c->gated, c->biased);
    c->whole = false;
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
    if (block->bias.x && !c->biased)
        largest = add_bias_to_strip(&strip, block);
    if (block->keep && !c->hides) {
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
    struct noted noted;
    clear_noted(&noted);
    note_forgotten(&noted, &strip, c->show->panel, &c->show->block);
    add_noted(c, begin, &noted);
}

/* Four keys of 16 rows, turned: 16 loads and half the permutations that a square takes.
 */
INLINE void load_four_keys(vf x[4], const float *bias, ptrdiff_t stride)
{
#pragma GCC unroll 4
    for (ptrdiff_t i = 0; i < 4; i++)
        x[i] = vf_load_fours(bias + i * stride, bias + (4 + i) * stride,
                             bias + (8 + i) * stride, bias + (12 + i) * stride);
    transpose_within_128(x);
}

INLINE void note_biased(struct noted *noted, const size_t chain, float *at, vf bias)
{
    noted->zero = vf_fma(vf_load(at), vf_set1(0.0f), noted->zero);
    add_to_score(at, bias, &noted->most[chain]);
}

/* Adds a bias to rows of one chunk. */
static __attribute__((noinline)) void note_biased_rows(struct pipe_column *c,
                                                       size_t begin, size_t end)
{
    const struct attn_matrix *const bias = &c->show->block.bias;
    const struct attn_matrix turned = turned_matrix(bias);
    const ptrdiff_t stride = bias->row_stride;
    const float *const x = (const float *)bias->x + (ptrdiff_t)c->lane * stride;
    struct noted noted;
    clear_noted(&noted);
    size_t row = begin;
    for (; row + 4 <= end; row += 4) {
        vf of_keys[4];
        load_four_keys(of_keys, x + (row - c->first_row), stride);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            note_biased(&noted, i, c->scores + (row + i) * VF_LANES, of_keys[i]);
    }
    for (; row < end; row++)
        note_biased(&noted, 0, c->scores + row * VF_LANES,
                    load_elements(&turned, row - c->first_row, c->lane, ATTN_F32));
    add_noted(c, begin, &noted);
}

INLINE void note_products(struct pipe_column *c, size_t begin, size_t end)
{
    if (c->biased)
        note_biased_rows(c, begin, end);
    else if (c->gated)
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

/* −∞ in those of a chunk's rows and lanes that are not seen. */
static void hide_in_chunk(struct pipe_column *c, size_t chunk)
{
    const struct attn_block *const block = &c->show->block;
    const size_t begin = chunk * CHUNK_KEYS, end = begin + CHUNK_KEYS;
    const vf hidden = vf_set1(-INFINITY);
    vf most = hidden;
    for (size_t row = begin; row < end; row++) {
        float *const at = c->scores + row * VF_LANES;
        vf score = hidden;
        if (row >= c->begin && row < c->end)
            score = vf_load(at);
        if (!c->all_see)
            score =
                vf_select(seen_by_lanes(block, row - c->first_row, c->lane / VF_LANES),
                          score, hidden);
        vf_store(at, score);
        most = vf_max(most, score);
    }
    c->most[chunk] = most;
}

/* What hide_strip does, where chunks are noted: in those alone that need it. */
static void hide_edges(struct pipe_column *c)
{
    const struct segment all = seen_by_all_lanes(&c->show->block, c->lane / VF_LANES);
    const size_t begin = c->first_row + all.begin, end = c->first_row + all.end;
    for (size_t row = c->begin / CHUNK_KEYS * CHUNK_KEYS; row < c->end; row += CHUNK_KEYS)
        if (row < begin || row + CHUNK_KEYS > end)
            hide_in_chunk(c, row / CHUNK_KEYS);
}

/* Ends what the products began; returns the largest score. */
INLINE vf finish_column(struct pipe_column *c, size_t last_chunk)
{
    note_edges(c, last_chunk);
    if (vi_any(c->zero != 0.0f))
        mend_column(c);
    if (c->noted && !c->whole)
        hide_edges(c);
    if (c->noted)
        return largest_of(c);
    if (c->begin % 2 == 1) /* the other key of its pair */
        vf_store(c->scores + (c->begin - 1) * VF_LANES, vf_set1(-INFINITY));
    if (c->end % 2 == 1)
        vf_store(c->scores + c->end * VF_LANES, vf_set1(-INFINITY));
    const vf largest = bend_column(c, largest_of(c));
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        c->most[chunk] = largest; /* at least what it is */
    return largest;
}

/* ---- What is kept of scores -----------------------------------------------------------
 */

/* The first of a chunk's rows in which the lane has that score, which is its largest. */
INLINE size_t first_row_with(const float *scores, size_t lane, float largest)
{
    size_t first = 0;
#pragma GCC unroll 16
    for (size_t row = CHUNK_KEYS; row-- > 0;)
        first = scores[row * VF_LANES + lane] >= largest ? row : first;
    return first;
}

/* The more blocks there were the fewer lanes grow: each looks by itself in its chunk. */
static void keep_largest_of(const struct column *column, const struct pipe_column *c,
                            vf largest)
{
    int64_t *const key = column->panel->largest_key + column->lane;
    unsigned grown = lanes_grown(column, largest);
    vf chunks = (vf)vi_set1(0);
    if (!grown)
        return;
#pragma GCC unroll 8
    for (size_t chunk = CHUNKS; chunk-- > 0;)
        chunks =
            vf_select_equal(c->most[chunk], largest, (vf)vi_set1((int32_t)chunk), chunks);
    for (; grown; grown &= grown - 1) {
        const size_t lane = (size_t)__builtin_ctz(grown);
        const size_t chunk = (size_t)((vi)chunks)[lane];
        const size_t row =
            chunk * CHUNK_KEYS +
            first_row_with(c->scores + chunk * CHUNK_FLOATS, lane, largest[lane]);
        key[lane] = column->first_key + (int64_t)row - (int64_t)c->begin;
    }
    keep_largest_score(column, largest);
}

/* Less than the fourth largest score of each lane in the block: four groups of chunks
 * have one that is more, if all scores are finite. */
INLINE vf below_fourth(const struct pipe_column *c)
{
    vf fourth = vf_set1(INFINITY);
    for (size_t chunk = 0; chunk < CHUNKS; chunk += CHUNKS / 4) {
        vf most = c->most[chunk];
        for (size_t n = 1; n < CHUNKS / 4; n++)
            most = vf_max(most, c->most[chunk + n]);
        fourth = vf_where_greater(fourth, most, most, fourth);
    }
    const vf less = vf_max(vf_abs(fourth) * 0x1p-20f, vf_set1(0x1p-126f));
    return fourth - less;
}

/* In memory, from where one is spread on its way: as constants each takes the unit that
 * compares. */
static const uint32_t bit[TILE_STEP] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

/* Those of 32 rows, of which the n-th is bit n, that have more than that in some lane. */
INLINE uint64_t rows_with_more(const float *scores, vf least)
{
    vi rows = vi_set1(0);
#pragma GCC unroll 4
    for (size_t n = 0; n < TILE_STEP; n++)
        rows = vi_or_where_greater(vf_load(scores + n * VF_LANES), least, rows,
                                   (int32_t)bit[n]);
    return (uint32_t)vi_or_of_lanes(rows);
}

/* Rows of a word that lie from begin on and before end. */
INLINE uint64_t rows_between(uint64_t rows, size_t first, size_t begin, size_t end)
{
    if (begin > first)
        rows = begin - first < 64 ? rows & UINT64_MAX << (begin - first) : 0;
    if (end < first + 64)
        rows = end > first ? rows & UINT64_MAX >> (64 - (end - first)) : 0;
    return rows;
}

/* A function of its own, whose list is 8 KB of stack. */
static __attribute__((noinline)) void keep_top_of(const struct column *column,
                                                  const struct pipe_column *c)
{
    struct top_column top = top_column_of(column);
    top.first_key -= (int64_t)c->begin; /* the list counts rows */
    struct top_list list;
    vf least = vf_load(top_least(&top));
    if (c->noted && !c->biased && top.top <= 4 && !vi_any(c->zero != 0.0f))
        least = vf_max(below_fourth(c), least);
    size_t count = 0;
    for (size_t first = 0; first < ATTN_BLOCK_KEYS; first += 64) {
        const float *const scores = c->scores + first * VF_LANES;
        uint64_t rows = rows_with_more(scores, least) |
                        rows_with_more(scores + TILE_STEP * VF_LANES, least) << TILE_STEP;
        rows = rows_between(rows, first, c->begin, c->end);
        for (; rows; rows &= rows - 1) {
            const size_t row = first + (size_t)__builtin_ctzll(rows);
            list.key[count] = (uint8_t)row;
            list.score[count++] = vf_load(c->scores + row * VF_LANES);
        }
    }
    list.least = least;
    list.count = count;
    keep_top(&top, &list);
}

INLINE void keep_scores_of(const struct column *column, const struct pipe_column *c,
                           vf largest)
{
    if (column->sweep->largest && c->noted)
        keep_largest_of(column, c, largest);
    else if (column->sweep->largest)
        keep_largest(column, largest);
    if (column->sweep->top > 0)
        keep_top_of(column, c);
    if (column->sweep->places)
        note_places(column);
}

#endif
