/* Loops over elements: sums, dropout, activations. */
#ifndef ATTN_TENSOR_ROWS_ELEMENTS_H
#define ATTN_TENSOR_ROWS_ELEMENTS_H

#include "tensor/rows_vector.h"

/* A draw has its own pair of keys for each run of 2^16 elements. */
enum { DRAW_ELEMENTS = 1 << 16 };

struct draw {
    vu key, salt;
    vi threshold;
    vf scale;
};

INLINE uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

INLINE struct draw draw_begin(const struct attn_drop *drop, size_t run)
{
    const uint64_t keys = mix64(drop->seed ^ mix64((uint64_t)run + 1));
    const vu zero = {0};
    return (struct draw){
        .key = zero + (uint32_t)keys,
        .salt = zero + (uint32_t)(keys >> 32),
        .threshold = vi_set1(drop->threshold),
        .scale = vf_set1(drop->scale),
    };
}

/* Elements `first` and on of the run: x·scale where they stay, 0 where not. */
INLINE vf drop_vector(const struct draw *draw, size_t first, vf x)
{
    vu h = {0};
    for (size_t i = 0; i < VF_LANES; i++)
        h[i] = (uint32_t)i;
    /* Wellons's lowbias32, with a second key between its rounds. */
    h = (h + (uint32_t)first) ^ draw->key;
    h = (h ^ (h >> 16)) * UINT32_C(0x7feb352d);
    h = (h ^ (h >> 15)) + draw->salt;
    h = h * UINT32_C(0x846ca68b);
    h = h ^ (h >> 16);
    return vf_keep((vi)h >= draw->threshold, x * draw->scale);
}

static void add_rows(float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i += VF_LANES)
        store_some(out + i, load_some(a + i, n - i) + load_some(b + i, n - i), n - i);
}

static void scale_rows(float *out, const float *in, float factor, size_t n, bool add)
{
    const vf f = vf_set1(factor);
    for (size_t i = 0; i < n; i += VF_LANES) {
        vf x = load_some(in + i, n - i) * f;
        if (add)
            x = x + load_some(out + i, n - i);
        store_some(out + i, x, n - i);
    }
}

static void drop_rows(float *out, const float *x, const float *other, size_t n,
                      const struct attn_drop *drop)
{
    for (size_t begin = 0; begin < n; begin += DRAW_ELEMENTS) {
        const struct draw draw = draw_begin(drop, begin / DRAW_ELEMENTS);
        const size_t end = n - begin < DRAW_ELEMENTS ? n : begin + DRAW_ELEMENTS;
        for (size_t i = begin; i < end; i += VF_LANES) {
            vf y = drop_vector(&draw, i - begin, load_some(x + i, end - i));
            if (other)
                y = y + load_some(other + i, end - i);
            store_some(out + i, y, end - i);
        }
    }
}

static void drop_backward(float *dx, const float *dy, size_t n,
                          const struct attn_drop *drop, bool add)
{
    drop_rows(dx, dy, add ? dx : NULL, n, drop);
}

/* σ(2√(2/π)(x + 0.044715·x³)), which is what approximates Φ(x), and its slope.  Beyond
 * ±10 it is 0 or 1, and a cube could overflow. */
INLINE vf normal_by_tanh(vf x, vf *slope)
{
    const vf c = vf_max(vf_set1(-10.0f), vf_min(vf_set1(10.0f), x));
    const vf square = c * c, one = vf_set1(1.0f);
    const vf two_u =
        c * vf_fma(square, vf_set1(0.0713548162726f), vf_set1(1.5957691216f));
    const vf s = logistic(two_u);
    *slope =
        s * (one - s) * vf_fma(square, vf_set1(0.214064448818f), vf_set1(1.5957691216f));
    return s;
}

INLINE vf activate_vector(vf x, attn_activation activation)
{
    vf density;
    switch (activation) {
    case ATTN_RELU:
        return vf_max(vf_set1(0.0f), x);
    case ATTN_GELU:
        return x * normal_distribution(x, &density);
    case ATTN_GELU_TANH:
        return x * normal_by_tanh(x, &density);
    case ATTN_SILU:
        return x * logistic(x);
    case ATTN_TANH:
        return vf_tanh(x);
    }
    return x;
}

INLINE vf activation_slope(vf x, attn_activation activation)
{
    const vf one = vf_set1(1.0f);
    vf density;
    switch (activation) {
    case ATTN_RELU:
        return vf_keep(x > vf_set1(0.0f), one);
    case ATTN_GELU: {
        const vf normal = normal_distribution(x, &density);
        return vf_fma(x, density, normal);
    }
    case ATTN_GELU_TANH: {
        const vf normal = normal_by_tanh(x, &density);
        return vf_fma(x, density, normal);
    }
    case ATTN_SILU: {
        const vf s = logistic(x);
        return s * vf_fma(x, one - s, one);
    }
    case ATTN_TANH: {
        const vf y = vf_tanh(x);
        return one - y * y;
    }
    }
    return one;
}

/* The constants at the calls below leave one loop for each activation, with dropout and
 * without. */
INLINE void activate_loop(float *out, const float *x, size_t n,
                          const attn_activation activation, const struct attn_drop *drop,
                          const bool drops, size_t first)
{
    for (size_t begin = 0; begin < n;) {
        const size_t at = (first + begin) % DRAW_ELEMENTS;
        const struct draw draw = draw_begin(drop, (first + begin) / DRAW_ELEMENTS);
        const size_t left = DRAW_ELEMENTS - at;
        const size_t count = n - begin < left ? n - begin : left;
        for (size_t i = 0; i < count; i += VF_LANES) {
            vf y = activate_vector(load_some(x + begin + i, count - i), activation);
            if (drops)
                y = drop_vector(&draw, at + i, y);
            store_some(out + begin + i, y, count - i);
        }
        begin += count;
    }
}

INLINE void activate_backward_loop(float *dx, const float *dy, const float *x, size_t n,
                                   const attn_activation activation,
                                   const struct attn_drop *drop, const bool drops,
                                   bool add)
{
    for (size_t begin = 0; begin < n; begin += DRAW_ELEMENTS) {
        const struct draw draw = draw_begin(drop, begin / DRAW_ELEMENTS);
        const size_t end = n - begin < DRAW_ELEMENTS ? n : begin + DRAW_ELEMENTS;
        for (size_t i = begin; i < end; i += VF_LANES) {
            vf d = load_some(dy + i, end - i);
            if (drops)
                d = drop_vector(&draw, i - begin, d);
            d = d * activation_slope(load_some(x + i, end - i), activation);
            if (add)
                d = d + load_some(dx + i, end - i);
            store_some(dx + i, d, end - i);
        }
    }
}

INLINE void activate_any(float *out, const float *x, size_t n, attn_activation activation,
                         const struct attn_drop *drop, const bool drops, size_t first)
{
    switch (activation) {
    case ATTN_RELU:
        activate_loop(out, x, n, ATTN_RELU, drop, drops, first);
        break;
    case ATTN_GELU:
        activate_loop(out, x, n, ATTN_GELU, drop, drops, first);
        break;
    case ATTN_GELU_TANH:
        activate_loop(out, x, n, ATTN_GELU_TANH, drop, drops, first);
        break;
    case ATTN_SILU:
        activate_loop(out, x, n, ATTN_SILU, drop, drops, first);
        break;
    case ATTN_TANH:
        activate_loop(out, x, n, ATTN_TANH, drop, drops, first);
        break;
    }
}

static void activate(float *out, const float *x, size_t n, attn_activation activation,
                     const struct attn_drop *drop, size_t first)
{
    if (drop->scale == 1.0f)
        activate_any(out, x, n, activation, drop, false, first);
    else
        activate_any(out, x, n, activation, drop, true, first);
}

INLINE void activate_backward_any(float *dx, const float *dy, const float *x, size_t n,
                                  attn_activation activation,
                                  const struct attn_drop *drop, const bool drops,
                                  bool add)
{
    switch (activation) {
    case ATTN_RELU:
        activate_backward_loop(dx, dy, x, n, ATTN_RELU, drop, drops, add);
        break;
    case ATTN_GELU:
        activate_backward_loop(dx, dy, x, n, ATTN_GELU, drop, drops, add);
        break;
    case ATTN_GELU_TANH:
        activate_backward_loop(dx, dy, x, n, ATTN_GELU_TANH, drop, drops, add);
        break;
    case ATTN_SILU:
        activate_backward_loop(dx, dy, x, n, ATTN_SILU, drop, drops, add);
        break;
    case ATTN_TANH:
        activate_backward_loop(dx, dy, x, n, ATTN_TANH, drop, drops, add);
        break;
    }
}

static void activate_backward(float *dx, const float *dy, const float *x, size_t n,
                              attn_activation activation, const struct attn_drop *drop,
                              bool add)
{
    if (drop->scale == 1.0f)
        activate_backward_any(dx, dy, x, n, activation, drop, false, add);
    else
        activate_backward_any(dx, dy, x, n, activation, drop, true, add);
}

#endif
