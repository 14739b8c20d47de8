/* UTF-8, one character at a time (Unicode 15, section 3.9, table 3-7). */
#ifndef ATTN_FILE_UTF8_H
#define ATTN_FILE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the character at text[0], of length_bytes > 0 in all.  Returns true with its code
 * point and its bytes; false where it is not UTF-8, with *used the bytes of its maximal
 * subpart, at least 1: what one U+FFFD stands for. */
bool attn_utf8_read(const char *text, size_t length_bytes, uint32_t *code_point,
                    size_t *used);

/* Writes a code point below 0x110000 that is not a surrogate; returns its bytes, 1 to 4.
 */
size_t attn_utf8_write(uint32_t code_point, char out[4]);

/* Bytes before the first place that is not UTF-8, or length_bytes. */
size_t attn_utf8_valid(const char *text, size_t length_bytes);

/* Bytes of the mark of byte order that some programs put before a text: 3, or 0 without
 * one.  It is no part of the text. */
size_t attn_utf8_mark(const char *text, size_t length_bytes);

#endif
