/* The tokenizers 13a and zh.  sacrebleu states them as four substitutions of regular
 * expressions, one after another, each of which is a scan here:
 *
 *   1  [{-~[-` -&(-+:-@/]  →  " \1 "       every ASCII sign but ' , - .
 *   2  ([^0-9])([.,])      →  "\1 \2 "
 *   3  ([.,])([^0-9])      →  " \1 \2"
 *   4  ([0-9])(-)          →  "\1 \2 "
 *
 * Bytes of UTF-8 beyond ASCII are never special to them, so they can work on bytes; the
 * final split at white space is Python's, which knows the spaces of Unicode.  Before them
 * 13a undoes entities, and zh sets Chinese characters apart. */
#include "train/bleu.h"
#include <stdlib.h>
#include <string.h>

struct text {
    char *bytes; /* NUL-ended */
    size_t length;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_stop(char c)
{
    return c == '.' || c == ',';
}

static bool is_sign(char c)
{
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

static void put(struct text *to, char c)
{
    to->bytes[to->length++] = c;
}

static void put_spaced(struct text *to, const char *format, char first, char second)
{
    for (; *format; format++)
        put(to, *format == '1' ? first : *format == '2' ? second : ' ');
}

static void set_signs_apart(struct text *to, const struct text *from)
{
    for (size_t n = 0; n < from->length; n++)
        if (is_sign(from->bytes[n]))
            put_spaced(to, " 1 ", from->bytes[n], 0);
        else
            put(to, from->bytes[n]);
}

static bool is_stop_after_other(char a, char b)
{
    return !is_digit(a) && is_stop(b);
}

static bool is_stop_before_other(char a, char b)
{
    return is_stop(a) && !is_digit(b);
}

static bool is_dash_after_digit(char a, char b)
{
    return is_digit(a) && b == '-';
}

/* Rewrites pairs of neighbours that match, from left to right and without overlap. */
static void rewrite_pairs(struct text *to, const struct text *from,
                          bool (*matches)(char, char), const char *format)
{
    size_t n = 0;
    while (n < from->length) {
        if (n + 1 < from->length && matches(from->bytes[n], from->bytes[n + 1])) {
            put_spaced(to, format, from->bytes[n], from->bytes[n + 1]);
            n += 2;
        } else {
            put(to, from->bytes[n++]);
        }
    }
}

/* Python's str.replace, in place; by is not longer than what. */
static void replace(struct text *text, const char *what, const char *by)
{
    const size_t what_length = strlen(what), by_length = strlen(by);
    size_t length = 0;
    for (size_t n = 0; n < text->length;) {
        if (strncmp(text->bytes + n, what, what_length) == 0) {
            memcpy(text->bytes + length, by, by_length);
            length += by_length;
            n += what_length;
        } else {
            text->bytes[length++] = text->bytes[n++];
        }
    }
    text->length = length;
    text->bytes[length] = '\0';
}

/* Bytes of the white space, as Python's str.split has it, at the start of text; 0: none.
 */
static size_t space_bytes(const char *text)
{
    static const char *const WIDE[] = {
        "\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
        "\u2004",   "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
        "\u2028",   "\u2029", "\u202f", "\u205f", "\u3000",
    };
    const unsigned char c = (unsigned char)*text;
    if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f))
        return 1;
    for (size_t n = 0; c >= 0x80 && n < sizeof WIDE / sizeof WIDE[0]; n++)
        if (strncmp(text, WIDE[n], strlen(WIDE[n])) == 0)
            return strlen(WIDE[n]);
    return 0;
}

static void join_words(struct text *to, const struct text *from)
{
    bool pending = false;
    for (size_t n = 0; n < from->length;) {
        const size_t space = space_bytes(from->bytes + n);
        if (space > 0) {
            pending = to->length > 0;
            n += space;
            continue;
        }
        if (pending)
            put(to, ' ');
        pending = false;
        put(to, from->bytes[n++]);
    }
}

/* A line's end is no reason to join: "-\n" is undone only inside a text. */
static void strip_end(struct text *text)
{
    size_t end = 0;
    for (size_t n = 0; n < text->length;) {
        const size_t space = space_bytes(text->bytes + n);
        n += space > 0 ? space : 1;
        if (space == 0)
            end = n;
    }
    text->length = end;
    text->bytes[end] = '\0';
}

static void unescape(struct text *text)
{
    replace(text, "<skipped>", "");
    replace(text, "-\n", "");
    replace(text, "\n", " ");
    replace(text, "&quot;", "\"");
    replace(text, "&amp;", "&");
    replace(text, "&lt;", "<");
    replace(text, "&gt;", ">");
}

/* What sacrebleu takes for Chinese, sorted; the first range is a slip of its own:
 * it spells U+20000 to U+2A6D6 so that Python reads U+2001 to U+2A6D. */
static const struct {
    uint32_t first, last;
} CHINESE[] = {
    {0x2001, 0x2a6d}, {0x2e80, 0x2eff}, {0x2f00, 0x2fdf}, {0x2ff0, 0x2fff},
    {0x3000, 0x303f}, {0x3100, 0x312f}, {0x31a0, 0x31bf}, {0x31c0, 0x31ef},
    {0x3200, 0x33ff}, {0x3400, 0x4db5}, {0x4e00, 0x9fbb}, {0xf900, 0xfa2d},
    {0xfa30, 0xfa6a}, {0xfa70, 0xfad9}, {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f},
    {0xff00, 0xffef},
};

/* Bytes of the character at text, which is valid UTF-8, and what it is. */
static size_t read_character(const char *text, uint32_t *character)
{
    const unsigned char first = (unsigned char)*text;
    const size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    static const unsigned char MASKS[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    *character = first & MASKS[bytes];
    for (size_t n = 1; n < bytes; n++)
        *character = *character << 6 | ((unsigned char)text[n] & 0x3f);
    return bytes;
}

static bool is_chinese(uint32_t character)
{
    for (size_t n = 0; n < sizeof CHINESE / sizeof CHINESE[0]; n++)
        if (character >= CHINESE[n].first && character <= CHINESE[n].last)
            return true;
    return false;
}

static void set_chinese_apart(struct text *to, const struct text *from)
{
    for (size_t n = 0; n < from->length;) {
        uint32_t character;
        const size_t bytes = read_character(from->bytes + n, &character);
        const bool is_apart = is_chinese(character);
        if (is_apart)
            put(to, ' ');
        memcpy(to->bytes + to->length, from->bytes + n, bytes);
        to->length += bytes;
        if (is_apart)
            put(to, ' ');
        n += bytes;
    }
}

attn_bleu_words attn_bleu_words_of(const char *const *texts, size_t count)
{
    int64_t chinese = 0, all = 0;
    for (size_t n = 0; n < count; n++)
        for (const char *at = texts[n]; *at;) {
            uint32_t character;
            at += read_character(at, &character);
            all += character > ' ';
            chinese += character >= 0x3000 && is_chinese(character);
        }
    return 2 * chinese > all ? ATTN_BLEU_ZH : ATTN_BLEU_13A;
}

const char *const attn_bleu_words_names[] = {"13a", "zh", "moses", NULL};

char *attn_bleu_tokenize(const char *text, attn_bleu_words words)
{
    if (words == ATTN_BLEU_MOSES)
        return attn_bleu_tokenize_moses(text);
    /* The first substitution makes at most three bytes of one, each of the others at most
     * two (four of two): 24 in all, and then few, but never more.  A Chinese character
     * of three bytes has become five before, and is left alone then. */
    const size_t length = strlen(text);
    const size_t capacity = 24 * (length + 2) + 1;
    struct text a = {malloc(capacity), 0}, b = {malloc(capacity), 0};
    if (!a.bytes || !b.bytes) {
        free(a.bytes);
        free(b.bytes);
        return NULL;
    }
    memcpy(b.bytes, text, length + 1);
    b.length = length;
    strip_end(&b);
    if (words == ATTN_BLEU_ZH) {
        const char *start = b.bytes;
        for (size_t space; (space = space_bytes(start)) > 0;)
            start += space;
        const struct text rest = {(char *)start, strlen(start)};
        set_chinese_apart(&a, &rest);
    } else {
        unescape(&b);
        put(&a, ' ');
        memcpy(a.bytes + 1, b.bytes, b.length);
        a.length += b.length;
        put(&a, ' ');
    }
    b.length = 0;
    set_signs_apart(&b, &a);
    a.length = 0;
    rewrite_pairs(&a, &b, is_stop_after_other, "1 2 ");
    b.length = 0;
    rewrite_pairs(&b, &a, is_stop_before_other, " 1 2");
    a.length = 0;
    rewrite_pairs(&a, &b, is_dash_after_digit, "1 2 ");
    a.bytes[a.length] = '\0';
    b.length = 0;
    join_words(&b, &a);
    b.bytes[b.length] = '\0';
    free(a.bytes);
    return b.bytes;
}
