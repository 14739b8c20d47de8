/* Where causal or a window cut through a panel, its vectors see different keys: the first
 * keys of a block may be hidden from all lanes of the last vectors, the last keys from
 * all lanes of the first ones.  A segment is a run of keys that the same vectors see, so
 * that nobody multiplies for vectors that do not look.  With 3 vectors of 16 lanes on the
 * diagonal this leaves 8 hidden keys a row of 24. */
#ifndef ATTN_KERNEL_SEGMENT_H
#define ATTN_KERNEL_SEGMENT_H

#include "kernel/simd.h"
#include "kernel/table.h"
#include <math.h>

struct segment {
    size_t begin, end;            /* keys of the block */
    size_t first_vector, vectors; /* that see some of them; vectors may be 0 */
};

/* Whether every lane sees the keys by their place. */
INLINE bool sees_all(const struct attn_block *block, size_t begin, size_t end)
{
    return begin >= block->full_begin && end <= block->full_end;
}

/* Keys [begin, end) of the block that any lane of vector v sees: lanes look further and
 * further on. */
INLINE struct segment seen_by_vector(const struct attn_block *block, size_t v)
{
    struct segment seen = {0, block->keys, v, 1};
    if (!sees_all(block, 0, block->keys)) {
        seen.begin = (size_t)block->first[v * VF_LANES];
        seen.end = (size_t)block->end[v * VF_LANES + VF_LANES - 1];
    }
    return seen;
}

/* Those that all of its lanes see. */
INLINE struct segment seen_by_all_lanes(const struct attn_block *block, size_t v)
{
    struct segment seen = {0, block->keys, v, 1};
    if (!sees_all(block, 0, block->keys)) {
        seen.begin = (size_t)block->first[v * VF_LANES + VF_LANES - 1];
        seen.end = (size_t)block->end[v * VF_LANES];
    }
    return seen;
}

/* Scores of a vector of lanes, from one of the block's keys on: of key n at scores +
 * n · row. */
struct strip {
    float *scores;
    size_t row, v, begin, end;
};

/* Of scores [key][width]. */
INLINE struct strip strip_of(float *scores, const struct attn_panel *panel, size_t v,
                             size_t begin, size_t end)
{
    return (struct strip){scores + v * VF_LANES, panel->vectors * VF_LANES, v, begin,
                          end};
}

/* Position of each lane of vector v less that of a key. */
INLINE vf distance_to(int64_t key, const struct attn_panel *panel, size_t v)
{
    const int64_t lane = (int64_t)(v * VF_LANES);
    return vf_iota() + (float)(panel->position + lane - key);
}

/* Running maxima that do not wait for each other. */
enum { MOST_CHAINS = 4 };

/* What a sweep over scores notes: the largest of each lane, and where any is not finite,
 * NaN. */
struct noted {
    vf most[MOST_CHAINS];
    vf zero;
};

INLINE void clear_noted(struct noted *noted)
{
    for (size_t i = 0; i < MOST_CHAINS; i++)
        noted->most[i] = vf_set1(-INFINITY);
    noted->zero = vf_set1(0.0f);
}

INLINE vf most_of_all(const struct noted *noted)
{
    const vf *const most = noted->most;
    return vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3]));
}

/* The segment that begins there. */
INLINE struct segment segment_from(const struct attn_block *block, size_t vectors,
                                   size_t begin)
{
    struct segment segment = {begin, block->keys, 0, vectors};
    size_t end_vector = vectors;
    for (size_t v = 0; v < vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        if (seen.end <= begin) {
            segment.first_vector = v + 1;
            continue;
        }
        const size_t change = seen.begin > begin ? seen.begin : seen.end;
        if (change < segment.end)
            segment.end = change;
        if (seen.begin > begin && end_vector > v)
            end_vector = v;
    }
    segment.vectors =
        end_vector > segment.first_vector ? end_vector - segment.first_vector : 0;
    return segment;
}

#endif
