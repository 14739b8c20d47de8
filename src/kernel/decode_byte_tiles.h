/* Decoding from 8 bits by products of tiles (simd_tiles.h): the whole numbers of
 * decode_bytes.h, and the same exact sums, in a fifth of the time.  Stored bytes lie as
 * the right operand wants them, 16 keys by 64 elements in one case, 64 keys by 16
 * elements in the other.  The left one has two rows a head: the upper and the lower
 * halves of its 16 bits; of 16 heads, two tiles. */
#ifndef ATTN_KERNEL_DECODE_BYTE_TILES_H
#define ATTN_KERNEL_DECODE_BYTE_TILES_H

#include "kernel/decode_bytes.h"
#include "kernel/simd_tiles.h"

enum { BYTE_TILE_HEADS = 8, BYTE_TILE_STEPS = 4, BYTE_TILE_KEYS = 64 };

/* Tiles 0 and 1 hold sums, 2 to 5 queries, 6 a right operand of scores; 7 one of values,
 * whose left one is tile 1. */
static void shape_byte_tiles(struct attn_decode_panel *panel)
{
    struct tile_shapes shapes = {.palette = 1};
    const size_t heads = panel->heads < BYTE_TILE_HEADS ? panel->heads : BYTE_TILE_HEADS;
    const size_t fours = (panel->D + ATTN_BYTES_LANE - 1) / ATTN_BYTES_LANE;
    const size_t steps = (fours + TILE_EDGE - 1) / TILE_EDGE;
    panel->tile_steps = 0;
    if (fours % steps != 0 || steps > BYTE_TILE_STEPS)
        return;
    panel->tile_steps = steps;
    panel->tile_rows = fours / steps;
    for (size_t n = 0; n < TILES; n++) {
        shapes.row_bytes[n] = TILE_BYTES;
        shapes.rows[n] = (uint8_t)(2 * heads);
    }
    for (size_t n = 2; n < 2 + BYTE_TILE_STEPS; n++)
        shapes.row_bytes[n] = (uint16_t)(panel->tile_rows * sizeof(int32_t));
    shapes.rows[6] = (uint8_t)panel->tile_rows;
    shapes.rows[7] = TILE_EDGE;
    tiles_shape(&shapes);
}

/* The query, [D / 4][heads][2], as left operands, [heads / 8][steps][8][2][rows]. */
static void turn_query(struct attn_decode_panel *panel)
{
    const size_t heads = panel->heads, steps = panel->tile_steps, rows = panel->tile_rows;
    const size_t together = heads < BYTE_TILE_HEADS ? heads : BYTE_TILE_HEADS;
    int32_t before[BYTE_TILE_STEPS * TILE_EDGE * LANES * 2], *to = panel->whole;
    memcpy(before, panel->whole, steps * rows * heads * 2 * sizeof *before);
    for (size_t first = 0; first < heads; first += together)
        for (size_t step = 0; step < steps; step++)
            for (size_t n = 2 * first; n < 2 * (first + together); n++)
                for (size_t row = 0; row < rows; row++)
                    *to++ = before[(step * rows + row) * heads * 2 + n];
}

/* ---- Fetching -------------------------------------------------------------------------
 */

INLINE size_t key_tiles_of(const struct attn_decode_block *block)
{
    return (block->row % LANES + block->keys + LANES - 1) / LANES;
}

/* The next block, at each product of tiles of a few heads. */
INLINE struct block_ahead byte_tiles_ahead(const struct attn_decode_panel *panel,
                                           const struct attn_decode_block *block)
{
    const size_t D = attn_bytes_of_key(panel->D), Dv = panel->Dv;
    return block_ahead_of(
        call_rows(block->next_key, (ptrdiff_t)D, block->next_keys, D, false),
        call_rows(block->next_value, (ptrdiff_t)Dv, block->next_keys, Dv, false),
        key_tiles_of(block) * panel->tile_steps +
            Dv / LANES * (block->keys / BYTE_TILE_KEYS));
}

/* ---- Scores ---------------------------------------------------------------------------
 */

INLINE void load_query_tiles(const struct attn_decode_panel *panel, size_t first,
                             const size_t heads)
{
    const size_t rows = panel->tile_rows, size = 2 * heads * rows;
    const int32_t *const from = panel->whole + first * 2 * panel->tile_steps * rows;
    tile_load(2, from, rows * sizeof *from);
    if (panel->tile_steps > 1)
        tile_load(3, from + size, rows * sizeof *from);
    if (panel->tile_steps > 2)
        tile_load(4, from + 2 * size, rows * sizeof *from);
    if (panel->tile_steps > 3)
        tile_load(5, from + 3 * size, rows * sizeof *from);
}

/* sums[head][half][16 keys], of the heads whose queries are loaded. */
INLINE void multiply_key_tile(int32_t *sums, const char *key, size_t rows, size_t steps,
                              struct block_ahead *ahead)
{
    const size_t size = rows * TILE_BYTES;
    tile_clear(0);
    tile_load(6, key, TILE_BYTES);
    tile_add_bytes(0, 2, 6);
    fetch_ahead(ahead);
    if (steps > 1) {
        tile_load(6, key + size, TILE_BYTES);
        tile_add_bytes(0, 3, 6);
        fetch_ahead(ahead);
    }
    if (steps > 2) {
        tile_load(6, key + 2 * size, TILE_BYTES);
        tile_add_bytes(0, 4, 6);
        fetch_ahead(ahead);
    }
    if (steps > 3) {
        tile_load(6, key + 3 * size, TILE_BYTES);
        tile_add_bytes(0, 5, 6);
        fetch_ahead(ahead);
    }
    tile_store(0, sums, TILE_BYTES);
}

/* As vi_dot_end. */
INLINE vf number_of_halves(const int32_t *sums, int32_t begin)
{
    return vf_from_whole((vi)((vu)vi_load(sums) << 8) + vi_load(sums + LANES) +
                         vi_set1(begin));
}

/* to[key][heads], of 16 keys. */
INLINE void store_key_tile(float *to, const struct attn_decode_panel *panel,
                           const int32_t *sums, vf scale, const size_t heads)
{
    vf score[LANES];
#pragma GCC unroll 16
    for (size_t h = 0; h < heads; h++)
        score[h] = number_of_halves(sums + 2 * h * LANES, panel->whole_begin[h]) * scale *
                   vf_set1(panel->query_scale[h]);
    interleave_all(score, heads);
#pragma GCC unroll 16
    for (size_t h = 0; h < heads; h++)
        vf_store(to + h * LANES, score[h]);
}

INLINE void score_heads_byte_tiles(float *scores, const struct attn_decode_panel *panel,
                                   const struct attn_decode_block *block,
                                   const size_t heads)
{
    const size_t together = heads < BYTE_TILE_HEADS ? heads : BYTE_TILE_HEADS;
    const size_t lead = block->row % LANES, end = lead + block->keys;
    float all[(ATTN_DECODE_BYTE_KEYS + 2 * LANES) * LANES];
    _Alignas(TILE_BYTES) int32_t sums[2 * LANES * LANES];
    const bool is_whole = lead == 0 && end % LANES == 0;
    float *const to = is_whole ? scores : all;
    struct block_ahead ahead = byte_tiles_ahead(panel, block);
    struct stretch_ahead key_scales = scales_ahead(block->next_key_scales, block);
    struct stretch_ahead value_scales = scales_ahead(block->next_value_scales, block);
    load_query_tiles(panel, 0, together);
    for (size_t at = 0; at < end; at += LANES) {
        const char *const key =
            block->key + attn_byte_of_key(panel->D, block->row - lead + at, 0);
        for (size_t h = 0; h < heads; h += together) {
            if (together < heads)
                load_query_tiles(panel, h, together);
            multiply_key_tile(sums + 2 * h * LANES, key, panel->tile_rows,
                              panel->tile_steps, &ahead);
        }
        store_key_tile(to + at * heads, panel, sums,
                       load_scales(block->key_scales + at - lead), heads);
        fetch_stretch(&key_scales, SCALE_LINES);
        fetch_stretch(&value_scales, SCALE_LINES);
    }
    if (!is_whole)
        memcpy(scores, all + lead * heads, block->keys * heads * sizeof *scores);
}

INLINE bool keys_fill_byte_tiles(const struct attn_decode_panel *panel,
                                 const struct attn_decode_block *block)
{
    return block->key_type == ATTN_STORED_I8 && panel->tile_steps > 0;
}

static void score_byte_tiles(float *scores, const struct attn_decode_panel *panel,
                             const struct attn_decode_block *block)
{
    if (panel->heads == 1)
        score_heads_byte_tiles(scores, panel, block, 1);
    else if (panel->heads == 2)
        score_heads_byte_tiles(scores, panel, block, 2);
    else if (panel->heads == 4)
        score_heads_byte_tiles(scores, panel, block, 4);
    else if (panel->heads == 8)
        score_heads_byte_tiles(scores, panel, block, 8);
    else
        score_heads_byte_tiles(scores, panel, block, 16);
}

/* ---- Values ---------------------------------------------------------------------------
 */

/* left[step][head][half][16 fours of keys], from [fours][heads]. */
INLINE void turn_weights(int32_t *left, const struct whole_weights *whole, size_t steps,
                         const size_t heads)
{
    for (size_t step = 0; step < steps; step++)
        for (size_t half = 0; half < 2; half++) {
            const int32_t *const from =
                (half == 0 ? whole->first : whole->second) + step * heads * LANES;
            vi x[LANES];
#pragma GCC unroll 16
            for (size_t h = 0; h < heads; h++)
                x[h] = vi_load(from + h * LANES);
            separate_all(x, heads);
#pragma GCC unroll 16
            for (size_t h = 0; h < heads; h++)
                vi_store(left + ((step * heads + h) * 2 + half) * LANES, x[h]);
        }
}

/* output[head][16 elements] += what the block adds to them. */
INLINE void add_value_sums(float *output, const struct attn_decode_panel *panel,
                           const struct whole_weights *whole, const int32_t *sums,
                           const size_t heads)
{
#pragma GCC unroll 16
    for (size_t h = 0; h < heads; h++) {
        float *const to = output + h * panel->output_stride;
        const vf x = number_of_halves(sums + 2 * h * LANES, whole->begin[h]);
        vf_store(to, vf_fma(x, vf_set1(whole->scale[h]), vf_load(to)));
    }
}

INLINE void value_heads_byte_tiles(const struct attn_decode_panel *panel,
                                   const struct whole_weights *whole,
                                   const struct attn_decode_block *block,
                                   const size_t heads)
{
    enum { STEPS = ATTN_DECODE_BYTE_KEYS / BYTE_TILE_KEYS };
    const size_t together = heads < BYTE_TILE_HEADS ? heads : BYTE_TILE_HEADS;
    const size_t steps = block->keys / BYTE_TILE_KEYS;
    const size_t stride = ATTN_BYTES_LANE * panel->Dv;
    _Alignas(TILE_BYTES) int32_t left[STEPS * 2 * LANES * LANES], sums[2 * LANES * LANES];
    struct block_ahead ahead = byte_tiles_ahead(panel, block);
    skip_ahead(&ahead, key_tiles_of(block) * panel->tile_steps);
    turn_weights(left, whole, steps, heads);
    for (size_t d = 0; d < panel->Dv; d += LANES) {
        const char *const value =
            block->value + attn_byte_of_value(panel->Dv, block->row, d);
        for (size_t h = 0; h < heads; h += together) {
            tile_clear(0);
            for (size_t step = 0; step < steps; step++) {
                tile_load(1, left + (step * heads + h) * 2 * LANES, TILE_BYTES);
                tile_load(7, value + step * TILE_EDGE * stride, stride);
                tile_add_bytes(0, 1, 7);
                fetch_ahead(&ahead);
            }
            tile_store(0, sums + 2 * h * LANES, TILE_BYTES);
        }
        add_value_sums(panel->output + d, panel, whole, sums, heads);
    }
}

/* Whether tiles are full; else the sums are the same without them. */
INLINE bool values_fill_byte_tiles(const struct attn_decode_panel *panel,
                                   const struct attn_decode_block *block)
{
    return block->value_type == ATTN_STORED_I8 && panel->tile_steps > 0 &&
           panel->Dv % LANES == 0 && block->row % ATTN_BYTES_LANE == 0 &&
           block->keys % BYTE_TILE_KEYS == 0;
}

static void value_byte_tiles(const struct attn_decode_panel *panel, float *weights,
                             const struct attn_decode_block *block)
{
    struct whole_weights whole;
    struct stretch_ahead none = {NULL, 0};
    if (!make_whole(&whole, weights, block, panel->heads, &none))
        value_bytes_seen(panel, weights, block);
    else if (panel->heads == 1)
        value_heads_byte_tiles(panel, &whole, block, 1);
    else if (panel->heads == 2)
        value_heads_byte_tiles(panel, &whole, block, 2);
    else if (panel->heads == 4)
        value_heads_byte_tiles(panel, &whole, block, 4);
    else if (panel->heads == 8)
        value_heads_byte_tiles(panel, &whole, block, 8);
    else
        value_heads_byte_tiles(panel, &whole, block, 16);
}

#endif
