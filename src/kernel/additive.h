/* Additive scores of one panel over one block of keys:
 *
 *     score = scale · Σ_d v[d] · tanh(q[d] + k[d])
 *
 * (Bahdanau et al. 2014, appendix A.1.2) without a tanh for each pair.  With |v[d]| =
 * V·u[d], V the largest, and s the sign of v[d],
 *
 *     v tanh(q + k) = V u tanh(s(q + k)) = V (u − 2u / (1 + e^2sq · e^2sk)),
 *
 * and the two factors are computed once for a query and once for a key.  A pair costs a
 * multiply-add, and half a division: two elements share one, 1/a + 1/b = (a + b)/(a·b),
 * all of these being positive.  That is 6 times as fast as tanh alone.
 *
 * Factors are exact to 2⁻²³ and a denominator to as much, so that a term u·tanh is within
 * 2e-7·u.  They overflow where elements are large: a pair of which one side has an
 * element that is not moderate, or NaN, takes tanh itself.  Which way a pair goes depends
 * on nothing but its query, its key and v. */
#ifndef ATTN_KERNEL_ADDITIVE_H
#define ATTN_KERNEL_ADDITIVE_H

#include "kernel/segment.h"
#include "kernel/table.h"
#include "kernel/tanh.h"
#include "kernel/transpose.h"
#include <math.h>

/* e^52 is 2^75, and a query's factor is divided by u ≥ 2⁻⁵⁰, which leaves it below 2^126.
 * Denominators stop at 2^60, so that two of them can be multiplied: what a term loses by
 * that is below 2⁻⁶⁰. */
#define ADDITIVE_MODERATE 26.0f
#define ADDITIVE_LEAST_PART 0x1p-50f
#define ADDITIVE_MOST 0x1p60f

/* Elements whose factors of queries, 12 KB, stay in cache while all keys pass. */
enum { ADDITIVE_CHUNK = 64, ADDITIVE_KEYS = 4 };

/* Rows of attn_additive.constants, one number for each element; those beyond D add
 * nothing to any score. */
enum additive_constant {
    ADDITIVE_RATE,    /* 2s: a factor is e^(rate · element) */
    ADDITIVE_PART,    /* u */
    ADDITIVE_INVERSE, /* 1/u */
    ADDITIVE_VECTOR,  /* v */
    ADDITIVE_MIDDLE,  /* what an element and its partner are at q + k = 0 */
};

static const float *additive_constants(const struct attn_additive *additive, size_t D,
                                       enum additive_constant which)
{
    return additive->constants + (size_t)which * attn_additive_row(D);
}

/* e^x for |x| ≤ 2·ADDITIVE_MODERATE, to 2⁻²³ of itself; NaN stays NaN, and whatever is
 * beyond becomes something finite.  The way of vf_exp with 1 ulp would lose |x|·2⁻²⁶ by
 * the 24 bits of log2 e; here ln 2 comes in two parts (Cody and Waite 1980), the first so
 * short that its product is exact. */
INLINE vf additive_exp(vf x)
{
    const vf log2_e = vf_set1(0x1.715476p+0f), shifter = vf_set1(0x1.8p23f + 127.0f);
    x = vf_max(vf_set1(-60.0f), vf_min(vf_set1(60.0f), x));
    const vf shifted = vf_fma(x, log2_e, shifter);
    const vf n = shifted - shifter;
    const vf rest =
        vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), vf_fma(n, vf_set1(-0x1.62e4p-1f), x));
    const vf f = rest * log2_e;
    vf p = vf_set1(0x1.41d334p-13f);
    p = vf_fma(p, f, vf_set1(0x1.5f456ap-10f));
    p = vf_fma(p, f, vf_set1(0x1.3b2dbcp-7f));
    p = vf_fma(p, f, vf_set1(0x1.c6aed4p-5f));
    p = vf_fma(p, f, vf_set1(0x1.ebfbdap-3f));
    p = vf_fma(p, f, vf_set1(0x1.62e430p-1f));
    p = vf_fma(p, f, vf_set1(1.0f));
    return p * vf_from_bits(vf_bits(shifted) << 23);
}

/* 1/a + 1/b */
INLINE vf additive_pair(vf a, vf b)
{
    return vf_divide(a + b, a * b);
}

INLINE vf additive_term(vf query, vf key, vf inverse)
{
    return vf_min(vf_set1(ADDITIVE_MOST), vf_fma(query, key, inverse));
}

/* ---- Queries --------------------------------------------------------------------------
 */

/* V, or 0 where v cannot be divided by it: then every pair takes tanh itself. */
static float largest_part(const float *vector, size_t D, float scale)
{
    float largest = 0.0f, is_finite = 0.0f;
    for (size_t d = 0; d < D; d++) {
        largest = fabsf(vector[d]) > largest ? fabsf(vector[d]) : largest;
        is_finite += vector[d] * 0.0f;
    }
    const bool divides = is_finite == 0.0f && largest >= 0x1p-60f && largest <= 0x1p60f &&
                         isfinite(2.0f * scale * largest);
    return divides ? largest : 0.0f;
}

/* Of two elements that share a division the second is `apart` elements further. */
static void fill_constants(struct attn_additive *additive, size_t D, size_t apart)
{
    const size_t row = attn_additive_row(D);
    float *const rate = additive->constants, *const part = rate + row;
    float *const inverse = part + row, *const vector = inverse + row;
    float *const middle = vector + row;
    const float largest = largest_part(additive->vector, D, additive->scale);
    additive->factor = -2.0f * additive->scale * largest;
    for (size_t d = 0; d < row; d++) {
        vector[d] = d < D ? additive->vector[d] : 0.0f;
        const float v = largest > 0.0f ? vector[d] / largest : 0.0f;
        const float size = fabsf(v);
        rate[d] = v < 0.0f ? -2.0f : 2.0f;
        part[d] = size > ADDITIVE_LEAST_PART ? size : ADDITIVE_LEAST_PART;
        inverse[d] = d < D ? 1.0f / part[d] : ADDITIVE_MOST;
    }
    for (size_t d = 0; d < row; d++) {
        const vf one = vf_set1(1.0f);
        const size_t partner = d / apart % 2 == 0 ? d + apart : d - apart;
        const vf a = vf_set1(inverse[d]), b = vf_set1(inverse[partner]);
        middle[d] = additive_pair(additive_term(one, a, a), additive_term(one, b, b))[0];
    }
}

static void load_additive_lanes(struct attn_panel *panel,
                                const struct attn_matrix *queries)
{
    struct attn_additive *const additive = &panel->additive;
    const size_t width = panel->vectors * VF_LANES, D = panel->D;
    float *const factors = panel->query;
    additive->factors = factors;
    additive->plain = factors + (D + D % 2) * width;
    additive->constants = additive->plain + D * width;
    fill_constants(additive, D, 1);
    load_transposed(additive->plain, width, queries, 1.0f);

    const float *const rate = additive_constants(additive, D, ADDITIVE_RATE);
    const float *const inverse = additive_constants(additive, D, ADDITIVE_INVERSE);
    additive->all_moderate = true;
    for (size_t lane = 0; lane < width; lane += VF_LANES) {
        vi moderate = vi_set1(additive->factor != 0.0f ? -1 : 0);
        for (size_t d = 0; d < D; d++)
            moderate &=
                vf_abs(vf_load(additive->plain + d * width + lane)) <= ADDITIVE_MODERATE;
        memcpy(additive->moderate + lane, &moderate, sizeof moderate);
        additive->all_moderate &= !vi_any(~moderate);
        for (size_t d = 0; d < D; d++) {
            const vf x = vf_load(additive->plain + d * width + lane) * rate[d];
            vf_store(factors + d * width + lane,
                     vf_keep(moderate, additive_exp(x) * inverse[d]));
        }
        if (D % 2 > 0)
            vf_store(factors + D * width + lane, vf_set1(0.0f));
    }
}

/* ---- Keys -----------------------------------------------------------------------------
 */

static bool is_moderate_key(const float *key, ptrdiff_t stride, size_t D)
{
    vi moderate = vi_set1(-1);
    bool rest = true;
    size_t d = 0;
    for (; stride == 1 && d + VF_LANES <= D; d += VF_LANES)
        moderate &= vf_abs(vf_load(key + d)) <= ADDITIVE_MODERATE;
    for (; d < D; d++)
        rest &= fabsf(key[(ptrdiff_t)d * stride]) <= ADDITIVE_MODERATE;
    return rest && !vi_any(~moderate);
}

/* to[n] = e^(rate · element first + n), for up to ADDITIVE_CHUNK elements of one key.
 * Those beyond its last are 0. */
static void fill_key_factors(float *to, const float *key, ptrdiff_t stride, size_t first,
                             size_t D, const float *rate)
{
    const size_t count = D - first < ADDITIVE_CHUNK ? D - first : ADDITIVE_CHUNK;
    key += (ptrdiff_t)first * stride;
    rate += first;
    size_t n = 0;
    for (; stride == 1 && n + VF_LANES <= count; n += VF_LANES)
        vf_store(to + n, additive_exp(vf_load(key + n) * vf_load(rate + n)));
    for (; n < count; n += VF_LANES) {
        float some[VF_BYTES / sizeof(float)] = {0.0f};
        for (size_t i = 0; i < VF_LANES && n + i < count; i++)
            some[i] = key[(ptrdiff_t)(n + i) * stride];
        vf_store(to + n, additive_exp(vf_load(some) * vf_load(rate + n)));
    }
    for (n = count; n < ADDITIVE_CHUNK; n++)
        to[n] = 0.0f;
}

/* ---- Scores ---------------------------------------------------------------------------
 */

/* A few elements of all queries of the panel. */
struct additive_chunk {
    const float *query, *inverse, *middle; /* from the first of them on */
    size_t first, pairs, width;
    bool is_last;
    float factor; /* of the sums at their end */
};

/* The constants after factors unroll the loops over sums, as in product.h. */
INLINE void additive_tile(float *scores, const struct additive_chunk *chunk,
                          const float *factors, const size_t rows, const size_t vectors)
{
    const size_t width = chunk->width;
    vf sum[ADDITIVE_KEYS][ATTN_PANEL_VECTORS];
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (size_t v = 0; v < vectors; v++)
            sum[r][v] = chunk->first == 0 ? vf_set1(0.0f)
                                          : vf_load(scores + r * width + v * VF_LANES);

    const float *query = chunk->query, *inverse = chunk->inverse;
    const float *middle = chunk->middle;
    size_t pairs = chunk->pairs;
    do {
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            const vf even = vf_set1(factors[r * ADDITIVE_CHUNK]);
            const vf odd = vf_set1(factors[r * ADDITIVE_CHUNK + 1]);
#pragma GCC unroll 3
            for (size_t v = 0; v < vectors; v++) {
                const vf a = additive_term(vf_load(query + v * VF_LANES), even,
                                           vf_set1(inverse[0]));
                const vf b = additive_term(vf_load(query + width + v * VF_LANES), odd,
                                           vf_set1(inverse[1]));
                sum[r][v] += additive_pair(a, b) - vf_set1(middle[0]);
            }
        }
        query += 2 * width;
        factors += 2;
        inverse += 2;
        middle += 2;
    } while (--pairs > 0);

    const vf factor = vf_set1(chunk->is_last ? chunk->factor : 1.0f);
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (size_t v = 0; v < vectors; v++)
            vf_store(scores + r * width + v * VF_LANES, sum[r][v] * factor);
}

/* Keys of one segment. */
INLINE void additive_rows(float *scores, const struct attn_panel *panel,
                          const struct attn_block *block,
                          const struct additive_chunk *chunk,
                          const struct segment *segment, const size_t vectors)
{
    const float *const rate =
        additive_constants(&panel->additive, panel->D, ADDITIVE_RATE);
    float factors[ADDITIVE_KEYS * ADDITIVE_CHUNK];
    for (size_t key = segment->begin; key < segment->end; key += ADDITIVE_KEYS) {
        const size_t left = segment->end - key;
        const size_t rows = left < ADDITIVE_KEYS ? left : ADDITIVE_KEYS;
        for (size_t r = 0; r < rows; r++)
            fill_key_factors(factors + r * ADDITIVE_CHUNK,
                             block->key + (ptrdiff_t)(key + r) * block->key_stride,
                             block->key_element_stride, chunk->first, panel->D, rate);
        float *const to = scores + key * chunk->width;
        if (rows == ADDITIVE_KEYS)
            additive_tile(to, chunk, factors, ADDITIVE_KEYS, vectors);
        else
            for (size_t r = 0; r < rows; r++)
                additive_tile(to + r * chunk->width, chunk, factors + r * ADDITIVE_CHUNK,
                              1, vectors);
    }
}

static void additive_segment(float *scores, const struct attn_panel *panel,
                             const struct attn_block *block,
                             const struct segment *segment, size_t first)
{
    const size_t D = panel->D, width = panel->vectors * VF_LANES;
    const size_t count = D - first < ADDITIVE_CHUNK ? D - first : ADDITIVE_CHUNK;
    const size_t lane = segment->first_vector * VF_LANES;
    const struct additive_chunk chunk = {
        .query = panel->additive.factors + first * width + lane,
        .inverse = additive_constants(&panel->additive, D, ADDITIVE_INVERSE) + first,
        .middle = additive_constants(&panel->additive, D, ADDITIVE_MIDDLE) + first,
        .first = first,
        .pairs = (count + 1) / 2,
        .width = width,
        .is_last = first + count == D,
        .factor = panel->additive.factor,
    };
    if (segment->vectors == 3)
        additive_rows(scores + lane, panel, block, &chunk, segment, 3);
    else if (segment->vectors == 2)
        additive_rows(scores + lane, panel, block, &chunk, segment, 2);
    else if (segment->vectors == 1)
        additive_rows(scores + lane, panel, block, &chunk, segment, 1);
}

/* One key, by tanh itself, for the lanes that are not moderate, or for all. */
static void direct_scores(float *scores, const struct attn_panel *panel, const float *key,
                          ptrdiff_t stride, bool is_moderate)
{
    const struct attn_additive *const additive = &panel->additive;
    const size_t width = panel->vectors * VF_LANES;
    for (size_t lane = 0; lane < width; lane += VF_LANES) {
        const vi done = vi_load(additive->moderate + lane) & vi_set1(-is_moderate);
        if (!vi_any(~done))
            continue;
        vf sum = vf_set1(0.0f);
        for (size_t d = 0; d < panel->D; d++) {
            const vf x = vf_load(additive->plain + d * width + lane) +
                         vf_set1(key[(ptrdiff_t)d * stride]);
            sum = vf_fma(vf_set1(additive->vector[d]), vf_tanh(x), sum);
        }
        vf_store(scores + lane,
                 vf_select(done, vf_load(scores + lane), sum * additive->scale));
    }
}

static void additive_lane_scores(float *scores, const struct attn_panel *panel,
                                 const struct attn_block *block)
{
    const size_t width = panel->vectors * VF_LANES;
    for (size_t first = 0; first < panel->D; first += ADDITIVE_CHUNK)
        for (size_t key = 0; key < block->keys;) {
            const struct segment segment = segment_from(block, panel->vectors, key);
            additive_segment(scores, panel, block, &segment, first);
            key = segment.end;
        }
    for (size_t n = 0; n < block->keys; n++) {
        const float *const key = block->key + (ptrdiff_t)n * block->key_stride;
        const bool is_moderate =
            is_moderate_key(key, block->key_element_stride, panel->D);
        if (!is_moderate || !panel->additive.all_moderate)
            direct_scores(scores + n * width, panel, key, block->key_element_stride,
                          is_moderate);
    }
}

#endif
