/* What a masked language model trains on: texts as tokens, some of them hidden (Devlin et
 * al. 2019, section 3.1).
 *
 * Of a text's tokens, <s> and </s> aside, a share is chosen, one at least.  Of the
 * chosen, 80 % become <mask>, 10 % any token of text, 10 % stay; each is to be guessed.
 * What is drawn depends on a seed and the number of the text and nothing else. */
#ifndef ATTN_TRAIN_MASKED_H
#define ATTN_TRAIN_MASKED_H

#include "model/bert.h"
#include "text/corpus.h"
#include "text/tokenizer.h"
#include "train/task.h"

/** Texts, each with <s> and </s>. */
typedef struct attn_masked_texts {
    size_t count;
    int32_t *ids;
    size_t *begin; /* [count + 1] */
    size_t lines;  /* they come from, empty ones aside */
    size_t empty;  /* lines without text, which are left out */
    size_t cut;    /* lines longer than the positions, cut in several texts */
    int64_t tokens;
} attn_masked_texts;

/**
 * The first field of each line.
 * @param refuses_long  a line that is longer than max_positions, <s> and </s> included,
 *                      is ATTN_EFORMAT and not cut.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EFORMAT (no text at all).
 */
ATTN_CHECKED attn_status attn_masked_encode(attn_masked_texts *texts,
                                            const attn_corpus *corpus,
                                            const attn_tokenizer *tokenizer,
                                            int64_t max_positions, bool refuses_long,
                                            attn_error *error);
void attn_masked_texts_free(attn_masked_texts *texts);

/** Hides tokens of one text: ids[count] is changed, targets[count] gets what was there
 * where it is to be guessed, else −1.
 * @param mask  the id of <mask>: tokens of text are those from the specials up to it. */
void attn_masked_hide(int32_t *ids, int32_t *targets, size_t count, double share,
                      int32_t mask, uint64_t seed);
/** How many it chooses. */
size_t attn_masked_targets(size_t count, double share);

/** The data of examples: example n is text n with its share hidden, or, where place is
 * there, text[n] with <mask> at place[n] alone. */
typedef struct attn_masked {
    attn_masked_texts texts;
    double share;
    int32_t mask;
    size_t *text;   /* [examples] or NULL */
    int32_t *place; /* [examples] or NULL */
} attn_masked;

/** Examples of texts, whose data takes them over; each token alone, or by share. */
ATTN_CHECKED attn_status attn_masked_examples(attn_examples *examples,
                                              attn_masked_texts *texts, double share,
                                              int32_t mask, bool each, attn_error *error);
/** Frees the data; the sizes are left to who trains. */
void attn_masked_examples_free(attn_examples *examples);

/** A batch's input and targets, in memory of the tape; false after failing it. */
bool attn_masked_pack(attn_bert_input *input, const int32_t **targets, attn_tape *tape,
                      const attn_shard_batch *batch);

#endif
