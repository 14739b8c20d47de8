/* Words of a text that is not tokenised. */
#include "base/context.h"
#include "text/words.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of an apostrophe at a place, 0 where there is none: ' or ’. */
static int64_t apostrophe_at(const char *text, int64_t at, int64_t end)
{
    if (at < end && text[at] == '\'')
        return 1;
    return end - at >= 3 && memcmp(text + at, "\xE2\x80\x99", 3) == 0 ? 3 : 0;
}

/* Where the ending of a word begins, or its end: 's, 'll, n't, … after something. */
static int64_t ending_of(const char *text, const attn_word *word)
{
    for (int64_t at = word->begin + 1; at < word->end; at++) {
        const int64_t used = apostrophe_at(text, at, word->end);
        if (used == 0)
            continue;
        const bool is_not = word->end - at - used == 1 &&
                            tolower((unsigned char)text[at + used]) == 't' &&
                            tolower((unsigned char)text[at - 1]) == 'n';
        const int64_t begin = is_not ? at - 1 : at;
        return begin > word->begin && at + used < word->end ? begin : word->end;
    }
    return word->end;
}

/* Splits the words of one list into another, which has room for twice as many. */
static size_t split_endings(const char *text, const attn_word *words, size_t count,
                            attn_word *split)
{
    size_t used = 0;
    for (size_t n = 0; n < count; n++) {
        const int64_t begin = words[n].begin, end = words[n].end;
        const int64_t ending = ending_of(text, &words[n]);
        if (begin < end)
            split[used++] = (attn_word){begin, ending, begin, ending};
        if (ending < end)
            split[used++] = (attn_word){ending, end, ending, end};
    }
    return used;
}

attn_status attn_words_of_text(const char *text, size_t length_bytes, attn_word **words,
                               size_t *word_count, attn_error *error)
{
    attn_token *const bytes = malloc((length_bytes + 1) * sizeof *bytes);
    attn_word *joined = NULL;
    size_t count;
    if (!bytes)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu bytes of text",
                              length_bytes);
    for (size_t i = 0; i < length_bytes; i++)
        bytes[i] = (attn_token){0, (int64_t)i, (int64_t)i + 1};
    attn_status status =
        attn_words_of_tokens(text, bytes, length_bytes, &joined, &count, error);
    free(bytes);
    ATTN_TRY(status);
    *words = malloc((2 * count + 1) * sizeof **words);
    if (*words)
        *word_count = split_endings(text, joined, count, *words);
    else
        status = attn_error_set(error, ATTN_ENOMEM, "no memory for %zu words", count);
    free(joined);
    return status;
}
