/* Decoding from 8 bits, in whole numbers.  A query, and the weights of a block, are
 * rounded to 15 bits and a sign, with one scale a head; sums of products of them and
 * bytes are exact in 32 bits, and no key or value is ever widened.  The rounding is
 * 2⁻¹⁶ of the largest, a part in 256 of what storing 8 bits has cost already.  Bytes are
 * stored with 128 added, which the sums begin with the opposite of. */
#ifndef ATTN_KERNEL_DECODE_BYTES_H
#define ATTN_KERNEL_DECODE_BYTES_H

#include "kernel/decode_rows.h"
#include "kernel/simd_types.h"
#include "kernel/softmax.h"
#include <float.h>

/* Adding 1.5·2²³ rounds to a whole number, to even, and leaves it in the low bits of the
 * sum. */
#define WHOLE_SHIFTER 0x1.8p23f

INLINE vi vf_round(vf x)
{
    return vf_bits(x + vf_set1(WHOLE_SHIFTER)) - vf_bits(vf_set1(WHOLE_SHIFTER));
}

INLINE float largest_lane(vf x)
{
    float largest = 0.0f;
    for (size_t i = 0; i < LANES; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* 1/x, and 0 where that would be infinite. */
INLINE float inverse_of(float x)
{
    return x >= FLT_MIN ? 1.0f / x : 0.0f;
}

/* The scale of a row whose largest magnitude is to become `most`: NaN where it is not
 * finite, 0 where its inverse would not be. */
INLINE float scale_of_row(const float *x, size_t size, float most)
{
    vf largest = {0}, poison = {0};
    for (size_t n = 0; n < size; n += LANES) {
        largest = vf_max(largest, vf_abs(vf_load(x + n)));
        poison += vf_load(x + n) * 0.0f;
    }
    if (vi_any(poison != 0.0f))
        return NAN;
    const float scale = largest_lane(largest) / most;
    return inverse_of(scale) == 0.0f ? 0.0f : scale;
}

/* ---- Storing --------------------------------------------------------------------------
 */

static void quantise(const struct attn_byte_rows *to, const float *from,
                     size_t row_stride, size_t rows)
{
    for (size_t row = 0; row < rows; row++) {
        const float *const x = from + row * row_stride;
        const size_t place = to->row + row;
        const float scale = scale_of_row(x, to->size, 127.0f);
        const float inverse = inverse_of(scale); /* of NaN: 0 */
        to->scales[row] = scale;
        for (size_t n = 0; n < to->size; n += LANES) {
            const vf scaled = inverse > 0.0f ? vf_load(x + n) * inverse : vf_set1(0.0f);
            const vi whole = vf_round(scaled) + ATTN_BYTES_ZERO;
            for (size_t i = 0; i < LANES && n + i < to->size; i++)
                to->page[to->keys ? attn_byte_of_key(to->size, place, n + i)
                                  : attn_byte_of_value(to->size, place, n + i)] =
                    (uint8_t)whole[i];
        }
    }
}

/* ---- Scores ---------------------------------------------------------------------------
 */

/* Four whole numbers of one head. */
INLINE void store_whole(int32_t to[2], const int32_t x[ATTN_BYTES_LANE])
{
    vi first, second;
    vi_split(vi_set1((x[0] & 0xffff) | (int32_t)((uint32_t)x[2] << 16)),
             vi_set1((x[1] & 0xffff) | (int32_t)((uint32_t)x[3] << 16)), &first, &second);
    to[0] = first[0];
    to[1] = second[0];
}

static void round_query(struct attn_decode_panel *panel)
{
    for (size_t h = 0; h < panel->heads; h++) {
        const float *const x = panel->query + h * panel->query_stride;
        const float scale = scale_of_row(x, panel->D, VS_LARGEST);
        const float inverse = inverse_of(scale);
        panel->query_scale[h] = scale;
        for (size_t c = 0; c < attn_bytes_chunks(panel->D); c++)
            panel->whole_begin[c * panel->heads + h] = 0;
        for (size_t n = 0; n < panel->D; n += ATTN_BYTES_LANE) {
            int32_t whole[ATTN_BYTES_LANE] = {0};
            for (size_t i = 0; i < ATTN_BYTES_LANE && n + i < panel->D; i++) {
                if (inverse > 0.0f)
                    whole[i] = vf_round(vf_set1(x[n + i] * inverse))[0];
                panel->whole_begin[n / ATTN_BYTES_CHUNK * panel->heads + h] -=
                    ATTN_BYTES_ZERO * whole[i];
            }
            store_whole(panel->whole + (n / ATTN_BYTES_LANE * panel->heads + h) * 2,
                        whole);
        }
    }
}

/* Vectors of keys, and as many heads, of one tile of scores. */
struct score_bytes {
    const struct attn_decode_panel *panel;
    const char *key[4];     /* of each vector: its first four elements */
    const float *scales[4]; /* likewise: LANES of them */
    struct stretch_ahead *ahead;
};

/* score[vector][head] += products of heads first to first + heads − 1 with one chunk of
 * D, which begins at element d. */
INLINE void score_chunk_bytes(vf *score, const struct score_bytes *s, size_t d,
                              const size_t of, const size_t first, const size_t heads,
                              const size_t vectors)
{
    const size_t rest = s->panel->D - d;
    const size_t size = rest < ATTN_BYTES_CHUNK ? rest : ATTN_BYTES_CHUNK;
    const int32_t *whole = s->panel->whole + (d / ATTN_BYTES_LANE * of + first) * 2;
    const int32_t *const begin = s->panel->whole_begin + d / ATTN_BYTES_CHUNK * of;
    size_t place = d * ATTN_BYTES_TILE;
    const size_t end = place + size * ATTN_BYTES_TILE;
    vi sum[VALUE_TILE];
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            vi_dot_begin(sum + (h * vectors + v) * DOT_SUMS, begin[first + h]);
    do {
        vi x[4];
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            x[v] = vi_load((const int32_t *)(s->key[v] + place));
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++) {
            const vi one = vi_set1(whole[2 * h]), other = vi_set1(whole[2 * h + 1]);
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++)
                vi_dot_bytes(sum + (h * vectors + v) * DOT_SUMS, x[v], one, other);
        }
        if (first == 0)
            fetch_stretch(s->ahead, (vectors * VF_BYTES + 63) / 64);
        whole += 2 * of;
        place += ATTN_BYTES_TILE * ATTN_BYTES_LANE;
    } while (place < end);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            score[v * LANES + first + h] +=
                vf_from_whole(vi_dot_end(sum + (h * vectors + v) * DOT_SUMS));
}

/* Scores of `vectors` times LANES keys, [key][heads]. */
INLINE void score_tile_bytes(float *to, const struct score_bytes *s, const size_t heads,
                             const size_t vectors)
{
    const size_t at_once = heads < VALUE_HEADS ? heads : VALUE_HEADS;
    vf score[4 * LANES];
#pragma GCC unroll 64
    for (size_t i = 0; i < vectors * LANES; i++)
        score[i] = vf_set1(0.0f);
    for (size_t d = 0; d < s->panel->D; d += ATTN_BYTES_CHUNK)
#pragma GCC unroll 4
        for (size_t first = 0; first < heads; first += at_once)
            score_chunk_bytes(score, s, d, heads, first, at_once, vectors);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
        vf *const own = score + v * LANES;
        const vf scale = vf_load(s->scales[v]);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            own[h] = own[h] * scale * vf_set1(s->panel->query_scale[h]);
        interleave_all(own, heads);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            vf_store(to + (v * heads + h) * LANES, own[h]);
    }
}

/* Whole vectors of keys; of a block that begins or ends within one, the rest is cut off.
 */
INLINE void score_heads_bytes(float *scores, const struct attn_decode_panel *panel,
                              const struct attn_decode_block *block, const size_t heads)
{
    const size_t at_once = heads < VALUE_HEADS ? heads : VALUE_HEADS;
    const size_t most =
        VALUE_TILE / at_once / DOT_SUMS < 4 ? VALUE_TILE / at_once / DOT_SUMS : 4;
    const size_t lead = block->row % LANES, end = lead + block->keys;
    float all[(ATTN_DECODE_BYTE_KEYS + 5 * LANES) * LANES];
    struct stretch_ahead ahead = {block->next_key, block->next_keys * panel->D / 64};
    fetch_scales(block->next_key_scales, block->next_keys);
    fetch_scales(block->next_value_scales, block->next_keys);
    for (size_t key = 0; key < end; key += most * LANES) {
        struct score_bytes s = {.panel = panel, .ahead = &ahead};
        for (size_t v = 0; v < most; v++) {
            const size_t at = key + v * LANES < end ? key + v * LANES : key;
            s.key[v] = block->key + attn_byte_of_key(panel->D, block->row - lead + at, 0);
            s.scales[v] = block->key_scales + at - lead;
        }
        score_tile_bytes(all + key * heads, &s, heads, most);
    }
    memcpy(scores, all + lead * heads, block->keys * heads * sizeof *scores);
}

static void score_bytes(float *scores, const struct attn_decode_panel *panel,
                        const struct attn_decode_block *block)
{
    if (panel->heads == 1)
        score_heads_bytes(scores, panel, block, 1);
    else if (panel->heads == 2)
        score_heads_bytes(scores, panel, block, 2);
    else if (panel->heads == 4)
        score_heads_bytes(scores, panel, block, 4);
#if VF_BYTES >= 32
    else if (panel->heads == 8)
        score_heads_bytes(scores, panel, block, 8);
#endif
#if VF_BYTES >= 64
    else
        score_heads_bytes(scores, panel, block, 16);
#endif
}

/* ---- Values ---------------------------------------------------------------------------
 */

/* The weights of a block in whole numbers, four keys to a lane, [keys / 4][heads]. */
struct whole_weights {
    int32_t first[(ATTN_DECODE_BYTE_KEYS / ATTN_BYTES_LANE + 2) * LANES];
    int32_t second[(ATTN_DECODE_BYTE_KEYS / ATTN_BYTES_LANE + 2) * LANES];
    int32_t begin[LANES]; /* of each head: −128 · the sum */
    float scale[LANES];   /* of each lane */
};

/* Weights times the scales of their values. */
INLINE void scale_weights(float *weights, const float *scales, size_t keys,
                          const size_t heads)
{
    float own[ATTN_DECODE_BYTE_KEYS + LANES];
    memcpy(own, scales, keys * sizeof *own);
    for (size_t i = 0; i < LANES; i++)
        own[keys + i] = own[keys - 1];
    for (size_t key = 0; key < keys; key += LANES) {
        vf x[LANES];
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            x[h] = vf_load(own + key);
        interleave_all(x, heads);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            if (key * heads + h * LANES < keys * heads)
                scale_in_place(weights + key * heads + h * LANES, x[h]);
    }
}

/* Sums of fours of rounded weights, which begin `lead` keys before those of the block. */
INLINE void gather_fours(struct whole_weights *whole, const int32_t *rounded,
                         size_t heads, size_t fours)
{
    for (size_t n = 0; n < fours; n++) {
        const int32_t *const x = rounded + n * ATTN_BYTES_LANE * heads;
        vi first, second;
        vi_split(vi_load(x) | vi_load(x + 2 * heads) << 16,
                 vi_load(x + heads) | vi_load(x + 3 * heads) << 16, &first, &second);
        vi_store(whole->first + n * heads, first);
        vi_store(whole->second + n * heads, second);
    }
}

/* False when a weight is not finite.  Weights are those of `keys` keys, and 0 up to the
 * end of their last vector. */
static bool make_weights_whole(struct whole_weights *whole, const float *weights,
                               size_t heads, size_t keys, size_t lead)
{
    enum { ROOM = (ATTN_DECODE_BYTE_KEYS + 3 * ATTN_BYTES_LANE) * LANES };
    const size_t floats = (keys * heads + LANES - 1) / LANES * LANES;
    const size_t fours = (lead + keys + ATTN_BYTES_LANE - 1) / ATTN_BYTES_LANE;
    int32_t rounded[ROOM + LANES];
    vf largest = {0}, poison = {0};
    vi sum = {0};
    for (size_t n = 0; n < floats; n += LANES) {
        largest = vf_max(largest, vf_load(weights + n));
        poison += vf_load(weights + n) * 0.0f;
    }
    if (vi_any(poison != 0.0f))
        return false;
    const vf scale = share_largest(largest, heads) * (1.0f / VS_LARGEST);
    const vf inverse = vf_select(scale >= FLT_MIN, vf_set1(1.0f) / scale, vf_set1(0.0f));
    vf_store(whole->scale, scale);
    for (size_t i = 0; i < lead * heads; i++)
        rounded[i] = 0;
    for (size_t n = 0; n < floats; n += LANES) {
        const vi x = vf_round(vf_load(weights + n) * inverse);
        vi_store(rounded + lead * heads + n, x);
        sum += x;
    }
    const size_t used = lead * heads + floats;
    memset(rounded + used, 0,
           (ATTN_BYTES_LANE * heads * fours + LANES > used
                ? ATTN_BYTES_LANE * heads * fours + LANES - used
                : 0) *
               sizeof *rounded);
    gather_fours(whole, rounded, heads, fours);
    for (size_t h = 0; h < heads; h++)
        whole->begin[h] = 0;
    for (size_t i = 0; i < LANES; i++)
        whole->begin[i & (heads - 1)] -= ATTN_BYTES_ZERO * sum[i];
    return true;
}

struct bytes_tile {
    float *output;
    const int32_t *first, *second, *begin;
    const float *scale;
    const char *value; /* the first four keys' elements from the tile's first on */
    size_t output_stride, heads, fours;
    size_t stride; /* from fours to fours */
    struct stretch_ahead *ahead;
    size_t ahead_lines; /* for every four keys */
};

/* The last vector may go beyond the row's end: into what follows in the page, which there
 * always is enough of, and out to where the output has room. */
INLINE void value_tile_bytes(const struct bytes_tile *t, const size_t heads,
                             const size_t vectors)
{
    vi sum[VALUE_TILE];
    const int32_t *first = t->first, *second = t->second;
    const char *value = t->value;
    size_t n = 0;
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++)
            vi_dot_begin(sum + (h * vectors + v) * DOT_SUMS, t->begin[h]);
    do {
        vi x[VALUE_TILE];
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++)
            x[v] = vi_load((const int32_t *)(value + v * VF_BYTES));
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++) {
            const vi one = vi_set1(first[h]), other = vi_set1(second[h]);
#pragma GCC unroll 8
            for (size_t v = 0; v < vectors; v++)
                vi_dot_bytes(sum + (h * vectors + v) * DOT_SUMS, x[v], one, other);
        }
        fetch_stretch(t->ahead, t->ahead_lines);
        first += t->heads;
        second += t->heads;
        value += t->stride;
    } while (++n < t->fours);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++)
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++) {
            float *const to = t->output + h * t->output_stride + v * LANES;
            const vf x = vf_from_whole(vi_dot_end(sum + (h * vectors + v) * DOT_SUMS));
            vf_store(to, vf_fma(x, vf_set1(t->scale[h]), vf_load(to)));
        }
}

INLINE void value_heads_bytes(const struct attn_decode_panel *panel,
                              const struct whole_weights *whole,
                              const struct attn_decode_block *block,
                              struct stretch_ahead *ahead, size_t head,
                              const size_t heads)
{
    const size_t most =
        VALUE_TILE / heads / DOT_SUMS < 4 ? VALUE_TILE / heads / DOT_SUMS : 4;
    const size_t vectors = (panel->Dv + LANES - 1) / LANES;
    const size_t lead = block->row % ATTN_BYTES_LANE;
    struct bytes_tile t = {
        .first = whole->first + head,
        .second = whole->second + head,
        .begin = whole->begin + head,
        .scale = whole->scale + head,
        .output_stride = panel->output_stride,
        .heads = panel->heads,
        .fours = (lead + block->keys + ATTN_BYTES_LANE - 1) / ATTN_BYTES_LANE,
        .stride = ATTN_BYTES_LANE * panel->Dv,
        .ahead = ahead,
        .ahead_lines = (most * VF_BYTES + 63) / 64,
    };
    for (size_t v = 0; v < vectors;) {
        t.output = panel->output + head * panel->output_stride + v * LANES;
        t.value =
            block->value + attn_byte_of_value(panel->Dv, block->row - lead, v * LANES);
        if (v + most <= vectors) {
            value_tile_bytes(&t, heads, most);
            v += most;
        } else {
            value_tile_bytes(&t, heads, 1);
            v++;
        }
    }
}

/* One key and head after the other, but for those that are hidden: where a weight or a
 * value is not finite. */
static void value_bytes_seen(const struct attn_decode_panel *panel, const float *weights,
                             const struct attn_decode_block *block)
{
    const uint8_t *const page = (const uint8_t *)block->value;
    for (size_t n = 0; n < block->keys * panel->heads; n++) {
        if (block->added && block->added[n] == -INFINITY)
            continue;
        float *const output = panel->output + n % panel->heads * panel->output_stride;
        const size_t row = block->row + n / panel->heads;
        for (size_t d = 0; d < panel->Dv; d++)
            output[d] +=
                weights[n] *
                (float)(page[attn_byte_of_value(panel->Dv, row, d)] - ATTN_BYTES_ZERO);
    }
}

static void value_bytes(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block)
{
    struct whole_weights whole;
    if (!make_weights_whole(&whole, weights, panel->heads, block->keys,
                            block->row % ATTN_BYTES_LANE)) {
        value_bytes_seen(panel, weights, block);
        return;
    }
    struct stretch_ahead ahead = {block->next_value, block->next_keys * panel->Dv / 64};
    if (panel->heads == 1)
        value_heads_bytes(panel, &whole, block, &ahead, 0, 1);
    else if (panel->heads == 2)
        value_heads_bytes(panel, &whole, block, &ahead, 0, 2);
    else
        for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
            value_heads_bytes(panel, &whole, block, &ahead, head, VALUE_HEADS);
}

#endif
