/* Why something failed, for rooms that work without a context: files, text, models. */
#ifndef ATTN_BASE_ERROR_H
#define ATTN_BASE_ERROR_H

#include "attn/attention.h"

typedef struct attn_error {
    attn_status status;
    char message[512];
} attn_error;

/* Keeps status and message and returns the status, so that a failure is one line.  Of a
 * message that is too long the middle is left out, marked by "…", so that a long path
 * hides no reason; it may quote error->message. */
__attribute__((format(printf, 3, 4))) attn_status
attn_error_set(attn_error *error, attn_status status, const char *format, ...);

/* The end of a noun after its count: "%lld line%s". */
static inline const char *attn_s(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* Takes over the context's message. */
attn_status attn_error_from_context(attn_error *error, attn_status status,
                                    const attn_context *context);

/* attn_context_create, with the reason where it fails: which instruction set was asked
 * for and which this processor has, or no memory. */
ATTN_CHECKED attn_status attn_context_open(attn_context **context,
                                           const attn_context_options *options,
                                           attn_error *error);

#endif
