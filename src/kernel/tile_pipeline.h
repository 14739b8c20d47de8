/* All of a block's work on a few panels at once, one vector of lanes (a column) after the
 * other.  While one column's scores become weights, tiles multiply the scores of the next
 * and the output of the one before, so that products, which other units of the processor
 * do, take little time of their own.  What numbers of one part (tile_pairs.h) and of
 * three (tile_parts.h) share of it.
 *
 * Every number is found as by the separate kernels, to the bit. */
#ifndef ATTN_KERNEL_TILE_PIPELINE_H
#define ATTN_KERNEL_TILE_PIPELINE_H

#include "kernel/keep_bits.h"
#include "kernel/tiles.h"
#include <assert.h>

enum {
    CHUNK_KEYS = TILE_EDGE,
    CHUNKS = ATTN_BLOCK_KEYS / CHUNK_KEYS,
    CHUNK_FLOATS = CHUNK_KEYS * TILE_EDGE,
    COLUMN_SCORES = CHUNKS * CHUNK_FLOATS
};

/* A vector of lanes, the scores of it, [row][lane], and the weights that they become,
 * [group of keys][part][pair][lane]: of one part, where scores were.  Row 0 is the
 * multiple of ATTN_BLOCK_KEYS at or before the block's first key, and the column's lanes
 * see keys of rows begin ≤ row < end. */
struct pipe_column {
    const struct attn_show *show; /* NULL: there is none */
    size_t lane;
    size_t first_row, begin, end; /* of the block's first key, and see above */
    bool all_see;                 /* each lane sees all of these rows, by its position */
    bool noted;                   /* scores are as noted, but where lanes do not see */
    bool whole;                   /* so are all, and lanes see all rows */
    bool gated, biased, hides;    /* noting takes gates, adds a bias, hides by keep */
    float *scores, *weights;
    vf most[CHUNKS], zero;          /* of the chunks' scores, as struct noted has them */
    uint16_t kept[ATTN_BLOCK_KEYS]; /* if it hides: lanes that keep a row, a bit each */
};

/* Results are flushed all the way, but where sums are rescaled. */
struct pipe {
    const struct attn_sweep *sweep;
    float factor;          /* of products of one part */
    unsigned before_flush; /* for vf_flush_end */
};

INLINE void clear_most(struct pipe_column *c)
{
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        c->most[chunk] = vf_set1(-INFINITY);
    c->zero = vf_set1(0.0f);
}

/* Hides a score where keep does, and notes it. */
INLINE void note_kept(struct noted *noted, const size_t chain, float *at, unsigned kept)
{
    const vf score = vf_load(at);
    const vf left = vf_select_lanes(kept, score, vf_set1(-INFINITY));
    vf_store(at, left);
    noted->most[chain] = vf_max(noted->most[chain], left);
    noted->zero = vf_fma(score, vf_set1(0.0f), noted->zero);
}

INLINE void note_kept_rows(struct noted *noted, const struct pipe_column *c, size_t begin,
                           size_t end)
{
    size_t row = begin;
#pragma GCC unroll 4
    for (; row + MOST_CHAINS <= end; row += MOST_CHAINS)
#pragma GCC unroll 4
        for (size_t i = 0; i < MOST_CHAINS; i++)
            note_kept(noted, i, c->scores + (row + i) * VF_LANES, c->kept[row + i]);
    for (; row < end; row++)
        note_kept(noted, 0, c->scores + row * VF_LANES, c->kept[row]);
}

/* Of rows of one chunk, which begin there. */
INLINE void add_noted(struct pipe_column *c, size_t begin, const struct noted *noted)
{
    vf *const most = &c->most[begin / CHUNK_KEYS];
    *most = vf_max(*most, most_of_all(noted));
    c->zero += noted->zero;
}

/* Scales scores of one chunk and notes them. */
INLINE void note_rows(struct pipe_column *c, size_t begin, size_t end, float factor,
                      const size_t parts)
{
    struct noted noted;
    clear_noted(&noted);
    if (parts > 1 && c->hides)
        note_kept_rows(&noted, c, begin, end);
    else
        note_scores(&noted, c->scores + begin * VF_LANES, VF_LANES, end - begin, factor,
                    parts);
    add_noted(c, begin, &noted);
}

INLINE vf largest_of(const struct pipe_column *c)
{
    vf largest = c->most[0];
    for (size_t chunk = 1; chunk < CHUNKS; chunk++)
        largest = vf_max(largest, c->most[chunk]);
    return largest;
}

/* As softmax knows it. */
INLINE struct column column_in_softmax(const struct pipe *pipe,
                                       const struct pipe_column *c)
{
    return (struct column){
        .panel = c->show->panel,
        .sweep = pipe->sweep,
        .v = c->lane / VF_LANES,
        .lane = c->lane,
        .width = c->show->panel->vectors * VF_LANES,
        .keys = c->end - c->begin,
        .first_key = c->show->block.first_key + (int64_t)(c->begin - c->first_row),
        .all_see = c->all_see,
        .scores = c->scores + c->begin * VF_LANES,
        .row = VF_LANES,
    };
}

/* Raises the references to the largest scores, even if sums are still 0. */
INLINE void raise_reference_of(const struct pipe *pipe, const struct column *column,
                               vf largest)
{
    if (!vi_any(outgrows(column, largest)))
        return;
    vf_flush_end(pipe->before_flush);
    raise_reference(column, largest);
    vf_flush_begin();
}

/* The columns that are still to be taken. */
struct place {
    const struct attn_show *shows;
    size_t count, show, v;
};

/* Whether scores are those wanted as they are multiplied, but for gates and keep. */
INLINE bool is_plain(const struct attn_block *block)
{
    return block->softcap == 0.0f && block->alibi_slope == 0.0f && !block->bias.x;
}

/* Whether what gates take comes next after products. */
INLINE bool is_gated_first(const struct attn_block *block)
{
    return block->forget_high && block->softcap == 0.0f && block->alibi_slope == 0.0f;
}

/* Whether a bias does, whose rows are read as they lie. */
INLINE bool is_biased_first(const struct attn_block *block, size_t lane)
{
    const struct attn_matrix *const bias = &block->bias;
    return bias->x && bias->type == ATTN_F32 && bias->element_stride == 1 &&
           bias->row_stride != 0 && lane + VF_LANES <= bias->rows &&
           block->softcap == 0.0f && block->alibi_slope == 0.0f && !block->forget_high;
}

/* The next one whose lanes see any key, or none. */
static void take_column(struct pipe_column *c, struct place *at)
{
    c->show = NULL;
    while (!c->show && at->show < at->count) {
        const struct attn_show *const show = &at->shows[at->show];
        const struct attn_block *const block = &show->block;
        const struct segment seen = seen_by_vector(block, at->v);
        const struct segment by_all = seen_by_all_lanes(block, at->v);
        c->lane = at->v * VF_LANES;
        c->first_row = (size_t)block->first_key % ATTN_BLOCK_KEYS;
        c->begin = c->first_row + seen.begin;
        c->end = c->first_row + seen.end;
        c->all_see = seen.begin == by_all.begin && seen.end == by_all.end;
        c->hides = block->keep && is_plain(block) && !block->forget_high;
        c->biased = is_biased_first(block, c->lane);
        c->noted =
            c->biased ? !block->keep : is_plain(block) && (c->hides || !block->keep);
        c->whole = c->noted && c->all_see && c->end - c->begin == ATTN_BLOCK_KEYS;
        c->gated = is_gated_first(block);
        clear_most(c);
        if (seen.begin < seen.end)
            c->show = show;
        if (c->show && c->hides)
            read_keep(c->kept + c->first_row, show->panel, block, c->lane);
        if (++at->v == show->panel->vectors)
            at->show++, at->v = 0;
    }
}

#endif
