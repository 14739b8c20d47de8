/* Text that grows.  A failure of memory is kept: later calls do nothing, and whoever
 * takes the text is told. */
#ifndef ATTN_INSPECT_BUFFER_H
#define ATTN_INSPECT_BUFFER_H

#include "base/error.h"

typedef struct attn_buffer {
    char *text; /* NUL-ended, or NULL while empty */
    size_t length, capacity;
    bool failed;
} attn_buffer; /* = {0} is empty */

void attn_buffer_put(attn_buffer *buffer, const char *text);
void attn_buffer_put_bytes(attn_buffer *buffer, const char *bytes, size_t length);
void attn_buffer_put_repeat(attn_buffer *buffer, const char *text, int64_t times);
__attribute__((format(printf, 2, 3))) void attn_buffer_print(attn_buffer *buffer,
                                                             const char *format, ...);
/** Cuts to length. */
void attn_buffer_truncate(attn_buffer *buffer, size_t length);
/** The text, or "" while empty; valid until the next put. */
const char *attn_buffer_text(const attn_buffer *buffer);
/** Hands the text over (never NULL on success) and empties the buffer. */
ATTN_CHECKED attn_status attn_buffer_take(attn_buffer *buffer, char **text,
                                          size_t *length, attn_error *error);
void attn_buffer_free(attn_buffer *buffer);

#endif
