/* A few named matrices in a text file, for examples worked by hand:
 *
 *     # two tokens
 *     tokens the cat
 *     X
 *     1 0 0 1
 *     0 2 1 0
 *     W_Q
 *     …
 */
#ifndef ATTN_TEXT_MATRICES_H
#define ATTN_TEXT_MATRICES_H

#include "base/error.h"

typedef struct attn_text_matrix {
    char name[16];
    int64_t rows, columns; /* 0 rows: named, and nothing given */
    int64_t line;          /* of the name, from 1 */
    float *values;
} attn_text_matrix;

enum { ATTN_TEXT_MATRICES = 8, ATTN_TEXT_MATRIX_SIDE = 16 };

typedef struct attn_text_matrices {
    char **words; /* after "tokens" */
    int64_t word_count;
    attn_text_matrix list[ATTN_TEXT_MATRICES];
    int64_t count;
} attn_text_matrices;

/**
 * @param text   ends with a NUL after its length_bytes.
 * @param name   of the file, for messages.
 * @param names  allowed names of matrices, ended by NULL.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EFORMAT: the message names line, what was got and
 *         what was expected (an unknown or repeated name, a row of another length, a word
 *         that is no finite number, more than ATTN_TEXT_MATRIX_SIDE rows or columns, a
 *         byte 0, bytes that are not UTF-8).
 */
ATTN_CHECKED attn_status attn_text_matrices_parse(attn_text_matrices *matrices,
                                                  const char *text, size_t length_bytes,
                                                  const char *name,
                                                  const char *const *names,
                                                  attn_error *error);
void attn_text_matrices_free(attn_text_matrices *matrices);
const attn_text_matrix *attn_text_matrices_find(const attn_text_matrices *matrices,
                                                const char *name);

#endif
