/* A record from a translator of whatever kind: the text is translated, then source and
 * translation go through the model once more together, with an observer who keeps where
 * every head looked. */
#ifndef ATTN_INSPECT_BUILD_H
#define ATTN_INSPECT_BUILD_H

#include "inspect/record.h"
#include "model/translate.h"

typedef struct attn_record_request {
    const attn_seq2seq *translator; /* of whatever kind */
    const attn_tokenizer *tokenizer;
    attn_context *context;
    const char *model; /* a name to show */
    attn_search_options search;
    const char *translation;         /* to look at in place of a search, or NULL */
    const attn_translation *written; /* what a search found before, or NULL */
} attn_record_request;

/**
 * Decoder row i is the token just written (the first is the model's start mark, shown as
 * "<s>"), cross row i the token being written (the last is </s>).  Word pieces are joined
 * into words: a word's weight is the sum over the pieces of a key and the mean over the
 * pieces of a query.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EINVAL (the text is empty), ATTN_EFORMAT: it is not
 *         UTF-8 (with the place), or it or its translation has more tokens than the model
 *         has positions (the message has both numbers; nothing is ever cut); or
 *         ATTN_EUNSUPPORTED: a model without attention.
 */
ATTN_CHECKED attn_status attn_record_build(attn_record **record,
                                           const attn_record_request *request,
                                           const char *text, size_t length_bytes,
                                           attn_error *error);

#endif
