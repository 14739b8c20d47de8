/* Sentences in, translations out, by greedy or beam search over any translator. */
#ifndef ATTN_MODEL_TRANSLATE_H
#define ATTN_MODEL_TRANSLATE_H

#include "model/translator.h"

/**
 * Translates sources (each with its </s>) together; <s>, <pad> and <unk> are never
 * written.  See attn_search.
 *
 * A sentence's result does not depend on the others by a bit.
 *
 * @param translations  [packing.sequences]; free each one's ids.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: an option out of range, a source that is
 * empty or longer than the model's positions, an id outside the vocabulary; or
 * ATTN_ENOTFINITE (logits of a broken model); translations are untouched unless ATTN_OK.
 */
ATTN_CHECKED attn_status attn_seq2seq_translate(
    const attn_seq2seq *model, attn_context *context, const int32_t *source,
    attn_packing packing, const attn_search_options *options,
    attn_translation *translations, attn_error *error);
/** The same of the Transformer. */
ATTN_CHECKED attn_status attn_translate(const attn_translator *translator,
                                        attn_context *context, const int32_t *source,
                                        attn_packing packing,
                                        const attn_search_options *options,
                                        attn_translation *translations,
                                        attn_error *error);

#endif
