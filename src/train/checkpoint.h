/* The state of a training in one file: parameters, moments, average, and where it stands.
 * It is written whole or not at all, and a training that goes on from it gives the bits
 * of one that was never stopped: all its random numbers are functions of the recipe's
 * seed and the step (see mix.h). */
#ifndef ATTN_TRAIN_CHECKPOINT_H
#define ATTN_TRAIN_CHECKPOINT_H

#include "nn/parameters.h"
#include "train/optimiser.h"

/** Where a training stands: between two steps. */
typedef struct attn_position {
    int64_t step;          /* done so far */
    int64_t epoch;         /* from 0 */
    int64_t batch;         /* of the epoch, done so far */
    int64_t target_tokens; /* trained on so far */
    double seconds;        /* spent so far, by all runs together */
    double best_loss; /* lowest of the validations so far; INFINITY before the first */
    int64_t waited;   /* validations since */
} attn_position;

/** What a checkpoint keeps; best, the weights of the best validation, may be NULL. */
typedef struct attn_checkpoint {
    attn_parameters *parameters;
    attn_optimiser *optimiser;
    attn_position *position;
    float *best;
} attn_checkpoint;

/** What a checkpoint must have in common with the training that reads it. */
typedef struct attn_checkpoint_identity {
    const char *recipe; /* attn_recipe's identity */
    uint64_t data;      /* of the examples that are trained on */
} attn_checkpoint_identity;

/** Tensors: "values", "first_moment", "second_moment", "average" and "best" (if kept),
 * [floats] each; the rest is text under __metadata__. */
ATTN_CHECKED attn_status attn_checkpoint_save(const char *path,
                                              const attn_checkpoint *checkpoint,
                                              const attn_checkpoint_identity *identity,
                                              attn_error *error);

/**
 * Fills values, moments, average, best and position; all are untouched on failure.
 * @param changed  takes a checkpoint although keys under "training" differ.
 * Content that is not what was written, by its hash, is ATTN_EFORMAT.
 * @return ATTN_OK; ATTN_EINVAL when another recipe or other data made it (the message
 * names the first key that differs); ATTN_EIO, ATTN_EFORMAT.
 */
ATTN_CHECKED attn_status attn_checkpoint_load(const char *path,
                                              const attn_checkpoint *checkpoint,
                                              const attn_checkpoint_identity *identity,
                                              bool changed, attn_error *error);

#endif
