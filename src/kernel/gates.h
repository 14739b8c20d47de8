/* Forget gates: the score of a key gains F(lane) − F(key), F being the sum of their
 * logarithms up to a position. */
#ifndef ATTN_KERNEL_GATES_H
#define ATTN_KERNEL_GATES_H

#include "kernel/segment.h"

/* What the gates between lanes and a key take, those of lanes as in attn_panel. */
INLINE vf gates_between(const struct attn_block *block, size_t key, vf high, vf low)
{
    const vf before = low - vf_set1(block->forget_low[key]);
    return high - vf_set1(block->forget_high[key]) + before;
}

/* The gates between a vector's lanes and each of ATTN_GATE_KEYS keys.  Where a lane
 * stands at the last of these or after it, F(lane) − F(last) and F(last) − F(key) have
 * one sign: their sum, each rounded once, is as exact as that of four floats, which is
 * taken elsewhere.  Which it is depends on the lane alone. */
struct gates {
    const struct attn_block *block;
    vf after_last, high, low;
    vi after;       /* lanes that stand there or after it */
    bool all_after; /* all do */
};

/* Of the keys among which that one is. */
INLINE struct gates gates_around(size_t key, const struct attn_panel *panel,
                                 const struct attn_block *block, size_t v)
{
    const int64_t at = block->first_key + (int64_t)key;
    const int64_t last = at - at % ATTN_GATE_KEYS + ATTN_GATE_KEYS - 1;
    const vf high = vf_load(panel->forget_high + v * VF_LANES);
    const vf low = vf_load(panel->forget_low + v * VF_LANES);
    return (struct gates){
        .block = block,
        .after_last = gates_between(block, (size_t)(last - block->first_key), high, low),
        .high = high,
        .low = low,
        .after = distance_to(last, panel, v) >= 0.0f,
        .all_after = panel->position + (int64_t)(v * VF_LANES) >= last,
    };
}

INLINE vf gates_after(const struct gates *gates, size_t key, const bool all_after)
{
    const vf sum = gates->after_last + vf_set1(gates->block->forget_rest[key]);
    if (all_after)
        return sum;
    return vf_select(gates->after, sum,
                     gates_between(gates->block, key, gates->high, gates->low));
}

INLINE vf gates_of_key(size_t key, const struct attn_panel *panel,
                       const struct attn_block *block, size_t v)
{
    const struct gates gates = gates_around(key, panel, block, v);
    return gates_after(&gates, key, false);
}

INLINE void forget_score(struct noted *noted, const size_t chain, float *score, vf gates)
{
    const vf before = vf_load(score), after = before + gates;
    vf_store(score, after);
    noted->most[chain] = vf_max(noted->most[chain], after);
    noted->zero = vf_fma(before, vf_set1(0.0f), noted->zero);
}

/* Notes scores after them, and what was not finite before. */
INLINE void forget_keys(struct noted *noted, const struct strip *strip, size_t begin,
                        size_t end, const struct gates *gates, const bool all_after)
{
    float *const scores = strip->scores;
    const size_t row = strip->row;
    size_t key = begin;
    for (; key + MOST_CHAINS <= end; key += MOST_CHAINS)
#pragma GCC unroll 4
        for (size_t i = 0; i < MOST_CHAINS; i++)
            forget_score(noted, i, scores + (key + i) * row,
                         gates_after(gates, key + i, all_after));
    for (; key < end; key++)
        forget_score(noted, 0, scores + key * row, gates_after(gates, key, all_after));
}

/* What the gates between each lane and key take. */
INLINE void note_forgotten(struct noted *noted, const struct strip *strip,
                           const struct attn_panel *panel, const struct attn_block *block)
{
    for (size_t key = strip->begin, next; key < strip->end; key = next) {
        const size_t past = ((size_t)block->first_key + key) % ATTN_GATE_KEYS;
        const struct gates gates = gates_around(key, panel, block, strip->v);
        next = key + ATTN_GATE_KEYS - past;
        next = next < strip->end ? next : strip->end;
        if (gates.all_after)
            forget_keys(noted, strip, key, next, &gates, true);
        else
            forget_keys(noted, strip, key, next, &gates, false);
    }
}

/* Returns the largest. */
static vf forget_strip(const struct strip *strip, const struct attn_panel *panel,
                       const struct attn_block *block)
{
    struct noted noted;
    clear_noted(&noted);
    note_forgotten(&noted, strip, panel, block);
    return most_of_all(&noted);
}

#endif
