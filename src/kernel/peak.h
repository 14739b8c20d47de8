/* The machine's limits: multiply-adds on registers alone, which no kernel can exceed, and
 * reading memory, which decoding cannot.  What benches hold rates against. */
#ifndef ATTN_KERNEL_PEAK_H
#define ATTN_KERNEL_PEAK_H

#include "kernel/simd.h"

/* Enough for two units of latency 5, or four of latency 4 and above where there are
 * registers for it. */
enum { PEAK_CHAINS = VF_REGISTERS == 32 ? 20 : 12 };

static double peak(int64_t repeats)
{
    vf chain[PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++)
        chain[i] = vf_set1((float)i);
    const vf factor = vf_set1(0.9999f), addend = vf_set1(1e-7f);
    for (int64_t n = 0; n < repeats; n++) {
#pragma GCC unroll 20
        for (size_t i = 0; i < PEAK_CHAINS; i++)
            chain[i] = vf_fma(chain[i], factor, addend);
    }
    float seen = 0.0f; /* if nobody used the result, the loop would be no work at all */
    for (size_t i = 0; i < PEAK_CHAINS; i++)
        seen += chain[i][0];
    return 2.0 * PEAK_CHAINS * (double)VF_LANES * (double)repeats + (seen == 0.5f);
}

enum { READ_CHAINS = 8 };

static float read_through(const float *x, size_t count)
{
    vf sum[READ_CHAINS] = {{0}};
    for (size_t i = 0; i + READ_CHAINS * VF_LANES <= count; i += READ_CHAINS * VF_LANES) {
#pragma GCC unroll 8
        for (size_t n = 0; n < READ_CHAINS; n++)
            sum[n] = sum[n] + vf_load(x + i + n * VF_LANES);
    }
    vf total = {0};
    for (size_t n = 0; n < READ_CHAINS; n++)
        total = total + sum[n];
    float seen = 0.0f;
    for (size_t i = 0; i < VF_LANES; i++)
        seen += total[i];
    return seen;
}

#endif
