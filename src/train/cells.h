/* A recurrent layer to be measured: an RNN, GRU or LSTM of nn/recurrent.h along a batch
 * of sequences, forward as in inference, or forward and backward as in training, and the
 * products of matrices that this is made of alone.  bench/peers holds it against
 * PyTorch's on the same numbers.
 *
 * The batch is cut into two shards of as many sequences, as recipes have it, so two
 * threads are the most that help. */
#ifndef ATTN_TRAIN_CELLS_H
#define ATTN_TRAIN_CELLS_H

#include "nn/recurrent.h"
#include <pthreadpool.h>

enum { ATTN_CELLS_SHARDS = 2 };

typedef struct attn_cells_options {
    attn_recurrent_options layer;
    int64_t sequences;  /* even */
    int64_t length;     /* tokens of the longest of them */
    int64_t shortest;   /* those of a shard go evenly from the shortest to the longest */
    size_t threads;     /* at least 1; changes no bit of the result */
    pthreadpool_t pool; /* the caller's, of so many threads; NULL: one of its own */
} attn_cells_options;

typedef struct attn_cells attn_cells;

/** @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: no sequences or an odd number of them, a
 *          shortest sequence of no token or longer than the longest, no threads, or a
 *          layer that is none. */
ATTN_CHECKED attn_status attn_cells_create(attn_cells **cells,
                                           const attn_cells_options *options,
                                           attn_error *error);
void attn_cells_destroy(attn_cells *cells);

/** The values of a parameter by PyTorch's name, random at first, to be read or written.
 * @param gradient  gets where attn_cells_train leaves its gradient; may be NULL.
 * @return NULL where the layer has no such parameter. */
float *attn_cells_parameter(attn_cells *cells, const char *name, const float **gradient);

/** Where the sequences of a shard start, [sequences/2 + 1]; the other shard's have the
 * same lengths and come behind them. */
const int64_t *attn_cells_starts(const attn_cells *cells);

/** @param x  [tokens][in], both shards' tokens. */
ATTN_CHECKED attn_status attn_cells_forward(attn_cells *cells, const float *x,
                                            attn_error *error);

/** Forward, and the gradients of Σ y·dy.
 * @param dy  [tokens][width], twice the width with both ways.
 * @param dx  [tokens][in], overwritten. */
ATTN_CHECKED attn_status attn_cells_train(attn_cells *cells, const float *x,
                                          const float *dy, float *dx, attn_error *error);

/** Puts the threads to sleep, which else wait for the next call by spinning. */
void attn_cells_rest(attn_cells *cells);

/** What the last call left: the states of a shard's tokens, until the next call. */
const float *attn_cells_states(const attn_cells *cells, size_t shard);

/** The products of matrices alone, by BLAS, of random numbers: of all tokens with the
 * input's weights, of each step with the state's; in training their gradients' too. */
void attn_cells_products(attn_cells *cells, bool training);
/** Operations of these products. */
double attn_cells_work(const attn_cells *cells, bool training);

#endif
