/* Decoding: adds one block's values, times the weights of each head, to the output.
 * Vectors run along a value's elements, and every one that is read serves a few heads. */
#ifndef ATTN_KERNEL_DECODE_VALUE_H
#define ATTN_KERNEL_DECODE_VALUE_H

#include "kernel/decode_bytes.h"
#include "kernel/finite.h"
#include "kernel/softmax.h"

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
                fetch(t->ahead);
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

/* Lines to be fetched for every key of a tile, so that all tiles fetch a whole row. */
INLINE size_t lines_of_tile(const struct attn_decode_panel *panel,
                            const enum attn_stored type)
{
    const size_t heads = panel->heads < VALUE_HEADS ? panel->heads : VALUE_HEADS;
    const size_t most = VALUE_TILE / heads < 8 ? VALUE_TILE / heads : 8;
    const size_t rest = panel->Dv % LANES, whole = panel->Dv - rest;
    const size_t tiles =
        whole / (most * LANES) + whole % (most * LANES) / LANES + (rest > 0);
    const size_t parts = tiles * (panel->heads / heads);
    return ((panel->Dv * bytes_of(type) + 63) / 64 + parts - 1) / parts;
}

INLINE void value_heads(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block, struct ahead *ahead,
                        size_t head, const size_t heads, const enum attn_stored type)
{
    const size_t most = VALUE_TILE / heads < 8 ? VALUE_TILE / heads : 8;
    const size_t rest = panel->Dv % LANES, whole = panel->Dv - rest;
    struct value_tile t = {
        .output_stride = panel->output_stride,
        .weights = weights + head,
        .weight_stride = panel->heads,
        .keys = block->keys,
        .value_stride = block->value_stride,
        .ahead = ahead,
        .ahead_lines = lines_of_tile(panel, type),
    };
    for (size_t d = 0; d < panel->Dv;) {
        const size_t vectors = d + most * LANES <= whole ? most : 1;
        t.output = panel->output + head * panel->output_stride + d;
        t.value = block->value + d * bytes_of(type);
        if (vectors > 1)
            value_tile(&t, heads, most, LANES, type);
        else if (d < whole)
            value_tile(&t, heads, 1, LANES, type);
        else
            value_tile(&t, heads, 1, rest, type);
        d += vectors * LANES;
    }
}

/* Whether a key that is hidden from some head may have a value of 0 · NaN. */
static bool values_are_finite(const struct attn_decode_panel *panel,
                              const struct attn_decode_block *block)
{
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

/* Values are read a few elements of all keys at a time, so only of few keys, or they
 * would not be read in the order in which they are fetched. */
enum { VALUE_KEYS = 16 };

INLINE struct ahead values_ahead(const struct attn_decode_panel *panel,
                                 const struct attn_decode_block *block,
                                 const enum attn_stored type)
{
    return ahead_of(rows_ahead_of(block->value, block->value_stride, block->keys,
                                  panel->Dv * bytes_of(type)),
                    rows_ahead_of(block->next_key, block->key_stride, block->next_keys,
                                  panel->D * bytes_of(block->key_type)));
}

INLINE void value_block(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block,
                        const enum attn_stored type)
{
    if (block->hides && !values_are_finite(panel, block)) {
        value_of_seen(panel, weights, block, type);
        return;
    }
    struct ahead ahead = values_ahead(panel, block, type);
    struct attn_decode_block part = *block;
    for (size_t key = 0; key < block->keys; key += VALUE_KEYS) {
        const float *const own = weights + key * panel->heads;
        const size_t left = block->keys - key;
        part.keys = left < VALUE_KEYS ? left : VALUE_KEYS;
        part.value = block->value + (ptrdiff_t)key * block->value_stride;
        if (panel->heads == 1)
            value_heads(panel, own, &part, &ahead, 0, 1, type);
        else if (panel->heads == 2)
            value_heads(panel, own, &part, &ahead, 0, 2, type);
        else
            for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
                value_heads(panel, own, &part, &ahead, head, VALUE_HEADS, type);
    }
}

#endif
