/* A training step to be measured: a causal decoder on random tokens.
 *
 * The decoder, unless other options are given, is the language model of model/language.h
 * with 6 layers, width 256, 4 heads (as many key heads), a feed-forward width of 688 (8/3
 * of 256, as Llama's, rounded up to 16), a vocabulary of 8,000 tied to the output, and no
 * dropout: 6,794,496 parameters.  A step is a batch of 16 texts of 256 tokens, 4,096
 * targets, forward and backward in fp32, the gradient clipped to norm 1, and AdamW.
 * bench/peers/training.py is the same in PyTorch.
 *
 * The batch is cut into two shards, so two threads are the most that help. */
#ifndef ATTN_TRAIN_STEP_H
#define ATTN_TRAIN_STEP_H

#include "model/language.h"

typedef struct attn_step_options {
    attn_language_config decoder;
    int64_t texts; /* in a batch; even */
    int64_t length;
    size_t threads; /* at least 1; changes no bit of the result */
} attn_step_options;

/** The decoder above, on two threads. */
void attn_step_options_init(attn_step_options *options);

typedef struct attn_step attn_step;

/** @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: no texts or an odd number of them, no
 *          tokens or more than the decoder's positions, no threads. */
ATTN_CHECKED attn_status attn_step_create(attn_step **step,
                                          const attn_step_options *options,
                                          attn_error *error);
void attn_step_destroy(attn_step *step);

/** One step on the same batch as every other, which the model so learns by heart.
 * @param loss  nats a token, before the step. */
ATTN_CHECKED attn_status attn_step_run(attn_step *step, double *loss, attn_error *error);

/** Targets in a step. */
int64_t attn_step_tokens(const attn_step *step);
/** Numbers that are trained. */
int64_t attn_step_parameters(const attn_step *step);

#endif
