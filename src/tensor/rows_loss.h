/* Cross-entropy of one row of logits. */
#ifndef ATTN_TENSOR_ROWS_LOSS_H
#define ATTN_TENSOR_ROWS_LOSS_H

#include "tensor/rows_vector.h"

/* The largest logit, and the sum of all. */
INLINE float row_largest(const float *x, size_t n, double *sum)
{
    vf largest[2] = {vf_set1(-INFINITY), vf_set1(-INFINITY)};
    vf total[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        const vf a = vf_load(x + i), b = vf_load(x + i + VF_LANES);
        largest[0] = vf_max(largest[0], a);
        largest[1] = vf_max(largest[1], b);
        total[0] = total[0] + a;
        total[1] = total[1] + b;
    }
    for (; i < n; i += VF_LANES) {
        const vf a = load_some(x + i, n - i);
        largest[0] =
            vf_max(largest[0], vf_select(first_lanes(n - i), a, vf_set1(-INFINITY)));
        total[0] = total[0] + a;
    }
    *sum = (double)sum_lanes(total[0] + total[1]);
    return max_lanes(vf_max(largest[0], largest[1]));
}

/* x becomes e^(x − largest); returns the sum. */
INLINE float row_exponentials(float *x, size_t n, float largest)
{
    const vf shift = vf_set1(largest);
    vf sum[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        const vf a = exp_any(vf_load(x + i) - shift);
        const vf b = exp_any(vf_load(x + i + VF_LANES) - shift);
        sum[0] = sum[0] + a;
        sum[1] = sum[1] + b;
        vf_store(x + i, a);
        vf_store(x + i + VF_LANES, b);
    }
    for (; i < n; i += VF_LANES) {
        const vf a =
            vf_keep(first_lanes(n - i), exp_any(load_some(x + i, n - i) - shift));
        sum[0] = sum[0] + a;
        store_some(x + i, a, n - i);
    }
    return sum_lanes(sum[0] + sum[1]);
}

static void cross_entropy(float *logits, size_t target, struct attn_cross_entropy *loss)
{
    const size_t n = loss->classes;
    const double smoothing = (double)loss->smoothing;
    const double at_target = (double)logits[target];
    double total;
    const float largest = row_largest(logits, n, &total);
    const float sum = row_exponentials(logits, n, largest);
    const double lse = (double)largest + log((double)sum);
    loss->plain = lse - at_target;
    loss->smoothed = lse - (1.0 - smoothing) * at_target - smoothing * total / (double)n;
    if (!loss->gradient)
        return;
    const vf factor = vf_set1(loss->scale / sum);
    const vf uniform = vf_set1((float)(smoothing / (double)n) * loss->scale);
    for (size_t i = 0; i < n; i += VF_LANES)
        store_some(logits + i, load_some(logits + i, n - i) * factor - uniform, n - i);
    logits[target] -= (float)(1.0 - smoothing) * loss->scale;
}

#endif
