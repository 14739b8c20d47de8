/* A recipe says everything that decides what a training gives: the data, the tokenizer,
 * the model, and how it is trained.  It is JSON; every key must be there unless it is
 * said to be optional, and a key that is not known is an error, so that a slip of the pen
 * never trains the wrong model for two hours. */
#ifndef ATTN_TRAIN_RECIPE_H
#define ATTN_TRAIN_RECIPE_H

#include "base/error.h"
#include "file/path.h"
#include "train/schedule.h"
#include <math.h>

/** What a value in JSON is read into. */
typedef enum attn_field_type {
    ATTN_FIELD_INTEGER, /* int64_t */
    ATTN_FIELD_DECIMAL, /* double */
    ATTN_FIELD_SINGLE,  /* float */
    ATTN_FIELD_FLAG,    /* bool */
    ATTN_FIELD_CHOICE,  /* int or an enum: the index in choices */
    ATTN_FIELD_TEXT     /* char[high] */
} attn_field_type;

/** A key of a recipe, and where its value goes. */
typedef struct attn_recipe_field {
    const char *section, *key;
    attn_field_type type;
    size_t offset;
    double low, high;           /* of numbers; for text, high is the size of its array */
    const char *const *choices; /* NULL-ended */
    double otherwise; /* the number, flag or index of a key that is not there ("" for any
                       * text), or ATTN_REQUIRED */
} attn_recipe_field;

#define ATTN_REQUIRED ((double)INFINITY)

typedef struct attn_task_kind attn_task_kind; /* see train/task.h */

typedef enum attn_recipe_keep { ATTN_KEEP_LAST, ATTN_KEEP_BEST } attn_recipe_keep;

typedef struct attn_recipe {
    char path[ATTN_PATH_BYTES]; /* of its file; "" where it came as text */
    const attn_task_kind *kind;
    void *settings; /* what the kind reads: its settings_bytes, by its fields */

    /** "data": as they stand in the recipe.  test is optional: "". */
    char train[ATTN_PATH_BYTES], valid[ATTN_PATH_BYTES], test[ATTN_PATH_BYTES];

    /** "training". */
    int64_t seed;
    int64_t tokens_per_batch; /* by the size that examples have; see train/task.h */
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
    attn_recipe_keep keep; /* of which validation the weights are that are shipped */
    int64_t patience;      /* validations without a lower loss that end it; 0: never */

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
/** From text; name stands for the file in messages.
 * @param kinds  that it may be of, NULL-ended: attn_task_kinds(). */
ATTN_CHECKED attn_status attn_recipe_parse(attn_recipe *recipe,
                                           const attn_task_kind *const *kinds,
                                           const char *text, const char *name,
                                           attn_error *error);
void attn_recipe_free(attn_recipe *recipe);

/**
 * Where a file of the recipe lies: as it stands if absolute, else beside the recipe, else
 * in the folder that the environment's ATTN_DATA names.  ATTN_EIO names the places looked
 * at, or one that is too long.  One that is there and cannot be read is found: who opens
 * it says why.
 * @param found  ATTN_PATH_BYTES.
 */
ATTN_CHECKED attn_status attn_recipe_find(const char *recipe_path, const char *file,
                                          char *found, attn_error *error);

/** The first key in which two identities differ, as "training.seed was 1 and is 2", or
 * ATTN_OK when they agree.  *structure tells that it is the kind, or one of the model or
 * the tokenizer. */
ATTN_CHECKED attn_status attn_recipe_compare(const char *was, const char *is,
                                             bool *structure, attn_error *error);

#endif
