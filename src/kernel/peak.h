/* What benches hold rates against: multiply-adds on registers alone, which no kernel can
 * exceed; reading memory, which decoding cannot; and tanh by itself, of which additive
 * attention as it is written takes one for each element of each pair. */
#ifndef ATTN_KERNEL_PEAK_H
#define ATTN_KERNEL_PEAK_H

#include "kernel/tanh.h"

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

/* Read by turns, four cache lines each: on Zen 4 one stretch alone gives a core 23 GB/s,
 * eight give it 30, sixteen 21. */
enum { READ_STRETCHES = 8, READ_FLOATS = 64 };

static float read_through(const float *x, size_t count)
{
    const size_t stretch = count / READ_STRETCHES;
    vf sum[READ_FLOATS / VF_LANES] = {{0}};
    for (size_t i = 0; i < stretch; i += READ_FLOATS)
        for (size_t s = 0; s < READ_STRETCHES; s++) {
            const float *const from = x + s * stretch + i;
#pragma GCC unroll 16
            for (size_t n = 0; n < READ_FLOATS / VF_LANES; n++)
                sum[n] = sum[n] + vf_load(from + n * VF_LANES);
        }
    float seen = 0.0f;
    for (size_t n = 0; n < READ_FLOATS / VF_LANES; n++)
        for (size_t i = 0; i < VF_LANES; i++)
            seen += sum[n][i];
    return seen;
}

enum { TANH_FLOATS = 1024 };

static double tanh_alone(int64_t repeats)
{
    float x[TANH_FLOATS];
    for (size_t i = 0; i < TANH_FLOATS; i++)
        x[i] = (float)i * (8.0f / TANH_FLOATS) - 4.0f;
    vf sum = {0};
    for (int64_t n = 0; n < repeats; n++) {
        for (size_t i = 0; i < TANH_FLOATS; i += VF_LANES)
            sum = sum + vf_tanh(vf_load(x + i));
        x[n % TANH_FLOATS] = sum[0] * 1e-9f; /* or once would do for all */
    }
    return TANH_FLOATS * (double)repeats + (sum[0] == 0.5f);
}

#endif
