/* The machine's limit: multiply-adds on registers alone, which no kernel can exceed. What
 * benches hold rates against. */
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

#endif
