/* Columns of a terminal, one grapheme at a time (Unicode Standard Annex 29).  A grapheme
 * is as wide as its parts together, but never over two columns: an emoji of four people
 * joined is one picture. */
#include "text/words.h"
#include <string.h>
#include <utf8proc.h>

enum { VARIATION_SELECTOR_16 = 0xFE0F, WIDEST = 2 };

static size_t character_columns(uint32_t code_point)
{
    const int columns = utf8proc_charwidth((utf8proc_int32_t)code_point);
    return columns > 0 ? (size_t)columns : 0;
}

/* The grapheme at text, of length_bytes > 0: its bytes, and its columns.  What is not
 * UTF-8 is a grapheme of one column, as the U+FFFD that stands for it. */
static size_t read_grapheme(const char *text, size_t length_bytes, size_t *columns)
{
    uint32_t previous;
    size_t length;
    if (!attn_utf8_read(text, length_bytes, &previous, &length)) {
        *columns = 1;
        return length;
    }
    *columns = character_columns(previous);
    utf8proc_int32_t state = 0;
    while (length < length_bytes) {
        uint32_t next;
        size_t used;
        if (!attn_utf8_read(text + length, length_bytes - length, &next, &used) ||
            utf8proc_grapheme_break_stateful((utf8proc_int32_t)previous,
                                             (utf8proc_int32_t)next, &state))
            break;
        /* It asks for the picture where a character has one: two columns. */
        *columns += next == VARIATION_SELECTOR_16 ? WIDEST : character_columns(next);
        previous = next;
        length += used;
    }
    if (*columns > WIDEST)
        *columns = WIDEST;
    return length;
}

size_t attn_text_columns(const char *text)
{
    const size_t length = strlen(text);
    size_t total = 0;
    for (size_t at = 0, columns; at < length; total += columns)
        at += read_grapheme(text + at, length - at, &columns);
    return total;
}

size_t attn_text_prefix(const char *text, size_t columns)
{
    const size_t length = strlen(text);
    size_t at = 0, total = 0;
    while (at < length) {
        size_t wide;
        const size_t used = read_grapheme(text + at, length - at, &wide);
        if (total + wide > columns)
            break;
        total += wide;
        at += used;
    }
    return at;
}
