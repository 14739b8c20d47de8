/* Text in, text out: greedy and beam search over the translator, step by step with cached
 * keys and values. */
#ifndef ATTN_MODEL_TRANSLATE_H
#define ATTN_MODEL_TRANSLATE_H

#include "model/translator.h"

typedef struct attn_search_options {
    int64_t beams;       /* 1 is greedy */
    double length_power; /* a hypothesis's log-probability is divided by length^power */
    int64_t max_length;  /* 0: 2 × the source's tokens + 10, within the positions */
} attn_search_options;

void attn_search_options_init(attn_search_options *options); /* 4 beams, power 1 */

typedef struct attn_translation {
    int32_t *ids; /* without start and </s> */
    size_t count;
    bool finished; /* </s> was written, and not only the length reached */
    double score;  /* log-probability, divided as the options say */
} attn_translation;

/** Translates sources (each with its </s>) together; a sentence's result does not depend
 * on the others by a bit.  Free each translation's ids. */
ATTN_CHECKED attn_status attn_translate(const attn_translator *translator,
                                        attn_context *context, const int32_t *source,
                                        attn_packing packing,
                                        const attn_search_options *options,
                                        attn_translation *translations,
                                        attn_error *error);

#endif
