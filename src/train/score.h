/* How good a translator is on a file of sentence pairs: loss, and BLEU of what it writes.
 */
#ifndef ATTN_TRAIN_SCORE_H
#define ATTN_TRAIN_SCORE_H

#include "model/translate.h"
#include "text/corpus.h"
#include "train/bleu.h"
#include "train/shards.h"

/**
 * Loss over the pairs of the first `lines` lines.
 * @param left_out  pairs with a side longer than the model's positions.
 */
ATTN_CHECKED attn_status attn_score_loss(const attn_seq2seq *model,
                                         const attn_tokenizer *tokenizer,
                                         const attn_corpus *corpus, size_t lines,
                                         pthreadpool_t pool, attn_batch_loss *loss,
                                         size_t *left_out, attn_error *error);

typedef struct attn_translations {
    char **texts; /* [lines]; the caller's to free by attn_translations_free */
    size_t lines;
    int64_t tokens;     /* written, </s> included */
    int64_t unfinished; /* sentences without </s> when the length was reached */
} attn_translations;

/**
 * Translates the first field of the first `lines` lines, on `threads` threads of the
 * pool, in batches of like lengths; a line's translation does not depend on the others.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EFORMAT: a line is longer than the model's
 *         positions (named).
 */
ATTN_CHECKED attn_status attn_score_translate(attn_translations *translations,
                                              const attn_seq2seq *model,
                                              const attn_tokenizer *tokenizer,
                                              const attn_corpus *corpus, size_t lines,
                                              const attn_search_options *search,
                                              pthreadpool_t pool, size_t threads,
                                              attn_error *error);
/** Whether every line fits: refuses what attn_score_translate would. */
ATTN_CHECKED attn_status attn_score_check(const attn_seq2seq *model,
                                          const attn_tokenizer *tokenizer,
                                          const attn_corpus *corpus, attn_error *error);
void attn_translations_free(attn_translations *translations);

/** Of translations against all further fields of each line. */
ATTN_CHECKED attn_status attn_score_bleu(const attn_translations *translations,
                                         const attn_corpus *corpus, attn_bleu_words words,
                                         attn_bleu *bleu, attn_error *error);

/** BLEU of the sentences whose source has a number of words, separated by spaces. */
typedef struct attn_length_score {
    const char *name; /* "6-10" words; "more" for the longest */
    int64_t sentences;
    attn_bleu bleu;
} attn_length_score;

enum { ATTN_LENGTH_SCORES = 9 };

ATTN_CHECKED attn_status
attn_score_by_length(const attn_translations *translations, const attn_corpus *corpus,
                     attn_bleu_words words, attn_length_score scores[ATTN_LENGTH_SCORES],
                     attn_error *error);

#endif
