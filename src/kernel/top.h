/* The largest scores of each lane, kept sorted.  While a block's scores become weights,
 * those keys are listed whose score exceeds the last one kept in some lane: a comparison
 * beside an exponential.  Then they are inserted, up to 8 in registers and in all lanes
 * at once, more lane by lane.  Scores in any order are inserted about top · ln(keys /
 * top) times a lane, rising ones always.  Keys come in rising order and an equal score
 * does not displace, so a tie leaves the lower key first. */
#ifndef ATTN_KERNEL_TOP_H
#define ATTN_KERNEL_TOP_H

#include "kernel/simd.h"
#include "kernel/table.h"
#include <math.h>

enum { TOP_IN_REGISTERS = 8 };

/* One vector's share of the panel. */
struct top_column {
    struct attn_panel *panel;
    size_t top, lane, width;
    int64_t first_key; /* of the block; of which 32 bits are kept */
};

/* The keys of a block whose score exceeds `least` in some lane. */
struct top_list {
    vf least;
    size_t count;
    uint8_t key[ATTN_BLOCK_KEYS];
    vf score[ATTN_BLOCK_KEYS];
};

/* Without a branch, since none could be foreseen.  Returns the new count. */
INLINE size_t top_note(struct top_list *list, size_t count, size_t key, vf score)
{
    list->key[count] = (uint8_t)key;
    list->score[count] = score;
    return count + (vf_lanes_greater(score, list->least) != 0);
}

/* The last score kept of each lane. */
INLINE float *top_least(const struct top_column *c)
{
    return c->panel->top_score + (c->top - 1) * c->width + c->lane;
}

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

INLINE void top_in_registers(const struct top_column *c, const struct top_list *list,
                             const size_t room)
{
    struct top_kept kept;
    top_load(&kept, c, room);
    for (size_t i = 0; i < list->count; i++)
        top_insert(&kept, room, list->score[i], vi_set1(top_key(c, list->key[i])));
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

static void top_in_memory(const struct top_column *c, const struct top_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        unsigned lanes = vf_lanes_greater(list->score[i], vf_load(top_least(c)));
        for (; lanes; lanes &= lanes - 1) {
            const size_t lane = (size_t)__builtin_ctz(lanes);
            top_insert_lane(c, lane, list->score[i][lane], top_key(c, list->key[i]));
        }
    }
}

static void keep_top(const struct top_column *c, const struct top_list *list)
{
    if (list->count == 0)
        return;
    if (c->top <= 4)
        top_in_registers(c, list, 4);
    else if (c->top <= TOP_IN_REGISTERS)
        top_in_registers(c, list, TOP_IN_REGISTERS);
    else
        top_in_memory(c, list);
}

#endif
