/* A gate: an activation of one tensor times another. */
#ifndef ATTN_TENSOR_ROWS_GATE_H
#define ATTN_TENSOR_ROWS_GATE_H

#include "tensor/rows_elements.h"

INLINE void gate_loop(float *out, const float *gate, const float *up, size_t n,
                      const attn_activation activation)
{
    for (size_t i = 0; i < n; i += VF_LANES) {
        const vf opened = activate_vector(load_some(gate + i, n - i), activation);
        store_some(out + i, opened * load_some(up + i, n - i), n - i);
    }
}

static void gate_rows(float *out, const float *gate, const float *up, size_t n,
                      attn_activation activation)
{
    switch (activation) {
    case ATTN_RELU:
        gate_loop(out, gate, up, n, ATTN_RELU);
        break;
    case ATTN_GELU:
        gate_loop(out, gate, up, n, ATTN_GELU);
        break;
    case ATTN_GELU_TANH:
        gate_loop(out, gate, up, n, ATTN_GELU_TANH);
        break;
    case ATTN_SILU:
        gate_loop(out, gate, up, n, ATTN_SILU);
        break;
    case ATTN_TANH:
        gate_loop(out, gate, up, n, ATTN_TANH);
        break;
    }
}

INLINE void gate_backward_loop(float *dgate, float *dy, const float *gate,
                               const float *up, size_t n,
                               const attn_activation activation, bool add)
{
    for (size_t i = 0; i < n; i += VF_LANES) {
        const size_t left = n - i;
        const vf x = load_some(gate + i, left), d = load_some(dy + i, left);
        if (dgate) {
            vf dx = activation_slope(x, activation) * load_some(up + i, left) * d;
            if (add)
                dx = dx + load_some(dgate + i, left);
            store_some(dgate + i, dx, left);
        }
        store_some(dy + i, activate_vector(x, activation) * d, left);
    }
}

static void gate_rows_backward(float *dgate, float *dy, const float *gate,
                               const float *up, size_t n, attn_activation activation,
                               bool add)
{
    switch (activation) {
    case ATTN_RELU:
        gate_backward_loop(dgate, dy, gate, up, n, ATTN_RELU, add);
        break;
    case ATTN_GELU:
        gate_backward_loop(dgate, dy, gate, up, n, ATTN_GELU, add);
        break;
    case ATTN_GELU_TANH:
        gate_backward_loop(dgate, dy, gate, up, n, ATTN_GELU_TANH, add);
        break;
    case ATTN_SILU:
        gate_backward_loop(dgate, dy, gate, up, n, ATTN_SILU, add);
        break;
    case ATTN_TANH:
        gate_backward_loop(dgate, dy, gate, up, n, ATTN_TANH, add);
        break;
    }
}

#endif
