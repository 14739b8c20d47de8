/* The tokenizer 13a.  sacrebleu states it as four substitutions of regular expressions,
 * one after another, each of which is a scan here:
 *
 *   1  [{-~[-` -&(-+:-@/]  →  " \1 "       every ASCII sign but ' , - .
 *   2  ([^0-9])([.,])      →  "\1 \2 "
 *   3  ([.,])([^0-9])      →  " \1 \2"
 *   4  ([0-9])(-)          →  "\1 \2 "
 *
 * Bytes of UTF-8 beyond ASCII are never special to them, so they can work on bytes; the
 * final split at white space is Python's, which knows the spaces of Unicode. */
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

char *attn_bleu_tokenize(const char *text)
{
    /* The first substitution makes at most three bytes of one, each of the others at most
     * two (four of two): 24 in all, and then few, but never more. */
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
    unescape(&b);
    put(&a, ' ');
    memcpy(a.bytes + 1, b.bytes, b.length);
    a.length += b.length;
    put(&a, ' ');
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
