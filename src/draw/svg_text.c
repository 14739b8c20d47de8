/* Widths of text. */
#include "draw/svg_text.h"
#include "draw/escape.h"
#include <string.h>

#include <utf8proc.h>

/* Thousandths of an em, from U+0020 to U+007E. */
static const int16_t ascii_widths[] = {
    317,  400, 459, 837, 636, 950, 779, 274, 390, 390, 500, 837, 317, 360, 317, 336,
    636,  636, 636, 636, 636, 636, 636, 636, 636, 636, 336, 336, 837, 837, 837, 530,
    1000, 684, 686, 698, 770, 631, 575, 774, 751, 294, 294, 655, 557, 862, 748, 787,
    603,  787, 694, 634, 610, 731, 684, 988, 685, 610, 685, 390, 336, 390, 837, 500,
    500,  612, 634, 549, 634, 615, 352, 634, 633, 277, 277, 579, 277, 974, 633, 611,
    634,  634, 411, 520, 392, 633, 591, 817, 591, 591, 524, 636, 336, 636, 837};

static int64_t point_width(int32_t point, bool bold)
{
    int64_t width = 1000;
    if (point >= 0x20 && point < 0x7F)
        width = ascii_widths[point - 0x20];
    else if (point == 0xA0)
        width = ascii_widths[0];
    else if (utf8proc_charwidth(point) == 0)
        return 0;
    else if (utf8proc_charwidth(point) == 2)
        width = 1060; /* emoji are a little wider than their em */
    else if (point == 0xB9 || point == 0xB2 || point == 0xB3 ||
             (point >= 0x2070 && point <= 0x2079))
        width = 420;
    else if (point == 0xC6 || point == 0xE6 || point == 0x152 || point == 0x153)
        width = 1070; /* Æ æ Œ œ */
    else if (point < 0x400)
        width = 760; /* Latin and Greek */
    else if (point < 0x780)
        width = 860; /* Cyrillic, Hebrew, Arabic */
    return bold ? width * 9 / 8 + 50 : width;
}

/* Thousandths of a pixel. */
static int64_t exact_width(attn_typeface type, const char *text, const char *end)
{
    int64_t sum = 0;
    while (text < end) {
        const int32_t point = attn_shown_next(&text);
        sum += type.size * point_width(point, type.bold);
    }
    return sum;
}

int64_t attn_type_width(attn_typeface type, const char *text)
{
    return (exact_width(type, text, text + strlen(text)) + 999) / 1000;
}

/* The end of the grapheme that begins at text. */
static const char *grapheme_end(const char *text)
{
    utf8proc_int32_t state = 0;
    int32_t before = attn_shown_next(&text);
    for (;;) {
        const char *next = text;
        const int32_t after = attn_shown_next(&next);
        if (!after || utf8proc_grapheme_break_stateful(before, after, &state))
            return text;
        before = after;
        text = next;
    }
}

void attn_put_fitted(attn_buffer *buffer, attn_typeface type, const char *text,
                     int64_t width)
{
    if (attn_type_width(type, text) <= width) {
        attn_put_xml(buffer, text);
        return;
    }
    const int64_t room = 1000 * (width - type.size); /* for "…" */
    const char *end = text;
    while (*end) {
        const char *const next = grapheme_end(end);
        if (exact_width(type, text, next) > room)
            break;
        end = next;
    }
    attn_put_xml_bytes(buffer, text, (size_t)(end - text));
    attn_buffer_put(buffer, "…");
}

size_t attn_type_line(attn_typeface type, const char *text, int64_t width)
{
    const size_t length = strlen(text);
    size_t fits = 0;
    for (size_t i = 1; i <= length; i++) {
        if (i < length && text[i] != ' ')
            continue;
        if (fits > 0 && exact_width(type, text, text + i) > 1000 * width)
            break;
        fits = i;
    }
    if (exact_width(type, text, text + fits) <= 1000 * width)
        return fits;
    size_t part = (size_t)(grapheme_end(text) - text);
    for (size_t next = part; next < fits; part = next) {
        next = (size_t)(grapheme_end(text + part) - text);
        if (exact_width(type, text, text + next) > 1000 * width)
            break;
    }
    return part;
}
