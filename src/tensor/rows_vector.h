/* What the loops share: the last vector of a row that is not whole, sums over lanes, and
 * the functions of one variable. */
#ifndef ATTN_TENSOR_ROWS_VECTOR_H
#define ATTN_TENSOR_ROWS_VECTOR_H

#include "kernel/simd.h"
#include "kernel/tanh.h"
#include "tensor/rows.h"
#include <math.h>

/* count < VF_LANES, lanes beyond are 0.  Without a branch: clang joins a product and a
 * sum into one rounding only when no branch stands between them. */
INLINE vf load_first(const float *p, size_t count)
{
    vf x = {0};
    memcpy(&x, p, count * sizeof(float));
    return x;
}

/* Lanes beyond count are 0. */
INLINE vf load_some(const float *p, size_t count)
{
    return count < VF_LANES ? load_first(p, count) : vf_load(p);
}

INLINE void store_some(float *p, vf x, size_t count)
{
    if (count >= VF_LANES)
        vf_store(p, x);
    else
        memcpy(p, &x, count * sizeof(float));
}

/* The first count lanes true. */
INLINE vi first_lanes(size_t count)
{
    vi lane = {0};
    for (size_t i = 0; i < VF_LANES; i++)
        lane[i] = (int32_t)i;
    return lane < vi_set1((int32_t)(count < VF_LANES ? count : VF_LANES));
}

typedef float quarter __attribute__((vector_size(16)));

INLINE quarter sum_quarters(vf x)
{
    quarter part[VF_BYTES / 16];
    memcpy(part, &x, sizeof x);
#if VF_BYTES == 64
    return (part[0] + part[2]) + (part[1] + part[3]);
#elif VF_BYTES == 32
    return part[0] + part[1];
#else
    return part[0];
#endif
}

/* In a fixed order. */
INLINE float sum_lanes(vf x)
{
    const quarter q = sum_quarters(x);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

INLINE float max_lanes(vf x)
{
    float largest = x[0];
    for (size_t i = 1; i < VF_LANES; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* e^x of any x: 0 from VF_EXP_FLOOR down, and no more than e^88. */
INLINE vf exp_any(vf x)
{
    return vf_exp(-vf_max(vf_set1(-88.0f), -vf_max(vf_set1(VF_EXP_FLOOR), x)));
}

INLINE vf logistic(vf x)
{
    return vf_set1(1.0f) / (vf_set1(1.0f) + exp_any(-x));
}

/* Φ(x), the normal distribution, and its density.  Formula 7.1.26 of Abramowitz and
 * Stegun for erf: 1.5e-7 absolute. */
INLINE vf normal_distribution(vf x, vf *density)
{
    const vf half_square = x * x * vf_set1(0.5f);
    const vf e = exp_any(-half_square);
    *density = e * vf_set1(0.39894228040143268f); /* 1/√(2π) */
    const vf z = vf_abs(x) * vf_set1(0.70710678118654752f);
    const vf t = vf_set1(1.0f) / vf_fma(z, vf_set1(0.3275911f), vf_set1(1.0f));
    vf p = vf_set1(1.061405429f);
    p = vf_fma(p, t, vf_set1(-1.453152027f));
    p = vf_fma(p, t, vf_set1(1.421413741f));
    p = vf_fma(p, t, vf_set1(-0.284496736f));
    p = vf_fma(p, t, vf_set1(0.254829592f));
    const vf tail = p * t * e * vf_set1(0.5f); /* Φ(−|x|) */
    return vf_select(x < vf_set1(0.0f), tail, vf_set1(1.0f) - tail);
}

#endif
