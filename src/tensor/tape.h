/* Tensors and the tape: a forward computation is written as a chain of calls, the tape
 * remembers them, and attn_tape_backward walks them in reverse.
 *
 * A tensor is row-major without gaps.  Models here keep tokens of all sentences of a batch
 * packed, one to a row, [tokens][width]: no padding is computed on, and attention is told
 * where each sentence starts.
 *
 * A tape works on one thread.  A training step on several threads gives each a tape, its
 * share of the batch, and its own gradient of the parameters (see nn/parameters.h).
 *
 * Errors are kept by the tape: an operation on a tape that has failed, or that gets NULL,
 * returns NULL, so a model checks attn_tape_status once, at the end. */
#ifndef ATTN_TENSOR_TAPE_H
#define ATTN_TENSOR_TAPE_H

#include "attn/attention.h"

enum { ATTN_TENSOR_RANK = 4 };

typedef struct attn_tensor {
    float *data;
    float *gradient; /* same layout; NULL where none is wanted */
    int rank;
    int64_t extent[ATTN_TENSOR_RANK];
} attn_tensor;

typedef struct attn_tape attn_tape;

/** @param context  does the attention, and keeps the message of a failure; outlives the
 *                  tape. */
ATTN_CHECKED attn_status attn_tape_create(attn_tape **tape, attn_context *context);
void attn_tape_destroy(attn_tape *tape);

/**
 * Forgets every tensor of the tape, and a failure, and keeps the memory for the next use.
 * @param training  remembers what backward needs, and lets dropout drop.
 * @param seed      of this step's dropout: the same seed, the same draws.
 */
void attn_tape_begin(attn_tape *tape, bool training, uint64_t seed);

attn_context *attn_tape_context(const attn_tape *tape);
bool attn_tape_training(const attn_tape *tape);
attn_status attn_tape_status(const attn_tape *tape);

/** Fails the tape with a message; returns NULL, so that an operation can end with it. */
__attribute__((format(printf, 3, 4))) attn_tensor *
attn_tape_fail(attn_tape *tape, attn_status status, const char *format, ...);

/** Memory of the tape, aligned to 64 bytes, of any content; lives until the next begin. */
void *attn_tape_allocate(attn_tape *tape, size_t bytes);

/** A new tensor of any content; in training with a gradient, which is zero. */
attn_tensor *attn_tape_tensor(attn_tape *tape, int rank, const int64_t *extent);

/** A tensor over memory of the caller (a parameter, an input); gradient may be NULL. */
attn_tensor *attn_tape_leaf(attn_tape *tape, float *data, float *gradient, int rank,
                            const int64_t *extent);

/** Remembers that backward(arguments) adds to the gradients of an operation's inputs; a
 * no-op outside training.  arguments is memory of the tape. */
void attn_tape_record(attn_tape *tape, void (*backward)(attn_tape *tape, void *arguments),
                      void *arguments);

/** The next counter-based stream of random numbers of this step. */
uint64_t attn_tape_next_seed(attn_tape *tape);

/** Gradients of all tensors, of a loss of one element; the loss's own is seed_gradient. */
ATTN_CHECKED attn_status attn_tape_backward(attn_tape *tape, attn_tensor *loss,
                                            float seed_gradient);

#endif
