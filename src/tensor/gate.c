/* A gate: activation(gate) · up. */
#include "tensor/checks.h"

struct gate {
    attn_tensor *gate, *up, *y;
    attn_activation activation;
};

/* The gradient of y becomes that of up where it lies. */
static void gate_backward(attn_tape *tape, void *arguments)
{
    const struct gate *const g = arguments;
    bool add;
    float *const dgate = attn_tape_gradient(tape, g->gate, &add);
    attn_tape_rows(tape)->gate_backward(dgate, g->y->gradient, g->gate->data, g->up->data,
                                        attn_tensor_count(g->y), g->activation, add);
    attn_tape_pass_gradient(tape, g->y, g->up);
}

attn_tensor *attn_gate(attn_tape *tape, attn_tensor *gate, attn_tensor *up,
                       attn_activation activation)
{
    const attn_named_tensor given[] = {{"gate", gate}, {"up", up}};
    if (!attn_tensors_given(tape, "attn_gate", given, 2) ||
        !attn_tensor_has_shape(tape, "attn_gate", given[1], gate->rank, gate->extent))
        return NULL;
    attn_tensor *const y = attn_tape_tensor(tape, gate->rank, gate->extent);
    struct gate *const g = attn_tape_allocate(tape, sizeof *g);
    if (!y || !g)
        return NULL;
    *g = (struct gate){gate, up, y, activation};
    attn_tape_rows(tape)->gate(y->data, gate->data, up->data, attn_tensor_count(y),
                               activation);
    attn_tape_record(tape, y, gate_backward, g);
    return y;
}
