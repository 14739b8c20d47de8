/* Stacked recurrent layers, one way or both, with the parameters and names of PyTorch's
 * RNN, GRU and LSTM: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, and with
 * _reverse behind them those that run backwards. */
#ifndef ATTN_NN_RECURRENT_H
#define ATTN_NN_RECURRENT_H

#include "nn/layers.h"

enum { ATTN_RECURRENT_LAYERS = 8, ATTN_RECURRENT_RUNS = 2 * ATTN_RECURRENT_LAYERS };

typedef struct attn_recurrent_options {
    attn_cell cell;
    int64_t in, width; /* of x, and of the state of each direction */
    int64_t layers;    /* 1 to ATTN_RECURRENT_LAYERS */
    bool both_ways;
    bool has_bias;
} attn_recurrent_options;

/* A run is one layer in one direction: number 2·layer + backwards with both ways, else
 * the layer. */
typedef struct attn_recurrent_layer {
    attn_recurrent_options options;
    struct {
        size_t in_weight, state_weight, in_bias, state_bias;
    } runs[ATTN_RECURRENT_RUNS];
} attn_recurrent_layer;

/** Names begin with prefix and a dot, or without both where prefix is empty. */
attn_status attn_recurrent_layer_add(attn_recurrent_layer *layer,
                                     attn_parameters *parameters, const char *prefix,
                                     const attn_recurrent_options *options);

/** What the runs of a layer hold before the first step or after the last: [sequences]
 * [width] each, NULL for 0.  memory is the LSTM's. */
typedef struct attn_recurrent_states {
    attn_tensor *state[ATTN_RECURRENT_RUNS], *memory[ATTN_RECURRENT_RUNS];
} attn_recurrent_states;

/**
 * @param before   NULL for zeros.
 * @param after    NULL where not wanted.  Every sequence then has a token.
 * @param dropout  of what one layer hands to the next.
 * @return [tokens][width], or with both ways [tokens][2·width], forwards first.
 */
attn_tensor *attn_recurrent_layer_forward(const attn_recurrent_layer *layer,
                                          const attn_pass *pass, attn_tensor *x,
                                          attn_packing packing,
                                          const attn_recurrent_states *before,
                                          attn_recurrent_states *after, float dropout);

#endif
