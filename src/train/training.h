/* What the files of this room share: a training from inside. */
#ifndef ATTN_TRAIN_TRAINING_H
#define ATTN_TRAIN_TRAINING_H

#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/heads.h"
#include "train/optimiser.h"
#include "train/progress.h"
#include "train/shards.h"
#include "train/task.h"

struct attn_training {
    attn_task task;
    attn_batches batches;
    int64_t arranged_epoch;      /* what batches hold, −1 for none */
    attn_shards shards, watcher; /* watcher: one shard, for the observer */
    attn_optimiser optimiser;
    float *best; /* weights of the best validation, where the recipe keeps them */
    attn_schedule schedule;
    int64_t targets; /* in an epoch */
    attn_position position;
    int64_t kept;          /* the step of the checkpoint that is there, −1 for none */
    double seconds_before; /* spent by earlier runs */
    attn_checkpoint_identity identity;
    char checkpoint[ATTN_PATH_BYTES];
    size_t made_from; /* bytes of the path of the first folder that was made; 0: none */
    bool is_locked;   /* the folder, by folder_file */
    int folder_file;
    attn_progress progress;
    attn_valid_scores valid_scores; /* the last ones */
};

/* What the checkpoint keeps. */
static inline attn_checkpoint attn_training_state(struct attn_training *training)
{
    return (attn_checkpoint){training->task.parameters, &training->optimiser,
                             &training->position, training->best};
}

/* Data, model, and the checkpoint where there is one (see prepare.c); the recipe and the
 * options of the task are set before.  Where it fails, no folder is left that it made. */
ATTN_CHECKED attn_status attn_training_prepare(struct attn_training *training,
                                               attn_error *error);
void attn_training_free(struct attn_training *training);

/* The running average in place of the weights, where one is kept.  The pointers of the
 * values are exchanged, so calling it again undoes it. */
void attn_training_exchange_average(struct attn_training *training);

/* The model's files, with the weights to ship (see export.c): those of the best
 * validation or the last, averaged where an average is kept. */
ATTN_CHECKED attn_status attn_training_export(struct attn_training *training,
                                              attn_error *error);
/* Scores on valid and test, and scores.json. */
ATTN_CHECKED attn_status attn_training_score(struct attn_training *training,
                                             attn_error *error);

#endif
