/* Random numbers without a state: each is a function of what it is for, so that a resumed
 * training draws what an unbroken one would (SplitMix64, Steele et al. 2014). */
#ifndef ATTN_BASE_MIX_H
#define ATTN_BASE_MIX_H

#include <stdint.h>

static inline uint64_t attn_mix(uint64_t seed, uint64_t count)
{
    uint64_t z = seed + (count + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double attn_mix_unit(uint64_t seed, uint64_t count)
{
    return (double)(attn_mix(seed, count) >> 11) * 0x1p-53;
}

/* Of data, word after word from ATTN_MIX_HASH on (FNV-1a, by whole words). */
static const uint64_t ATTN_MIX_HASH = UINT64_C(0xcbf29ce484222325);

static inline uint64_t attn_mix_hash(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

#endif
