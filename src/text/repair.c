/* Text that anyone can print from bytes that may be anything. */
#include "text/words.h"
#include <stdlib.h>
#include <string.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; /* U+FFFD */
enum { REPLACEMENT_BYTES = 3 };

attn_status attn_utf8_repair(const char *text, size_t length_bytes, char **out,
                             size_t *out_length, attn_error *error)
{
    char *const repaired = length_bytes < SIZE_MAX / REPLACEMENT_BYTES
                               ? malloc(REPLACEMENT_BYTES * length_bytes + 1)
                               : NULL;
    if (!repaired)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to repair %zu bytes",
                              length_bytes);
    size_t written = 0;
    for (size_t at = 0, used; at < length_bytes; at += used) {
        uint32_t code_point;
        if (attn_utf8_read(text + at, length_bytes - at, &code_point, &used)) {
            memcpy(repaired + written, text + at, used);
            written += used;
        } else {
            memcpy(repaired + written, REPLACEMENT, REPLACEMENT_BYTES);
            written += REPLACEMENT_BYTES;
        }
    }
    repaired[written] = '\0';
    *out = repaired;
    *out_length = written;
    return ATTN_OK;
}
