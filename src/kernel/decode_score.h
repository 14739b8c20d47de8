/* Decoding: the scores of one query of a few heads over one block of keys.  Where many
 * queries share a panel each of them has a lane (product.h); a single one would leave the
 * others idle, so here vectors run along a key's elements, every vector of a key that is
 * read serves all heads of its group, and the partial sums of as many pairs of key and
 * head as there are lanes are turned into one vector of scores. */
#ifndef ATTN_KERNEL_DECODE_SCORE_H
#define ATTN_KERNEL_DECODE_SCORE_H

#include "kernel/decode_bytes.h"
#include "kernel/lanes.h"
#include "kernel/softmax.h"

/* One vector of one key, against the same of each head's query. */
INLINE void score_step(vf *sum, const struct attn_decode_panel *panel, const char *row,
                       size_t n, const size_t heads, const size_t count,
                       const enum attn_stored type)
{
    if (type == STORED_PAIRS) {
        const vf key = vf_load((const float *)(row + 2 * n));
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++) {
            const uint16_t *const query =
                panel->query_pairs + h * panel->query_stride + n;
            sum[h] = vf_dot(key, vf_load((const float *)query), sum[h]);
        }
        return;
    }
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
    const size_t step = type == STORED_PAIRS ? 2 * LANES : LANES;
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
                        fetch(ahead);
                }
                n += step;
            } while (n < whole);
        }
#pragma GCC unroll 16
        for (size_t k = first; k < first + at_once; k++)
            if (rest > 0)
                score_step(sum + k * heads, panel, row[k], whole, heads, rest, type);
    }
    const vf score = sums_of_lanes(sum);
    return type == STORED_PAIRS ? score * panel->scale : score;
}

INLINE void score_heads(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block, const size_t heads,
                        const enum attn_stored type)
{
    struct ahead ahead =
        ahead_of(rows_ahead_of(block->key, block->key_stride, block->keys,
                               panel->D * bytes_of(type)),
                 rows_ahead_of(block->value, block->value_stride, block->keys,
                               panel->Dv * bytes_of(block->value_type)));
    for (size_t key = 0; key < block->keys; key += LANES / heads) {
        const char *row[LANES];
#pragma GCC unroll 16
        for (size_t k = 0; k < LANES / heads; k++) {
            const size_t nth = key + k < block->keys ? key + k : block->keys - 1;
            row[k] = block->key + (ptrdiff_t)nth * block->key_stride;
        }
        vf_store(scores + key * heads, score_tile(panel, row, &ahead, heads, type));
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
#if defined(__AVX512BF16__)
    else if (panel->query_pairs)
        score_block(scores, panel, block, STORED_PAIRS);
#endif
    else if (block->key_type == ATTN_STORED_F16)
        score_block(scores, panel, block, ATTN_STORED_F16);
    else if (block->key_type == ATTN_STORED_BF16)
        score_block(scores, panel, block, ATTN_STORED_BF16);
    else if (block->key_type == ATTN_STORED_I8)
        score_bytes(scores, panel, block);
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

#endif
