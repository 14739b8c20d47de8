/* What kinds of translators have in common as kinds of the training room: sentence pairs,
 * sorted by target length, one tokenizer of both languages, the loss of the targets, and
 * BLEU.  The model itself is seen through attn_seq2seq. */
#ifndef ATTN_TRAIN_PAIRS_TASK_H
#define ATTN_TRAIN_PAIRS_TASK_H

#include "model/seq2seq.h"
#include "text/corpus.h"
#include "text/tokenizer.h"
#include "train/bleu.h"
#include "train/task.h"

/** Keys under "data", at the start of a kind's settings. */
typedef struct attn_pairs_settings {
    bool swap;       /* in the files the target stands first; optional, false */
    bool lower_case; /* optional, false */
    int bleu;        /* optional: attn_bleu_words; −1: as the references are written */
} attn_pairs_settings;

/** Sentence pairs as the settings (or NULL) read them; at least one. */
ATTN_CHECKED attn_status attn_pairs_corpus_load(attn_corpus *corpus, const char *path,
                                                const attn_pairs_settings *settings,
                                                attn_error *error);
/** How the references of the first `lines` lines are cut. */
attn_bleu_words attn_pairs_words(const attn_corpus *corpus, size_t lines,
                                 const attn_pairs_settings *settings);

/** A task's state. */
typedef struct attn_pairs_state {
    attn_tokenizer *tokenizer;
    attn_seq2seq model; /* kind NULL until there is one; owned */
} attn_pairs_state;

/** All of a kind's prepare but the model: task->state, train and valid.
 * @param vocabulary     that the tokenizer gets.
 * @param max_positions  pairs with a longer side are left out, counted and told. */
ATTN_CHECKED attn_status attn_pairs_task_prepare(attn_task *task, int64_t vocabulary,
                                                 int64_t max_positions, bool goes_on,
                                                 attn_error *error);

/** The further functions of a kind. */
attn_tensor *attn_pairs_task_loss(const attn_task *task, const attn_pass *pass,
                                  const attn_shard_batch *batch, attn_shard_sums *sums);
ATTN_CHECKED attn_status attn_pairs_task_save(const attn_task *task, const char *folder,
                                              attn_error *error);
ATTN_CHECKED attn_status attn_pairs_task_score(const attn_score_job *job, json_t *scores,
                                               attn_error *error);
ATTN_CHECKED attn_status attn_pairs_task_check(const attn_task *task, const char *file,
                                               attn_error *error);
void attn_pairs_task_free(attn_task *task);

#endif
