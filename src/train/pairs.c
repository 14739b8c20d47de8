/* Encodes a parallel corpus. */
#include "train/pairs.h"
#include "base/context.h"
#include <stdlib.h>
#include <string.h>

struct ids {
    int32_t *list;
    size_t length, capacity;
};

static attn_status out_of_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "out of memory while encoding a corpus");
}

/* Appends the tokens of a field and </s>. */
static attn_status append(struct ids *ids, const char *text,
                          const attn_tokenizer *tokenizer, attn_error *error)
{
    attn_token *tokens;
    size_t count;
    ATTN_TRY(
        attn_tokenizer_encode(tokenizer, text, strlen(text), &tokens, &count, error));
    if (ids->length + count + 1 > ids->capacity) {
        const size_t capacity = 2 * ids->capacity + count + 4096;
        int32_t *const list = realloc(ids->list, capacity * sizeof *list);
        if (!list) {
            free(tokens);
            return out_of_memory(error);
        }
        ids->list = list;
        ids->capacity = capacity;
    }
    for (size_t n = 0; n < count; n++)
        ids->list[ids->length++] = tokens[n].id;
    ids->list[ids->length++] = ATTN_TOKEN_EOS;
    free(tokens);
    return ATTN_OK;
}

/* FNV-1a, by whole words. */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

static void sum_up(attn_pairs *pairs)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t n = 0; n < pairs->count; n++) {
        pairs->source_tokens += attn_pairs_source_length(pairs, n);
        pairs->target_tokens += attn_pairs_target_length(pairs, n);
        hash = hash_word(hash, pairs->middle[n]);
        for (size_t i = pairs->begin[n]; i < pairs->begin[n + 1]; i++)
            hash = hash_word(hash, (uint64_t)pairs->ids[i]);
    }
    pairs->hash = hash;
}

static attn_status encode_line(attn_pairs *pairs, struct ids *ids,
                               const attn_corpus *corpus, size_t line,
                               const attn_tokenizer *tokenizer, int64_t max_positions,
                               attn_error *error)
{
    const size_t begin = ids->length, n = pairs->count;
    const char *const *const fields = corpus->fields + corpus->first_field[line];
    ATTN_TRY(append(ids, fields[0], tokenizer, error));
    const size_t middle = ids->length;
    ATTN_TRY(append(ids, fields[1], tokenizer, error));
    if (middle - begin > (size_t)max_positions ||
        ids->length - middle > (size_t)max_positions) {
        if (pairs->left_out++ == 0)
            pairs->first_left_out = line;
        ids->length = begin;
        return ATTN_OK;
    }
    pairs->begin[n] = begin;
    pairs->middle[n] = middle;
    pairs->line[n] = line;
    pairs->begin[n + 1] = ids->length;
    pairs->count++;
    return ATTN_OK;
}

attn_status attn_pairs_encode(attn_pairs *pairs, const attn_corpus *corpus,
                              const attn_tokenizer *tokenizer, int64_t max_positions,
                              attn_error *error)
{
    *pairs = (attn_pairs){
        .begin = malloc((corpus->lines + 1) * sizeof *pairs->begin),
        .middle = malloc((corpus->lines + 1) * sizeof *pairs->middle),
        .line = malloc((corpus->lines + 1) * sizeof *pairs->line),
    };
    struct ids ids = {NULL, 0, 0};
    attn_status status = ATTN_OK;
    if (!pairs->begin || !pairs->middle || !pairs->line)
        status = out_of_memory(error);
    for (size_t line = 0; line < corpus->lines && status == ATTN_OK; line++)
        status = encode_line(pairs, &ids, corpus, line, tokenizer, max_positions, error);
    pairs->ids = ids.list;
    if (status == ATTN_OK && pairs->count == 0)
        status = attn_error_set(error, ATTN_EFORMAT,
                                "none of %zu sentence pairs fits in %lld positions",
                                corpus->lines, (long long)max_positions);
    if (status == ATTN_OK)
        sum_up(pairs);
    else
        attn_pairs_free(pairs);
    return status;
}

void attn_pairs_free(attn_pairs *pairs)
{
    free(pairs->ids);
    free(pairs->begin);
    free(pairs->middle);
    free(pairs->line);
    *pairs = (attn_pairs){0};
}
