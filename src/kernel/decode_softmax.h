/* Decoding: from one block's scores, [key][heads], to weights and what statistics sum up
 * of them.  A head has as many lanes as its scores have places in a vector; their shares
 * are merged when a split ends, only the reference is shared at once. */
#ifndef ATTN_KERNEL_DECODE_SOFTMAX_H
#define ATTN_KERNEL_DECODE_SOFTMAX_H

#include "kernel/decode_score.h"

INLINE int64_t key_of_lane(const struct attn_decode_panel *panel,
                           const struct attn_decode_block *block, size_t row, size_t lane)
{
    return block->first_key + (int64_t)((row * LANES + lane) / panel->heads);
}

static void decode_keep_top(struct attn_decode_panel *panel, const float *scores,
                            const struct attn_decode_block *block, size_t top)
{
    const struct top_column column = {.panel = &panel->lanes, .top = top, .width = LANES};
    const float *const least = panel->lanes.top_score + (top - 1) * LANES;
    for (size_t row = 0; row < floats_of(panel, block) / LANES; row++) {
        const float *const score = scores + row * LANES;
        unsigned lanes = vf_lanes_greater(vf_load(score), vf_load(least));
        for (; lanes; lanes &= lanes - 1) {
            const size_t lane = (size_t)__builtin_ctz(lanes);
            top_insert_lane(&column, lane, score[lane],
                            (int32_t)(uint32_t)key_of_lane(panel, block, row, lane));
        }
    }
}

INLINE vf column_largest(const struct column *c)
{
    vf largest = vf_set1(-INFINITY);
    for (size_t key = 0; key < c->keys; key++)
        largest = vf_max(largest, vf_load(c->scores + key * c->row));
    return largest;
}

static void decode_keep_largest(struct attn_decode_panel *panel, const struct column *c,
                                const struct attn_decode_block *block, vf largest)
{
    struct attn_panel *const lanes = &panel->lanes;
    unsigned grown = vf_lanes_greater(largest, vf_load(lanes->largest_score));
    if (!grown)
        return;
    const vi first = first_keys_with(c, largest);
    for (; grown; grown &= grown - 1) {
        const size_t lane = (size_t)__builtin_ctz(grown);
        lanes->largest_score[lane] = largest[lane];
        lanes->largest_key[lane] = key_of_lane(panel, block, (size_t)first[lane], lane);
    }
}

static void decode_distance(struct attn_decode_panel *panel, const float *weights,
                            const struct attn_decode_block *block)
{
    const vf step = vf_set1((float)(LANES / panel->heads));
    vf distance = distances_of(panel, block), sum = {0}, signed_sum = {0};
    for (size_t n = 0; n < floats_of(panel, block); n += LANES) {
        const vf weight = vf_load(weights + n);
        sum = vf_fma(weight, vf_abs(distance), sum);
        signed_sum = vf_fma(weight, distance, signed_sum);
        distance -= step;
    }
    add_in_place(panel->lanes.distance_sum, sum);
    add_in_place(panel->lanes.signed_sum, signed_sum);
}

static void decode_classes(struct attn_decode_panel *panel, const float *weights,
                           const struct attn_decode_block *block,
                           const uint8_t *key_class)
{
    for (size_t n = 0; n < block->keys * panel->heads; n++) {
        const size_t class = key_class[block->first_key + (int64_t)(n / panel->heads)];
        panel->lanes.class_sum[class * LANES + n % LANES] += weights[n];
    }
}

static void decode_softmax(struct attn_decode_panel *panel, float *scores,
                           const struct attn_decode_block *block,
                           const struct attn_sweep *sweep)
{
    const struct column column = {
        .panel = &panel->lanes,
        .sweep = sweep,
        .width = LANES,
        .keys = floats_of(panel, block) / LANES,
        .scores = scores,
        .row = LANES,
    };
    const vf largest = column_largest(&column);
    if (sweep->top > 0)
        decode_keep_top(panel, scores, block, sweep->top);
    if (sweep->largest)
        decode_keep_largest(panel, &column, block, largest);
    const vf before = vf_load(panel->lanes.reference);
    raise_reference(&column, share_largest(largest, panel->heads));
    const vf after = vf_load(panel->lanes.reference);
    panel->grew = vi_any(before != after);
    if (panel->grew)
        vf_store(panel->growth,
                 vf_select(before == after, vf_set1(1.0f),
                           vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), before - after))));
    if (sweep->entropy)
        scores_to_weights(&column, NULL, true, DISTANCE_NONE, false);
    else
        scores_to_weights(&column, NULL, false, DISTANCE_NONE, false);
    if (sweep->distance)
        decode_distance(panel, scores, block);
    if (sweep->classes > 0)
        decode_classes(panel, scores, block, sweep->key_class);
}

#endif
