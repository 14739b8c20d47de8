/* Holding back what may be the beginning of a character. */
#include "text/stream.h"
#include "base/context.h"
#include "text/words.h"
#include <stdlib.h>
#include <string.h>

/* Bytes at the end of the text that more bytes could still make a character of, or
 * another number of replacements: those that are not UTF-8 up to the end. */
static size_t open_end(const char *bytes, size_t length)
{
    size_t at = attn_utf8_valid(bytes, length);
    while (at < length) {
        uint32_t code_point;
        size_t used;
        if (!attn_utf8_read(bytes + at, length - at, &code_point, &used) &&
            at + used == length)
            return used;
        at += used;
        at += attn_utf8_valid(bytes + at, length - at);
    }
    return 0;
}

static attn_status append(const char *bytes, size_t length, char **text, size_t *used,
                          attn_error *error)
{
    char *repaired;
    size_t count;
    ATTN_TRY(attn_utf8_repair(bytes, length, &repaired, &count, error));
    char *const longer = realloc(*text, *used + count + 1);
    if (!longer) {
        free(repaired);
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu bytes of text",
                              *used + count);
    }
    memcpy(longer + *used, repaired, count + 1);
    free(repaired);
    *text = longer;
    *used += count;
    return ATTN_OK;
}

attn_status attn_text_stream_put(attn_text_stream *stream, const char *bytes,
                                 size_t length, char **text, size_t *used,
                                 attn_error *error)
{
    const size_t total = stream->count + length;
    char *const joined = malloc(total + 1);
    if (!joined)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu bytes of text",
                              total);
    memcpy(joined, stream->held, stream->count);
    memcpy(joined + stream->count, bytes, length);
    const size_t held = open_end(joined, total);
    const attn_status status = append(joined, total - held, text, used, error);
    if (status == ATTN_OK) {
        memcpy(stream->held, joined + total - held, held);
        stream->count = held;
    }
    free(joined);
    return status;
}

attn_status attn_text_stream_end(attn_text_stream *stream, char **text, size_t *used,
                                 attn_error *error)
{
    ATTN_TRY(append(stream->held, stream->count, text, used, error));
    stream->count = 0;
    return ATTN_OK;
}
