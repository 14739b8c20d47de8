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

/* Each lane with that of the same head of the next key, for keys whose number is even. */
INLINE vf next_keys(const float *weights, const size_t heads)
{
    const vf x = vf_load(weights);
    if (heads == 1)
        return __builtin_shufflevector(x, x, EVERY_128(1, 0, 3, 2));
    if (heads == 2)
        return __builtin_shufflevector(x, x, EVERY_128(2, 3, 0, 1));
    if (heads == 4)
        return __builtin_shufflevector(x, x, UPPER_FOUR);
    if (heads == 8)
        return __builtin_shufflevector(x, x, UPPER_EIGHT);
    return vf_load(weights + LANES);
}

INLINE void pair_in_place(float *weights, size_t floats, const size_t heads)
{
    for (size_t n = 0; n < floats; n += heads < LANES ? LANES : 2 * LANES) {
        const vf first = vf_load(weights + n), second = next_keys(weights + n, heads);
        vf_store(weights + n, (vf)((vu)first >> 16 | (vu)second));
    }
}

/* The weights of a key whose number is even become pairs with those of the key after it;
 * a last key alone is beside 0. */
static void pair_weights(float *weights, const struct attn_decode_panel *panel,
                         const struct attn_decode_block *block)
{
    const size_t floats = floats_of(panel, block);
    if (panel->heads == 1)
        pair_in_place(weights, floats, 1);
    else if (panel->heads == 2)
        pair_in_place(weights, floats, 2);
    else if (panel->heads == 4)
        pair_in_place(weights, floats, 4);
    else if (panel->heads == 8)
        pair_in_place(weights, floats, 8);
    else {
        if (block->keys % 2 != 0)
            vf_store(weights + floats, vf_set1(0.0f));
        pair_in_place(weights, floats, 16);
    }
}

/* 64 bytes each of two rows, as pairs; 128 bits at a time, so the elements of either
 * vector are not those of half a row. */
INLINE void pair_rows(const char *a, const char *b, vf *low, vf *high)
{
    vf_interleave_halves(vf_load((const float *)a), vf_load((const float *)b), low, high);
}

/* Sums of pairs stay in that order to the end of a split.  Of two vectors, eight quarters
 * are shuffled like cards: three times is as before. */
static void order_output(struct attn_decode_panel *panel)
{
    for (size_t h = 0; h < panel->heads; h++)
        for (size_t d = 0; d < panel->Dv; d += 2 * LANES) {
            float *const x = panel->output + h * panel->output_stride + d;
            const vf a = vf_load(x), b = vf_load(x + LANES);
            vf_store(x, __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6,
                                                7, 20, 21, 22, 23));
            vf_store(x + LANES,
                     __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13,
                                             14, 15, 28, 29, 30, 31));
        }
}

/* vectors of 2·LANES elements */
INLINE void value_tile_pairs(const struct value_tile *t, const size_t heads,
                             const size_t vectors)
{
    vf sum[VALUE_TILE];
    const float *weight = t->weights;
    const char *value = t->value, *ahead = t->ahead;
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
        for (size_t v = 0; v < 2 * vectors; v++)
            sum[h * 2 * vectors + v] =
                vf_load(t->output + h * t->output_stride + v * LANES);
    size_t key = 0;
    do {
        const char *const second = key + 1 < t->keys ? value + t->value_stride : value;
        vf x[VALUE_TILE];
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++) {
            pair_rows(value + v * 64, second + v * 64, &x[2 * v], &x[2 * v + 1]);
            fetch_line(ahead + v * 64);
            fetch_line(ahead + t->ahead_stride + v * 64);
        }
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
            for (size_t v = 0; v < 2 * vectors; v++)
                sum[h * 2 * vectors + v] =
                    vf_dot(x[v], vf_set1(weight[h]), sum[h * 2 * vectors + v]);
        weight += t->weight_stride;
        value += 2 * t->value_stride;
        ahead += 2 * t->ahead_stride;
        key += 2;
    } while (key < t->keys);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
        for (size_t v = 0; v < 2 * vectors; v++)
            vf_store(t->output + h * t->output_stride + v * LANES,
                     sum[h * 2 * vectors + v]);
}

/* As value_heads. */
INLINE void value_heads_pairs(const struct attn_decode_panel *panel, const float *pairs,
                              const struct attn_decode_block *block, size_t head,
                              const size_t heads)
{
    const size_t most = VALUE_TILE / heads / 2 < 4 ? VALUE_TILE / heads / 2 : 4;
    const size_t vectors = panel->Dv / (2 * LANES);
    const struct rows_ahead ahead = rows_ahead_of(block, head > 0);
    struct value_tile t = {
        .output_stride = panel->output_stride,
        .weights = pairs + head,
        .weight_stride = 2 * panel->heads,
        .keys = block->keys,
        .value_stride = block->value_stride,
        .ahead_stride = ahead.stride,
    };
    for (size_t v = 0; v < vectors;) {
        t.output = panel->output + head * panel->output_stride + v * 2 * LANES;
        t.value = block->value + v * 64;
        t.ahead = ahead.row + v * 64;
        if (v + most <= vectors) {
            value_tile_pairs(&t, heads, most);
            v += most;
        } else if (most > 1 && v + most / 2 <= vectors) {
            value_tile_pairs(&t, heads, most / 2);
            v += most / 2;
        } else {
            value_tile_pairs(&t, heads, 1);
            v++;
        }
    }
}

/* Weights are rounded. */
static void value_pair_block(const struct attn_decode_panel *panel, float *weights,
                             const struct attn_decode_block *block)
{
    pair_weights(weights, panel, block);
    if (panel->heads == 1)
        value_heads_pairs(panel, weights, block, 0, 1);
    else if (panel->heads == 2)
        value_heads_pairs(panel, weights, block, 0, 2);
    else
        for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
            value_heads_pairs(panel, weights, block, head, VALUE_HEADS);
    fetch_rests_ahead(panel, block);
}

static void decode_value_pairs(struct attn_decode_panel *panel, float *weights,
                               const struct attn_decode_block *block)
{
    round_in_place(panel, weights, floats_of(panel, block));
    if (block->hides && !values_are_finite(panel, block)) {
        order_output(panel);
        value_of_seen(panel, weights, block, ATTN_STORED_BF16);
        order_output(panel);
        order_output(panel);
    } else {
        value_pair_block(panel, weights, block);
    }
}

#endif
