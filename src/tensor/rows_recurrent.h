/* One step of a recurrent cell for the sequences that have it, and the way back:
 *
 *     RNN   h' = tanh(a)  or  relu(a)
 *     GRU   r, z = σ(a)   n = tanh(a + r·u)   h' = n + z·(h − n)
 *     LSTM  i, f, o = σ(a)   g = tanh(a)   c' = f·c + i·g   h' = o·tanh(c')
 *
 * a is what a gate is given, of input and state; for the GRU's candidate n of the input
 * alone, and u is the state's part.  Gates lie in the order of their letters, PyTorch's:
 * r z n and i f g o. */
#ifndef ATTN_TENSOR_ROWS_RECURRENT_H
#define ATTN_TENSOR_ROWS_RECURRENT_H

#include "tensor/rows_vector.h"

INLINE void add_some(float *to, vf x, size_t count)
{
    store_some(to, load_some(to, count) + x, count);
}

/* The gates of one vector of one row, each `width` floats after the one before. */
INLINE float *gate(float *gates, size_t n, size_t width)
{
    return gates + n * width;
}

INLINE void step_plain(const struct attn_cell_step *s, size_t row, size_t i, size_t count)
{
    float *const a = s->gates + row * s->width + i;
    const vf x = load_some(a, count);
    const vf h = s->cell == ATTN_CELL_TANH ? vf_tanh(x) : vf_max(vf_set1(0.0f), x);
    store_some(s->state + row * s->width + i, h, count);
}

INLINE void step_gru(const struct attn_cell_step *s, size_t row, size_t i, size_t count)
{
    const size_t w = s->width;
    float *const a = s->gates + row * 3 * w + i;
    const float *const u = s->recurrent + row * 3 * w + i;
    const vf r = logistic(load_some(a, count) + load_some(u, count));
    const vf z = logistic(load_some(a + w, count) + load_some(u + w, count));
    const vf candidate = load_some(u + 2 * w, count);
    const vf n = vf_tanh(vf_fma(r, candidate, load_some(a + 2 * w, count)));
    const vf before = load_some(s->before + row * w + i, count);
    store_some(gate(a, 0, w), r, count);
    store_some(gate(a, 1, w), z, count);
    store_some(gate(a, 2, w), n, count);
    if (s->candidate)
        store_some(s->candidate + row * w + i, candidate, count);
    store_some(s->state + row * w + i, vf_fma(z, before - n, n), count);
}

INLINE void step_lstm(const struct attn_cell_step *s, size_t row, size_t i, size_t count)
{
    const size_t w = s->width;
    float *const a = s->gates + row * 4 * w + i;
    const vf in = logistic(load_some(gate(a, 0, w), count));
    const vf forget = logistic(load_some(gate(a, 1, w), count));
    const vf g = vf_tanh(load_some(gate(a, 2, w), count));
    const vf out = logistic(load_some(gate(a, 3, w), count));
    const vf before = load_some(s->memory_before + row * w + i, count);
    const vf memory = vf_fma(forget, before, in * g);
    store_some(gate(a, 0, w), in, count);
    store_some(gate(a, 1, w), forget, count);
    store_some(gate(a, 2, w), g, count);
    store_some(gate(a, 3, w), out, count);
    store_some(s->memory + row * w + i, memory, count);
    store_some(s->state + row * w + i, out * vf_tanh(memory), count);
}

INLINE void back_plain(const struct attn_cell_step *s, size_t row, size_t i, size_t count)
{
    const size_t at = row * s->width + i;
    const vf h = load_some(s->state + at, count);
    const vf dh = load_some(s->state_gradient + at, count);
    const vf da = s->cell == ATTN_CELL_TANH ? dh * (vf_set1(1.0f) - h * h)
                                            : vf_keep(h > vf_set1(0.0f), dh);
    store_some(s->gates + at, da, count);
}

INLINE void back_gru(const struct attn_cell_step *s, size_t row, size_t i, size_t count)
{
    const size_t w = s->width;
    const vf one = vf_set1(1.0f);
    float *const a = s->gates + row * 3 * w + i;
    float *const du = s->recurrent_gradient + row * 3 * w + i;
    const vf r = load_some(gate(a, 0, w), count);
    const vf z = load_some(gate(a, 1, w), count);
    const vf n = load_some(gate(a, 2, w), count);
    const vf candidate = load_some(s->candidate + row * w + i, count);
    const vf before = load_some(s->before + row * w + i, count);
    const vf dh = load_some(s->state_gradient + row * w + i, count);

    const vf dn = dh * (one - z) * (one - n * n);
    const vf dz = dh * (before - n) * z * (one - z);
    const vf dr = dn * candidate * r * (one - r);
    store_some(gate(a, 0, w), dr, count);
    store_some(gate(a, 1, w), dz, count);
    store_some(gate(a, 2, w), dn, count);
    store_some(gate(du, 0, w), dr, count);
    store_some(gate(du, 1, w), dz, count);
    store_some(gate(du, 2, w), dn * r, count);
    add_some(s->before_gradient + row * w + i, dh * z, count);
}

INLINE void back_lstm(const struct attn_cell_step *s, size_t row, size_t i, size_t count)
{
    const size_t w = s->width;
    const vf one = vf_set1(1.0f);
    float *const a = s->gates + row * 4 * w + i;
    const vf in = load_some(gate(a, 0, w), count);
    const vf forget = load_some(gate(a, 1, w), count);
    const vf g = load_some(gate(a, 2, w), count);
    const vf out = load_some(gate(a, 3, w), count);
    const vf before = load_some(s->memory_before + row * w + i, count);
    const vf t = vf_tanh(load_some(s->memory + row * w + i, count));
    const vf dh = load_some(s->state_gradient + row * w + i, count);
    const vf dc =
        load_some(s->memory_gradient + row * w + i, count) + dh * out * (one - t * t);
    store_some(gate(a, 0, w), dc * g * in * (one - in), count);
    store_some(gate(a, 1, w), dc * before * forget * (one - forget), count);
    store_some(gate(a, 2, w), dc * in * (one - g * g), count);
    store_some(gate(a, 3, w), dh * t * out * (one - out), count);
    add_some(s->memory_before_gradient + row * w + i, dc * forget, count);
}

static void cell_step(const struct attn_cell_step *s)
{
    for (size_t row = 0; row < s->rows; row++)
        for (size_t i = 0; i < s->width; i += VF_LANES) {
            const size_t count = s->width - i;
            if (s->cell == ATTN_CELL_GRU)
                step_gru(s, row, i, count);
            else if (s->cell == ATTN_CELL_LSTM)
                step_lstm(s, row, i, count);
            else
                step_plain(s, row, i, count);
        }
}

static void cell_back(const struct attn_cell_step *s)
{
    for (size_t row = 0; row < s->rows; row++)
        for (size_t i = 0; i < s->width; i += VF_LANES) {
            const size_t count = s->width - i;
            if (s->cell == ATTN_CELL_GRU)
                back_gru(s, row, i, count);
            else if (s->cell == ATTN_CELL_LSTM)
                back_lstm(s, row, i, count);
            else
                back_plain(s, row, i, count);
        }
}

#endif
