/* Escaping.  One function decides which code point is shown; XML and JSON differ only in
 * how they spell it. */
#include "draw/escape.h"
#include <string.h>

#include <utf8proc.h>

enum { REPLACEMENT = 0xFFFD };

static int32_t shown(int32_t point)
{
    if (point == '\n' || point == '\t' || point == '\r')
        return ' ';
    if (point < 0x20)
        return 0x2400 + point;
    if (point == 0x7F)
        return 0x2421;
    if (point >= 0x80 && point < 0xA0)
        return REPLACEMENT;
    if ((point >= 0x2028 && point <= 0x202E) || point == 0xFEFF)
        return REPLACEMENT; /* line ends, and what would turn "evil" into "live" */
    if ((point & 0xFFFE) == 0xFFFE || (point >= 0xFDD0 && point <= 0xFDEF))
        return REPLACEMENT; /* noncharacters */
    return point;
}

int32_t attn_shown_next(const char **text)
{
    if (!**text)
        return 0;
    int32_t point;
    const utf8proc_ssize_t taken =
        utf8proc_iterate((const utf8proc_uint8_t *)*text, -1, &point);
    *text += taken > 0 ? taken : 1;
    return taken > 0 ? shown(point) : REPLACEMENT;
}

static void put_point(attn_buffer *buffer, int32_t point)
{
    utf8proc_uint8_t bytes[4];
    attn_buffer_put_bytes(buffer, (const char *)bytes,
                          (size_t)utf8proc_encode_char(point, bytes));
}

void attn_put_xml_bytes(attn_buffer *buffer, const char *text, size_t length_bytes)
{
    const char *const end = text + length_bytes;
    int32_t point;
    while (text < end && (point = attn_shown_next(&text)))
        switch (point) {
        case '&':
            attn_buffer_put(buffer, "&amp;");
            break;
        case '<':
            attn_buffer_put(buffer, "&lt;");
            break;
        case '>':
            attn_buffer_put(buffer, "&gt;");
            break;
        case '"':
            attn_buffer_put(buffer, "&quot;");
            break;
        case '\'':
            attn_buffer_put(buffer, "&#39;");
            break;
        default:
            put_point(buffer, point);
        }
}

void attn_put_xml(attn_buffer *buffer, const char *text)
{
    attn_put_xml_bytes(buffer, text, strlen(text));
}

void attn_put_json(attn_buffer *buffer, const char *text)
{
    attn_buffer_put(buffer, "\"");
    int32_t point;
    while ((point = attn_shown_next(&text)))
        if (point == '"' || point == '\\' || point == '<' || point == '&')
            attn_buffer_print(buffer, "\\u%04x", (unsigned)point);
        else
            put_point(buffer, point);
    attn_buffer_put(buffer, "\"");
}

void attn_put_base64(attn_buffer *buffer, const uint8_t *data, size_t length_bytes)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char block[4 * 256];
    size_t filled = 0;
    for (size_t i = 0; i < length_bytes; i += 3) {
        const size_t left = length_bytes - i;
        const uint32_t bits = (uint32_t)data[i] << 16 |
                              (uint32_t)(left > 1 ? data[i + 1] : 0) << 8 |
                              (uint32_t)(left > 2 ? data[i + 2] : 0);
        block[filled++] = digits[bits >> 18];
        block[filled++] = digits[bits >> 12 & 63];
        block[filled++] = left > 1 ? digits[bits >> 6 & 63] : '=';
        block[filled++] = left > 2 ? digits[bits & 63] : '=';
        if (filled == sizeof block) {
            attn_buffer_put_bytes(buffer, block, filled);
            filled = 0;
        }
    }
    attn_buffer_put_bytes(buffer, block, filled);
}
