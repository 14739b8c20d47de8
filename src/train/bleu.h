/* BLEU (Papineni et al. 2002) of a corpus, as sacrebleu computes it by default (Post
 * 2018): the tokenizer 13a of the WMT campaigns, n-grams up to 4, any number of
 * references for each sentence, exponential smoothing of orders without a match (Chen and
 * Cherry 2014, method 3), and no effective order. */
#ifndef ATTN_TRAIN_BLEU_H
#define ATTN_TRAIN_BLEU_H

#include "base/error.h"

enum { ATTN_BLEU_ORDERS = 4 };

/** Counts that sentences are added to; start with zeros. */
typedef struct attn_bleu {
    int64_t correct[ATTN_BLEU_ORDERS], total[ATTN_BLEU_ORDERS];
    int64_t hypothesis_length, reference_length; /* words; of the nearest references */
} attn_bleu;

/** @param count  of references, at least 1.  Texts are UTF-8. */
ATTN_CHECKED attn_status attn_bleu_add(attn_bleu *bleu, const char *hypothesis,
                                       const char *const *references, size_t count,
                                       attn_error *error);

/** From 0 to 100; 0 when there is no match at all. */
double attn_bleu_score(const attn_bleu *bleu);
/** 1 when the hypotheses are as long as the references. */
double attn_bleu_brevity(const attn_bleu *bleu);

/** The text as 13a cuts it, words joined by one space; free() it.  NULL: out of memory.
 */
char *attn_bleu_tokenize(const char *text);

#endif
