/* Decoding from bfloat16 by products of tiles (simd_tiles.h).  Queries, and the weights
 * of a block, are fp32 in three parts of bfloat16 (bf16x3.h), and the parts' products
 * with keys and values are exact; so nothing is rounded that fp32 would not round.
 *
 *     score[key][head] = Σ_part Σ_d key[key][d] · part[d][head]
 *
 *     output[head][d] += Σ_part Σ_key part[head][key] · value[key][d]
 *
 * Keys and values are read as the rows they are.  A key is a row of the left operand.  A
 * value is one of the right operand, whose lanes hold two elements each: a weight beside
 * 0 takes the even ones, 0 beside a weight the odd ones.
 *
 * Parts of 0 times what is not finite would be NaN in a product with others; such scores
 * and outputs are made again without tiles, so that each depends on its own key and query
 * alone. */
#ifndef ATTN_KERNEL_DECODE_TILES_H
#define ATTN_KERNEL_DECODE_TILES_H

#include "kernel/bf16x3.h"
#include "kernel/decode_score.h"
#include "kernel/decode_value.h"
#include "kernel/simd_tiles.h"

/* Heads of one tile of queries: 12 of 16 columns are parts of theirs. */
enum { TILE_HEADS = 4, TILE_ELEMENTS = ATTN_PART_ELEMENTS };

INLINE size_t heads_of_tile(size_t heads)
{
    return heads < TILE_HEADS ? heads : TILE_HEADS;
}

/* Tiles 0 to 3, of weights and outputs, have a row for each part of a head, the others
 * are whole. */
static void shape_part_tiles(const struct attn_decode_panel *panel)
{
    struct tile_shapes shapes = {.palette = 1};
    const size_t rows = BF16_PARTS * heads_of_tile(panel->heads);
    for (size_t n = 0; n < TILES; n++) {
        shapes.row_bytes[n] = TILE_BYTES;
        shapes.rows[n] = (uint8_t)(n < 4 ? rows : TILE_EDGE);
    }
    tiles_shape(&shapes);
}

/* Parts of smaller numbers are lost; to larger ones what tiles lose of subnormal keys
 * would count. */
INLINE vi has_parts(vf x)
{
    const vf size = vf_abs(x);
    return (x == 0.0f) | ((size >= 0x1p-102f) & (size < 0x1p62f));
}

/* LANES elements of one head, or NaN, as pairs of their parts. */
INLINE void part_elements(uint16_t *to, vf x)
{
    vf part[BF16_PARTS];
    split_in_parts(x, part);
#pragma GCC unroll 3
    for (size_t p = 0; p < BF16_PARTS; p++) {
        const vf_half half = __builtin_convertvector((vu)part[p] >> 16, vf_half);
        char pairs[sizeof half];
        memcpy(pairs, &half, sizeof half);
        for (size_t i = 0; i < LANES / 2; i++)
            memcpy(to + (i * TILE_EDGE + p * TILE_HEADS) * 2, pairs + 4 * i, 4);
    }
}

/* query_parts[heads / 4][D / 32][16 pairs][16]: the first parts of the heads, their
 * second ones, their third ones, and 0; NaN for a head whose query has no such parts. */
static void part_query(struct attn_decode_panel *panel)
{
    const size_t together = heads_of_tile(panel->heads), D = panel->D;
    memset(panel->query_parts, 0, panel->heads / together * D / 2 * TILE_BYTES);
    for (size_t h = 0; h < panel->heads; h++) {
        const float *const query = panel->query + h * panel->query_stride;
        uint16_t *const to =
            panel->query_parts + (h / together * D / 2 * TILE_EDGE + h % together) * 2;
        vi lacking = {0};
        for (size_t n = 0; n < D; n += LANES)
            lacking |= ~has_parts(vf_load(query + n / LANES * panel->query_step));
        const vf spoilt = vf_set1(vi_any(lacking) ? NAN : 0.0f);
        for (size_t n = 0; n < D; n += LANES)
            part_elements(to + n * TILE_EDGE,
                          vf_load(query + n / LANES * panel->query_step) + spoilt);
    }
}

INLINE bool keys_fill_tiles(const struct attn_decode_panel *panel,
                            const struct attn_decode_block *block)
{
    return panel->query_parts && block->key_type == ATTN_STORED_BF16;
}

INLINE bool values_fill_tiles(const struct attn_decode_panel *panel,
                              const struct attn_decode_block *block)
{
    return panel->query_parts && block->value_type == ATTN_STORED_BF16;
}

/* ---- Fetching -------------------------------------------------------------------------
 * The next block, half of it beside the products of scores. */

INLINE size_t groups_of(const struct attn_decode_panel *panel)
{
    return panel->heads / heads_of_tile(panel->heads);
}

INLINE size_t tiles_of(const struct attn_decode_block *block)
{
    return (block->keys + TILE_EDGE - 1) / TILE_EDGE;
}

INLINE struct block_ahead part_tiles_ahead(const struct attn_decode_panel *panel,
                                           const struct attn_decode_block *block)
{
    return next_block_ahead(panel, block, 2,
                            groups_of(panel) * tiles_of(block) * (panel->D + panel->Dv) /
                                TILE_ELEMENTS);
}

/* ---- Rows beside tiles ---------------------------------------------------------------
 */

/* Some rows as a tile's, from one place of them on, and 0 beyond the last. */
INLINE void copy_tile(uint16_t to[TILE_EDGE * TILE_ELEMENTS], const char *rows,
                      ptrdiff_t stride, size_t count)
{
    for (size_t row = 0; row < TILE_EDGE; row++) {
        if (row < count)
            memcpy(to + row * TILE_ELEMENTS, rows + (ptrdiff_t)row * stride, TILE_BYTES);
        else
            memset(to + row * TILE_ELEMENTS, 0, TILE_BYTES);
    }
}

/* ---- Scores ---------------------------------------------------------------------------
 */

/* Keys of two tiles take turns with their elements, 64 at a time. */
enum { SUM_FLOATS = TILE_EDGE * TILE_EDGE, TURN_KEYS = 2 * TILE_EDGE, CHUNK = 64 };

/* Tile 5 from 16 keys, of which `count` are there. */
INLINE void load_key_tile(const char *key, ptrdiff_t stride, size_t count)
{
    _Alignas(TILE_BYTES) uint16_t copy[TILE_EDGE * TILE_ELEMENTS];
    if (count >= TILE_EDGE) {
        tile_load(5, key, stride);
        return;
    }
    copy_tile(copy, key, stride, count);
    tile_load(5, copy, TILE_BYTES);
}

/* sums[16 keys][part][head] over 64 elements, or 32, whose queries are tiles 6 and 7. */
INLINE void multiply_key_tile_rows(float *sums, const char *key, ptrdiff_t stride,
                                   size_t count, const bool both,
                                   struct block_ahead *ahead)
{
    tile_clear(4);
    load_key_tile(key, stride, count);
    tile_add_product(4, 5, 6);
    fetch_ahead(ahead);
    if (both) {
        load_key_tile(key + TILE_BYTES, stride, count);
        tile_add_product(4, 5, 7);
        fetch_ahead(ahead);
    }
    tile_store(4, sums, TILE_BYTES);
}

/* sums[chunk of D][key] of 32 keys, of which `count` are there. */
INLINE void multiply_turn(float *sums, const struct attn_decode_block *block,
                          const uint16_t *query, size_t first, size_t D,
                          struct block_ahead *ahead)
{
    const ptrdiff_t stride = block->key_stride;
    const size_t count = block->keys - first;
    const char *key = block->key + (ptrdiff_t)first * stride;
    for (size_t n = 0; n < D; n += CHUNK) {
        const bool both = n + CHUNK <= D;
        tile_load(6, query, TILE_BYTES);
        if (both)
            tile_load(7, query + 2 * SUM_FLOATS, TILE_BYTES);
        for (size_t at = 0; at < TURN_KEYS && at < count; at += TILE_EDGE) {
            const char *const tile = key + (ptrdiff_t)at * stride;
            if (both)
                multiply_key_tile_rows(sums + at * TILE_EDGE, tile, stride, count - at,
                                       true, ahead);
            else
                multiply_key_tile_rows(sums + at * TILE_EDGE, tile, stride, count - at,
                                       false, ahead);
        }
        query += 4 * SUM_FLOATS;
        key += 2 * CHUNK;
        sums += TURN_KEYS * TILE_EDGE;
    }
}

/* scores[key][heads] of four keys and the heads of a tile, from `chunks` sums. */
INLINE void add_key_sums(float *scores, const float *sums, size_t chunks, size_t heads,
                         size_t keys)
{
    vi row[4], part[4];
    float score[LANES];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        vf sum = vf_load(sums + i * TILE_EDGE);
        for (size_t c = 1; c < chunks; c++)
            sum += vf_load(sums + (c * TURN_KEYS + i) * TILE_EDGE);
        row[i] = (vi)sum;
    }
    turn_quarters(row, part);
    const vf sum = (vf)part[2] + (vf)part[1] + (vf)part[0];
    if (heads == TILE_HEADS) {
        vf_store(scores, sum);
        return;
    }
    vf_store(score, sum);
    const size_t together = heads_of_tile(heads);
    for (size_t i = 0; i < keys; i++)
        memcpy(scores + i * heads, score + i * TILE_HEADS, together * sizeof *score);
}

/* Where a score is not finite, the one that is made without tiles. */
static void mend_decoded_scores(float *scores, const struct attn_decode_panel *panel,
                                const struct attn_decode_block *block)
{
    float plain[(ATTN_DECODE_BYTE_KEYS + 1) * LANES];
    score_stored(plain, panel, block);
    for (size_t n = 0; n < block->keys * panel->heads; n += LANES) {
        const vf x = vf_load(scores + n);
        vf_store(scores + n, vf_select(x - x == 0.0f, x, vf_load(plain + n)));
    }
}

INLINE void score_turns(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block, const size_t heads,
                        const size_t D)
{
    _Alignas(TILE_BYTES) float sums[ATTN_PARTED_SIZE / CHUNK * TURN_KEYS * TILE_EDGE];
    const size_t together = heads_of_tile(heads), chunks = (D + CHUNK - 1) / CHUNK;
    struct block_ahead ahead = part_tiles_ahead(panel, block);
    for (size_t first = 0; first < block->keys; first += TURN_KEYS) {
        const size_t left = block->keys - first;
        for (size_t h = 0; h < heads; h += together) {
            multiply_turn(sums, block, panel->query_parts + h / together * D * TILE_EDGE,
                          first, D, &ahead);
            for (size_t key = 0; key < TURN_KEYS && key < left; key += 4)
                add_key_sums(scores + (first + key) * heads + h, sums + key * TILE_EDGE,
                             chunks, heads, left - key < 4 ? left - key : 4);
        }
    }
}

static void score_part_tiles(float *scores, const struct attn_decode_panel *panel,
                             const struct attn_decode_block *block)
{
    vf poison = {0};
    if (panel->heads == 4 && panel->D == 128)
        score_turns(scores, panel, block, 4, 128);
    else
        score_turns(scores, panel, block, panel->heads, panel->D);
    for (size_t n = 0; n < block->keys * panel->heads; n += LANES)
        poison += vf_load(scores + n) * 0.0f;
    if (vi_any(poison != 0.0f))
        mend_decoded_scores(scores, panel, block);
}

/* ---- Values ---------------------------------------------------------------------------
 */

/* Keys of two products, whose weights make four tiles. */
enum { VALUE_KEYS = 2 * TILE_EDGE, WEIGHT_TILE = BF16_PARTS * TILE_HEADS * TILE_EDGE };

/* left[heads / 4][16 keys][even, odd][part][head][key], of 32 keys, 0 beyond the last. */
INLINE void part_weights(float *left, const float *weights, size_t keys,
                         const size_t heads)
{
    const size_t together = heads_of_tile(heads);
    const vu upper = (vu){0} + 0xffff0000;
    for (size_t key = 0; key < VALUE_KEYS; key += TILE_EDGE) {
        float rest[LANES * LANES];
        const float *from = weights + key * heads;
        vi x[LANES];
        if (key + TILE_EDGE > keys) {
            const size_t count = keys > key ? keys - key : 0;
            memset(rest, 0, sizeof rest);
            from = memcpy(rest, from, count * heads * sizeof *from);
        }
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            x[h] = (vi)vf_load(from + h * LANES);
        separate_all(x, heads);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++) {
            float *const to = left +
                              (h / together * 4 + key / TILE_EDGE * 2) * WEIGHT_TILE +
                              h % together * LANES;
            vf part[BF16_PARTS];
            split_in_parts((vf)x[h], part);
#pragma GCC unroll 3
            for (size_t p = 0; p < BF16_PARTS; p++) {
                vf_store(to + p * together * LANES, (vf)((vu)part[p] >> 16));
                vf_store(to + WEIGHT_TILE + p * together * LANES,
                         (vf)((vu)part[p] & upper));
            }
        }
    }
}

/* 32 keys, or fewer at a block's end, for the heads of a tile. */
struct value_part {
    const struct attn_decode_panel *panel;
    const struct attn_decode_block *block;
    const float *weights, *left; /* weights of the block */
    size_t key, keys, head;
    struct block_ahead *ahead;
};

/* sums[even, odd][part][head][16] of 32 elements of values. */
INLINE void multiply_value_rows(float *sums, const struct value_part *p,
                                const char *value, ptrdiff_t stride)
{
    const float *const left = p->left;
    tile_clear(0);
    tile_clear(1);
    tile_load(4, value, stride);
    tile_load(2, left, TILE_BYTES);
    tile_add_product(0, 2, 4);
    fetch_ahead(p->ahead);
    tile_load(3, left + WEIGHT_TILE, TILE_BYTES);
    tile_add_product(1, 3, 4);
    tile_load(5, value + TILE_EDGE * stride, stride);
    tile_load(2, left + 2 * WEIGHT_TILE, TILE_BYTES);
    tile_add_product(0, 2, 5);
    fetch_ahead(p->ahead);
    tile_load(3, left + 3 * WEIGHT_TILE, TILE_BYTES);
    tile_add_product(1, 3, 5);
    tile_store(0, sums, TILE_BYTES);
    tile_store(1, sums + WEIGHT_TILE, TILE_BYTES);
}

/* Of either a head's even elements or its odd ones, the smallest part first. */
INLINE vf sum_of_parts(const float *sums, const size_t heads)
{
    return vf_load(sums + 2 * heads * LANES) + vf_load(sums + heads * LANES) +
           vf_load(sums);
}

/* output[head][32 elements] += sums.  False, and nothing, where one is not finite, unless
 * that is as it should be. */
INLINE bool add_value_parts(const struct value_part *p, const float *sums, size_t d,
                            const size_t heads, const bool any)
{
    vf low[TILE_HEADS] = {{0}}, high[TILE_HEADS] = {{0}}, poison = {0};
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++) {
        const vf even = sum_of_parts(sums + h * LANES, heads);
        const vf odd = sum_of_parts(sums + WEIGHT_TILE + h * LANES, heads);
        poison += (even + odd) * 0.0f;
        interleave(even, odd, &low[h], &high[h]);
    }
    if (!any && vi_any(poison != 0.0f))
        return false;
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++) {
        float *const to = p->panel->output + (p->head + h) * p->panel->output_stride + d;
        vf_store(to, vf_load(to) + low[h]);
        vf_store(to + LANES, vf_load(to + LANES) + high[h]);
    }
    return true;
}

INLINE bool is_special_half(uint16_t element)
{
    return (element & 0x7f80) == 0x7f80;
}

/* What is not finite of 32 elements, as value_of_seen; it becomes 0. */
static void add_special_values(uint16_t *values, const struct value_part *p, size_t d,
                               const size_t heads)
{
    const struct attn_decode_panel *const panel = p->panel;
    for (size_t n = 0; n < p->keys * TILE_ELEMENTS; n++) {
        if (!is_special_half(values[n]))
            continue;
        const uint32_t bits = (uint32_t)values[n] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        values[n] = 0;
        for (size_t h = p->head; h < p->head + heads; h++) {
            const size_t at = (p->key + n / TILE_ELEMENTS) * panel->heads + h;
            if (!p->block->added || p->block->added[at] != -INFINITY)
                panel->output[h * panel->output_stride + d + n % TILE_ELEMENTS] +=
                    p->weights[at] * value;
        }
    }
}

/* 32 elements, where values are not finite, or not all there. */
static void add_values_carefully(const struct value_part *p, size_t d, size_t heads)
{
    _Alignas(TILE_BYTES) uint16_t copy[VALUE_KEYS * TILE_ELEMENTS];
    _Alignas(TILE_BYTES) float sums[2 * WEIGHT_TILE];
    const ptrdiff_t stride = p->block->value_stride;
    const char *const value = p->block->value + (ptrdiff_t)p->key * stride + 2 * d;
    const size_t first = p->keys < TILE_EDGE ? p->keys : TILE_EDGE;
    copy_tile(copy, value, stride, first);
    copy_tile(copy + TILE_EDGE * TILE_ELEMENTS, value + TILE_EDGE * stride, stride,
              p->keys - first);
    multiply_value_rows(sums, p, (const char *)copy, TILE_BYTES);
    if (add_value_parts(p, sums, d, heads, false))
        return;
    add_special_values(copy, p, d, heads);
    multiply_value_rows(sums, p, (const char *)copy, TILE_BYTES);
    add_value_parts(p, sums, d, heads, true);
}

INLINE void add_32_elements(const struct value_part *p, size_t d, const size_t heads)
{
    _Alignas(TILE_BYTES) float sums[2 * WEIGHT_TILE];
    const ptrdiff_t stride = p->block->value_stride;
    if (p->keys == VALUE_KEYS) {
        multiply_value_rows(sums, p, p->block->value + (ptrdiff_t)p->key * stride + 2 * d,
                            stride);
        if (add_value_parts(p, sums, d, heads, false))
            return;
    }
    add_values_carefully(p, d, heads);
}

INLINE void value_part_tiles_of(const struct attn_decode_panel *panel,
                                const float *weights,
                                const struct attn_decode_block *block, const size_t heads)
{
    const size_t together = heads_of_tile(heads);
    struct block_ahead ahead = part_tiles_ahead(panel, block);
    skip_ahead(&ahead, groups_of(panel) * tiles_of(block) * panel->D / TILE_ELEMENTS);
    _Alignas(TILE_BYTES) float left[LANES / TILE_HEADS * 4 * WEIGHT_TILE];
    for (size_t key = 0; key < block->keys; key += VALUE_KEYS) {
        const size_t rest = block->keys - key;
        struct value_part p = {
            .panel = panel,
            .block = block,
            .weights = weights,
            .key = key,
            .keys = rest < VALUE_KEYS ? rest : VALUE_KEYS,
            .ahead = &ahead,
        };
        part_weights(left, weights + key * heads, p.keys, heads);
        for (p.head = 0; p.head < heads; p.head += together) {
            p.left = left + p.head / together * 4 * WEIGHT_TILE;
            for (size_t d = 0; d < panel->Dv; d += TILE_ELEMENTS)
                add_32_elements(&p, d, together);
        }
    }
}

static void value_part_tiles(const struct attn_decode_panel *panel, const float *weights,
                             const struct attn_decode_block *block)
{
    if (panel->heads == 1)
        value_part_tiles_of(panel, weights, block, 1);
    else if (panel->heads == 2)
        value_part_tiles_of(panel, weights, block, 2);
    else if (panel->heads == 4)
        value_part_tiles_of(panel, weights, block, 4);
    else if (panel->heads == 8)
        value_part_tiles_of(panel, weights, block, 8);
    else
        value_part_tiles_of(panel, weights, block, 16);
}

#endif
