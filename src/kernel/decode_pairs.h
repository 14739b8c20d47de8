/* Decoding from bfloat16 where a product of pairs is one instruction: as value_tile, two
 * keys at a time.  Weights are rounded, and a row is divided by the sum of the rounded
 * ones. */
#ifndef ATTN_KERNEL_DECODE_PAIRS_H
#define ATTN_KERNEL_DECODE_PAIRS_H

#include "kernel/decode_score.h"
#include "kernel/decode_value.h"

/* The weights themselves, to bfloat16, and their sums. */
static void round_in_place(struct attn_decode_panel *panel, float *weights, size_t floats)
{
    vf sum = {0};
    for (size_t n = 0; n < floats; n += LANES) {
        const vf x = (vf)(vf_round_bf16(vf_load(weights + n)) & 0xffff0000);
        vf_store(weights + n, x);
        sum += x;
    }
    add_in_place(panel->lanes.rounded_sum, sum);
}

/* Those of two keys to a lane, [keys / 2][heads]; a last key alone is beside 0. */
static void pair_weights(float *pairs, const float *weights, size_t heads, size_t keys)
{
    float own[(ATTN_DECODE_KEYS + 3) * LANES];
    memcpy(own, weights, keys * heads * sizeof *own);
    memset(own + keys * heads, 0, (heads + LANES) * sizeof *own);
    for (size_t key = 0; key < keys; key += 2) {
        const float *const x = own + key * heads;
        vf_store(pairs + key / 2 * heads,
                 (vf)((vu)vf_load(x) >> 16 | (vu)vf_load(x + heads)));
    }
}

/* 64 bytes each of two rows, as pairs; 128 bits at a time, so the elements of either
 * vector are not those of half a row: order_pairs brings sums there, unorder_pairs back.
 */
INLINE void pair_rows(const char *a, const char *b, vf *low, vf *high)
{
    vf_interleave_halves(vf_load((const float *)a), vf_load((const float *)b), low, high);
}

INLINE void order_pairs(vf *low, vf *high)
{
    const vf a = *low, b = *high;
    *low = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21,
                                   22, 23);
    *high = __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15,
                                    28, 29, 30, 31);
}

INLINE void unorder_pairs(vf *low, vf *high)
{
    const vf a = *low, b = *high;
    *low = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25,
                                   26, 27);
    *high = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28,
                                    29, 30, 31);
}

/* vectors of 2·LANES elements */
INLINE void value_tile_pairs(const struct value_tile *t, const size_t heads,
                             const size_t vectors)
{
    vf sum[VALUE_TILE];
    const float *weight = t->weights;
    const char *value = t->value;
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++) {
            const float *const from = t->output + h * t->output_stride + v * 2 * LANES;
            vf *const own = sum + (h * vectors + v) * 2;
            own[0] = vf_load(from);
            own[1] = vf_load(from + LANES);
            unorder_pairs(&own[0], &own[1]);
        }
    size_t key = 0;
    do {
        const char *const second = key + 1 < t->keys ? value + t->value_stride : value;
        vf x[VALUE_TILE];
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++)
            pair_rows(value + v * 64, second + v * 64, &x[2 * v], &x[2 * v + 1]);
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
            for (size_t v = 0; v < 2 * vectors; v++)
                sum[h * 2 * vectors + v] =
                    vf_dot(x[v], vf_set1(weight[h]), sum[h * 2 * vectors + v]);
        for (size_t line = 0; line < 2 * t->ahead_lines; line++)
            fetch(t->ahead);
        weight += t->weight_stride;
        value += 2 * t->value_stride;
        key += 2;
    } while (key < t->keys);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++) {
            float *const to = t->output + h * t->output_stride + v * 2 * LANES;
            vf *const own = sum + (h * vectors + v) * 2;
            order_pairs(&own[0], &own[1]);
            vf_store(to, own[0]);
            vf_store(to + LANES, own[1]);
        }
}

INLINE void value_heads_pairs(const struct attn_decode_panel *panel, const float *pairs,
                              const struct attn_decode_block *block, struct ahead *ahead,
                              size_t head, const size_t heads)
{
    const size_t most = VALUE_TILE / heads / 2 < 4 ? VALUE_TILE / heads / 2 : 4;
    const size_t vectors = panel->Dv / (2 * LANES);
    struct value_tile t = {
        .output_stride = panel->output_stride,
        .weights = pairs + head,
        .weight_stride = panel->heads,
        .keys = block->keys,
        .value_stride = block->value_stride,
        .ahead = ahead,
        .ahead_lines = lines_of_tile(panel, ATTN_STORED_BF16),
    };
    for (size_t v = 0; v < vectors;) {
        t.output = panel->output + head * panel->output_stride + v * 2 * LANES;
        t.value = block->value + v * 64;
        if (v + most <= vectors) {
            value_tile_pairs(&t, heads, most);
            v += most;
        } else {
            value_tile_pairs(&t, heads, 1);
            v++;
        }
    }
}

/* Weights are rounded. */
static void value_pair_block(const struct attn_decode_panel *panel, const float *weights,
                             const struct attn_decode_block *block)
{
    float pairs[(ATTN_DECODE_KEYS / 2 + 1) * LANES];
    struct attn_decode_block part = *block;
    struct ahead ahead = values_ahead(panel, block, ATTN_STORED_BF16);
    pair_weights(pairs, weights, panel->heads, block->keys);
    for (size_t key = 0; key < block->keys; key += VALUE_KEYS) {
        const float *const own = pairs + key / 2 * panel->heads;
        const size_t left = block->keys - key;
        part.keys = left < VALUE_KEYS ? left : VALUE_KEYS;
        part.value = block->value + (ptrdiff_t)key * block->value_stride;
        if (panel->heads == 1)
            value_heads_pairs(panel, own, &part, &ahead, 0, 1);
        else if (panel->heads == 2)
            value_heads_pairs(panel, own, &part, &ahead, 0, 2);
        else
            for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
                value_heads_pairs(panel, own, &part, &ahead, head, VALUE_HEADS);
    }
}

static void decode_value_pairs(struct attn_decode_panel *panel, float *weights,
                               const struct attn_decode_block *block)
{
    round_in_place(panel, weights, floats_of(panel, block));
    if (block->hides && !values_are_finite(panel, block))
        value_of_seen(panel, weights, block, ATTN_STORED_BF16);
    else
        value_pair_block(panel, weights, block);
}

#endif
