/* What keys received from the queries of one panel: a matrix of kept weights times a
 * vector of factors, one a lane. */
#ifndef ATTN_KERNEL_RECEIVE_H
#define ATTN_KERNEL_RECEIVE_H

#include "kernel/exp.h"
#include "kernel/lanes.h"
#include "kernel/table.h"

INLINE vf weight_received(const struct attn_received *from, const vf *factor, size_t key,
                          const size_t vectors)
{
    const float *const weights = from->weights + key * vectors * VF_LANES;
    vf sum = {0};
#pragma GCC unroll 3
    for (size_t v = 0; v < vectors; v++) {
        const vf weight = vf_load(weights + v * VF_LANES);
        sum = vf_fma(vf_keep(factor[v] != 0.0f, weight), factor[v], sum);
    }
    return sum;
}

INLINE void receive_vectors(float *received, const struct attn_received *from,
                            const size_t vectors)
{
    vf factor[ATTN_PANEL_VECTORS];
#pragma GCC unroll 3
    for (size_t v = 0; v < vectors; v++) {
        const vf inverse = vf_load(from->inverse + v * VF_LANES);
        const vf rise = vf_load(from->reference + v * VF_LANES) -
                        vf_load(from->last_reference + v * VF_LANES);
        const vf share = vf_exp(vf_max(vf_set1(VF_EXP_FLOOR), rise));
        factor[v] = vf_keep(inverse != 0.0f, share * inverse);
    }
    size_t key = 0;
    for (; key + VF_LANES <= from->keys; key += VF_LANES) {
        vf sum[VF_BYTES / 4];
#pragma GCC unroll 16
        for (size_t i = 0; i < VF_LANES; i++)
            sum[i] = weight_received(from, factor, key + i, vectors);
        vf_store(received + key, vf_load(received + key) + sums_of_lanes(sum));
    }
    for (; key < from->keys; key++) {
        vf sum[VF_BYTES / 4] = {weight_received(from, factor, key, vectors)};
        received[key] += sums_of_lanes(sum)[0];
    }
}

static void receive(float *received, const struct attn_received *from)
{
    if (from->vectors == 3)
        receive_vectors(received, from, 3);
    else if (from->vectors == 2)
        receive_vectors(received, from, 2);
    else
        receive_vectors(received, from, 1);
}

#endif
