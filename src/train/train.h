/* Trains a model as a recipe says. */
#ifndef ATTN_TRAIN_TRAIN_H
#define ATTN_TRAIN_TRAIN_H

#include "train/recipe.h"
#include <signal.h>
#include <stdio.h>

typedef struct attn_train_options {
    /** Gets tokenizer.json first, checkpoint.safetensors, log.jsonl and the model's files
     * while it trains, and scores.json at the end.  A checkpoint that is there is gone on
     * from. */
    const char *out;
    const char *train, *valid; /* files of data; .xz is unpacked */
    const char *test;          /* or NULL: scored once, at the end */
    size_t threads;            /* at least 1; changes no bit of the result */
    double minutes;    /* of this run, then it stops with a checkpoint; 0: no limit */
    int64_t max_steps; /* the step after which it stops likewise; 0: no limit */
    bool resume;       /* a checkpoint must be there */
    bool changed;      /* go on although keys of "training" changed */
    FILE *talk;        /* for progress, or NULL */
    const volatile sig_atomic_t *stop; /* or NULL: when not 0, stops after the step */
} attn_train_options;

typedef enum attn_train_end {
    ATTN_TRAIN_FINISHED, /* all steps of the recipe */
    ATTN_TRAIN_LIMIT,    /* the minutes or steps of the options */
    ATTN_TRAIN_STOPPED   /* by *stop */
} attn_train_end;

/**
 * Killed at any moment and started again, it gives the bits of an unbroken run.
 * @return ATTN_OK and *end; or ATTN_ENOTFINITE (a loss, named with its step and tensor),
 *         ATTN_EINVAL (a checkpoint of another recipe), ATTN_ENOMEM, ATTN_EIO,
 *         ATTN_EFORMAT: the last whole checkpoint stays.  A log.jsonl that cannot be
 *         written is ATTN_EIO with a checkpoint of the last step.
 */
ATTN_CHECKED attn_status attn_train(const attn_recipe *recipe,
                                    const attn_train_options *options,
                                    attn_train_end *end, attn_error *error);

#endif
