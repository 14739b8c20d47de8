/* ln σ(x) = min(x, 0) − ln(1 + e^−|x|), which neither overflows nor loses small gates;
 * its derivative is σ(−x).  A few numbers a token: nothing here is worth a vector. */
#include "tensor/checks.h"
#include <math.h>

struct log_sigmoid {
    attn_tensor *x, *y;
};

static void log_sigmoid_backward(attn_tape *tape, void *arguments)
{
    const struct log_sigmoid *const s = arguments;
    bool add;
    float *const dx = attn_tape_gradient(tape, s->x, &add);
    for (size_t n = 0; dx && n < attn_tensor_count(s->x); n++) {
        /* σ(−x) = 1 − e^y */
        const float slope = -expm1f(s->y->data[n]);
        dx[n] = (add ? dx[n] : 0.0f) + s->y->gradient[n] * slope;
    }
}

attn_tensor *attn_log_sigmoid(attn_tape *tape, attn_tensor *x)
{
    const attn_named_tensor given[] = {{"x", x}};
    if (!attn_tensors_given(tape, "attn_log_sigmoid", given, 1))
        return NULL;
    attn_tensor *const y = attn_tape_tensor(tape, x->rank, x->extent);
    struct log_sigmoid *const s = attn_tape_allocate(tape, sizeof *s);
    if (!y || !s)
        return NULL;
    for (size_t n = 0; n < attn_tensor_count(x); n++) {
        const float z = x->data[n];
        y->data[n] = (z < 0.0f ? z : 0.0f) - log1pf(expf(-fabsf(z)));
    }
    *s = (struct log_sigmoid){x, y};
    attn_tape_record(tape, y, log_sigmoid_backward, s);
    return y;
}
