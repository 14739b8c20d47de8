/* Rows of 8 bits: how floats are rounded to whole numbers with a scale, and stored as
 * decoding reads them (decode_bytes.h). */
#ifndef ATTN_KERNEL_QUANTISE_H
#define ATTN_KERNEL_QUANTISE_H

#include "kernel/decode_table.h"
#include "kernel/lanes.h"
#include "kernel/simd.h"
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

/* As attn_byte_scale reads it, and not below. */
INLINE uint16_t store_scale(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return (uint16_t)((bits + 0x7fff) >> 15);
}

static void quantise(const struct attn_byte_rows *to, const float *from,
                     size_t row_stride, size_t rows)
{
    for (size_t row = 0; row < rows; row++) {
        const float *const x = from + row * row_stride;
        const size_t place = to->row + row;
        to->scales[row] = store_scale(scale_of_row(x, to->size, 127.0f));
        const float inverse = inverse_of(attn_byte_scale(to->scales[row])); /* NaN: 0 */
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

#endif
