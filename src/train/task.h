/* A kind of model that can be trained: what the loop, its batches, shards, checkpoints
 * and scores ask of it.  A kind is a file task_NAME.c with one attn_task_kind, listed in
 * tasks.c; it knows its data and its model, and the rest of this room knows neither.
 *
 * A kind gives: the keys of its recipes, examples with their sizes, the loss of some of
 * them on a tape, the model's files, and the scores of such files. */
#ifndef ATTN_TRAIN_TASK_H
#define ATTN_TRAIN_TASK_H

#include "nn/parameters.h"
#include "train/recipe.h"
#include "train/train.h"
#include <jansson.h>
#include <pthreadpool.h>

typedef struct attn_example_size {
    int32_t size; /* tokens, by which batches are sorted and cut ("tokens_per_batch") */
    int32_t load; /* tokens computed on, by which a batch is dealt to shards */
    int32_t targets; /* losses it has: a batch's loss is divided by their sum */
} attn_example_size;

/** A split of the data, encoded. */
typedef struct attn_examples {
    size_t count;
    attn_example_size *sizes; /* [count], malloc'ed; the loop frees it */
    uint64_t hash;            /* of everything that is trained on: the same data, the same
                               * hash; attn_mix_hash helps */
    void *data;               /* the kind's own */
} attn_examples;

/** Examples list[0] to list[count − 1], of which one shard computes the loss. */
typedef struct attn_shard_batch {
    const attn_examples *examples;
    const size_t *list;
    size_t count;    /* at least 1 */
    double divisor;  /* of the loss: the targets of the whole batch */
    float smoothing; /* of labels; 0 when measuring */
    uint64_t seed;   /* of the step, for what is random in examples (masks, pictures);
                      * always the same when measuring.  Mixed with the number of an
                      * example it depends on no shard. */
} attn_shard_batch;

typedef struct attn_shard_sums {
    double plain;    /* nats, neither divided nor smoothed; 0 before */
    int64_t correct; /* targets that were the most probable; −1, as before, where a kind
                      * does not count them */
} attn_shard_sums;

/** A training, as far as a kind sees it.  A kind fills train, valid, parameters and
 * state. */
typedef struct attn_task {
    const attn_task_kind *kind;
    const attn_recipe *recipe;         /* settings: the kind's own struct */
    const attn_train_options *options; /* out, train, valid: files */
    struct attn_progress *progress;    /* to say what was read */
    pthreadpool_t pool;
    attn_examples train, valid;
    attn_parameters *parameters; /* the model's; values may be exchanged for others */
    void *state;                 /* tokenizer, model, … */
} attn_task;

/** A model's files, to be scored on a file of data. */
typedef struct attn_score_job {
    const char *folder;   /* of the model */
    const char *file;     /* of the data; .xz is unpacked */
    const char *name;     /* "valid", "test"; what progress calls it */
    const void *settings; /* of the recipe; NULL where there is none ("attn eval") */
    pthreadpool_t pool;
    size_t threads;
    struct attn_progress *progress; /* to say the result in a line */
} attn_score_job;

struct attn_task_kind {
    const char *name;    /* "kind" in a recipe */
    const char *targets; /* what targets are called: "target tokens", "texts" */
    /** Models whose files score knows, by config.json's "model_type", or by the first of
     * its "architectures" where kinds share a type ("bert"); NULL-ended. */
    const char *const *model_types;

    /** Keys under "data", "tokenizer" and "model", read into settings. */
    const attn_recipe_field *fields;
    size_t field_count, settings_bytes;
    /** What no single key can tell; NULL: nothing.  Messages begin with name and ": ". */
    attn_status (*check)(const void *settings, const char *name, attn_error *error);

    /** Reads the data and makes the model: task->train, valid, parameters, state.
     * @param goes_on  from a checkpoint: the tokenizer, or whatever else was learnt from
     *                 the data, is read from options->out, where a new one is saved.
     * After a failure free is called. */
    attn_status (*prepare)(attn_task *task, bool goes_on, attn_error *error);

    /** Records on pass->tape the loss of a batch, summed over its targets and divided by
     * batch->divisor, and returns it, one element.  Called from several threads at once:
     * memory is the tape's.  NULL after failing the tape. */
    attn_tensor *(*loss)(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums);

    /** Writes the model's files with task->parameters->values as they are, in bf16. */
    attn_status (*save)(const attn_task *task, const char *folder, attn_error *error);

    /** Loads such files, and puts what they score on a file of data into scores. */
    attn_status (*score)(const attn_score_job *job, json_t *scores, attn_error *error);

    /** Reads a file of data as score will, so that what score would refuse is refused
     * before the first step and not after the last.  NULL where nothing can be. */
    attn_status (*check_file)(const attn_task *task, const char *file, attn_error *error);

    /** Frees state and both data, which may not all be there. */
    void (*free)(attn_task *task);
};

/** A number, or null where it is not finite, which JSON has no word for. */
json_t *attn_json_number(double number);

/** "note": what loading a model found worth saying; nothing for "". */
void attn_score_note(json_t *scores, const char *note);

/** Kinds that a recipe may name, NULL-ended. */
const attn_task_kind *const *attn_task_kinds(void);
/** The kind of the model in a folder, by its config.json; NULL where there is none. */
const attn_task_kind *attn_task_kind_of_model(const char *folder);

extern const attn_task_kind attn_task_masked;
extern const attn_task_kind attn_task_translator;
extern const attn_task_kind attn_task_captioner;
extern const attn_task_kind attn_task_recurrent_translator;
extern const attn_task_kind attn_task_classifier;
extern const attn_task_kind attn_task_tagger;
extern const attn_task_kind attn_task_language;

#endif
