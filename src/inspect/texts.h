/* Texts on their way into a record; private to inspect. */
#ifndef ATTN_INSPECT_TEXTS_H
#define ATTN_INSPECT_TEXTS_H

#include "text/tokenizer.h"

/* ATTN_EFORMAT where it is not UTF-8 (with the place) or has a NUL, ATTN_EINVAL where it
 * is empty; `what` begins the message: "the text". */
attn_status attn_check_sentence(const char *what, const char *text, size_t length,
                                attn_error *error);

/* Tokens that a model wrote, with their places in the raw bytes they make. */
typedef struct attn_written {
    attn_token *tokens;
    size_t count;
    char *raw;     /* what the places refer to */
    size_t length; /* of raw */
    char *text;    /* valid UTF-8 */
} attn_written;

/* written is {0} before; free it also on failure. */
attn_status attn_written_place(attn_written *written, const attn_tokenizer *tokenizer,
                               const int32_t *ids, size_t count, attn_error *error);
void attn_written_free(attn_written *written);

#endif
