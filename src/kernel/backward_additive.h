/* The gradients of additive scores, scale · Σ_d v[d] · tanh(q[d] + k[d]), from those of
 * the scores before scale, S' = gradient:
 *
 *     by q[d]   4 v[d] Σ_key   gradient · (r − r²)
 *     by k[d]   4 v[d] Σ_lane  gradient · (r − r²)
 *     by v[d]          Σ_pairs gradient · tanh(q[d] + k[d])
 *
 * with r = 1 / (1 + e^2s(q + k)), so that tanh = s (1 − 2r) and its slope is 4 (r − r²);
 * see additive.h.  Tanh and slope are within 4e-7, and are computed again from the
 * factors of both sides: nothing of size Lq · Lk · D exists.
 *
 * Each element of a few keys passes all queries of the group.  Its sums over lanes are
 * kept as vectors, and their lanes added at the end. */
#ifndef ATTN_KERNEL_BACKWARD_ADDITIVE_H
#define ATTN_KERNEL_BACKWARD_ADDITIVE_H

#include "kernel/additive.h"
#include "kernel/backward_table.h"

/* As many keys as a vector has lanes, and ADDITIVE_CHUNK elements of them. */
struct additive_tile {
    const struct attn_additive_gradients *group;
    const struct attn_panel *panel; /* any: for the constants */
    size_t key, keys, first, count;
    size_t lane_begin, lane_end; /* that see any of the keys by their position */
    bool moderate[VF_BYTES / sizeof(float)];
    vf gradient_sum; /* over keys, and lanes a vector apart */
    float factors[VF_BYTES / sizeof(float)][ADDITIVE_CHUNK]; /* e^2sk */
    float by_key[ADDITIVE_CHUNK][VF_BYTES / sizeof(float)];
};

INLINE const float *key_of_tile(const struct additive_tile *tile, size_t k)
{
    return tile->group->key + (ptrdiff_t)(tile->key + k) * tile->group->key_stride;
}

/* What one pair adds: gradient · r, and gradient · (r − r²). */
struct additive_share {
    vf part, slope;
};

/* By tanh itself where the pair is not moderate; a gradient of 0 makes 0 of any pair. */
INLINE struct additive_share careful_share(struct additive_share share, vi is_moderate,
                                           vf gradient, vf sum, float sign)
{
    const vf tangent = vf_tanh(sum);
    const vf part = gradient * (0.5f - tangent * (0.5f * sign));
    const vf slope = gradient * (0.25f - 0.25f * (tangent * tangent));
    const vi counts = gradient != 0.0f;
    return (struct additive_share){
        vf_keep(counts, vf_select(is_moderate, share.part, part)),
        vf_keep(counts, vf_select(is_moderate, share.slope, slope)),
    };
}

/* One element, one vector of queries, all keys of the tile. */
INLINE void additive_column(struct additive_tile *tile, vf *by_key, vf *by_vector,
                            const struct attn_backward_panel *panel, size_t lane,
                            size_t d, const bool careful)
{
    const struct attn_additive_gradients *const group = tile->group;
    const struct attn_additive *const additive = &panel->forward.additive;
    const size_t at = d * panel->forward.vectors * VF_LANES + lane;
    const float *gradient =
        group->gradient + tile->key * group->row + panel->column + lane;
    const float *factor = &tile->factors[0][d - tile->first];
    const vf query = vf_load(panel->forward.query + at);
    const float sign = 0.5f * additive_constants(tile->panel, ADDITIVE_RATE)[d];
    vf by_query = vf_set1(0.0f), vector = *by_vector;
    for (size_t k = 0; k < tile->keys; k++) {
        const vf g = vf_load(gradient);
        const vf r = 1.0f / vf_fma(query, vf_set1(*factor), vf_set1(1.0f));
        struct additive_share share;
        share.part = g * r;
        share.slope = vf_fma(-share.part, r, share.part);
        if (careful) {
            const float key =
                *(key_of_tile(tile, k) + (ptrdiff_t)d * group->key_element_stride);
            share = careful_share(
                share, vi_load(additive->moderate + lane) & vi_set1(-tile->moderate[k]),
                g, vf_load(additive->plain + at) + key, sign);
        }
        vector += share.part;
        by_query += share.slope;
        by_key[k] += share.slope;
        gradient += group->row;
        factor += ADDITIVE_CHUNK;
    }
    *by_vector = vector;
    if (panel->query_gradient) {
        float *const to = panel->query_gradient + at;
        vf_store(to, vf_fma(by_query, vf_set1(4.0f * additive->vector[d]), vf_load(to)));
    }
}

/* Lane i of the result is the sum of x[i]'s lanes: each round adds one half of the lanes
 * of two vectors to the other. */
INLINE vf sum_lanes(vf x[VF_BYTES / 4])
{
#pragma GCC unroll 4
    for (size_t half = VF_LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (size_t i = 0; i < half; i++)
            x[i] = __builtin_shufflevector(x[i], x[i + half], INTERLEAVE_LOW) +
                   __builtin_shufflevector(x[i], x[i + half], INTERLEAVE_HIGH);
    return x[0];
}

INLINE void additive_element(struct additive_tile *tile, size_t d, const bool careful)
{
    const struct attn_additive_gradients *const group = tile->group;
    vf by_key[VF_BYTES / sizeof(float)], by_vector = vf_set1(0.0f);
    for (size_t k = 0; k < VF_LANES; k++)
        by_key[k] = vf_set1(0.0f);
    for (size_t p = 0; p < group->count; p++) {
        const struct attn_backward_panel *const panel = &group->panels[p];
        for (size_t lane = 0; lane < panel->forward.vectors * VF_LANES; lane += VF_LANES)
            if (panel->column + lane < tile->lane_end &&
                panel->column + lane + VF_LANES > tile->lane_begin)
                additive_column(tile, by_key, &by_vector, panel, lane, d, careful);
    }
    const vf factor = vf_set1(4.0f * tile->panel->additive.vector[d]);
    vf_store(tile->by_key[d - tile->first], sum_lanes(by_key) * factor);
    if (group->vector_sums) {
        const float sign = 0.5f * additive_constants(tile->panel, ADDITIVE_RATE)[d];
        float *const to = group->vector_sums + d * VF_LANES;
        vf_store(to, vf_load(to) + (tile->gradient_sum - by_vector * 2.0f) * sign);
    }
}

static void add_to_keys(const struct additive_tile *tile)
{
    const struct attn_additive_gradients *const group = tile->group;
    float *const to =
        group->key_sums + (ptrdiff_t)tile->key * group->key_sums_stride + tile->first;
    for (size_t n = 0; n < tile->count; n += VF_LANES) {
        vf x[VF_BYTES / 4];
        for (size_t i = 0; i < VF_LANES; i++)
            x[i] = vf_load(tile->by_key[n + i]);
        transpose_square(x);
        for (size_t k = 0; k < tile->keys; k++) {
            float *const at = to + (ptrdiff_t)k * group->key_sums_stride + n;
            vf_store(at, vf_load(at) + x[k]);
        }
    }
}

/* The factors of queries hold 1/u, which those of keys undo. */
static void fill_tile_factors(struct additive_tile *tile)
{
    const float *const rate = additive_constants(tile->panel, ADDITIVE_RATE);
    const float *const part = additive_constants(tile->panel, ADDITIVE_PART);
    for (size_t k = 0; k < tile->keys; k++) {
        float *const to = tile->factors[k];
        fill_key_factors(to, key_of_tile(tile, k), tile->group->key_element_stride,
                         tile->first, tile->panel->D, rate);
        for (size_t n = 0; n < tile->count; n++)
            to[n] *= part[tile->first + n];
    }
}

static vf sum_of_gradients(const struct additive_tile *tile)
{
    const struct attn_additive_gradients *const group = tile->group;
    vf sum = vf_set1(0.0f);
    for (size_t p = 0; p < group->count; p++) {
        const size_t column = group->panels[p].column;
        const size_t end = column + group->panels[p].forward.vectors * VF_LANES;
        for (size_t lane = column; lane < end; lane += VF_LANES)
            for (size_t k = 0; k < tile->keys && lane < tile->lane_end &&
                               lane + VF_LANES > tile->lane_begin;
                 k++)
                sum += vf_load(group->gradient + (tile->key + k) * group->row + lane);
    }
    return sum;
}

/* Whether every pair of the tile is moderate, all that it may read is finite, and nothing
 * needs a case of its own. */
static bool is_plain_tile(struct additive_tile *tile)
{
    bool is_plain = true;
    for (size_t k = 0; k < tile->keys; k++) {
        tile->moderate[k] = is_moderate_key(
            key_of_tile(tile, k), tile->group->key_element_stride, tile->panel->D);
        is_plain &= tile->moderate[k];
    }
    for (size_t p = 0; p < tile->group->count; p++)
        is_plain &= tile->group->panels[p].forward.additive.all_moderate;
    return is_plain;
}

static void backward_additive(const struct attn_additive_gradients *group)
{
    struct additive_tile tile = {.group = group, .panel = &group->panels[0].forward};
    const size_t D = tile.panel->D;
    for (size_t key = 0; key < group->keys; key += VF_LANES) {
        const size_t left = group->keys - key;
        tile.key = key;
        tile.keys = left < VF_LANES ? left : VF_LANES;
        tile.lane_begin = (size_t)group->lane_begin[key];
        tile.lane_end = (size_t)group->lane_end[key + tile.keys - 1];
        if (tile.lane_begin >= tile.lane_end)
            continue;
        const bool is_plain = is_plain_tile(&tile);
        tile.gradient_sum = sum_of_gradients(&tile);
        for (size_t first = 0; first < D; first += ADDITIVE_CHUNK) {
            tile.first = first;
            tile.count = D - first < ADDITIVE_CHUNK ? D - first : ADDITIVE_CHUNK;
            fill_tile_factors(&tile);
            for (size_t d = first; d < first + tile.count; d++)
                if (is_plain)
                    additive_element(&tile, d, false);
                else
                    additive_element(&tile, d, true);
            memset(tile.by_key[tile.count], 0,
                   (ADDITIVE_CHUNK - tile.count) * sizeof tile.by_key[0]);
            if (group->key_sums)
                add_to_keys(&tile);
        }
    }
}

#endif
