/* The alphabet of byte-level tokens. */
#include "text/bytes.h"
#include <stdbool.h>

enum { FIRST_STAND_IN = 256, STAND_INS = 68 };

/* No space, no control character and no soft hyphen (0xAD). */
static bool is_printable(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

uint32_t attn_byte_to_character(uint8_t byte)
{
    if (is_printable(byte))
        return byte;
    if (byte <= 0x20)
        return FIRST_STAND_IN + byte;
    if (byte <= 0xA0)
        return FIRST_STAND_IN + 33u + (byte - 0x7Fu);
    return FIRST_STAND_IN + STAND_INS - 1;
}

int attn_character_to_byte(uint32_t character)
{
    if (character < FIRST_STAND_IN)
        return is_printable(character) ? (int)character : -1;
    const uint32_t index = character - FIRST_STAND_IN;
    if (index < 33)
        return (int)index;
    if (index < STAND_INS - 1)
        return (int)(index - 33 + 0x7F);
    return index == STAND_INS - 1 ? 0xAD : -1;
}
