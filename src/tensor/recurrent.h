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

    /* In the order of steps; in inference states, memories and gates of one run only. */
    float *input;             /* of one run, [rows][in], or NULL: x itself is in order */
    float *gate;              /* [rows][gates·width] */
    float *candidate;         /* GRU: [rows][width] */
    float *states, *memories; /* [sequences + rows][width]: first those before */
    float *recurrent;         /* GRU: of one step, [sequences][3·width] */
};

/* A weight [columns][inner] that is turned, or [inner][columns], for steps and runs. */
struct attn_packed attn_recur_pack(attn_tape *tape, const attn_tensor *weight,
                                   size_t inner, size_t columns, bool turned);

/* to[i] = from[rows[i]], or 0 where there is no from. */
void attn_recur_take_rows(float *to, const float *from, const size_t *rows, size_t count,
                          size_t width, size_t stride);

/* to[rows[i]] (+)= from[i] */
void attn_recur_give_rows(attn_tape *tape, float *to, const float *from,
                          const size_t *rows, size_t count, size_t width, size_t stride,
                          bool add);

/* The input of some rows, in r->input or another place for them where that is not x. */
const float *attn_recur_take_input(const struct attn_recur *r, float *to, size_t first,
                                   size_t rows);

/* The most rows of a run that takes `usual` ones if more than one step does. */
size_t attn_recur_run_rows(const struct attn_recur *r, size_t usual);

/* Where the states before a step and its own lie among those that are kept: from row
 * kept_first on, after the states before it, which are in front. */
struct attn_recur_rows {
    size_t before, state;
};
struct attn_recur_rows attn_recur_rows(const struct attn_recur *r, size_t step,
                                       size_t kept_first);

struct attn_cell_step attn_recur_step(const struct attn_recur *r, size_t step,
                                      size_t kept_first);

/* The gradients of x, weights, biases and what stood before, from y's. */
void attn_recur_backward(attn_tape *tape, void *arguments);

#endif
