/* Conversion between binary32 and the two 16-bit formats, on the bits: the same on every
 * machine. */
#include "file/half.h"
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float attn_float_from_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

float attn_float_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1Fu;
    const uint32_t fraction = half & 0x3FFu;
    if (exponent == 0x1F)
        return float_of(sign | 0x7F800000u | fraction << 13);
    if (exponent > 0)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    const float magnitude = (float)fraction * 0x1p-24f; /* exact */
    return float_of(sign | bits_of(magnitude));
}

/* bits / 2^shift to nearest, ties to even. */
static uint32_t round_shift(uint32_t bits, unsigned shift)
{
    const uint32_t kept = bits >> shift;
    const uint32_t lost = bits & ((1u << shift) - 1);
    const uint32_t tie = 1u << (shift - 1);
    return kept + (lost > tie || (lost == tie && (kept & 1)));
}

uint16_t attn_bf16_from_float(float value)
{
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) /* NaN: rounding could carry it to infinity */
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)round_shift(bits, 16);
}

uint16_t attn_f16_from_float(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) /* 65520: half-way from the largest, 65504, to 65536 */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude >= 0x38800000u) /* 2^-14: a carry out of the fraction is right */
        return (uint16_t)(sign | round_shift(magnitude - 0x38000000u, 13));
    if (magnitude < 0x33000000u) /* below 2^-25, half of the smallest */
        return (uint16_t)sign;
    const uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | round_shift(fraction, 126 - (magnitude >> 23)));
}
