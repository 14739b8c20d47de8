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
INLINE void score_step(vf *sum, const float *query, const char *key, const size_t heads,
                       const size_t count, const enum attn_stored type)
{
    const vf x = type == STORED_PAIRS ? vf_load((const float *)key)
                                      : load_row(key, 0, count, type);
#pragma GCC unroll 16
    for (size_t h = 0; h < heads; h++) {
        const vf own = vf_load(query + h * LANES);
#if VF_FAST_PAIRS
        if (type == STORED_PAIRS) {
            sum[h] = vf_dot(x, own, sum[h]);
            continue;
        }
#endif
        sum[h] = vf_fma(x, own, sum[h]);
    }
}

/* Keys are read one after the other, which memory likes; those that are converted a few
 * side by side, so that multiply-adds do not wait for each other, and where two of these
 * go in a cycle all of them. */
enum { SCORE_CHAINS = VF_BYTES == 32 || VF_TWO_MULTIPLIERS ? 8 : 4 };

INLINE bool scores_in_turn(const enum attn_stored type)
{
    return !VF_TWO_MULTIPLIERS && (type == ATTN_STORED_F32 || type == STORED_PAIRS);
}

/* Keys side by side. */
INLINE size_t keys_at_once(size_t heads)
{
    return heads < SCORE_CHAINS ? SCORE_CHAINS / heads : 1;
}

/* Half of the next block is called beside scores: at the first key of those side by
 * side. */
INLINE size_t score_places(const struct attn_decode_block *block, size_t heads)
{
    const size_t of_vector = LANES / heads;
    return (block->keys + of_vector - 1) / of_vector * (of_vector / keys_at_once(heads));
}

INLINE struct block_ahead ahead_of_scores(const struct attn_decode_panel *panel,
                                          const struct attn_decode_block *block,
                                          const enum attn_stored type)
{
    return next_block_ahead(panel, block, bytes_of(type),
                            2 * score_places(block, panel->heads));
}

/* A few keys from one place of their rows on, the queries there, and rows of which the
 * same is fetched. */
struct score_place {
    const char *key[SCORE_CHAINS], *ahead[SCORE_CHAINS];
    const float *query;
};

/* sum[key][heads] over some lines of 64 bytes. */
INLINE void score_lines(vf *sum, struct score_place *at, const size_t keys,
                        const size_t heads, const size_t lines,
                        const enum attn_stored type)
{
    const size_t step = type == STORED_PAIRS ? 64 : LANES * bytes_of(type);
#pragma GCC unroll 4
    for (size_t line = 0; line < lines; line++)
#pragma GCC unroll 8
        for (size_t k = 0; k < keys; k++) {
            if (!CALLS_STREAMS)
                fetch_line(at->ahead[k] + 64 * line);
#pragma GCC unroll 8
            for (size_t n = 64 * line; n < 64 * (line + 1); n += step)
                score_step(sum + k * heads, at->query + n / step * heads * LANES,
                           at->key[k] + n, heads, LANES, type);
        }
#pragma GCC unroll 8
    for (size_t k = 0; k < keys; k++) {
        at->key[k] += 64 * lines;
        at->ahead[k] += 64 * lines;
    }
    at->query += 64 * lines / step * heads * LANES;
}

/* Over whole rows; of a known length without loops. */
INLINE void score_rows(vf *sum, struct score_place *at, size_t D, const bool known,
                       const size_t keys, const size_t heads, const enum attn_stored type)
{
    enum { AT_ONCE = 4 };
    const size_t line = 64 / bytes_of(type);
    size_t left = D;
    if (known)
#pragma GCC unroll 4
        for (; left >= AT_ONCE * line; left -= AT_ONCE * line)
            score_lines(sum, at, keys, heads, AT_ONCE, type);
    for (; left >= line; left -= line)
        score_lines(sum, at, keys, heads, 1, type);
    while (left > 0) {
        const size_t count = left < LANES ? left : LANES;
#pragma GCC unroll 8
        for (size_t k = 0; k < keys; k++) {
            score_step(sum + k * heads, at->query, at->key[k], heads, count, type);
            at->key[k] += count * bytes_of(type);
        }
        at->query += heads * LANES;
        left -= count;
    }
}

INLINE struct score_place place_of(const struct attn_decode_panel *panel,
                                   const struct attn_decode_block *block, size_t key,
                                   const size_t keys, const enum attn_stored type)
{
    struct score_place at = {
        .query = type == STORED_PAIRS ? (const float *)panel->query_pairs : panel->query};
#pragma GCC unroll 8
    for (size_t k = 0; k < keys; k++) {
        const size_t last = block->keys - 1;
        const ptrdiff_t row = (ptrdiff_t)(key + k < last ? key + k : last);
        at.key[k] = block->key + row * block->key_stride;
        at.ahead[k] = block->value + row * block->value_stride;
    }
    return at;
}

/* As many keys as make a vector of scores.  Sums are turned as soon as there are four of
 * them, so that this goes on beside the multiply-adds of the keys after. */
INLINE vf score_tile(const struct attn_decode_panel *panel,
                     const struct attn_decode_block *block, size_t key, const size_t D,
                     const bool known, const size_t heads, const enum attn_stored type,
                     struct block_ahead *next)
{
    const size_t at_once = keys_at_once(heads);
    const size_t beside = scores_in_turn(type) ? 1 : at_once;
    vf fours[LANES / 4];
#pragma GCC unroll 4
    for (size_t first = 0; first < LANES / heads; first += at_once) {
        vf sum[LANES];
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++)
            sum[i] = vf_set1(0.0f);
#pragma GCC unroll 8
        for (size_t n = 0; n < at_once; n += beside) {
            struct score_place at = place_of(panel, block, key + first + n, beside, type);
            if (CALLS_STREAMS)
                fetch_ahead(next);
            score_rows(sum + n * heads, &at, D, known, beside, heads, type);
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < at_once * heads; i += 4)
            fours[(first * heads + i) / 4] = sums_of_four(sum + i);
    }
    const vf score = sums_of_fours(fours);
    return type == STORED_PAIRS ? score * panel->scale : score;
}

INLINE void score_tiles(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block, const size_t D,
                        const bool known, const size_t heads, const enum attn_stored type)
{
    struct block_ahead next = {0};
    if (CALLS_STREAMS)
        next = ahead_of_scores(panel, block, type);
    for (size_t key = 0; key < block->keys; key += LANES / heads)
        vf_store(scores + key * heads,
                 score_tile(panel, block, key, D, known, heads, type, &next));
}

/* Where the length of a key is known, the compiler leaves a fifth of the instructions
 * out; and takes twice as long, so only the most frequent are, and with sanitizers, which
 * take minutes, none. */
#if defined(__SANITIZE_ADDRESS__)
enum { KNOWS_LENGTHS = false };
#else
enum { KNOWS_LENGTHS = true };
#endif

INLINE void score_heads(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block, const size_t heads,
                        const enum attn_stored type)
{
    const bool frequent = heads == 1 || heads == 4;
    if (KNOWS_LENGTHS && (frequent || heads == 8) && panel->D == 128)
        score_tiles(scores, panel, block, 128, true, heads, type);
    else if (KNOWS_LENGTHS && frequent && panel->D == 64)
        score_tiles(scores, panel, block, 64, true, heads, type);
    else
        score_tiles(scores, panel, block, panel->D, false, heads, type);
    if (!CALLS_STREAMS)
        fetch_rests(block->value, block->value_stride, block->keys,
                    panel->D * bytes_of(type), panel->Dv * bytes_of(block->value_type));
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

/* Keys as they are stored, without tiles. */
static void score_stored(float *scores, const struct attn_decode_panel *panel,
                         const struct attn_decode_block *block)
{
    if (block->key_type == ATTN_STORED_F16)
        score_block(scores, panel, block, ATTN_STORED_F16);
    else if (block->key_type == ATTN_STORED_BF16)
        score_block(scores, panel, block, ATTN_STORED_BF16);
    else if (block->key_type == ATTN_STORED_I8)
        score_bytes(scores, panel, block);
    else
        score_block(scores, panel, block, ATTN_STORED_F32);
}

/* What is added to products, and −∞ beyond the last key. */
static void decode_bend(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block)
{
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
