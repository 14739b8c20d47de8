/* Word pieces joined into words: weights are summed over the pieces of a key and averaged
 * over the pieces of a query, so that a row of words sums to 1 as its pieces' rows do. */
#include "inspect/join.h"
#include "text/words.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void attn_joining_free(attn_joining *joining)
{
    free(joining->word);
    *joining = (attn_joining){0};
}

/* Shown for a word of white space alone. */
static const char open_box[] = "␣";

static attn_status set_word(attn_record_words *words, int64_t index, const char *text,
                            const attn_word *word, attn_error *error)
{
    words->list[index].tokens = word->end_token - word->first_token;
    if (word->end <= word->begin)
        return attn_record_word_set(words, index, open_box, sizeof open_box - 1, false,
                                    error);
    return attn_record_word_set(words, index, text + word->begin,
                                (size_t)(word->end - word->begin), false, error);
}

static attn_status fill(attn_record_words *words, attn_joining *joining,
                        const char *before, const char *text, const attn_word *list,
                        size_t count, const char *after, attn_error *error)
{
    const int64_t first = before != NULL;
    const int64_t length = (int64_t)count + first + (after != NULL);
    attn_status status = attn_record_words_create(words, length, error);
    if (status == ATTN_OK && before != NULL) {
        joining->word[0] = 0;
        status = attn_record_word_set(words, 0, before, strlen(before), true, error);
    }
    for (int64_t i = 0; status == ATTN_OK && i < (int64_t)count; i++) {
        status = set_word(words, first + i, text, &list[i], error);
        for (int64_t t = list[i].first_token; t < list[i].end_token; t++)
            joining->word[first + t] = first + i;
    }
    if (status == ATTN_OK && after != NULL) {
        joining->word[joining->tokens - 1] = length - 1;
        status =
            attn_record_word_set(words, length - 1, after, strlen(after), true, error);
    }
    if (status == ATTN_OK)
        attn_record_words_count(words);
    return status;
}

attn_status attn_join_words(attn_record_words *words, attn_joining *joining,
                            const char *before, const char *text, const attn_word *list,
                            size_t count, const char *after, attn_error *error)
{
    const int64_t tokens = count > 0 ? list[count - 1].end_token : 0;
    joining->tokens = tokens + (before != NULL) + (after != NULL);
    joining->word = calloc((size_t)joining->tokens + 1, sizeof *joining->word);
    if (joining->word == NULL)
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for %zu words",
                              count);
    return fill(words, joining, before, text, list, count, after, error);
}

attn_status attn_join_text(attn_record_words *words, attn_joining *joining,
                           const char *before, const char *text, size_t length_bytes,
                           const attn_token *tokens, size_t count, const char *after,
                           attn_error *error)
{
    /* Where a model wrote bytes that are no characters, "?" keeps their place. */
    char *valid = malloc(length_bytes + 1);
    if (valid == NULL)
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for %zu tokens",
                              count);
    memcpy(valid, text, length_bytes);
    valid[length_bytes] = '\0';
    for (size_t i = 0; i < length_bytes; i++) {
        i += attn_utf8_valid(valid + i, length_bytes - i);
        if (i < length_bytes)
            valid[i] = '?';
    }
    attn_word *list = NULL;
    size_t word_count = 0;
    attn_status status =
        attn_words_of_tokens(valid, tokens, count, &list, &word_count, error);
    if (status == ATTN_OK)
        status = attn_join_words(words, joining, before, valid, list, word_count, after,
                                 error);
    free(list);
    free(valid);
    return status;
}

void attn_join_weights(float *joined, int64_t key_words, const float *weights,
                       const attn_joining *rows, const attn_joining *keys)
{
    for (int64_t first = 0, end; first < rows->tokens; first = end) {
        const int64_t row = rows->word[first];
        end = first;
        while (end < rows->tokens && rows->word[end] == row)
            end++;
        const float share = 1.0f / (float)(end - first);
        for (int64_t i = first; i < end; i++)
            for (int64_t j = 0; j < keys->tokens; j++)
                joined[row * key_words + keys->word[j]] +=
                    weights[i * keys->tokens + j] * share;
    }
}

void attn_join_entropies(float *joined, const float *entropy, const int64_t *visible,
                         const attn_joining *rows, int64_t row_words)
{
    int64_t token = 0;
    for (int64_t row = 0; row < row_words; row++) {
        double sum = 0;
        int64_t count = 0;
        for (; token < rows->tokens && rows->word[token] == row; token++) {
            if (visible[token] < 2)
                continue;
            const double share = (double)entropy[token] / log((double)visible[token]);
            sum += share > 0 ? fmin(share, 1) : 0;
            count++;
        }
        joined[row] = count > 0 ? (float)(sum / (double)count) : -1.0f;
    }
}
