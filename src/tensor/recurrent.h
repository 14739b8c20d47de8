/* What the files of attn_recur share. */
#ifndef ATTN_TENSOR_RECURRENT_H
#define ATTN_TENSOR_RECURRENT_H

#include "tensor/panels.h"

struct attn_recur {
    attn_cell cell;
    size_t sequences, steps, tokens, in, width, gates;
    attn_tensor *x;
    attn_cell_weights weights;
    attn_tensor *state, *memory; /* before the first step; may be NULL */
    attn_tensor *y;

    size_t *token;    /* [tokens]: which token stands at each place */
    size_t *first;    /* [steps + 1]: where each step begins */
    size_t *sequence; /* [sequences]: the longest first */
    bool keeps_order; /* each token stands at its own place */

    /* In the order of steps. */
    const float *input;       /* [tokens][in] */
    float *gate;              /* [tokens][gates·width], in inference of one run */
    float *candidate;         /* GRU: [tokens][width] */
    float *states, *memories; /* [sequences + tokens][width]: first those before */
    float *recurrent;         /* GRU: of one step, [sequences][3·width] */
};

/* to[i] = from[rows[i]], or 0 where there is no from. */
void attn_recur_take_rows(float *to, const float *from, const size_t *rows, size_t count,
                          size_t width, size_t stride);

/* to[rows[i]] (+)= from[i] */
void attn_recur_give_rows(attn_tape *tape, float *to, const float *from,
                          const size_t *rows, size_t count, size_t width, size_t stride,
                          bool add);

/* gates_first: the row with which r->gate begins. */
struct attn_cell_step attn_recur_step(const struct attn_recur *r, size_t step,
                                      size_t gates_first);

/* The gradients of x, weights, biases and what stood before, from y's. */
void attn_recur_backward(attn_tape *tape, void *arguments);

#endif
