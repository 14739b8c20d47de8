/* Text in, text out: greedy and beam search over the translator, step by step with cached
 * keys and values. */
#ifndef ATTN_MODEL_TRANSLATE_H
#define ATTN_MODEL_TRANSLATE_H

#include "model/translator.h"

enum { ATTN_MOST_BEAMS = 256 };

typedef struct attn_search_options {
    int64_t beams;       /* 1 is greedy; at most ATTN_MOST_BEAMS */
    double length_power; /* a hypothesis's log-probability is divided by length^power */
    int64_t max_length;  /* tokens that are written, </s> included.  0: 2 × the source's
                          * tokens + 10, as far as the positions reach */
} attn_search_options;

void attn_search_options_init(attn_search_options *options); /* 4 beams, power 1 */

typedef struct attn_translation {
    int32_t *ids; /* without start and </s> */
    size_t count;
    bool finished; /* </s> was written, and not only the length reached */
    double score;  /* log-probability of what was written with its </s>, divided as the
                    * options say */
} attn_translation;

/**
 * Translates sources (each with its </s>) together; <s>, <pad> and <unk> are never
 * written. The search is that of Hugging Face's `generate` with early_stopping false, see
 * beam.c.
 *
 * A sentence's result does not depend on the others by a bit.
 *
 * @param translations  [packing.sequences]; free each one's ids.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: an option out of range, a source that is
 * empty or longer than the model's positions, an id outside the vocabulary; or
 * ATTN_ENOTFINITE (logits of a broken model); translations are untouched unless ATTN_OK.
 */
ATTN_CHECKED attn_status attn_translate(const attn_translator *translator,
                                        attn_context *context, const int32_t *source,
                                        attn_packing packing,
                                        const attn_search_options *options,
                                        attn_translation *translations,
                                        attn_error *error);

#endif
