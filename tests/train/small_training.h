/* A training small enough for a test: sentences of made-up words, a model of a few
 * thousand parameters, in a folder of its own. */
#ifndef ATTN_TESTS_SMALL_TRAINING_H
#define ATTN_TESTS_SMALL_TRAINING_H

#include "train/train.h"

typedef struct small_training {
    const char *folder; /* temporary */
    char train[300], valid[300];
    attn_recipe recipe;
} small_training;

/* Fails the test where it cannot. */
void small_training_set_up(small_training *small);
void small_training_tear_down(small_training *small);

/* Into folder/name, on threads threads. */
attn_train_options small_training_options(const small_training *small, const char *name,
                                          size_t threads, char out[600]);

/* That two folders hold the same file of that name. */
void assert_same_file(const char *one, const char *two, const char *name);

#endif
