/* Vectors of elements that are not fp32: 16-bit floats, pairs of them, whole numbers of 8
 * and 16 bits.  See simd.h. */
#ifndef ATTN_KERNEL_SIMD_TYPES_H
#define ATTN_KERNEL_SIMD_TYPES_H

#include "kernel/simd.h"

/* ---- 16 bits --------------------------------------------------------------------------
 * A vector's worth of elements of 16 bits, widened exactly as it is loaded, and rounded
 * to nearest even as it is stored: NaN stays NaN, and what is too large becomes infinite.
 */

typedef uint16_t vf_half __attribute__((vector_size(VF_BYTES / 2)));

INLINE vf vf_load_bf16(const uint16_t *p)
{
#if VF_BYTES == 64
    return (vf)_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif VF_BYTES == 32
    return (vf)_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    vf_half x;
    memcpy(&x, p, sizeof x);
    return (vf)(__builtin_convertvector(x, vu) << 16);
#endif
}

/* Rounded to the upper half of an fp32; the lower one is anything. */
INLINE vu vf_round_bf16(vf x)
{
    const vu bits = (vu)x, odd = bits >> 16 & 1;
    const vi is_nan = x != x;
    const vu rounded = bits + 0x7fff + odd, quiet = bits | 0x400000;
    return (vu)vi_select(is_nan, (vi)quiet, (vi)rounded);
}

INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    const vf_half half = __builtin_convertvector(vf_round_bf16(x) >> 16, vf_half);
    memcpy(p, &half, sizeof half);
}

/* ---- Pairs ----------------------------------------------------------------------------
 * Two bfloat16 in the place of one fp32, the first one in its lower half. */

/* Rounded to nearest even; subnormal numbers may become 0. */
INLINE vf vf_pair(vf first, vf second)
{
#if defined(__AVX512BF16__)
    static const uint16_t places[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    return (vf)_mm512_permutexvar_epi16(_mm512_loadu_si512(places), (__m512i)both);
#else
    return (vf)(vf_round_bf16(first) >> 16 | (vf_round_bf16(second) & 0xffff0000));
#endif
}

/* The upper halves of fp32 as they are, as a pair of bfloat16, the first one in its lower
 * half. */
INLINE vf vf_pair_upper(vf first, vf second)
{
#if VF_BYTES == 64
    static const uint8_t upper[16] = {2,  3,  2,  3,  6,  7,  6,  7,
                                      10, 11, 10, 11, 14, 15, 14, 15};
    const __m512i places = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)upper));
    return (vf)_mm512_mask_shuffle_epi8((__m512i)second, 0x3333333333333333,
                                        (__m512i)first, places);
#else
    return (vf)((vu)first >> 16 | ((vu)second & 0xffff0000));
#endif
}

/* sum + Σ over both of a · b, products and sums in fp32; subnormal numbers may count as
 * 0. */
INLINE vf vf_dot(vf a, vf b, vf sum)
{
#if defined(__AVX512BF16__)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    const vu upper = (vu){0} + 0xffff0000, x = (vu)a, y = (vu)b;
    sum = vf_fma((vf)(x << 16), (vf)(y << 16), sum);
    return vf_fma((vf)(x & upper), (vf)(y & upper), sum);
#endif
}

#if VF_BYTES == 64
/* Halves of a and b by turns, 128 bits at a time: those of their lower 64 bits, and of
 * their upper ones. */
INLINE void vf_interleave_halves(vf a, vf b, vf *low, vf *high)
{
    *low = (vf)_mm512_unpacklo_epi16((__m512i)a, (__m512i)b);
    *high = (vf)_mm512_unpackhi_epi16((__m512i)a, (__m512i)b);
}
#endif

/* ---- binary16 -------------------------------------------------------------------------
 */

#if VF_BYTES == 64 || (VF_BYTES == 32 && defined(__F16C__)) || defined(__aarch64__)

INLINE vf vf_load_f16(const uint16_t *p)
{
#    if VF_BYTES == 64
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#    elif VF_BYTES == 32
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#    else
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#    endif
}

INLINE void vf_store_f16(uint16_t *p, vf x)
{
#    if VF_BYTES == 64
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
#    elif VF_BYTES == 32
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#    else
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
#    endif
}

#else

/* With the exponent in fp32's place, 2¹¹² rights its bias, and makes subnormal numbers
 * normal ones: both exactly. */
INLINE vf vf_load_f16(const uint16_t *p)
{
    vf_half x;
    memcpy(&x, p, sizeof x);
    const vu half = __builtin_convertvector(x, vu);
    const vu sign = (half & 0x8000) << 16, magnitude = (half & 0x7fff) << 13;
    const vf number = (vf)magnitude * 0x1p112f;
    const vi is_special = magnitude >= 0x7c00u << 13;
    const vi special = (vi)(magnitude | 0x7f800000);
    return (vf)((vu)vi_select(is_special, special, (vi)number) | sign);
}

/* Above 2⁻¹⁴ the bits below the 13th round by a carry, which may run up to infinity.
 * Below, one half has the spacing of subnormal numbers, and adding it rounds. */
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    const vu sign = (vu)x & 0x80000000, magnitude = (vu)x ^ sign;
    const vu odd = magnitude >> 13 & 1;
    const vu normal = (magnitude - (112u << 23) + 0xfff + odd) >> 13;
    const vu subnormal = (vu)((vf)magnitude + 0.5f) - 0x3f000000;
    const vu nan = (magnitude >> 13 & 0x3ff) | 0x7e00;
    vi half = vi_select(magnitude < 113u << 23, (vi)subnormal, (vi)normal);
    half = vi_select(magnitude >= 143u << 23, vi_set1(0x7c00), half);
    half = vi_select(x != x, (vi)nan, half);
    const vf_half result = __builtin_convertvector((vu)half | sign >> 16, vf_half);
    memcpy(p, &result, sizeof result);
}

#endif

/* ---- Whole numbers of 8 and 16 bits ---------------------------------------------------
 */

typedef int16_t vs __attribute__((vector_size(VF_BYTES)));

/* a·b of the two halves of each lane, added. */
INLINE vi vs_multiply_pairs(vs a, vs b)
{
#if VF_BYTES == 64
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif VF_BYTES == 32
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (vi)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)),
                          vmull_high_s16(x, y));
#endif
}

INLINE vf vf_from_whole(vi x)
{
    return __builtin_convertvector(x, vf);
}

/* ---- Products of four bytes and four numbers of 16 bits, added ------------------------
 * Bytes are unsigned.  The others, at most VS_LARGEST in magnitude, come as two vectors,
 * which vi_split makes.  With AVX-512 VNNI these are their upper and their lower halves,
 * as signed bytes, and each has a sum of its own; without it the first and the third of
 * four, and the second and the fourth, and they share a sum.  Sums are exact, so either
 * way gives the same. */

#define VS_LARGEST 32639 /* 127 · 256 + 127 */
#if defined(__AVX512VNNI__)
enum { DOT_SUMS = 2 };
#    define DOT_NAME "dot products of bytes"
#else
enum { DOT_SUMS = 1 };
#    define DOT_NAME "products of 16 bits"
#endif

/* Of the four in a lane, even has the first and the third in its halves, odd the others.
 */
INLINE void vi_split(vi even, vi odd, vi *first, vi *second)
{
#if defined(__AVX512VNNI__)
    const vi lower = vi_set1(0x00ff00ff);
    /* A lower half that counts as negative is made up for in the upper one. */
    const vs half = (vs)vi_set1(0x00800080);
    const vu even_upper = (vu)((vs)even + half) >> 8, odd_upper = (vu)((vs)odd + half);
    *first = ((vi)even_upper & lower) | ((vi)odd_upper & ~lower);
    *second = (even & lower) | ((vi)((vu)odd << 8) & ~lower);
#else
    *first = even;
    *second = odd;
#endif
}

INLINE void vi_dot_bytes(vi sum[DOT_SUMS], vi bytes, vi first, vi second)
{
#if defined(__AVX512VNNI__)
    sum[0] = (vi)_mm512_dpbusd_epi32((__m512i)sum[0], (__m512i)bytes, (__m512i)first);
    sum[1] = (vi)_mm512_dpbusd_epi32((__m512i)sum[1], (__m512i)bytes, (__m512i)second);
#else
    const vs even = (vs)(bytes & 0x00ff00ff), odd = (vs)((vu)bytes >> 8 & 0x00ff00ff);
    sum[0] += vs_multiply_pairs(even, (vs)first) + vs_multiply_pairs(odd, (vs)second);
#endif
}

/* What a sum begins with. */
INLINE void vi_dot_begin(vi sum[DOT_SUMS], int32_t begin)
{
    for (size_t i = 0; i + 1 < DOT_SUMS; i++)
        sum[i] = vi_set1(0);
    sum[DOT_SUMS - 1] = vi_set1(begin);
}

INLINE vi vi_dot_end(const vi sum[DOT_SUMS])
{
#if defined(__AVX512VNNI__)
    return (vi)((vu)sum[0] << 8) + sum[1];
#else
    return sum[0];
#endif
}

#endif
