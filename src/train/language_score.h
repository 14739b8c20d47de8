/* How good a language model is on a file of text, or of minimal pairs. */
#ifndef ATTN_TRAIN_LANGUAGE_SCORE_H
#define ATTN_TRAIN_LANGUAGE_SCORE_H

#include "model/language.h"
#include "train/passages.h"

typedef struct attn_language_scorer {
    attn_language *language;
    attn_tokenizer *tokenizer;
    pthreadpool_t pool;
    size_t threads;
} attn_language_scorer;

/**
 * Into scores: loss (nats a token), perplexity (a token), perplexity_word (the nats of
 * all tokens over the words, see attn_passages; exponential), bits_byte, and the counts
 * texts, tokens, words and bytes.  A line of more than the positions is split, and
 * counted in lines_split.
 */
ATTN_CHECKED attn_status attn_language_score_texts(const attn_language_scorer *scorer,
                                                   const char *path, json_t *scores,
                                                   attn_error *error);

/**
 * Minimal pairs, as BLiMP's (Warstadt et al. 2020): a line of a file has, between tabs, a
 * paradigm, a sentence that is good and one that is bad; path is a file or a folder of
 * such (*.tsv, *.tsv.xz).  A pair is won where the good one is the more probable, whole
 * sentence against whole sentence; a draw is none.  Into scores: accuracy of all pairs,
 * pairs, and paradigms: the accuracy of each.
 */
ATTN_CHECKED attn_status attn_language_score_pairs(const attn_language_scorer *scorer,
                                                   const char *path, json_t *scores,
                                                   attn_error *error);

/** Reads a file or folder of either sort as the two above do, and scores nothing. */
ATTN_CHECKED attn_status attn_language_check_file(const attn_language_scorer *scorer,
                                                  const char *path,
                                                  attn_too_long too_long,
                                                  attn_error *error);

/** Whether a path is one of minimal pairs: a folder, or its name ends with .tsv or
 * .tsv.xz. */
bool attn_language_is_pairs(const char *path);

#endif
