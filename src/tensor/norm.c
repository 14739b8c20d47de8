/* Layer normalisation: Ba, Kiros and Hinton 2016. */
#include "tensor/checks.h"
#include <string.h>

struct norm {
    attn_tensor *x, *gain, *bias, *y;
    float *moments;
};

/* gain's and bias's gradients, from memory [2][columns]. */
static void add_gain_bias(attn_tape *tape, const struct norm *n, const float *gain_bias,
                          size_t columns)
{
    const struct attn_rows *const rows = attn_tape_rows(tape);
    bool add;
    float *const gain = attn_tape_gradient(tape, n->gain, &add);
    if (gain)
        rows->scale(gain, gain_bias, 1.0f, columns, add);
    float *const bias = attn_tape_gradient(tape, n->bias, &add);
    if (bias)
        rows->scale(bias, gain_bias + columns, 1.0f, columns, add);
}

static void norm_backward(attn_tape *tape, void *arguments)
{
    const struct norm *const n = arguments;
    const size_t rows = (size_t)n->x->extent[0], columns = (size_t)n->x->extent[1];
    float *const gain_bias = attn_tape_borrow(tape, 2 * columns);
    if (!gain_bias)
        return;
    memset(gain_bias, 0, 2 * columns * sizeof(float));
    bool add;
    float *const dx = attn_tape_gradient(tape, n->x, &add);
    attn_tape_rows(tape)->norm_backward(dx, gain_bias, n->y->gradient, n->x->data,
                                        n->moments, n->gain->data, rows, columns, add);
    add_gain_bias(tape, n, gain_bias, columns);
    attn_tape_return(tape, gain_bias);
}

attn_tensor *attn_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *gain,
                             attn_tensor *bias, float epsilon)
{
    const attn_named_tensor given[] = {{"x", x}, {"gain", gain}, {"bias", bias}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, "attn_layer_norm", given, 3) ||
        !attn_tensor_has_shape(tape, "attn_layer_norm", given[0], 2, any) ||
        !attn_tensor_has_shape(tape, "attn_layer_norm", given[1], 1, x->extent + 1) ||
        !attn_tensor_has_shape(tape, "attn_layer_norm", given[2], 1, x->extent + 1))
        return NULL;
    const size_t rows = (size_t)x->extent[0];
    attn_tensor *const y = attn_tape_tensor(tape, 2, x->extent);
    float *const moments = attn_tape_allocate(tape, rows * 2 * sizeof(float));
    struct norm *const n = attn_tape_allocate(tape, sizeof *n);
    if (!y || !moments || !n)
        return NULL;
    *n = (struct norm){x, gain, bias, y, moments};
    if (x->extent[1] > 0)
        attn_tape_rows(tape)->norm(y->data, moments, x->data, gain->data, bias->data,
                                   rows, (size_t)x->extent[1], epsilon);
    attn_tape_record(tape, y, norm_backward, n);
    return y;
}
