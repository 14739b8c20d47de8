/* A recipe says everything that decides what a training gives: the data, the tokenizer,
 * the model, and how it is trained.  It is JSON; every key must be there unless it is
 * said to be optional, and a key that is not known is an error, so that a slip of the pen
 * never trains the wrong model for two hours. */
#ifndef ATTN_TRAIN_RECIPE_H
#define ATTN_TRAIN_RECIPE_H

#include "model/translator.h"
#include "train/schedule.h"

enum { ATTN_PATH_BYTES = 1024, ATTN_LANGUAGE_BYTES = 16 };

typedef struct attn_recipe {
    char kind[16]; /* "translator" */

    /** "data": tab-separated text, as they stand in the recipe.  test is optional: "". */
    char train[ATTN_PATH_BYTES], valid[ATTN_PATH_BYTES], test[ATTN_PATH_BYTES];
    char source_language[ATTN_LANGUAGE_BYTES], target_language[ATTN_LANGUAGE_BYTES];

    /** "model", and "tokenizer": {"vocabulary"}.  activation_dropout (0), normalise_first
     * (true) and learned_positions (false) are optional. */
    attn_translator_config model;

    /** "training". */
    int64_t seed;
    int64_t tokens_per_batch; /* target tokens, </s> included */
    double length_noise;      /* tokens by which the sort by length errs; see batches.h */
    int64_t shards;           /* parts of a batch, each on its own tape */
    int64_t epochs;           /* one of these two; */
    int64_t target_tokens;    /* the other is 0 */
    attn_schedule_shape schedule;
    double peak_learning_rate;
    int64_t warmup_steps;
    double beta1, beta2, epsilon, weight_decay;
    double clip; /* largest norm of the gradient; 0 leaves it alone */
    double label_smoothing;
    double
        average; /* how slowly the shipped average of the weights moves; 0: no average */
    int64_t checkpoint_every, valid_every; /* steps */

    /** What must agree when a training is resumed, in one spelling whatever the spelling
     * of the recipe: all but "data" and the two "…_every". */
    char *identity;
} attn_recipe;

/**
 * @return ATTN_OK, ATTN_EIO, or ATTN_EFORMAT; its message has the path of the key, what
 * was got and what was expected.  Free with attn_recipe_free.
 */
ATTN_CHECKED attn_status attn_recipe_load(attn_recipe *recipe, const char *path,
                                          attn_error *error);
/** From text; name stands for the file in messages. */
ATTN_CHECKED attn_status attn_recipe_parse(attn_recipe *recipe, const char *text,
                                           const char *name, attn_error *error);
void attn_recipe_free(attn_recipe *recipe);

/**
 * Where a file of the recipe lies: as it stands if absolute, else beside the recipe, else
 * in the folder that the environment's ATTN_DATA names.  ATTN_EIO names the places looked
 * at.
 * @param found  ATTN_PATH_BYTES.
 */
ATTN_CHECKED attn_status attn_recipe_find(const char *recipe_path, const char *file,
                                          char *found, attn_error *error);

/** The first key in which two identities differ, as "training.seed was 1 and is 2", or
 * ATTN_OK when they agree.  *structure tells that it is one of the model or the
 * tokenizer. */
ATTN_CHECKED attn_status attn_recipe_compare(const char *was, const char *is,
                                             bool *structure, attn_error *error);

#endif
