/* Root-mean-square norm: Zhang and Sennrich 2019. */
#include "tensor/checks.h"
#include <string.h>

struct rms_norm {
    attn_tensor *x, *gain, *y;
    float *inverse;
};

static void rms_norm_backward(attn_tape *tape, void *arguments)
{
    const struct rms_norm *const n = arguments;
    const struct attn_rows *const loops = attn_tape_rows(tape);
    const size_t rows = (size_t)n->x->extent[0], columns = (size_t)n->x->extent[1];
    float *const sums = attn_tape_borrow(tape, columns);
    if (!sums)
        return;
    memset(sums, 0, columns * sizeof *sums);
    bool add;
    float *const dx = attn_tape_gradient(tape, n->x, &add);
    loops->rms_norm_backward(dx, sums, n->y->gradient, n->x->data, n->inverse,
                             n->gain->data, rows, columns, add);
    float *const dgain = attn_tape_gradient(tape, n->gain, &add);
    if (dgain)
        loops->scale(dgain, sums, 1.0f, columns, add);
    attn_tape_return(tape, sums);
}

attn_tensor *attn_rms_norm(attn_tape *tape, attn_tensor *x, attn_tensor *gain,
                           float epsilon)
{
    const attn_named_tensor given[] = {{"x", x}, {"gain", gain}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, "attn_rms_norm", given, 2) ||
        !attn_tensor_has_shape(tape, "attn_rms_norm", given[0], 2, any) ||
        !attn_tensor_has_shape(tape, "attn_rms_norm", given[1], 1, x->extent + 1))
        return NULL;
    const size_t rows = (size_t)x->extent[0], columns = (size_t)x->extent[1];
    attn_tensor *const y = attn_tape_tensor(tape, 2, x->extent);
    float *const inverse = attn_tape_allocate(tape, rows * sizeof *inverse);
    struct rms_norm *const n = attn_tape_allocate(tape, sizeof *n);
    if (!y || !inverse || !n)
        return NULL;
    *n = (struct rms_norm){x, gain, y, inverse};
    if (columns > 0)
        attn_tape_rows(tape)->rms_norm(y->data, inverse, x->data, gain->data, rows,
                                       columns, epsilon);
    attn_tape_record(tape, y, rms_norm_backward, n);
    return y;
}
