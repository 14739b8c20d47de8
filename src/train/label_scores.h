/* How well labels were found: accuracy, and precision, recall and F1 of each label. */
#ifndef ATTN_TRAIN_LABEL_SCORES_H
#define ATTN_TRAIN_LABEL_SCORES_H

#include "base/error.h"

typedef struct attn_label_scores {
    int64_t labels;
    int64_t *counts; /* [labels][labels]: of that label, labelled as that */
} attn_label_scores;

ATTN_CHECKED attn_status attn_label_scores_create(attn_label_scores *scores,
                                                  int64_t labels, attn_error *error);
void attn_label_scores_free(attn_label_scores *scores);
void attn_label_scores_add(attn_label_scores *scores, int64_t label, int64_t found);

int64_t attn_label_scores_total(const attn_label_scores *scores);
/** Of all that were added, the share that was found; 0 of none. */
double attn_label_scores_accuracy(const attn_label_scores *scores);

/** Of one label.  precision: of those labelled so, the share that is; recall: of those
 * that are, the share labelled so; f1: their harmonic mean.  Each is 0 where it would be
 * 0/0. */
typedef struct attn_label_score {
    int64_t count; /* that have the label */
    double precision, recall, f1;
} attn_label_score;

attn_label_score attn_label_scores_of(const attn_label_scores *scores, int64_t label);
/** The mean F1 of the labels that occur or were found. */
double attn_label_scores_macro_f1(const attn_label_scores *scores);

#endif
