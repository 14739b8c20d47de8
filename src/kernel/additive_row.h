/* Additive scores of a sequence's only query, as a recurrent decoder asks them step by
 * step: a lane for each query would leave all but one idle, so here vectors run along the
 * elements.  A key's factors serve once, and so the pair costs an exponential. */
#ifndef ATTN_KERNEL_ADDITIVE_ROW_H
#define ATTN_KERNEL_ADDITIVE_ROW_H

#include "kernel/additive.h"
#include "kernel/convert.h"
#include "kernel/lanes.h"

/* Elements of a key from n on, 0 beyond the last. */
INLINE vf additive_key_lanes(const struct attn_matrix *keys, size_t row, size_t n,
                             const attn_type type)
{
    return n < keys->size ? load_elements(keys, row, n, type) : vf_set1(0.0f);
}

/* plain stands, with 0 beyond its last element. */
static void load_additive_row(struct attn_additive *additive, size_t D)
{
    const size_t row = attn_additive_row(D);
    fill_constants(additive, D, VF_LANES);
    const float *const rate = additive_constants(additive, D, ADDITIVE_RATE);
    const float *const inverse = additive_constants(additive, D, ADDITIVE_INVERSE);
    vi moderate = vi_set1(additive->factor != 0.0f ? -1 : 0);
    for (size_t n = 0; n < row; n += VF_LANES)
        moderate &= vf_abs(vf_load(additive->plain + n)) <= ADDITIVE_MODERATE;
    additive->all_moderate = !vi_any(~moderate);
    for (size_t n = 0; n < row; n += VF_LANES) {
        const vf factor = additive_exp(vf_load(additive->plain + n) * vf_load(rate + n));
        const vf counts = n < D ? factor * vf_load(inverse + n) : vf_set1(0.0f);
        vf_store(additive->factors + n, counts);
    }
    for (size_t n = D; n < row; n++)
        additive->factors[n] = 0.0f;
}

/* A vector of which the sum is the score. */
INLINE vf additive_row_score(const struct attn_additive *additive,
                             const struct attn_matrix *keys, size_t row,
                             const attn_type type)
{
    const size_t D = keys->size;
    const float *const rate = additive_constants(additive, D, ADDITIVE_RATE);
    const float *const inverse = additive_constants(additive, D, ADDITIVE_INVERSE);
    const float *const middle = additive_constants(additive, D, ADDITIVE_MIDDLE);
    vf sum = vf_set1(0.0f);
    vi moderate = vi_set1(additive->all_moderate ? -1 : 0);
    for (size_t n = 0; n < D; n += 2 * VF_LANES) {
        vf term[2];
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            const size_t at = n + i * VF_LANES;
            const vf k = additive_key_lanes(keys, row, at, type);
            moderate &= vf_abs(k) <= ADDITIVE_MODERATE;
            term[i] = additive_term(vf_load(additive->factors + at),
                                    additive_exp(k * vf_load(rate + at)),
                                    vf_load(inverse + at));
        }
        sum += additive_pair(term[0], term[1]) - vf_load(middle + n);
    }
    if (!vi_any(~moderate))
        return sum * additive->factor;

    const float *const vector = additive_constants(additive, D, ADDITIVE_VECTOR);
    sum = vf_set1(0.0f);
    for (size_t n = 0; n < D; n += VF_LANES) {
        const vf x =
            vf_load(additive->plain + n) + additive_key_lanes(keys, row, n, type);
        sum = vf_fma(vf_tanh(x), vf_load(vector + n), sum);
    }
    return sum * additive->scale;
}

/* ---- In a panel -----------------------------------------------------------------------
 */

static void load_additive(struct attn_panel *panel, const struct attn_matrix *queries)
{
    struct attn_additive *const additive = &panel->additive;
    const size_t row = attn_additive_row(panel->D);
    if (!additive->single) {
        load_additive_lanes(panel, queries);
        return;
    }
    additive->factors = panel->query;
    additive->plain = additive->factors + row;
    additive->constants = additive->plain + row;
    for (size_t n = 0; n < row; n += VF_LANES) {
        vf x;
        if (queries->type == ATTN_F32)
            x = additive_key_lanes(queries, 0, n, ATTN_F32);
        else if (queries->type == ATTN_F16)
            x = additive_key_lanes(queries, 0, n, ATTN_F16);
        else
            x = additive_key_lanes(queries, 0, n, ATTN_BF16);
        vf_store(additive->plain + n, x);
    }
    load_additive_row(additive, panel->D);
}

/* The other lanes have scores of 0. */
static void additive_single_scores(float *scores, const struct attn_panel *panel,
                                   const struct attn_block *block)
{
    const struct attn_matrix keys = {
        .x = block->key,
        .row_stride = block->key_stride,
        .element_stride = block->key_element_stride,
        .rows = block->keys,
        .size = panel->D,
    };
    for (size_t first = 0; first < block->keys; first += VF_LANES) {
        vf sum[VF_BYTES / 4];
        for (size_t i = 0; i < VF_LANES; i++) {
            const size_t nth = first + i < block->keys ? first + i : block->keys - 1;
            sum[i] = additive_row_score(&panel->additive, &keys, nth, ATTN_F32);
        }
        const vf sums = sums_of_lanes(sum);
        for (size_t i = 0; i < VF_LANES && first + i < block->keys; i++) {
            float *const to = scores + (first + i) * VF_LANES;
            vf_store(to, vf_set1(0.0f));
            to[0] = sums[i];
        }
    }
}

static void additive_scores(float *scores, const struct attn_panel *panel,
                            const struct attn_block *block)
{
    if (panel->additive.single)
        additive_single_scores(scores, panel, block);
    else
        additive_lane_scores(scores, panel, block);
}

#endif
