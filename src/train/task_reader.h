/* Classifier and tagger as kinds: what their recipes say, and what they train on. */
#ifndef ATTN_TRAIN_TASK_READER_H
#define ATTN_TRAIN_TASK_READER_H

#include "train/task.h"
#include "train/texts.h"

enum { ATTN_LABELS_BYTES = 1024, ATTN_FILTERS_BYTES = 32 };

/** A recipe's settings. */
typedef struct attn_reader_settings {
    char labels[ATTN_LABELS_BYTES];   /* separated by spaces; "": those of the training
                                       * data.  Where they are given, a label that the data
                                       * has not, or has beside them, is an error */
    char start[ATTN_PATH_BYTES];      /* folder of a BERT whose encoder and tokenizer are
                                       * taken; "": none */
    char tokenizer[ATTN_PATH_BYTES];  /* folder of a model whose tokenizer alone is taken;
                                       * "": none, and model.vocabulary is not 0 */
    char filters[ATTN_FILTERS_BYTES]; /* of a convolution: "3 4 5" */
    enum {
        ATTN_LONG_SPLIT,
        ATTN_LONG_REFUSE
    } too_long;               /* texts longer than the
                               * positions */
    attn_reader_config model; /* all but labels, tags, filters, mean_pieces */
    int mean_pieces;          /* of words: 0 the first, 1 the mean */
} attn_reader_settings;

/** A task's state. */
typedef struct attn_reader_state {
    attn_tokenizer *tokenizer;
    attn_reader *reader;
    attn_texts train, valid;
} attn_reader_state;

/** Of a tagger, beside the model: the words of its training data, a line each, by which
 * attn_reader_score tells words that were not seen. */
#define ATTN_SEEN_WORDS "words.txt"

/** See attn_task_kind.score; in reader_scores.c. */
ATTN_CHECKED attn_status attn_reader_score(const attn_score_job *job, json_t *scores,
                                           attn_error *error);
/** See attn_task_kind.check_file; in reader_scores.c. */
ATTN_CHECKED attn_status attn_reader_check_file(const attn_task *task, const char *file,
                                                attn_error *error);

#endif
