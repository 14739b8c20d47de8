/* What the files of this room share: a training from inside. */
#ifndef ATTN_TRAIN_TRAINING_H
#define ATTN_TRAIN_TRAINING_H

#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/heads.h"
#include "train/optimiser.h"
#include "train/progress.h"
#include "train/shards.h"
#include "train/train.h"

enum { ATTN_FILE_BYTES = ATTN_PATH_BYTES + 64 };

struct attn_training {
    const attn_recipe *recipe;
    const attn_train_options *options;
    pthreadpool_t pool;
    attn_tokenizer *tokenizer;
    attn_pairs train, valid;
    attn_batches batches;
    int64_t arranged_epoch; /* what batches hold, −1 for none */
    attn_translator *translator;
    attn_parameters *parameters; /* the translator's */
    attn_shards shards, watcher; /* watcher: one shard, for the observer */
    attn_optimiser optimiser;
    attn_schedule schedule;
    attn_position position;
    double seconds_before; /* spent by earlier runs */
    attn_checkpoint_identity identity;
    char checkpoint[ATTN_FILE_BYTES];
    bool is_locked; /* the folder, by folder_file */
    int folder_file;
    attn_progress progress;
    attn_valid_scores valid_scores; /* the last ones */
};

/* Data, tokenizer, model, and the checkpoint where there is one (see prepare.c). */
ATTN_CHECKED attn_status attn_training_prepare(struct attn_training *training,
                                               attn_error *error);
void attn_training_free(struct attn_training *training);

/* The weights to ship: their average where one is kept.  The pointers of the values are
 * exchanged, so calling it again undoes it. */
void attn_training_exchange_average(struct attn_training *training);

/* The model's files, with the weights to ship (see export.c). */
ATTN_CHECKED attn_status attn_training_export(struct attn_training *training,
                                              attn_error *error);
/* BLEU on valid and test, and scores.json. */
ATTN_CHECKED attn_status attn_training_score(struct attn_training *training,
                                             attn_error *error);

#endif
