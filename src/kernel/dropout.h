/* The draw that decides whether a weight is dropped: a hash of (seed, batch, head, query,
 * key) and nothing else, so that forward, backward, every tiling and every thread draw
 * alike.  A row (seed, batch, head, query) is hashed once to 64 bits; a key costs two
 * 32-bit multiplications, in every lane of a vector.
 *
 * The mixers are splitmix64 (Steele et al. 2014) and lowbias32 (Wellons 2018), the latter
 * with the row's second half joining in the middle: rows would otherwise be shifted
 * copies of one sequence. */
#ifndef ATTN_KERNEL_DROPOUT_H
#define ATTN_KERNEL_DROPOUT_H

#include "kernel/simd.h"

struct attn_dropout_row {
    uint32_t low, high;
};

static inline uint64_t attn_dropout_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* In packed batches b is the sequence and query counts in it. */
static inline struct attn_dropout_row attn_dropout_row(uint64_t seed, int64_t b,
                                                       int64_t h, int64_t query)
{
    uint64_t x = attn_dropout_mix(seed);
    x = attn_dropout_mix(x ^ (uint64_t)b);
    x = attn_dropout_mix(x ^ (uint64_t)h);
    x = attn_dropout_mix(x ^ (uint64_t)query);
    return (struct attn_dropout_row){(uint32_t)x, (uint32_t)(x >> 32)};
}

/* A weight stays when its draw, 31 bits, is not below this.  For probability 1 the few
 * that would stay are multiplied by a factor of 0. */
static inline int32_t attn_dropout_threshold(double probability)
{
    const double threshold = probability * 0x1p31;
    return threshold >= 0x1p31 ? INT32_MAX : (int32_t)threshold;
}

/* What a weight that stays is multiplied by. */
static inline double attn_dropout_factor(double probability)
{
    return probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0;
}

static inline bool attn_dropout_keeps(struct attn_dropout_row row, uint32_t key,
                                      int32_t threshold)
{
    uint32_t x = key + row.low;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x ^= row.high;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    return (int32_t)(x >> 1) >= threshold;
}

/* attn_dropout_keeps of a row in each lane: −1 where the weight stays. */
INLINE vi vi_dropout_keeps(vi low, vi high, uint32_t key, int32_t threshold)
{
    vu x = (vu)low + key;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x ^= (vu)high;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    return (vi)(x >> 1) >= vi_set1(threshold);
}

#endif
