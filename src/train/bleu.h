/* BLEU (Papineni et al. 2002) of a corpus, as sacrebleu computes it by default (Post
 * 2018): the tokenizer 13a of the WMT campaigns, n-grams up to 4, any number of
 * references for each sentence, exponential smoothing of orders without a match (Chen and
 * Cherry 2014, method 3), and no effective order. */
#ifndef ATTN_TRAIN_BLEU_H
#define ATTN_TRAIN_BLEU_H

#include "base/error.h"

enum { ATTN_BLEU_ORDERS = 4 };

/** How texts are cut into words. */
typedef enum attn_bleu_words {
    ATTN_BLEU_13A,  /* sacrebleu's default */
    ATTN_BLEU_ZH,   /* sacrebleu's for Chinese: each of its characters is a word */
    ATTN_BLEU_MOSES /* as corpora are tokenised for training; see bleu_moses.c */
} attn_bleu_words;

/** "13a", "zh", "moses", NULL */
extern const char *const attn_bleu_words_names[];

/** ATTN_BLEU_ZH for texts more than half of which is Chinese characters, else 13A. */
attn_bleu_words attn_bleu_words_of(const char *const *texts, size_t count);

/** Counts that sentences are added to; start with zeros but for words. */
typedef struct attn_bleu {
    attn_bleu_words words;
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

/** The text as it is cut, words joined by one space; free() it.  NULL: out of memory. */
char *attn_bleu_tokenize(const char *text, attn_bleu_words words);
char *attn_bleu_tokenize_moses(const char *text);

#endif
