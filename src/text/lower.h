/* Small letters. */
#ifndef ATTN_TEXT_LOWER_H
#define ATTN_TEXT_LOWER_H

#include "base/error.h"

/** Writes the small letter of a character, or two for İ; returns their bytes, 1 to 4: for
 * two at most three. */
size_t attn_lower_letter(uint32_t letter, char to[4]);

typedef struct attn_lower_text {
    char *text;      /* NUL-ended beyond length */
    int64_t *places; /* [length + 1]: where in the text that was given each byte stood */
    size_t length;
} attn_lower_text;

/** The text in small letters; what is not UTF-8 stays.  Free it. */
ATTN_CHECKED attn_status attn_text_lower(attn_lower_text *lower, const char *text,
                                         size_t length_bytes, attn_error *error);
void attn_lower_text_free(attn_lower_text *lower);

#endif
