/* Tensors and the tape: a forward computation is written as a chain of calls, the tape
 * remembers them, and attn_tape_backward walks them in reverse.
 *
 * A tensor is row-major without gaps.  Models here keep tokens of all sentences of a
 * batch packed, one to a row, [tokens][width]: no padding is computed on, and attention
 * is told where each sentence starts.
 *
 * A tape works on one thread.  A training step on several threads gives each a tape, its
 * share of the batch, and its own gradient of the parameters (see nn/parameters.h).
 *
 * Errors are kept by the tape: an operation on a tape that has failed, or that gets NULL,
 * returns NULL, so a model checks attn_tape_status once, at the end. */
#ifndef ATTN_TENSOR_TAPE_H
#define ATTN_TENSOR_TAPE_H

#include "base/error.h"

enum { ATTN_TENSOR_RANK = 4 };

typedef struct attn_tensor {
    float *data;
    float *gradient; /* same layout; NULL where none is wanted, or none has arrived yet */
    int rank;
    int64_t extent[ATTN_TENSOR_RANK];
    bool wants_gradient;
    bool is_leaf; /* data and gradient are the caller's, and the gradient is added to */
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
/** The tape's status; where it has failed, its message goes to error. */
attn_status attn_tape_report(const attn_tape *tape, attn_error *error);

/** Fails the tape with a message; returns NULL, so that an operation can end with it. */
__attribute__((format(printf, 3, 4))) attn_tensor *
attn_tape_fail(attn_tape *tape, attn_status status, const char *format, ...);

/** Fails the tape with the message that its context holds already. */
void attn_tape_fail_as_context(attn_tape *tape, attn_status status);

/** Memory of the tape, aligned to 64 bytes, of any content; lives until the next begin.
 */
void *attn_tape_allocate(attn_tape *tape, size_t bytes);

/** A new tensor of any content.  In training it gets a gradient while backward runs:
 * memory comes when the first of its readers has something to add, and goes to others
 * when the operation that wrote it has been walked.  Gradients to look at are those of
 * leaves. */
attn_tensor *attn_tape_tensor(attn_tape *tape, int rank, const int64_t *extent);

/** A tensor over memory of the caller (a parameter, an input); gradient may be NULL. */
attn_tensor *attn_tape_leaf(attn_tape *tape, float *data, float *gradient, int rank,
                            const int64_t *extent);

/** Remembers that backward(arguments), from output's gradient, adds to the gradients of
 * the operation's inputs; a no-op outside training.  It is not called when nothing
 * arrived at output.  arguments is memory of the tape. */
void attn_tape_record(attn_tape *tape, attn_tensor *output,
                      void (*backward)(attn_tape *tape, void *arguments),
                      void *arguments);

/** For a backward: where the gradient of an input goes, and whether to add to what is
 * there (else memory of any content is to be overwritten, all of it).  NULL where none is
 * wanted, or after a failure. */
float *attn_tape_gradient(attn_tape *tape, attn_tensor *input, bool *add);

/** For a backward whose output's gradient is the input's, as it is: hands the memory over
 * where it can, so that nothing is copied.  The output's gradient is gone afterwards. */
void attn_tape_pass_gradient(attn_tape *tape, attn_tensor *output, attn_tensor *input);

/** Memory of a backward, back to the tape's pool with attn_tape_return; NULL after a
 * failure. */
float *attn_tape_borrow(attn_tape *tape, size_t floats);
void attn_tape_return(attn_tape *tape, float *memory);

/** The next counter-based stream of random numbers of this step. */
uint64_t attn_tape_next_seed(attn_tape *tape);

/** Gradients of all leaves, of a loss of one element; the loss's own is seed_gradient.
 * Once after each begin. */
ATTN_CHECKED attn_status attn_tape_backward(attn_tape *tape, attn_tensor *loss,
                                            float seed_gradient);

#endif
