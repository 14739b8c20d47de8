/* Decoding from 8 bits, in whole numbers.  A query, and the weights of a block, are
 * rounded to 15 bits and a sign, with one scale a head; sums of products of them and
 * bytes are exact in 32 bits, and no key or value is ever widened.  The rounding is
 * 2⁻¹⁶ of the largest, a part in 256 of what storing 8 bits has cost already.  Bytes are
 * stored with 128 added, which the sums begin with the opposite of. */
#ifndef ATTN_KERNEL_DECODE_BYTES_H
#define ATTN_KERNEL_DECODE_BYTES_H

#include "kernel/decode_rows.h"
#include "kernel/quantise.h"
#include "kernel/simd_types.h"
#include "kernel/softmax.h"

/* ---- Scores ---------------------------------------------------------------------------
 */

/* Elements n to n + 4·LANES − 1 of a head, rounded, in fours.  Returns their sum. */
INLINE int32_t round_fours(int32_t even[LANES], int32_t odd[LANES], const float *x,
                           float inverse, size_t n, size_t end)
{
    int32_t whole[ATTN_BYTES_LANE * LANES] = {0}, sum = 0;
    for (size_t i = 0; i < ATTN_BYTES_LANE && n + i * LANES < end; i++)
        vi_store(whole + i * LANES, vf_round(vf_load(x + n + i * LANES) * inverse));
    for (size_t i = 0; i < LANES; i++) {
        const int32_t *const four = whole + ATTN_BYTES_LANE * i;
        even[i] = (four[0] & 0xffff) | (int32_t)((uint32_t)four[2] << 16);
        odd[i] = (four[1] & 0xffff) | (int32_t)((uint32_t)four[3] << 16);
        sum += four[0] + four[1] + four[2] + four[3];
    }
    return sum;
}

/* ATTN_BYTES_CHUNK is a multiple of 4·LANES, so that these belong to one chunk; beyond D,
 * queries are 0. */
static void round_query(struct attn_decode_panel *panel)
{
    for (size_t h = 0; h < panel->heads; h++) {
        const float *const x = panel->query + h * panel->query_stride;
        const float scale = scale_of_row(x, panel->D, VS_LARGEST);
        const float inverse = inverse_of(scale); /* of NaN: 0 */
        const size_t fours = (panel->D + ATTN_BYTES_LANE - 1) / ATTN_BYTES_LANE;
        panel->query_scale[h] = scale;
        for (size_t c = 0; c < attn_bytes_chunks(panel->D); c++)
            panel->whole_begin[c * panel->heads + h] = 0;
        for (size_t four = 0; four < fours; four += LANES) {
            int32_t even[LANES] = {0}, odd[LANES] = {0};
            vi first, second;
            if (inverse > 0.0f)
                panel->whole_begin[four * ATTN_BYTES_LANE / ATTN_BYTES_CHUNK *
                                       panel->heads +
                                   h] -=
                    ATTN_BYTES_ZERO *
                    round_fours(even, odd, x, inverse, four * ATTN_BYTES_LANE, panel->D);
            vi_split(vi_load(even), vi_load(odd), &first, &second);
            vi_store(even, first);
            vi_store(odd, second);
            for (size_t i = 0; i < LANES && four + i < fours; i++) {
                int32_t *const to = panel->whole + ((four + i) * panel->heads + h) * 2;
                to[0] = even[i];
                to[1] = odd[i];
            }
        }
    }
}

INLINE vf load_scales(const uint16_t *scales)
{
    return (vf)((vu)vf_load_bf16(scales) >> 1);
}

/* Vectors of keys, and as many heads, of one tile of scores. */
struct score_bytes {
    const struct attn_decode_panel *panel;
    const char *key[4];        /* of each vector: its first four elements */
    const uint16_t *scales[4]; /* likewise: LANES of them */
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
        const vf scale = load_scales(s->scales[v]);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            own[h] = own[h] * scale * vf_set1(s->panel->query_scale[h]);
        interleave_all(own, heads);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            vf_store(to + (v * heads + h) * LANES, own[h]);
    }
}

/* All at once, they would wait for each other: of the time of a block, a twentieth. After
 * each tile of scores, of 16 keys at least, there is time for two lines. */
enum { SCALE_LINES = 2 };

INLINE struct stretch_ahead scales_ahead(const uint16_t *scales,
                                         const struct attn_decode_block *block)
{
    const size_t lead = (uintptr_t)scales % 64;
    const size_t bytes = lead + block->next_keys * sizeof *scales;
    return (struct stretch_ahead){
        .from = (const char *)scales - lead,
        .lines = block->next_keys > 0 ? (bytes + 63) / 64 : 0,
    };
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
    const bool is_whole = lead == 0 && end % (most * LANES) == 0;
    float *const to = is_whole ? scores : all;
    struct stretch_ahead ahead = {block->next_key, block->next_keys * panel->D / 64};
    struct stretch_ahead key_scales = scales_ahead(block->next_key_scales, block);
    struct stretch_ahead value_scales = scales_ahead(block->next_value_scales, block);
    for (size_t key = 0; key < end; key += most * LANES) {
        struct score_bytes s = {.panel = panel, .ahead = &ahead};
        for (size_t v = 0; v < most; v++) {
            const size_t at = key + v * LANES < end ? key + v * LANES : key;
            s.key[v] = block->key + attn_byte_of_key(panel->D, block->row - lead + at, 0);
            s.scales[v] = block->key_scales + at - lead;
        }
        score_tile_bytes(to + key * heads, &s, heads, most);
        fetch_stretch(&key_scales, SCALE_LINES);
        fetch_stretch(&value_scales, SCALE_LINES);
    }
    if (!is_whole)
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

/* What a sweep over the weights of a block has found. */
struct weights_found {
    vf largest; /* of each lane */
    bool finite;
};

/* Multiplies weights by the scales of their values. */
INLINE struct weights_found scale_weights(float *weights, const uint16_t *scales,
                                          size_t keys, const size_t heads,
                                          struct stretch_ahead *ahead)
{
    float own[ATTN_DECODE_BYTE_KEYS + LANES];
    vf largest[2] = {{0}, {0}};
    vi poison = {0}; /* weights are not negative, so that 0 · weight is 0 or NaN */
    size_t whole = 0;
    for (; whole + LANES <= keys; whole += LANES)
        vf_store(own + whole, load_scales(scales + whole));
    for (size_t i = whole; i < keys; i++)
        own[i] = attn_byte_scale(scales[i]);
    for (size_t i = 0; i < LANES; i++)
        own[keys + i] = own[keys - 1];
    for (size_t key = 0; key < keys; key += LANES) {
        vf x[LANES];
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++)
            x[h] = vf_load(own + key);
        interleave_all(x, heads);
#pragma GCC unroll 16
        for (size_t h = 0; h < heads; h++) {
            float *const to = weights + key * heads + h * LANES;
            if (key * heads + h * LANES >= keys * heads)
                break;
            const vf scaled = vf_load(to) * x[h];
            vf_store(to, scaled);
            largest[h % 2] = vf_max(largest[h % 2], scaled);
            poison |= (vi)(scaled * 0.0f);
        }
        fetch_stretch(ahead, heads);
    }
    return (struct weights_found){
        .largest = share_largest(vf_max(largest[0], largest[1]), heads),
        .finite = !vi_any((vf)poison != 0.0f),
    };
}

INLINE void store_four(struct whole_weights *whole, size_t at, const vi key[4])
{
    vi first, second;
    vi_split(key[0] | key[2] << 16, key[1] | key[3] << 16, &first, &second);
    vi_store(whole->first + at, first);
    vi_store(whole->second + at, second);
}

#if VF_BYTES == 64
/* Four heads, whose fours are a vector each, and sixteens of keys.  The general way fills
 * a quarter of each vector: a twentieth of the time of a block. */
INLINE vi round_sixteens(struct whole_weights *whole, const float *weights, vf inverse,
                         size_t keys, struct stretch_ahead *ahead)
{
    vi sum = {0};
    for (size_t n = 0; n < keys * 4; n += 4 * LANES) {
        vi x[4], key[4];
#    pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            x[i] = vf_round(vf_load(weights + n + i * LANES) * inverse);
        sum += x[0] + x[1] + (x[2] + x[3]);
        turn_quarters(x, key);
        store_four(whole, n / 4, key);
        fetch_stretch(ahead, 4);
    }
    return sum;
}
#endif

/* Any heads and keys, which begin `lead` keys before the weights: those are 0, and so are
 * the weights up to the end of their last vector. */
INLINE vi round_fours_of_keys(struct whole_weights *whole, const float *weights,
                              vf inverse, size_t keys, size_t lead, const size_t heads)
{
    enum { ROOM = (ATTN_DECODE_BYTE_KEYS + 3 * ATTN_BYTES_LANE) * LANES };
    const size_t floats = (keys * heads + LANES - 1) / LANES * LANES;
    const size_t fours = (lead + keys + ATTN_BYTES_LANE - 1) / ATTN_BYTES_LANE;
    const size_t used = lead * heads + floats;
    int32_t rounded[ROOM + LANES];
    vi sum = {0};
    for (size_t i = 0; i < lead * heads; i++)
        rounded[i] = 0;
    for (size_t n = 0; n < floats; n += LANES) {
        const vi x = vf_round(vf_load(weights + n) * inverse);
        vi_store(rounded + lead * heads + n, x);
        sum += x;
    }
    for (size_t i = used; i < ATTN_BYTES_LANE * heads * fours + LANES; i++)
        rounded[i] = 0;
    for (size_t n = 0; n < fours; n++) {
        const int32_t *const x = rounded + n * ATTN_BYTES_LANE * heads;
        const vi key[4] = {vi_load(x), vi_load(x + heads), vi_load(x + 2 * heads),
                           vi_load(x + 3 * heads)};
        store_four(whole, n * heads, key);
    }
    return sum;
}

/* Of a block's weights times the scales of its values, which the weights become.  False
 * when one is not finite. */
INLINE bool make_weights_whole(struct whole_weights *whole, float *weights,
                               const struct attn_decode_block *block, const size_t heads,
                               struct stretch_ahead *ahead)
{
    const size_t keys = block->keys, lead = block->row % ATTN_BYTES_LANE;
    const struct weights_found found =
        scale_weights(weights, block->value_scales, keys, heads, ahead);
    if (!found.finite)
        return false;
    const vf scale = found.largest * (1.0f / VS_LARGEST);
    const vf inverse = vf_select(scale >= FLT_MIN, vf_set1(1.0f) / scale, vf_set1(0.0f));
    vf_store(whole->scale, scale);
    vi sum;
#if VF_BYTES == 64
    if (heads == 4 && lead == 0 && keys % 16 == 0)
        sum = round_sixteens(whole, weights, inverse, keys, ahead);
    else
#endif
        sum = round_fours_of_keys(whole, weights, inverse, keys, lead, heads);
    for (size_t h = 0; h < heads; h++) {
        int32_t own = 0;
        for (size_t i = h; i < LANES; i += heads)
            own += sum[i];
        whole->begin[h] = -ATTN_BYTES_ZERO * own;
    }
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

static bool make_whole(struct whole_weights *whole, float *weights,
                       const struct attn_decode_block *block, size_t heads,
                       struct stretch_ahead *ahead)
{
    if (heads == 1)
        return make_weights_whole(whole, weights, block, 1, ahead);
    if (heads == 2)
        return make_weights_whole(whole, weights, block, 2, ahead);
#if VF_BYTES >= 32
    if (heads == 8)
        return make_weights_whole(whole, weights, block, 8, ahead);
#endif
#if VF_BYTES >= 64
    if (heads == 16)
        return make_weights_whole(whole, weights, block, 16, ahead);
#endif
    return make_weights_whole(whole, weights, block, 4, ahead);
}

static void value_bytes(const struct attn_decode_panel *panel, float *weights,
                        const struct attn_decode_block *block)
{
    struct whole_weights whole;
    struct stretch_ahead ahead = {block->next_value, block->next_keys * panel->Dv / 64};
    if (!make_whole(&whole, weights, block, panel->heads, &ahead))
        value_bytes_seen(panel, weights, block);
    else if (panel->heads == 1)
        value_heads_bytes(panel, &whole, block, &ahead, 0, 1);
    else if (panel->heads == 2)
        value_heads_bytes(panel, &whole, block, &ahead, 0, 2);
    else
        for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
            value_heads_bytes(panel, &whole, block, &ahead, head, VALUE_HEADS);
}

#endif
