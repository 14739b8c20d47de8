/* A batch on several threads: it is cut into shards of about the same number of tokens,
 * each with a tape, a context and a gradient of its own.  The number of shards belongs to
 * the recipe and not to the machine, so that the result has the same bits on any number
 * of threads. */
#ifndef ATTN_TRAIN_SHARDS_H
#define ATTN_TRAIN_SHARDS_H

#include "base/error.h"
#include "model/translator.h"
#include "train/pairs.h"
#include <pthreadpool.h>

typedef struct attn_shards {
    size_t count;
    pthreadpool_t pool; /* the caller's; NULL runs one shard after another */
    struct attn_shard *list;
    float **gradients; /* [count], each [floats]: what attn_optimiser_reduce sums */
    size_t floats;
} attn_shards;

/** Sums over the target tokens of a batch. */
typedef struct attn_batch_loss {
    double smoothed, plain; /* nats */
    int64_t tokens;
} attn_batch_loss;

/** @param floats  of the parameters; 0 for shards that never train. */
ATTN_CHECKED attn_status attn_shards_create(attn_shards *shards, size_t count,
                                            size_t floats, pthreadpool_t pool,
                                            attn_error *error);
void attn_shards_free(attn_shards *shards);

/** What each shard computes.  loss records on pass->tape what the shard has to do and
 * returns it, one element: the shard's part of a sum that is divided already.  It returns
 * NULL where there is nothing to do, or after the tape has failed; *plain is 0 before. */
typedef struct attn_shard_task {
    const attn_parameters *parameters;
    const struct attn_observer *observer; /* or NULL */
    attn_tensor *(*loss)(void *user, const attn_pass *pass, size_t shard, double *plain);
    void *user;
} attn_shard_task;

/** Runs the task on every shard, in training with backward, its gradient left in
 * gradients, which are overwritten.  *loss gets the sums of what the shards returned and
 * put into *plain; its tokens are 0. */
ATTN_CHECKED attn_status attn_shards_run(attn_shards *shards, const attn_shard_task *task,
                                         bool training, uint64_t seed,
                                         attn_batch_loss *loss, attn_error *error);

/** Loss of the pairs list[0] to list[count − 1], and its gradient, which is left, summed
 * over the batch's tokens and divided by their number, in gradients; each is overwritten.
 * @param seed  of dropout. */
ATTN_CHECKED attn_status attn_shards_train(attn_shards *shards,
                                           const attn_translator *translator,
                                           const attn_parameters *parameters,
                                           const attn_pairs *pairs, const size_t *list,
                                           size_t count, double smoothing, uint64_t seed,
                                           attn_batch_loss *loss, attn_error *error);

/** Loss alone, without dropout.  observer, which may be NULL, hears from one thread only
 * when there is one shard. */
ATTN_CHECKED attn_status attn_shards_measure(attn_shards *shards,
                                             const attn_translator *translator,
                                             const attn_parameters *parameters,
                                             const attn_pairs *pairs, const size_t *list,
                                             size_t count,
                                             const struct attn_observer *observer,
                                             attn_batch_loss *loss, attn_error *error);

#endif
