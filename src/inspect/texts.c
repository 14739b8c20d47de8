/* What is a sentence, and where written tokens stand. */
#include "inspect/texts.h"
#include "inspect/buffer.h"
#include "text/words.h"
#include <stdlib.h>
#include <string.h>

attn_status attn_check_sentence(const char *what, const char *text, size_t length,
                                attn_error *error)
{
    const size_t valid = attn_utf8_valid(text, length);
    if (valid < length)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s is not UTF-8: byte 0x%02x at byte %zu of %zu", what,
                              (unsigned)(unsigned char)text[valid], valid + 1, length);
    if (memchr(text, '\0', length) != NULL)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s has a NUL character; expected text", what);
    if (strspn(text, " \t\r\n\v\f") >= length)
        return attn_error_set(error, ATTN_EINVAL, "%s is empty; expected a sentence",
                              what);
    return ATTN_OK;
}

attn_status attn_written_place(attn_written *written, const attn_tokenizer *tokenizer,
                               const int32_t *ids, size_t count, attn_error *error)
{
    attn_buffer raw = {0};
    written->count = count;
    written->tokens = calloc(count + 1, sizeof *written->tokens);
    attn_status status = ATTN_OK;
    if (written->tokens == NULL)
        status = attn_error_set(error, ATTN_ENOMEM, "memory was refused for %zu tokens",
                                count);
    for (size_t i = 0; status == ATTN_OK && i < count; i++) {
        const char *bytes;
        size_t length;
        bool special;
        status =
            attn_tokenizer_bytes(tokenizer, ids[i], &bytes, &length, &special, error);
        if (status != ATTN_OK)
            break;
        written->tokens[i] = (attn_token){.id = ids[i],
                                          .begin = (int64_t)raw.length,
                                          .end = (int64_t)(raw.length + length)};
        attn_buffer_put_bytes(&raw, bytes, length);
    }
    if (status == ATTN_OK)
        status = attn_buffer_take(&raw, &written->raw, &written->length, error);
    else
        attn_buffer_free(&raw);
    if (status == ATTN_OK)
        status = attn_tokenizer_decode(tokenizer, ids, count, &written->text, error);
    return status;
}

void attn_written_free(attn_written *written)
{
    free(written->tokens);
    free(written->raw);
    free(written->text);
    *written = (attn_written){0};
}
