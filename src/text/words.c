/* Joining tokens to words.  Each boundary between two tokens is asked whether a reader
 * sees a word end there; the answer depends on the characters beside it alone. */
#include "text/words.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct text {
    const char *bytes;
    size_t length;
};

/* What a character is to a reader of words. */
enum kind {
    KIND_NONE, /* before the text, behind it */
    KIND_SPACE,
    KIND_WORD,      /* letters, marks, digits */
    KIND_SYLLABARY, /* scripts that put no space between words */
    KIND_APOSTROPHE,
    KIND_OTHER
};

static bool is_within(uint32_t code_point, const uint32_t (*ranges)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (code_point >= ranges[i][0] && code_point <= ranges[i][1])
            return true;
    return false;
}

static bool writes_without_spaces(uint32_t code_point)
{
    static const uint32_t ranges[][2] = {
        {0x0E00, 0x0EFF},   /* Thai, Lao */
        {0x1000, 0x109F},   /* Myanmar */
        {0x1780, 0x17FF},   /* Khmer */
        {0x2E80, 0x2FDF},   /* radicals */
        {0x3005, 0x3007},   /* iteration mark, closing mark, zero */
        {0x3041, 0x30FF},   /* Hiragana, Katakana */
        {0x31F0, 0x31FF},   /* small Katakana */
        {0x3400, 0x4DBF},   /* Han */
        {0x4E00, 0x9FFF},   /* Han */
        {0xF900, 0xFAFF},   /* Han */
        {0xFF66, 0xFF9F},   /* half-width Katakana */
        {0x1AFF0, 0x1B16F}, /* Kana */
        {0x20000, 0x3FFFF}, /* Han */
    };
    return is_within(code_point, ranges, sizeof ranges / sizeof *ranges);
}

static bool is_space(uint32_t code_point)
{
    static const uint32_t ranges[][2] = {
        {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
        {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
        {0x205F, 0x205F}, {0x3000, 0x3000},
    };
    return is_within(code_point, ranges, sizeof ranges / sizeof *ranges);
}

static enum kind kind_of(uint32_t code_point)
{
    if (is_space(code_point))
        return KIND_SPACE;
    if (code_point == '\'' || code_point == 0x2019)
        return KIND_APOSTROPHE;
    switch (utf8proc_category((utf8proc_int32_t)code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return writes_without_spaces(code_point) ? KIND_SYLLABARY : KIND_WORD;
    default:
        return KIND_OTHER;
    }
}

/* The character that begins at a byte. */
static enum kind kind_at(struct text text, size_t at, uint32_t *code_point, size_t *used)
{
    *code_point = 0;
    *used = 0;
    if (at >= text.length)
        return KIND_NONE;
    if (!attn_utf8_read(text.bytes + at, text.length - at, code_point, used))
        return KIND_OTHER;
    return kind_of(*code_point);
}

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Where the character begins that ends at a byte above 0. */
static size_t begin_before(struct text text, size_t at)
{
    size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && is_continuation(text.bytes[begin]))
        begin--;
    return begin;
}

static bool is_mark(uint32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code_point);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

/* The character that ends at a byte; of one with marks on it, the character itself. */
static enum kind kind_before(struct text text, size_t at, uint32_t *code_point)
{
    enum kind kind = KIND_NONE;
    *code_point = 0;
    while (at > 0) {
        at = begin_before(text, at);
        size_t used;
        kind = kind_at(text, at, code_point, &used);
        if (!is_mark(*code_point))
            break;
    }
    return kind;
}

/* "don't": what follows an apostrophe in a word, in the endings that English writes with
 * one.  In other elisions (French "c'est") the apostrophe ends a word. */
static bool is_english_ending(struct text text, size_t at)
{
    uint32_t quoted;
    if (kind_before(text, begin_before(text, at), &quoted) != KIND_WORD)
        return false;
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t length = strlen(endings[i]);
        uint32_t code_point;
        size_t used;
        if (at + length <= text.length &&
            strncmp(text.bytes + at, endings[i], length) == 0 &&
            kind_at(text, at + length, &code_point, &used) != KIND_WORD)
            return true;
    }
    return false;
}

/* Whether a word ends before the apostrophe at a byte: not between two letters. */
static bool breaks_before_apostrophe(struct text text, enum kind before, size_t after)
{
    uint32_t code_point;
    size_t used;
    const enum kind behind = kind_at(text, after, &code_point, &used);
    return before != KIND_WORD || behind != KIND_WORD;
}

/* Whether a word ends at a byte of the text, which is not within a grapheme. */
static bool breaks_between(struct text text, size_t at)
{
    uint32_t left, right;
    size_t used;
    const enum kind before = kind_before(text, at, &left);
    const enum kind after = kind_at(text, at, &right, &used);
    if (before == KIND_SPACE)
        return false; /* space belongs to what follows it */
    if (after == KIND_SPACE)
        return true;
    if (before == KIND_WORD && after == KIND_WORD)
        return false;
    if (after == KIND_APOSTROPHE)
        return breaks_before_apostrophe(text, before, at + used);
    if (before == KIND_APOSTROPHE && after == KIND_WORD)
        return !is_english_ending(text, at);
    return left != right || before == KIND_SYLLABARY; /* "..." is one word */
}

/* Whether a byte lies within a grapheme: a character cut in two, or one that joins the
 * one before it. */
static bool is_within_grapheme(struct text text, size_t at)
{
    if (at == 0 || at >= text.length)
        return false;
    if (is_continuation(text.bytes[at]))
        return true;
    /* A grapheme's rules look back over flags and joined emoji: start where one surely
     * begins, at the last white space. */
    size_t begin = at - 1;
    while (begin > 0 && text.bytes[begin] != ' ' && text.bytes[begin] != '\n' &&
           at - begin < 256)
        begin--;
    while (begin < at && is_continuation(text.bytes[begin]))
        begin++;
    utf8proc_int32_t state = 0;
    uint32_t previous = 0;
    bool joined = false;
    for (size_t place = begin, used; place <= at; place += used) {
        uint32_t next;
        if (!attn_utf8_read(text.bytes + place, text.length - place, &next, &used))
            return false;
        joined = place > begin &&
                 !utf8proc_grapheme_break_stateful((utf8proc_int32_t)previous,
                                                   (utf8proc_int32_t)next, &state);
        previous = next;
    }
    return joined;
}

/* Moves both ends inwards, off the white space. */
static void trim(struct text text, attn_word *word)
{
    size_t used;
    uint32_t code_point;
    while (word->begin < word->end &&
           kind_at(text, (size_t)word->begin, &code_point, &used) == KIND_SPACE)
        word->begin += (int64_t)used;
    while (word->end > word->begin &&
           kind_before(text, (size_t)word->end, &code_point) == KIND_SPACE) {
        do
            word->end--;
        while (word->end > word->begin && is_continuation(text.bytes[word->end]));
    }
}

/* Where the white space begins that ends the text: no word begins in it. */
static size_t end_of_words(struct text text)
{
    attn_word all = {.begin = 0, .end = (int64_t)text.length};
    trim(text, &all);
    return (size_t)all.end;
}

attn_status attn_words_of_tokens(const char *text, const attn_token *tokens, size_t count,
                                 attn_word **words, size_t *word_count, attn_error *error)
{
    const struct text whole = {text, count > 0 ? (size_t)tokens[count - 1].end : 0};
    attn_word *const list = malloc((count + 1) * sizeof *list);
    if (!list)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the words of %zu tokens",
                              count);
    const size_t end = end_of_words(whole);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t at = (size_t)tokens[i].begin;
        const bool begins = i == 0 || (at < end && breaks_between(whole, at) &&
                                       !is_within_grapheme(whole, at));
        if (begins)
            list[found++] =
                (attn_word){.first_token = (int64_t)i, .begin = tokens[i].begin};
        list[found - 1].end_token = (int64_t)i + 1;
        list[found - 1].end = tokens[i].end;
    }
    for (size_t i = 0; i < found; i++)
        trim(whole, &list[i]);
    *words = list;
    *word_count = found;
    return ATTN_OK;
}

attn_status attn_word_encode(const attn_tokenizer *tokenizer, const char *word,
                             size_t length_bytes, attn_token **tokens, size_t *count,
                             attn_error *error)
{
    char *const spaced = malloc(length_bytes + 2);
    if (!spaced)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for a word of %zu bytes",
                              length_bytes);
    spaced[0] = ' ';
    memcpy(spaced + 1, word, length_bytes);
    spaced[length_bytes + 1] = '\0';
    const attn_status status =
        attn_tokenizer_encode(tokenizer, spaced, length_bytes + 1, tokens, count, error);
    for (size_t n = 0; status == ATTN_OK && n < *count; n++) {
        (*tokens)[n].begin -= (*tokens)[n].begin > 0;
        (*tokens)[n].end -= 1;
    }
    free(spaced);
    return status;
}
