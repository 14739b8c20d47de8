/* Decoding: adds one block's values, times the weights of each head, to the output.
 * Vectors run along a value's elements, and every one that is read serves a few heads. */
#ifndef ATTN_KERNEL_DECODE_VALUE_H
#define ATTN_KERNEL_DECODE_VALUE_H

#include "kernel/decode_bytes.h"
#include "kernel/decode_score.h"
#include "kernel/finite.h"
#include "kernel/softmax.h"

/* Some elements of the values of some keys; meanwhile the lines at the same places of as
 * many rows `ahead` are fetched, of as many vectors as are asked for; or, every four
 * keys, what comes `next`. */
struct value_tile {
    float *output; /* at the tile's first element */
    const float *weights;
    const char *value, *ahead;
    size_t output_stride, weight_stride, keys;
    ptrdiff_t value_stride, ahead_stride;
    struct block_ahead *next;
};

enum { KEYS_OF_PLACE = 4 };

INLINE void fetch_beside_values(struct block_ahead *next, size_t key)
{
    if (key % KEYS_OF_PLACE == 0)
        fetch_fours(&next->keys, next->at_once);
    if (key % KEYS_OF_PLACE == KEYS_OF_PLACE / 2)
        fetch_fours(&next->values, next->at_once);
}

INLINE void value_tile(const struct value_tile *t, const size_t heads,
                       const size_t vectors, const size_t fetched, const size_t count,
                       const enum attn_stored type)
{
    vf sum[VALUE_TILE];
    const float *weight = t->weights;
    const char *value = t->value, *ahead = t->ahead;
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            sum[h * vectors + v] = vf_load(t->output + h * t->output_stride + v * LANES);
    size_t key = 0;
    do {
        vf x[VALUE_TILE];
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++) {
            x[v] = load_row(value, v * LANES, count, type);
            if (!CALLS_STREAMS && v < fetched && v * LANES * bytes_of(type) % 64 == 0)
                fetch_line(ahead + v * LANES * bytes_of(type));
        }
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
            for (size_t v = 0; v < vectors; v++)
                sum[h * vectors + v] =
                    vf_fma(vf_set1(weight[h]), x[v], sum[h * vectors + v]);
        if (CALLS_STREAMS)
            fetch_beside_values(t->next, key);
        weight += t->weight_stride;
        value += t->value_stride;
        ahead += t->ahead_stride;
    } while (++key < t->keys);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            vf_store(t->output + h * t->output_stride + v * LANES, sum[h * vectors + v]);
}

/* What is read after the block's values: keys of the next block.  Where there are none,
 * or other heads have fetched them, the values themselves, which costs next to nothing.
 */
struct rows_ahead {
    const char *row;
    ptrdiff_t stride;
};

INLINE struct rows_ahead rows_ahead_of(const struct attn_decode_block *block,
                                       bool fetched)
{
    if (fetched || block->next_keys == 0)
        return (struct rows_ahead){block->value, block->value_stride};
    return (struct rows_ahead){block->next_key, block->key_stride};
}

/* What it does not cover. */
INLINE void fetch_rests_ahead(const struct attn_decode_panel *panel,
                              const struct attn_decode_block *block)
{
    fetch_rests(block->next_key, block->key_stride, block->next_keys,
                panel->Dv * bytes_of(block->value_type),
                panel->D * bytes_of(block->key_type));
}

/* For heads `head` to head + heads − 1.  The first few tiles of heads share the fetching.
 */
INLINE void value_heads(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block, struct block_ahead *next,
                        size_t head, const size_t heads, const size_t shares,
                        const enum attn_stored type)
{
    const size_t most = VALUE_TILE / heads < 8 ? VALUE_TILE / heads : 8;
    const size_t rest = panel->Dv % LANES, whole = panel->Dv - rest;
    const size_t share = head / heads;
    const size_t ahead_of_share = share * (most / shares) * LANES * bytes_of(type);
    const struct rows_ahead ahead = rows_ahead_of(block, share >= shares);
    struct value_tile t = {
        .output_stride = panel->output_stride,
        .weights = weights + head,
        .weight_stride = panel->heads,
        .keys = block->keys,
        .value_stride = block->value_stride,
        .ahead_stride = ahead.stride,
        .next = next,
    };
    for (size_t d = 0; d < panel->Dv;) {
        const size_t left = d < whole ? (whole - d) / LANES : 0;
        const size_t vectors = left >= most ? most : left >= most / 2 ? most / 2 : 1;
        t.output = panel->output + head * panel->output_stride + d;
        t.value = block->value + d * bytes_of(type);
        t.ahead = ahead.row + d * bytes_of(type) + (share < shares ? ahead_of_share : 0);
        if (vectors == most)
            value_tile(&t, heads, most, most / shares, LANES, type);
        else if (vectors > 1)
            value_tile(&t, heads, most / 2, most / 2, LANES, type);
        else if (d < whole)
            value_tile(&t, heads, 1, 1, LANES, type);
        else
            value_tile(&t, heads, 1, 1, rest, type);
        d += vectors * LANES;
    }
}

/* Two heads of eight vectors make a tile as well as four of four; so it reads values of
 * fp32 of 128 elements whole, as memory likes.  Those of 16 bits are converted more often
 * for it, which is worth it only where arithmetic is fast and memory is far. */
INLINE bool takes_whole_values(const struct attn_decode_panel *panel,
                               const enum attn_stored type)
{
    return VF_BYTES == 64 && (type == ATTN_STORED_F32 || VF_TWO_MULTIPLIERS) &&
           panel->Dv % (8 * LANES) == 0;
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

INLINE void value_all_heads(const struct attn_decode_panel *panel, const float *weights,
                            const struct attn_decode_block *block,
                            struct block_ahead *next, const enum attn_stored type)
{
    if (panel->heads == 1)
        value_heads(panel, weights, block, next, 0, 1, 1, type);
    else if (panel->heads == 2)
        value_heads(panel, weights, block, next, 0, 2, 1, type);
    else if (takes_whole_values(panel, type))
        for (size_t head = 0; head < panel->heads; head += 2)
            value_heads(panel, weights, block, next, head, 2, 2, type);
    else
        for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
            value_heads(panel, weights, block, next, head, VALUE_HEADS, 1, type);
}

/* Values of a long block are read once for two heads, and stay in the first cache until
 * all have read them if they are of 32 keys (fp32), or of 64 (16 bits). */
enum { TURN_BYTES = 32 * 4 };

INLINE void value_turns(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block,
                        const enum attn_stored type)
{
    const size_t pair = panel->heads > 2 ? panel->heads : 2;
    const size_t tiles = (pair * panel->Dv + VALUE_TILE * LANES - 1) / VALUE_TILE / LANES;
    struct block_ahead next = ahead_of_scores(panel, block, type);
    const size_t most = TURN_BYTES / bytes_of(type);
    struct attn_decode_block turn = *block;
    skip_ahead(&next, score_places(block, panel->heads));
    spread_ahead(&next, tiles * (block->keys + KEYS_OF_PLACE - 1) / KEYS_OF_PLACE);
    for (size_t first = 0; first < block->keys; first += most) {
        const size_t left = block->keys - first;
        turn.keys = left < most ? left : most;
        turn.value = block->value + (ptrdiff_t)first * block->value_stride;
        value_all_heads(panel, weights + first * panel->heads, &turn, &next, type);
    }
}

INLINE void value_block(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block,
                        const enum attn_stored type)
{
    if (block->hides && !values_are_finite(panel, block)) {
        value_of_seen(panel, weights, block, type);
    } else if (CALLS_STREAMS) {
        value_turns(panel, weights, block, type);
    } else {
        value_all_heads(panel, weights, block, NULL, type);
        fetch_rests_ahead(panel, block);
    }
}

#endif
