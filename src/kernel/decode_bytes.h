/* Decoding from 8 bits, in whole numbers.  A query, and the weights of a block, are
 * rounded to 15 bits and a sign, with one scale a head; then 16-bit multiply-adds take
 * twice as many elements as fp32 has lanes, sums of 32 bits are exact, and no key or
 * value is ever widened to fp32.  The rounding is 2⁻¹⁶ of the largest, a part in 256 of
 * what storing 8 bits has cost already. */
#ifndef ATTN_KERNEL_DECODE_BYTES_H
#define ATTN_KERNEL_DECODE_BYTES_H

#include "kernel/decode_rows.h"
#include "kernel/simd_types.h"
#include "kernel/softmax.h"
#include <float.h>

/* Magnitudes of what is rounded.  Adding 1.5·2²³ rounds to a whole number, to even, and
 * leaves it in the low bits of the sum. */
#define LARGEST_WHOLE 32767.0f
#define WHOLE_SHIFTER 0x1.8p23f

/* 2³¹ / (127 · 2 · 32767): longer sums of products would need more than 32 bits. */
enum { MOST_WHOLE_STEPS = 256 };

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

/* ---- Storing --------------------------------------------------------------------------
 */

static void quantise(int8_t *to, float *scales, const float *from, size_t row_stride,
                     size_t rows, size_t size)
{
    for (size_t row = 0; row < rows; row++) {
        const float *const x = from + row * row_stride;
        vf largest = {0}, poison = {0};
        for (size_t n = 0; n < size; n += LANES) {
            largest = vf_max(largest, vf_abs(vf_load(x + n)));
            poison += vf_load(x + n) * 0.0f;
        }
        const bool finite = !vi_any(poison != 0.0f);
        const float scale = largest_lane(largest) / 127.0f;
        const float inverse = finite ? inverse_of(scale) : 0.0f;
        scales[row] = !finite ? NAN : inverse == 0.0f ? 0.0f : scale;
        for (size_t n = 0; n < size; n += LANES) {
            const vf scaled = finite ? vf_load(x + n) * inverse : vf_set1(0.0f);
            const vi whole = vf_round(scaled);
            for (size_t i = 0; i < LANES && n + i < size; i++)
                to[row * size + n + i] = (int8_t)whole[i];
        }
    }
}

/* ---- Scores ---------------------------------------------------------------------------
 */

static void round_query(struct attn_decode_panel *panel)
{
    const size_t steps = panel->D / (2 * LANES) + 1;
    const float most = steps <= MOST_WHOLE_STEPS
                           ? LARGEST_WHOLE
                           : LARGEST_WHOLE * MOST_WHOLE_STEPS / (float)steps;
    for (size_t h = 0; h < panel->heads; h++) {
        const float *const x = panel->query + h * panel->query_stride;
        vf largest = {0}, poison = {0};
        for (size_t n = 0; n < panel->D; n += LANES) {
            largest = vf_max(largest, vf_abs(vf_load(x + n)));
            poison += vf_load(x + n) * 0.0f;
        }
        const bool finite = !vi_any(poison != 0.0f);
        const float scale = largest_lane(largest) / most;
        const float inverse = finite ? inverse_of(scale) : 0.0f;
        for (size_t i = h; i < LANES; i += panel->heads)
            panel->query_scale[i] = !finite ? NAN : inverse == 0.0f ? 0.0f : scale;
        for (size_t n = 0; n < panel->query_stride; n += LANES) {
            const vi whole = vf_round(finite ? vf_load(x + n) * inverse : vf_set1(0.0f));
            for (size_t i = 0; i < LANES; i++)
                panel->whole[h * panel->query_stride + n + i] = (int16_t)whole[i];
        }
    }
}

INLINE vs load_first_bytes(const char *p, size_t count)
{
    int8_t bytes[2 * LANES] = {0};
    memcpy(bytes, p, count);
    return vs_load_i8(bytes);
}

INLINE void score_step_bytes(vi *sum, const struct attn_decode_panel *panel, vs key,
                             size_t n, const size_t heads)
{
#pragma GCC unroll 16
    for (size_t h = 0; h < heads; h++)
        sum[h] +=
            vs_multiply_pairs(key, vs_load(panel->whole + h * panel->query_stride + n));
}

/* Products of whole numbers; scales are those of the tile's keys. */
INLINE vf score_tile_bytes(const struct attn_decode_panel *panel, const char *const *row,
                           const float *scales, struct ahead *ahead, const size_t heads)
{
    const size_t rest = panel->D % (2 * LANES), whole = panel->D - rest;
    const size_t keys = LANES / heads;
    vi sum[LANES];
    vf product[LANES], scale;
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++)
        sum[i] = vi_set1(0);
    size_t n = 0;
    if (whole > 0) {
        do {
#pragma GCC unroll 16
            for (size_t k = 0; k < keys; k++) {
                const vs key = vs_load_i8((const int8_t *)row[k] + n);
                score_step_bytes(sum + k * heads, panel, key, n, heads);
                if (n % 64 == 0)
                    fetch(ahead, 1);
            }
            n += 2 * LANES;
        } while (n < whole);
    }
#pragma GCC unroll 16
    for (size_t k = 0; k < keys; k++)
        if (rest > 0)
            score_step_bytes(sum + k * heads, panel,
                             load_first_bytes(row[k] + whole, rest), whole, heads);
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++) {
        product[i] = vf_from_whole(sum[i]);
        scale[i] = scales[i / heads];
    }
    return sums_of_lanes(product) * scale * vf_load(panel->query_scale);
}

/* ---- Values ---------------------------------------------------------------------------
 */

/* The weights of a block in whole numbers: of a key and the one after it in one lane,
 * [key][heads], where only every other key is looked at. */
struct whole_weights {
    int32_t pairs[(ATTN_DECODE_KEYS + 1) * LANES];
    float scale[LANES]; /* of each lane */
};

/* Weights times the scales of their values. */
INLINE void scale_weights(float *weights, const float *scales, size_t keys,
                          const size_t heads)
{
    for (size_t key = 0; key < keys; key += LANES / heads) {
        float own[LANES];
        vf scale = {0};
#pragma GCC unroll 16
        for (size_t k = 0; k < LANES / heads; k++)
            own[k] = scales[key + k < keys ? key + k : keys - 1];
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++)
            scale[i] = own[i / heads];
        scale_in_place(weights + key * heads, scale);
    }
}

/* False when a weight is not finite. */
static bool make_weights_whole(struct whole_weights *whole, const float *weights,
                               size_t heads, size_t keys)
{
    const size_t floats = (keys * heads + LANES - 1) / LANES * LANES;
    int32_t rounded[(ATTN_DECODE_KEYS + 3) * LANES];
    vf largest = {0}, poison = {0}, inverse = {0};
    for (size_t n = 0; n < floats; n += LANES) {
        largest = vf_max(largest, vf_load(weights + n));
        poison += vf_load(weights + n) * 0.0f;
    }
    if (vi_any(poison != 0.0f))
        return false;
    const vf scale = share_largest(largest, heads) * (1.0f / LARGEST_WHOLE);
    vf_store(whole->scale, scale);
    for (size_t i = 0; i < LANES; i++)
        inverse[i] = inverse_of(scale[i]);
    for (size_t n = 0; n < floats; n += LANES) {
        const vi x = vf_round(vf_load(weights + n) * inverse);
        memcpy(rounded + n, &x, sizeof x);
    }
    memset(rounded + keys * heads, 0, 2 * LANES * sizeof *rounded);
    for (size_t n = 0; n < floats; n += LANES) {
        const vi pair = vi_load(rounded + n) | vi_load(rounded + n + heads) << 16;
        memcpy(whole->pairs + n, &pair, sizeof pair);
    }
    return true;
}

struct bytes_tile {
    float *output;
    const int32_t *pairs;
    const float *scale;
    const char *value;
    size_t output_stride, heads, keys;
    ptrdiff_t value_stride;
    struct ahead *ahead;
    size_t ahead_lines; /* a pair of keys */
};

/* chunks of 2·LANES elements, of the last one `left`. */
INLINE void value_tile_bytes(const struct bytes_tile *t, const size_t heads,
                             const size_t chunks, const bool whole, size_t left)
{
    vi sum[VALUE_TILE];
#pragma GCC unroll 16
    for (size_t i = 0; i < heads * chunks * 2; i++)
        sum[i] = vi_set1(0);
    size_t key = 0;
    const int32_t *pair = t->pairs;
    do {
        const char *const first = t->value + (ptrdiff_t)key * t->value_stride;
        const char *const second = key + 1 < t->keys ? first + t->value_stride : first;
        vs x[VALUE_TILE];
#pragma GCC unroll 8
        for (size_t c = 0; c < chunks; c++) {
            int8_t rows[2][2 * LANES] = {{0}};
            const int8_t *a = (const int8_t *)first + c * 2 * LANES;
            const int8_t *b = (const int8_t *)second + c * 2 * LANES;
            if (!whole) {
                a = memcpy(rows[0], a, left);
                b = memcpy(rows[1], b, left);
            }
            vs_interleave_i8(a, b, &x[2 * c], &x[2 * c + 1]);
        }
#pragma GCC unroll 4
        for (size_t h = 0; h < heads; h++) {
            const vs weight = (vs)vi_set1(pair[h]);
#pragma GCC unroll 16
            for (size_t v = 0; v < 2 * chunks; v++)
                sum[h * 2 * chunks + v] += vs_multiply_pairs(x[v], weight);
            if (h < t->ahead_lines)
                fetch(t->ahead, 1);
        }
        pair += 2 * t->heads;
        key += 2;
    } while (key < t->keys);
#pragma GCC unroll 4
    for (size_t h = 0; h < heads; h++) {
        const vf scale = vf_set1(t->scale[h]);
#pragma GCC unroll 8
        for (size_t c = 0; c < chunks; c++) {
            float *const to = t->output + h * t->output_stride + c * 2 * LANES;
            vf low = vf_from_whole(sum[(h * chunks + c) * 2]);
            vf high = vf_from_whole(sum[(h * chunks + c) * 2 + 1]);
            vf_order_interleaved(&low, &high);
            vf_store(to, vf_fma(low, scale, vf_load(to)));
            vf_store(to + LANES, vf_fma(high, scale, vf_load(to + LANES)));
        }
    }
}

INLINE void value_heads_bytes(const struct attn_decode_panel *panel,
                              const struct whole_weights *whole,
                              const struct attn_decode_block *block, struct ahead *ahead,
                              size_t head, const size_t heads)
{
    const size_t chunk = 2 * LANES;
    const size_t most = VALUE_TILE / heads < 8 ? VALUE_TILE / heads / 2 : 4;
    const size_t passes =
        (panel->Dv + most * chunk - 1) / (most * chunk) * (panel->heads / heads);
    struct bytes_tile t = {
        .pairs = whole->pairs + head,
        .scale = whole->scale + head,
        .output_stride = panel->output_stride,
        .heads = panel->heads,
        .keys = block->keys,
        .value_stride = block->value_stride,
        .ahead = ahead,
        .ahead_lines = (2 * ahead->lines + passes - 1) / passes,
    };
    for (size_t d = 0; d < panel->Dv;) {
        const size_t left = panel->Dv - d;
        t.output = panel->output + head * panel->output_stride + d;
        t.value = block->value + d;
        if (left >= most * chunk) {
            value_tile_bytes(&t, heads, most, true, 0);
            d += most * chunk;
        } else if (left >= chunk) {
            value_tile_bytes(&t, heads, 1, true, 0);
            d += chunk;
        } else {
            value_tile_bytes(&t, heads, 1, false, left);
            d += chunk;
        }
    }
}

/* False when a weight is not finite, and nothing was done. */
static bool value_bytes(const struct attn_decode_panel *panel, const float *weights,
                        const struct attn_decode_block *block)
{
    struct whole_weights whole;
    if (!make_weights_whole(&whole, weights, panel->heads, block->keys))
        return false;
    struct ahead ahead =
        ahead_of(block->next_value, block->value_stride, block->next_keys, panel->Dv);
    if (panel->heads == 1)
        value_heads_bytes(panel, &whole, block, &ahead, 0, 1);
    else if (panel->heads == 2)
        value_heads_bytes(panel, &whole, block, &ahead, 0, 2);
    else
        for (size_t head = 0; head < panel->heads; head += VALUE_HEADS)
            value_heads_bytes(panel, &whole, block, &ahead, head, VALUE_HEADS);
    return true;
}

#endif
