/* Decoding: the scores, softmax and values of one query of a few heads over one block of
 * keys.  Where many queries share a panel each of them has a lane (product.h); a single
 * one would leave the others idle, so here vectors run along a key's elements, every
 * vector of a key that is read serves all heads of its group, and the partial sums of as
 * many pairs of key and head as there are lanes are turned into one vector of scores. */
#ifndef ATTN_KERNEL_DECODE_H
#define ATTN_KERNEL_DECODE_H

#include "kernel/decode_bytes.h"
#include "kernel/finite.h"
#include "kernel/lanes.h"
#include "kernel/softmax.h"

/* ---- Scores ---------------------------------------------------------------------------
 */

/* One vector of one key, against the same of each head's query. */
INLINE void score_step(vf *sum, const struct attn_decode_panel *panel, const char *row,
                       size_t n, const size_t heads, const size_t count,
                       const enum attn_stored type)
{
    const vf key = load_row(row, n, count, type);
#pragma GCC unroll 16
    for (size_t h = 0; h < heads; h++)
        sum[h] = vf_fma(key, vf_load(panel->query + h * panel->query_stride + n), sum[h]);
}

/* As many keys as make a vector of scores.  Rows of fp32 are read one after the other,
 * which memory likes; those of 16 bits side by side, which leaves the multiply-adds, what
 * they wait for, longer chains to choose from.  The sums are the same. */
INLINE vf score_tile(const struct attn_decode_panel *panel, const char *const *row,
                     struct ahead *ahead, const size_t heads, const enum attn_stored type)
{
    const size_t rest = panel->D % LANES, whole = panel->D - rest, keys = LANES / heads;
    const size_t at_once = type == ATTN_STORED_F32 ? 1 : keys;
    vf sum[LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++)
        sum[i] = vf_set1(0.0f);
#pragma GCC unroll 16
    for (size_t first = 0; first < keys; first += at_once) {
        size_t n = 0;
        if (whole > 0) {
            do {
#pragma GCC unroll 16
                for (size_t k = first; k < first + at_once; k++) {
                    score_step(sum + k * heads, panel, row[k], n, heads, LANES, type);
                    if (n * bytes_of(type) % 64 == 0)
                        fetch(ahead, 1);
                }
                n += LANES;
            } while (n < whole);
        }
#pragma GCC unroll 16
        for (size_t k = first; k < first + at_once; k++)
            if (rest > 0)
                score_step(sum + k * heads, panel, row[k], whole, heads, rest, type);
    }
    return sums_of_lanes(sum);
}

INLINE void score_heads(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block, const size_t heads,
                        const enum attn_stored type)
{
    struct ahead ahead = ahead_of(block->next_key, block->key_stride, block->next_keys,
                                  panel->D * bytes_of(type));
    for (size_t key = 0; key < block->keys; key += LANES / heads) {
        const char *row[LANES];
        float scales[LANES];
#pragma GCC unroll 16
        for (size_t k = 0; k < LANES / heads; k++) {
            const size_t nth = key + k < block->keys ? key + k : block->keys - 1;
            row[k] = block->key + (ptrdiff_t)nth * block->key_stride;
            scales[k] = type == ATTN_STORED_I8 ? block->key_scales[nth] : 1.0f;
        }
        vf_store(scores + key * heads,
                 type == ATTN_STORED_I8
                     ? score_tile_bytes(panel, row, scales, &ahead, heads)
                     : score_tile(panel, row, &ahead, heads, type));
    }
}

INLINE void score_block(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block,
                        const enum attn_stored type)
{
    if (panel->heads == 1)
        score_heads(scores, panel, block, 1, type);
    else if (panel->heads == 2)
        score_heads(scores, panel, block, 2, type);
    else if (panel->heads == 4)
        score_heads(scores, panel, block, 4, type);
#if VF_BYTES >= 32
    else if (panel->heads == 8)
        score_heads(scores, panel, block, 8, type);
#endif
#if VF_BYTES >= 64
    else
        score_heads(scores, panel, block, 16, type);
#endif
}

INLINE size_t floats_of(const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block)
{
    return (block->keys * panel->heads + LANES - 1) / LANES * LANES;
}

/* How far the query stands from the key of each lane, in the block's first vector. */
INLINE vf distances_of(const struct attn_decode_panel *panel,
                       const struct attn_decode_block *block)
{
    vf distance = {0};
    for (size_t i = 0; i < LANES; i++)
        distance[i] = block->distance - (float)(i / panel->heads);
    return distance;
}

static void decode_lean(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block)
{
    const vf slopes = vf_load(block->slopes);
    const vf step = vf_set1((float)(LANES / panel->heads));
    vf distance = distances_of(panel, block);
    for (size_t n = 0; n < floats_of(panel, block); n += LANES) {
        vf_store(scores + n, vf_load(scores + n) - slopes * vf_abs(distance));
        distance -= step;
    }
}

/* What is added hides where it is −∞, even a score of NaN. */
static void decode_add(float *scores, const float *added, size_t floats)
{
    for (size_t n = 0; n < floats; n += LANES) {
        const vf x = vf_load(added + n);
        vf_store(scores + n,
                 vf_select_equal(x, vf_set1(-INFINITY), x, vf_load(scores + n) + x));
    }
}

INLINE void additive_block(float *scores, const struct attn_decode_panel *panel,
                           const struct attn_decode_block *block, const attn_type type)
{
    const struct attn_matrix keys = {
        .x = block->key,
        .row_stride =
            block->key_stride / (ptrdiff_t)bytes_of((enum attn_stored)block->key_type),
        .element_stride = 1,
        .rows = block->keys,
        .size = panel->D,
    };
    for (size_t first = 0; first < block->keys * panel->heads; first += LANES) {
        vf sum[LANES];
        for (size_t i = 0; i < LANES; i++) {
            const size_t key = (first + i) / panel->heads;
            sum[i] =
                additive_row_score(&panel->additive[(first + i) % panel->heads], &keys,
                                   key < keys.rows ? key : keys.rows - 1, type);
        }
        vf_store(scores + first, sums_of_lanes(sum));
    }
}

static void decode_additive(float *scores, const struct attn_decode_panel *panel,
                            const struct attn_decode_block *block)
{
    if (block->key_type == ATTN_STORED_F16)
        additive_block(scores, panel, block, ATTN_F16);
    else if (block->key_type == ATTN_STORED_BF16)
        additive_block(scores, panel, block, ATTN_BF16);
    else
        additive_block(scores, panel, block, ATTN_F32);
}

static void decode_score(float *scores, const struct attn_decode_panel *panel,
                         const struct attn_decode_block *block)
{
    if (panel->additive)
        decode_additive(scores, panel, block);
    else if (block->key_type == ATTN_STORED_F16)
        score_block(scores, panel, block, ATTN_STORED_F16);
    else if (block->key_type == ATTN_STORED_BF16)
        score_block(scores, panel, block, ATTN_STORED_BF16);
    else if (block->key_type == ATTN_STORED_I8)
        score_block(scores, panel, block, ATTN_STORED_I8);
    else
        score_block(scores, panel, block, ATTN_STORED_F32);
    const size_t floats = floats_of(panel, block);
    if (block->softcap > 0.0f)
        cap_scores(scores, floats, block->softcap);
    if (block->slopes)
        decode_lean(scores, panel, block);
    if (block->added)
        decode_add(scores, block->added, floats);
    for (size_t n = block->keys * panel->heads; n < floats; n++)
        scores[n] = -INFINITY;
}

/* ---- Softmax --------------------------------------------------------------------------
 */

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

struct largest {
    vf score;
    vi key; /* the lowest that has it; only if asked for */
};

INLINE struct largest column_largest(const struct column *c, const bool with_key)
{
    struct largest largest = {vf_set1(-INFINITY), vi_set1(0)};
    vi counter = vi_set1(0);
    for (size_t key = 0; key < c->keys; key++) {
        const vf score = vf_load(c->scores + key * c->width);
        if (with_key)
            largest.key = vi_where_greater(score, largest.score, counter, largest.key);
        largest.score = vf_max(largest.score, score);
        counter += 1;
    }
    return largest;
}

static void decode_remember_largest(struct attn_decode_panel *panel,
                                    const struct attn_decode_block *block,
                                    const struct largest *largest)
{
    struct attn_panel *const lanes = &panel->lanes;
    const vi grows = largest->score > vf_load(lanes->largest_score);
    for (size_t i = 0; i < LANES && vi_any(grows); i++) {
        if (grows[i]) {
            lanes->largest_score[i] = largest->score[i];
            lanes->largest_key[i] = key_of_lane(panel, block, (size_t)largest->key[i], i);
        }
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
    };
    if (sweep->top > 0)
        decode_keep_top(panel, scores, block, sweep->top);
    struct largest largest;
    if (sweep->largest) {
        largest = column_largest(&column, true);
        decode_remember_largest(panel, block, &largest);
    } else {
        largest = column_largest(&column, false);
    }
    const vf before = vf_load(panel->lanes.reference);
    raise_reference(&column, share_largest(largest.score, panel->heads));
    const vf after = vf_load(panel->lanes.reference);
    panel->grew = vi_any(before != after);
    if (panel->grew)
        vf_store(panel->growth,
                 vf_select(before == after, vf_set1(1.0f),
                           vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), before - after))));
    if (sweep->entropy)
        scores_to_weights(&column, true, DISTANCE_NONE, 0.0f);
    else
        scores_to_weights(&column, false, DISTANCE_NONE, 0.0f);
    if (sweep->distance)
        decode_distance(panel, scores, block);
    if (sweep->classes > 0)
        decode_classes(panel, scores, block, sweep->key_class);
}

/* ---- Values ---------------------------------------------------------------------------
 */

struct value_tile {
    float *output; /* at the tile's first element */
    const float *weights;
    const char *value;
    size_t output_stride, weight_stride, keys;
    ptrdiff_t value_stride;
    struct ahead *ahead;
    size_t ahead_lines; /* a key */
};

INLINE void value_tile(const struct value_tile *t, const size_t heads,
                       const size_t vectors, const size_t count,
                       const enum attn_stored type)
{
    vf sum[VALUE_TILE];
    const float *weight = t->weights;
    const char *value = t->value;
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            sum[h * vectors + v] = vf_load(t->output + h * t->output_stride + v * LANES);
    size_t key = 0;
    do {
        vf x[VALUE_TILE];
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            x[v] = load_row(value, v * LANES, count, type);
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++) {
#pragma GCC unroll 16
            for (size_t v = 0; v < vectors; v++)
                sum[h * vectors + v] =
                    vf_fma(vf_set1(weight[h]), x[v], sum[h * vectors + v]);
            if (h < t->ahead_lines)
                fetch(t->ahead, 1);
        }
        weight += t->weight_stride;
        value += t->value_stride;
    } while (++key < t->keys);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            vf_store(t->output + h * t->output_stride + v * LANES, sum[h * vectors + v]);
}

INLINE void value_heads(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block, struct ahead *ahead,
                        size_t head, const size_t heads, const enum attn_stored type)
{
    const size_t most = VALUE_TILE / heads < 8 ? VALUE_TILE / heads : 8;
    const size_t rest = panel->Dv % LANES, whole = panel->Dv - rest;
    const size_t tiles = (whole + most * LANES - 1) / (most * LANES) + (rest > 0);
    const size_t passes = tiles * (panel->heads / heads);
    struct value_tile t = {
        .output_stride = panel->output_stride,
        .weights = weights + head,
        .weight_stride = panel->heads,
        .keys = block->keys,
        .value_stride = block->value_stride,
        .ahead = ahead,
        .ahead_lines = (ahead->lines + passes - 1) / passes,
    };
    for (size_t d = 0; d < panel->Dv;) {
        t.output = panel->output + head * panel->output_stride + d;
        t.value = block->value + d * bytes_of(type);
        if (d + most * LANES <= whole) {
            value_tile(&t, heads, most, LANES, type);
            d += most * LANES;
        } else if (d < whole) {
            value_tile(&t, heads, 1, LANES, type);
            d += LANES;
        } else {
            value_tile(&t, heads, 1, rest, type);
            d += LANES;
        }
    }
}

static void scale_by_values(float *weights, const struct attn_decode_panel *panel,
                            const struct attn_decode_block *block)
{
    if (panel->heads == 1)
        scale_weights(weights, block->value_scales, block->keys, 1);
    else if (panel->heads == 2)
        scale_weights(weights, block->value_scales, block->keys, 2);
    else if (panel->heads == 4)
        scale_weights(weights, block->value_scales, block->keys, 4);
#if VF_BYTES >= 32
    else if (panel->heads == 8)
        scale_weights(weights, block->value_scales, block->keys, 8);
#endif
#if VF_BYTES >= 64
    else
        scale_weights(weights, block->value_scales, block->keys, 16);
#endif
}

/* Whether a key that is hidden from some head may have a value of 0 · NaN. */
static bool values_are_finite(const struct attn_decode_panel *panel,
                              const struct attn_decode_block *block)
{
    if (block->value_type == ATTN_STORED_I8) {
        float rest = 0.0f;
        for (size_t key = 0; key < block->keys; key++)
            rest += block->value_scales[key] * 0.0f;
        return rest == 0.0f;
    }
    const struct attn_matrix values = {
        .x = block->value,
        .row_stride = block->value_stride / (ptrdiff_t)bytes_of(block->value_type),
        .element_stride = 1,
        .rows = block->keys,
        .size = panel->Dv,
        .type = (attn_type)block->value_type,
    };
    return is_finite(&values);
}

/* Only over keys that the head sees. */
INLINE void value_of_seen(const struct attn_decode_panel *panel, const float *weights,
                          const struct attn_decode_block *block,
                          const enum attn_stored type)
{
    for (size_t n = 0; n < block->keys * panel->heads; n++) {
        if (block->added[n] == -INFINITY)
            continue;
        const char *const row =
            block->value + (ptrdiff_t)(n / panel->heads) * block->value_stride;
        float *const output = panel->output + n % panel->heads * panel->output_stride;
        for (size_t d = 0; d < panel->Dv; d += LANES) {
            const size_t left = panel->Dv - d;
            const vf value = load_row(row, d, left < LANES ? left : LANES, type);
            vf_store(output + d, vf_fma(vf_set1(weights[n]), value, vf_load(output + d)));
        }
    }
}

INLINE void value_block(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block,
                        const enum attn_stored type)
{
    if (block->added && !values_are_finite(panel, block)) {
        value_of_seen(panel, weights, block, type);
        return;
    }
    if (type == ATTN_STORED_I8 && value_bytes(panel, weights, block))
        return;
    struct ahead ahead = ahead_of(block->next_value, block->value_stride,
                                  block->next_keys, panel->Dv * bytes_of(type));
    if (panel->heads == 1)
        value_heads(panel, weights, block, &ahead, 0, 1, type);
    else if (panel->heads == 2)
        value_heads(panel, weights, block, &ahead, 0, 2, type);
    else
        for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
            value_heads(panel, weights, block, &ahead, head, VALUE_HEADS, type);
}

static void decode_value(struct attn_decode_panel *panel, float *weights,
                         const struct attn_decode_block *block)
{
    for (size_t h = 0; h < panel->heads && panel->grew; h++)
        for (size_t d = 0; d < panel->Dv; d += LANES)
            scale_in_place(panel->output + h * panel->output_stride + d,
                           vf_set1(panel->growth[h]));
    if (block->value_scales)
        scale_by_values(weights, panel, block);
    if (block->value_type == ATTN_STORED_F16)
        value_block(panel, weights, block, ATTN_STORED_F16);
    else if (block->value_type == ATTN_STORED_BF16)
        value_block(panel, weights, block, ATTN_STORED_BF16);
    else if (block->value_type == ATTN_STORED_I8)
        value_block(panel, weights, block, ATTN_STORED_I8);
    else
        value_block(panel, weights, block, ATTN_STORED_F32);
}

static void decode_merge(float *to, float to_factor, const float *from, float from_factor,
                         size_t size)
{
    const vf a = vf_set1(to_factor), b = vf_set1(from_factor);
    for (size_t n = 0; n < size; n += LANES)
        vf_store(to + n, vf_fma(vf_load(to + n), a, vf_load(from + n) * b));
}

static const struct attn_decode_kernels decode_kernels = {
    .load_additive = load_additive_row,
    .score = decode_score,
    .softmax = decode_softmax,
    .value = decode_value,
    .round_query = round_query,
    .quantise = quantise,
    .merge = decode_merge,
};

#endif
