/* The largest scores of each lane, kept sorted.  Of a block, those keys are listed first
 * whose score exceeds the last one kept in some lane, at a comparison a key; then they
 * are inserted, up to 8 in registers and in all lanes at once, more lane by lane.  Scores
 * in any order are inserted about top · ln(keys / top) times a lane, rising ones always.
 * Keys come in rising order and an equal score does not displace, so a tie leaves the
 * lower key first. */
#ifndef ATTN_KERNEL_TOP_H
#define ATTN_KERNEL_TOP_H

#include "kernel/simd.h"
#include "kernel/table.h"
#include <math.h>

enum { TOP_IN_REGISTERS = 8 };

/* One vector's share of the panel, and its column of scores. */
struct top_column {
    struct attn_panel *panel;
    size_t top, lane, width, keys;
    int64_t first_key;   /* of which 32 bits are kept */
    const float *scores; /* [keys], each width floats after the one before */
};

INLINE int32_t top_key(const struct top_column *c, size_t key)
{
    return (int32_t)(uint32_t)(c->first_key + (int64_t)key);
}

/* The largest scores so far and their keys. */
struct top_kept {
    vf score[TOP_IN_REGISTERS];
    vi key[TOP_IN_REGISTERS];
};

INLINE void top_insert(struct top_kept *kept, const size_t room, vf score, vi key)
{
#pragma GCC unroll 8
    for (size_t n = room - 1; n > 0; n--) {
        const vf here = kept->score[n], above = kept->score[n - 1];
        kept->key[n] = vi_where_greater(
            score, here, vi_where_greater(score, above, kept->key[n - 1], key),
            kept->key[n]);
        kept->score[n] = vf_where_greater(
            score, here, vf_where_greater(score, above, above, score), here);
    }
    kept->key[0] = vi_where_greater(score, kept->score[0], key, kept->key[0]);
    kept->score[0] = vf_where_greater(score, kept->score[0], score, kept->score[0]);
}

/* Slots that nobody wants come first, and nothing exceeds their ∞. */
INLINE void top_load(struct top_kept *kept, const struct top_column *c, const size_t room)
{
    const size_t spare = room - c->top;
#pragma GCC unroll 8
    for (size_t n = 0; n < room; n++) {
        const size_t at = (n - spare) * c->width + c->lane;
        kept->score[n] = vf_set1(INFINITY);
        kept->key[n] = vi_set1(0);
        if (n < spare)
            continue;
        kept->score[n] = vf_load(c->panel->top_score + at);
        kept->key[n] = vi_load(c->panel->top_key + at);
    }
}

INLINE void top_store(const struct top_kept *kept, const struct top_column *c,
                      const size_t room)
{
    const size_t spare = room - c->top;
#pragma GCC unroll 8
    for (size_t n = 0; n < room; n++) {
        const size_t at = (n - spare) * c->width + c->lane;
        if (n < spare)
            continue;
        vf_store(c->panel->top_score + at, kept->score[n]);
        memcpy(c->panel->top_key + at, &kept->key[n], sizeof kept->key[n]);
    }
}

/* Lists the keys whose score exceeds the least of its lane in any lane; without a branch,
 * since none could be foreseen.  Returns how many. */
INLINE size_t top_candidates(uint8_t *candidates, const struct top_column *c)
{
    const vf least = vf_load(c->panel->top_score + (c->top - 1) * c->width + c->lane);
    size_t count = 0;
    for (size_t key = 0; key < c->keys; key++) {
        candidates[count] = (uint8_t)key;
        count += vf_lanes_greater(vf_load(c->scores + key * c->width), least) != 0;
    }
    return count;
}

INLINE void top_in_registers(const struct top_column *c, const size_t room)
{
    uint8_t candidates[ATTN_BLOCK_KEYS];
    const size_t count = top_candidates(candidates, c);
    if (count == 0)
        return;
    struct top_kept kept;
    top_load(&kept, c, room);
    for (size_t i = 0; i < count; i++) {
        const size_t key = candidates[i];
        top_insert(&kept, room, vf_load(c->scores + key * c->width),
                   vi_set1(top_key(c, key)));
    }
    top_store(&kept, c, room);
}

static void top_insert_lane(const struct top_column *c, size_t lane, float score,
                            int32_t key)
{
    float *const scores = c->panel->top_score + c->lane + lane;
    int32_t *const keys = c->panel->top_key + c->lane + lane;
    size_t place = (c->top - 1) * c->width;
    for (; place > 0 && score > scores[place - c->width]; place -= c->width) {
        scores[place] = scores[place - c->width];
        keys[place] = keys[place - c->width];
    }
    scores[place] = score;
    keys[place] = key;
}

static void top_in_memory(const struct top_column *c)
{
    const float *const least = c->panel->top_score + (c->top - 1) * c->width + c->lane;
    for (size_t key = 0; key < c->keys; key++) {
        const float *const score = c->scores + key * c->width;
        unsigned lanes = vf_lanes_greater(vf_load(score), vf_load(least));
        for (; lanes; lanes &= lanes - 1) {
            const size_t lane = (size_t)__builtin_ctz(lanes);
            top_insert_lane(c, lane, score[lane], top_key(c, key));
        }
    }
}

static void keep_top(const struct top_column *c)
{
    if (c->top <= 4)
        top_in_registers(c, 4);
    else if (c->top <= TOP_IN_REGISTERS)
        top_in_registers(c, TOP_IN_REGISTERS);
    else
        top_in_memory(c);
}

#endif
