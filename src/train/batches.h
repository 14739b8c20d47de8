/* Which examples are trained on together.  In each epoch every example is in exactly one
 * batch, and all batches have about the same number of tokens.
 *
 * Examples are sorted by size, with a noise of up to ± `noise` tokens; the sorted list is
 * cut by tokens, and the batches are shuffled.  As sequences are packed, like
 * lengths save no padding here: a large noise makes batches of all lengths. */
#ifndef ATTN_TRAIN_BATCHES_H
#define ATTN_TRAIN_BATCHES_H

#include "train/task.h"

typedef struct attn_batches {
    size_t count;  /* in an epoch */
    size_t *list;  /* numbers of examples, batch after batch */
    size_t *first; /* [count + 1]: batch b is list[first[b]] to list[first[b + 1] − 1] */
    int64_t tokens;              /* of all examples */
    struct attn_batch_key *keys; /* work space */
    size_t *cuts, *turn;
} attn_batches;

/** tokens_per_batch is met on average as nearly as whole batches allow. */
ATTN_CHECKED attn_status attn_batches_create(attn_batches *batches,
                                             const attn_examples *examples,
                                             int64_t tokens_per_batch, attn_error *error);
/** Makes the batches of an epoch: the same for the same seed and epoch, whatever was
 * arranged before. */
void attn_batches_arrange(attn_batches *batches, const attn_examples *examples,
                          uint64_t seed, int64_t epoch, double noise);
void attn_batches_free(attn_batches *batches);

#endif
