/* The 256 byte values as printable characters, as GPT-2 stores them (Radford et al.
 * 2019): a token of any bytes is then a JSON string without spaces or control characters.
 */
#ifndef ATTN_TEXT_BYTES_H
#define ATTN_TEXT_BYTES_H

#include <stdint.h>

/* The character that stands for a byte: itself where it is printable in Latin-1, else one
 * of U+0100 to U+0143 in order. */
uint32_t attn_byte_to_character(uint8_t byte);

/* The byte that a character stands for, or −1. */
int attn_character_to_byte(uint32_t character);

#endif
