/* Text from files, .xz unpacked: parallel text, one sentence pair a line, columns
 * separated by tabs; or a whole file as one text. */
#ifndef ATTN_TEXT_CORPUS_H
#define ATTN_TEXT_CORPUS_H

#include "base/error.h"

typedef struct attn_corpus {
    size_t lines;
    size_t
        *first_field; /* [lines + 1]: line n has fields first_field[n] to [n + 1] − 1 */
    const char **fields; /* NUL-ended */
    char *text;          /* what they point into */
} attn_corpus;

/** Each line has at least `columns` fields and is UTF-8, or ATTN_EFORMAT names the line.
 */
ATTN_CHECKED attn_status attn_corpus_load(attn_corpus *corpus, const char *path,
                                          size_t columns, attn_error *error);
/** The whole file, without a byte-order mark, NUL-ended, the caller's to free.  UTF-8
 * without a byte 0, or ATTN_EFORMAT names the line. */
ATTN_CHECKED attn_status attn_text_load(char **text, size_t *length_bytes,
                                        const char *path, attn_error *error);
/** The second field of each line, which all have, in the place of the first, and the
 * other way round. */
void attn_corpus_swap(attn_corpus *corpus);
void attn_corpus_free(attn_corpus *corpus);

/** Every letter small, each by itself (Unicode's simple mapping). */
ATTN_CHECKED attn_status attn_corpus_lower_case(attn_corpus *corpus, attn_error *error);

#endif
