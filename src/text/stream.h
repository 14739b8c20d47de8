/* Text that comes in pieces of bytes and leaves in whole characters. */
#ifndef ATTN_TEXT_STREAM_H
#define ATTN_TEXT_STREAM_H

#include "base/error.h"

enum { ATTN_STREAM_HELD = 3 };

/** {0} before the first piece. */
typedef struct attn_text_stream {
    char held[ATTN_STREAM_HELD]; /* of a character that is not whole yet */
    size_t count;
} attn_text_stream;

/** Appends the characters that are whole now to *text, which is the caller's to free
 * (NULL and 0 at first, NUL-ended after); U+FFFD for each maximal subpart that is not
 * UTF-8, as attn_utf8_repair.  However bytes are cut into pieces, all pieces and the end
 * together give the same text.
 * @return ATTN_OK or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_text_stream_put(attn_text_stream *stream, const char *bytes,
                                              size_t length, char **text, size_t *used,
                                              attn_error *error);
/** What is still held is no character: U+FFFD where something is. */
ATTN_CHECKED attn_status attn_text_stream_end(attn_text_stream *stream, char **text,
                                              size_t *used, attn_error *error);

#endif
