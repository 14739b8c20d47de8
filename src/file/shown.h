/* Text from outside, a user's or a model's, where people read it.  A terminal obeys some
 * characters instead of showing them: a file name or a word of a model could clear the
 * screen, or turn around what stands beside it. */
#ifndef ATTN_FILE_SHOWN_H
#define ATTN_FILE_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Control characters, ends of lines, marks of direction and of byte order. */
bool attn_is_command(uint32_t point);

/* Writes the text; each byte of what is a command, but for ends of lines and tabs, and of
 * what is not UTF-8, as \x1b.  false where it cannot be written. */
bool attn_show(FILE *stream, const char *text, size_t length_bytes);

#endif
