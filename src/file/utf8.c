/* Reading and writing UTF-8.  The second byte's range depends on the first, which is what
 * keeps out overlong forms, surrogates and values beyond 0x10FFFF. */
#include "file/utf8.h"
#include <string.h>

/* Length of a sequence by its first byte, 0 where it cannot begin one, and the range of
 * its second byte. */
static size_t sequence_length(unsigned char first, unsigned char *low,
                              unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    if (first < 0xE0)
        return 2;
    if (first == 0xE0)
        *low = 0xA0;
    if (first == 0xED)
        *high = 0x9F;
    if (first == 0xF0)
        *low = 0x90;
    if (first == 0xF4)
        *high = 0x8F;
    return first < 0xF0 ? 3 : 4;
}

bool attn_utf8_read(const char *text, size_t length_bytes, uint32_t *code_point,
                    size_t *used)
{
    const unsigned char *const bytes = (const unsigned char *)text;
    unsigned char low, high;
    const size_t length = sequence_length(bytes[0], &low, &high);
    *used = 1;
    if (length == 0)
        return false;
    if (length == 1) {
        *code_point = bytes[0];
        return true;
    }
    uint32_t value = bytes[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (i == length_bytes || bytes[i] < low || bytes[i] > high)
            return false;
        value = value << 6 | (bytes[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
        *used = i + 1;
    }
    *code_point = value;
    return true;
}

size_t attn_utf8_write(uint32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xC0 | code_point >> 6);
        out[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xE0 | code_point >> 12);
        out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code_point >> 18);
    out[1] = (char)(0x80 | (code_point >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code_point >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

size_t attn_utf8_valid(const char *text, size_t length_bytes)
{
    size_t at = 0;
    while (at < length_bytes) {
        uint32_t code_point;
        size_t used;
        if (!attn_utf8_read(text + at, length_bytes - at, &code_point, &used))
            break;
        at += used;
    }
    return at;
}

size_t attn_utf8_mark(const char *text, size_t length_bytes)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t bytes = sizeof mark - 1;
    return length_bytes >= bytes && memcmp(text, mark, bytes) == 0 ? bytes : 0;
}
