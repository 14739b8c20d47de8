/* What a training tells while it runs: a line every ten seconds for people, and
 * log.jsonl, one JSON object a line, for programs. */
#ifndef ATTN_TRAIN_PROGRESS_H
#define ATTN_TRAIN_PROGRESS_H

#include "file/path.h"
#include "train/checkpoint.h"
#include "train/heads.h"
#include <stdio.h>

typedef struct attn_progress {
    FILE *talk;                 /* NULL: silent */
    FILE *log;                  /* NULL: none */
    char path[ATTN_PATH_BYTES]; /* of the log */
    int64_t total_steps;
    int64_t batches;       /* in an epoch */
    double started;        /* of this run, by attn_seconds */
    double last;           /* of the last line */
    attn_batch_loss since; /* the last line */
    double norm;           /* of the last gradient */
    int64_t run_targets;   /* in this run */
    double idle;           /* seconds of this run that were not training */
} attn_progress;

/** Of a validation. */
typedef struct attn_valid_scores {
    double loss;         /* nats a target, of the weights as they are */
    double average_loss; /* of their average; NAN where none is kept */
    double accuracy;     /* of those that are shipped; NAN where it is not counted */
    attn_lowest_head lowest;
} attn_valid_scores;

/** Of a clock that never jumps. */
double attn_seconds(void);

/** @param folder  gets log.jsonl, or is NULL. */
ATTN_CHECKED attn_status attn_progress_start(attn_progress *progress, FILE *talk,
                                             const char *folder, int64_t total_steps,
                                             int64_t batches, attn_error *error);
void attn_progress_end(attn_progress *progress);

/** A sentence. */
__attribute__((format(printf, 2, 3))) void attn_progress_say(attn_progress *progress,
                                                             const char *format, ...);

/** A step was done; says so when ten seconds have passed or it is the last.
 * @return ATTN_OK, or ATTN_EIO: the log has no room for its line, and none of it. */
ATTN_CHECKED attn_status attn_progress_step(attn_progress *progress,
                                            const attn_position *position,
                                            const attn_batch_loss *loss, double norm,
                                            double rate, attn_error *error);
/** Likewise. */
ATTN_CHECKED attn_status attn_progress_valid(attn_progress *progress,
                                             const attn_position *position,
                                             const attn_valid_scores *scores,
                                             attn_error *error);
/** Time that is not to be counted as training. */
void attn_progress_pause(attn_progress *progress, double seconds);

#endif
