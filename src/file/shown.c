/* Text on its way to a terminal. */
#include "file/shown.h"
#include "file/utf8.h"

bool attn_is_command(uint32_t point)
{
    return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x061C ||
           (point >= 0x200E && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
           (point >= 0x2066 && point <= 0x2069) || point == 0xFEFF;
}

bool attn_show(FILE *stream, const char *text, size_t length_bytes)
{
    size_t used;
    bool is_written = true;
    for (size_t at = 0; at < length_bytes && is_written; at += used) {
        uint32_t point;
        const bool is_text =
            attn_utf8_read(text + at, length_bytes - at, &point, &used) &&
            (point == '\n' || point == '\t' || !attn_is_command(point));
        if (is_text)
            is_written = fwrite(text + at, 1, used, stream) == used;
        for (size_t i = 0; i < used && !is_text && is_written; i++)
            is_written =
                fprintf(stream, "\\x%02x", (unsigned)(unsigned char)text[at + i]) > 0;
    }
    return is_written;
}
