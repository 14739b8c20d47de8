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

#include "kernel/additive_row.h"
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

/* From the factors of both sides. */
INLINE struct additive_share additive_share_of(vf gradient, vf query, vf key)
{
    const vf r = vf_divide(vf_set1(1.0f), additive_term(query, key, vf_set1(1.0f)));
    const vf part = gradient * r;
    return (struct additive_share){part, vf_fma(-part, r, part)};
}

/* By tanh itself. */
INLINE struct additive_share direct_share(vf gradient, vf sum, vf sign)
{
    const vf tangent = vf_tanh(sum);
    return (struct additive_share){
        gradient * (0.5f - tangent * (0.5f * sign)),
        gradient * (0.25f - 0.25f * (tangent * tangent)),
    };
}

/* By tanh where the pair is not moderate; a gradient of 0 makes 0 of any pair. */
INLINE struct additive_share careful_share(struct additive_share share, vi is_moderate,
                                           vf gradient, vf sum, float sign)
{
    const struct additive_share direct = direct_share(gradient, sum, vf_set1(sign));
    const vi counts = gradient != 0.0f;
    return (struct additive_share){
        vf_keep(counts, vf_select(is_moderate, share.part, direct.part)),
        vf_keep(counts, vf_select(is_moderate, share.slope, direct.slope)),
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
    const vf query = vf_load(additive->factors + at);
    const float sign = 0.5f * additive_constants(&tile->panel->additive, tile->panel->D,
                                                 ADDITIVE_RATE)[d];
    vf by_query = vf_set1(0.0f), vector = *by_vector;
    for (size_t k = 0; k < tile->keys; k++) {
        const vf g = vf_load(gradient);
        struct additive_share share = additive_share_of(g, query, vf_set1(*factor));
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
    vf_store(tile->by_key[d - tile->first], sums_of_lanes(by_key) * factor);
    if (group->vector_sums) {
        const float sign = 0.5f * additive_constants(&tile->panel->additive,
                                                     tile->panel->D, ADDITIVE_RATE)[d];
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
    const float *const rate =
        additive_constants(&tile->panel->additive, tile->panel->D, ADDITIVE_RATE);
    const float *const part =
        additive_constants(&tile->panel->additive, tile->panel->D, ADDITIVE_PART);
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

/* ---- The only query of a sequence -----------------------------------------------------
 */

/* Some elements of it. */
struct additive_strip {
    vf factor, plain, rate, part, vector; /* of the query and of v */
    vf by_query, by_vector;               /* sums over the keys */
};

/* One key, of which x are these elements. */
INLINE vf additive_strip_step(struct additive_strip *s, vf x, float gradient,
                              bool is_moderate)
{
    const vf g = vf_set1(gradient);
    struct additive_share share;
    if (is_moderate) {
        const vf key = additive_exp(x * s->rate) * s->part;
        share = additive_share_of(g, s->factor, key);
    } else {
        share = direct_share(g, s->plain + x, s->rate * 0.5f);
    }
    s->by_query += share.slope;
    s->by_vector += share.part;
    return share.slope * (4.0f * s->vector);
}

static void add_strip(const struct attn_additive_gradients *group,
                      const struct additive_strip *s, size_t n, float gradient_sum)
{
    const struct attn_backward_panel *const panel = &group->panels[0];
    const size_t width = panel->forward.vectors * VF_LANES;
    const vf by_query = s->by_query * (4.0f * s->vector);
    const vf by_vector = (gradient_sum - 2.0f * s->by_vector) * (s->rate * 0.5f);
    for (size_t i = 0; i < VF_LANES && n + i < panel->forward.D; i++) {
        if (panel->query_gradient)
            panel->query_gradient[(n + i) * width] += by_query[i];
        if (group->vector_sums)
            group->vector_sums[(n + i) * VF_LANES] += by_vector[i];
    }
}

/* A gradient of 0, as that of a hidden key, takes no part. */
static void backward_additive_single(const struct attn_additive_gradients *group)
{
    const struct attn_panel *const panel = &group->panels[0].forward;
    const struct attn_additive *const additive = &panel->additive;
    const size_t D = panel->D, row = attn_additive_row(D);
    const float *const constants = additive->constants;
    const struct attn_matrix keys = {
        .x = group->key,
        .row_stride = group->key_stride,
        .element_stride = group->key_element_stride,
        .rows = group->keys,
        .size = D,
    };
    bool moderate[ATTN_BLOCK_KEYS];
    float gradient_sum = 0.0f;
    for (size_t k = 0; k < group->keys; k++) {
        moderate[k] = additive->all_moderate &&
                      is_moderate_key(group->key + (ptrdiff_t)k * group->key_stride,
                                      group->key_element_stride, D);
        gradient_sum += group->gradient[k * group->row];
    }
    for (size_t n = 0; n < D; n += VF_LANES) {
        struct additive_strip strip = {
            .factor = vf_load(additive->factors + n),
            .plain = vf_load(additive->plain + n),
            .rate = vf_load(constants + ADDITIVE_RATE * row + n),
            .part = vf_load(constants + ADDITIVE_PART * row + n),
            .vector = vf_load(constants + ADDITIVE_VECTOR * row + n),
        };
        for (size_t k = 0; k < group->keys; k++) {
            const float g = group->gradient[k * group->row];
            if (g == 0.0f)
                continue;
            const vf x = additive_key_lanes(&keys, k, n, ATTN_F32);
            const vf by_key = additive_strip_step(&strip, x, g, moderate[k]);
            float *const to = group->key_sums + (ptrdiff_t)k * group->key_sums_stride + n;
            if (group->key_sums)
                vf_store(to, vf_load(to) + by_key);
        }
        add_strip(group, &strip, n, gradient_sum);
    }
}

static void backward_additive_lanes(const struct attn_additive_gradients *group)
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

static void backward_additive(const struct attn_additive_gradients *group)
{
    if (group->panels[0].forward.additive.single)
        backward_additive_single(group);
    else
        backward_additive_lanes(group);
}

#endif
