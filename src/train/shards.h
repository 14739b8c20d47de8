/* A batch on several threads: it is cut into shards of about the same number of tokens,
 * each with a tape, a context and a gradient of its own.  The number of shards belongs to
 * the recipe and not to the machine, so that the result has the same bits on any number
 * of threads. */
#ifndef ATTN_TRAIN_SHARDS_H
#define ATTN_TRAIN_SHARDS_H

#include "train/task.h"

typedef struct attn_shards {
    size_t count;
    pthreadpool_t pool; /* the caller's; NULL runs one shard after another */
    struct attn_shard *list;
    float **gradients; /* [count], each [floats]: what attn_optimiser_reduce sums */
    size_t floats;
} attn_shards;

/** Sums over the targets of a batch. */
typedef struct attn_batch_loss {
    double smoothed, plain; /* nats */
    int64_t targets, tokens;
    int64_t correct; /* targets that were the most probable; −1: they are not counted */
} attn_batch_loss;

void attn_batch_loss_add(attn_batch_loss *sum, const attn_batch_loss *part);

/** @param floats  of the parameters; 0 for shards that never train. */
ATTN_CHECKED attn_status attn_shards_create(attn_shards *shards, size_t count,
                                            size_t floats, pthreadpool_t pool,
                                            attn_error *error);
void attn_shards_free(attn_shards *shards);

/** What each shard computes.  loss records on pass->tape what the shard has to do and
 * returns it, one element: the shard's part of a sum that is divided already.  It returns
 * NULL where there is nothing to do, or after the tape has failed. */
typedef struct attn_shard_work {
    const attn_parameters *parameters;
    const struct attn_observer *observer; /* or NULL */
    attn_tensor *(*loss)(void *user, const attn_pass *pass, size_t shard,
                         attn_shard_sums *sums);
    void *user;
} attn_shard_work;

/** Does the work on every shard, in training with backward, its gradient left in
 * gradients, which are overwritten.  *loss gets the sums of what the shards returned and
 * put into *sums; its targets and tokens are 0. */
ATTN_CHECKED attn_status attn_shards_run(attn_shards *shards, const attn_shard_work *work,
                                         bool training, uint64_t seed,
                                         attn_batch_loss *loss, attn_error *error);

/** Loss of task->train's examples list[0] to list[count − 1], and its gradient, which is
 * left, summed over the batch's targets and divided by their number, in gradients; each
 * is overwritten.
 * @param seed  of dropout, and of what else is random. */
ATTN_CHECKED attn_status attn_shards_train(attn_shards *shards, const attn_task *task,
                                           const size_t *list, size_t count,
                                           uint64_t seed, attn_batch_loss *loss,
                                           attn_error *error);

/** Loss alone, of task->valid's, without dropout and smoothing.  observer, which may be
 * NULL, hears from one thread only when there is one shard. */
ATTN_CHECKED attn_status attn_shards_measure(attn_shards *shards, const attn_task *task,
                                             const size_t *list, size_t count,
                                             const struct attn_observer *observer,
                                             attn_batch_loss *loss, attn_error *error);

/** Of all task->valid's.
 * @param tokens  that are computed on together, about. */
ATTN_CHECKED attn_status attn_shards_measure_all(attn_shards *shards,
                                                 const attn_task *task, int64_t tokens,
                                                 attn_batch_loss *loss,
                                                 attn_error *error);

#endif
