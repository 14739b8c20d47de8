/* A parallel corpus as token ids, all in one array. */
#ifndef ATTN_TRAIN_PAIRS_H
#define ATTN_TRAIN_PAIRS_H

#include "model/translator.h"
#include "text/corpus.h"
#include "train/task.h"

typedef struct attn_pairs {
    size_t count;
    int32_t *ids;    /* of pair n: source and </s> from begin[n], target and </s> from
                      * middle[n], up to begin[n + 1] */
    size_t *begin;   /* [count + 1] */
    size_t *middle;  /* [count] */
    size_t *line;    /* [count]: of the corpus, from 0 */
    size_t left_out; /* pairs with a side of more than the positions */
    size_t first_left_out;                /* the line of the first one, from 0 */
    int64_t source_tokens, target_tokens; /* with each </s> */
    uint64_t hash; /* of everything above: the same data, the same hash */
} attn_pairs;

/**
 * The first two fields of each line as examples of a task, whose data is the attn_pairs:
 * sorted by target length, dealt by both, a loss a target token.  Pairs with a side
 * longer than max_positions tokens, </s> included, are left out and counted.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EFORMAT (text that is not UTF-8, or no pair is
 * left).
 */
ATTN_CHECKED attn_status attn_pairs_examples(attn_examples *examples,
                                             const attn_corpus *corpus,
                                             const attn_tokenizer *tokenizer,
                                             int64_t max_positions, attn_error *error);
/** Frees the pairs and what holds them; the sizes are left to who trains. */
void attn_pairs_examples_free(attn_examples *examples);

/** The pairs of a batch, one after another, in memory of the tape; false after failing
 * it. */
bool attn_pairs_pack(attn_pair_batch *packed, attn_tape *tape,
                     const attn_shard_batch *batch);

#endif
