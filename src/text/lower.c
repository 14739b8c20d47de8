/* Small letters, character by character: what the normaliser "Lowercase" of `tokenizers`
 * does, by Unicode's lower-case mappings without those of a context or a language. */
#include "text/lower.h"
#include "base/context.h"
#include "file/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

size_t attn_lower_letter(uint32_t letter, char to[4])
{
    static const char dotted_i[] = "i\xCC\x87";
    if (letter == 0x130) { /* İ: the one that has two */
        memcpy(to, dotted_i, sizeof dotted_i - 1);
        return sizeof dotted_i - 1;
    }
    return attn_utf8_write((uint32_t)utf8proc_tolower((utf8proc_int32_t)letter), to);
}

attn_status attn_text_lower(attn_lower_text *lower, const char *text, size_t length_bytes,
                            attn_error *error)
{
    /* The widest step is from two bytes to three. */
    const size_t most = length_bytes / 2 * 3 + 4;
    *lower = (attn_lower_text){.text = malloc(most),
                               .places = calloc(most, sizeof *lower->places)};
    if (!lower->text || !lower->places) {
        attn_lower_text_free(lower);
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu bytes of text",
                              length_bytes);
    }
    size_t length = 0;
    for (size_t at = 0, used; at < length_bytes; at += used) {
        uint32_t letter;
        char bytes[4];
        size_t count;
        if (attn_utf8_read(text + at, length_bytes - at, &letter, &used))
            count = attn_lower_letter(letter, bytes);
        else
            memcpy(bytes, text + at, count = used);
        for (size_t i = 0; i < count; i++)
            lower->places[length + i] = (int64_t)(at + (i < used ? i : used));
        memcpy(lower->text + length, bytes, count);
        length += count;
    }
    lower->text[length] = '\0';
    lower->places[length] = (int64_t)length_bytes;
    lower->length = length;
    return ATTN_OK;
}

void attn_lower_text_free(attn_lower_text *lower)
{
    free(lower->text);
    free(lower->places);
    *lower = (attn_lower_text){0};
}
