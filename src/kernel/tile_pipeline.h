/* Whole blocks that panels see all of, with plain scores: all of a block's work on a few
 * panels at once, one vector of lanes (a column) after the other.  While one column's
 * scores become weights, tiles multiply the scores of the next and the output of the one
 * before, so that products, which other units of the processor do, take no time of their
 * own.  What numbers of one part (tile_pairs.h) and of three (tile_parts.h) share of it.
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

/* A vector of lanes, the block's scores of it, [key][lane], and the weights that they
 * become, [group of keys][part][pair][lane]: of one part, where scores were. */
struct pipe_column {
    struct attn_panel *panel; /* NULL: there is none */
    size_t lane;
    float *scores, *weights;
    struct noted noted;
};

/* Results are flushed all the way, but where sums are rescaled. */
struct pipe {
    const struct attn_block *block;
    float factor;          /* of the products */
    unsigned before_flush; /* for vf_flush_end */
};

/* Scales a chunk's scores and notes the largest. */
INLINE void note_chunk(const struct pipe *pipe, struct pipe_column *c, size_t chunk,
                       const size_t parts)
{
    struct noted noted = c->noted; /* in registers */
    float *const scores = c->scores + chunk * CHUNK_FLOATS;
    if (pipe->factor == 1.0f)
        note_scores(&noted, scores, VF_LANES, CHUNK_KEYS, 1.0f, parts);
    else
        note_scores(&noted, scores, VF_LANES, CHUNK_KEYS, pipe->factor, parts);
    c->noted = noted;
}

/* Mends scores that are all there; returns the largest. */
INLINE vf largest_of(const struct pipe *pipe, const struct pipe_column *c,
                     const size_t parts)
{
    const struct segment all = {.end = ATTN_BLOCK_KEYS,
                                .first_vector = c->lane / VF_LANES};
    struct noted noted = c->noted;
    if (parts > 1 && vi_any(noted.zero != 0.0f)) {
        mend_scores(c->scores, VF_LANES, c->panel, pipe->block, c->lane, &all);
        clear_noted(&noted);
        note_scores(&noted, c->scores, VF_LANES, ATTN_BLOCK_KEYS, 1.0f, parts);
    }
    return most_of_all(&noted);
}

/* Raises the references to the largest scores, even if sums are still 0; returns what
 * scores are less. */
static vf shift_of(const struct pipe *pipe, const struct pipe_column *c, vf largest)
{
    static const struct attn_sweep nothing_else = {.entropy = false};
    const struct column column = {.panel = c->panel,
                                  .sweep = &nothing_else,
                                  .lane = c->lane,
                                  .width = c->panel->vectors * VF_LANES};
    if (vi_any(outgrows(&column, largest))) {
        vf_flush_end(pipe->before_flush);
        raise_reference(&column, largest);
        vf_flush_begin();
    }
    const vf reference = vf_load(c->panel->reference + c->lane);
    return vf_select(reference == -INFINITY, vf_set1(0.0f), reference);
}

/* The columns of panels that are still to be taken. */
struct place {
    struct attn_panel *const *panels;
    size_t count, panel, v;
};

/* The next one, or none. */
static void take_column(struct pipe_column *c, struct place *at)
{
    c->panel = at->panel < at->count ? at->panels[at->panel] : NULL;
    c->lane = at->v * VF_LANES;
    if (c->panel && ++at->v == c->panel->vectors)
        at->panel++, at->v = 0;
}

#endif
