/* Which weights are dropped: a hash of (seed, sequence, head, query, key), so that
 * forward, backward, every tiling and every thread see the same draw.  The first four are
 * mixed once a query, into two words; the key joins them in a few 32-bit operations,
 * which vectors do as well (softmax.h).  Mixing: splitmix64 (Steele et al. 2014) and the
 * finalizer of MurmurHash3. */
#ifndef ATTN_KERNEL_DROPOUT_H
#define ATTN_KERNEL_DROPOUT_H

#include <stdbool.h>
#include <stdint.h>

#define ATTN_DROPOUT_KEY 0x9e3779b9u
#define ATTN_DROPOUT_MIX_1 0x85ebca6bu
#define ATTN_DROPOUT_MIX_2 0xc2b2ae35u

struct attn_dropout_row {
    uint32_t before, between; /* enter the hash before the key is mixed, and midway */
};

static inline uint64_t attn_splitmix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline struct attn_dropout_row attn_dropout_row(uint64_t seed, int64_t sequence,
                                                       int64_t head, int64_t query)
{
    uint64_t x = attn_splitmix(seed);
    x = attn_splitmix(x ^ (uint64_t)sequence);
    x = attn_splitmix(x ^ (uint64_t)head);
    x = attn_splitmix(x ^ (uint64_t)query);
    return (struct attn_dropout_row){(uint32_t)x, (uint32_t)(x >> 32)};
}

/* The draw of one key, uniform over all values. */
static inline uint32_t attn_dropout_draw(struct attn_dropout_row row, int64_t key)
{
    uint32_t x = row.before ^ ((uint32_t)key * ATTN_DROPOUT_KEY);
    x = (x ^ (x >> 16)) * ATTN_DROPOUT_MIX_1;
    x = (x ^ row.between ^ (x >> 13)) * ATTN_DROPOUT_MIX_2;
    return x ^ (x >> 16);
}

/* A weight is dropped when its draw is below this. */
static inline uint32_t attn_dropout_threshold(double probability)
{
    const double threshold = probability * 4294967296.0 + 0.5;
    return threshold >= 4294967295.0 ? UINT32_MAX : (uint32_t)threshold;
}

/* What the weights that stay are multiplied by; 0 when none may stay. */
static inline float attn_dropout_factor(double probability)
{
    return probability < 1.0 ? (float)(1.0 / (1.0 - probability)) : 0.0f;
}

#endif
