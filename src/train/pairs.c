/* Encodes a parallel corpus. */
#include "train/pairs.h"
#include "base/context.h"
#include "base/mix.h"
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

static int64_t source_length_of(const attn_pairs *pairs, size_t n)
{
    return (int64_t)(pairs->middle[n] - pairs->begin[n]);
}

static int64_t target_length_of(const attn_pairs *pairs, size_t n)
{
    return (int64_t)(pairs->begin[n + 1] - pairs->middle[n]);
}

static void sum_up(attn_pairs *pairs)
{
    uint64_t hash = ATTN_MIX_HASH;
    for (size_t n = 0; n < pairs->count; n++) {
        pairs->source_tokens += source_length_of(pairs, n);
        pairs->target_tokens += target_length_of(pairs, n);
        hash = attn_mix_hash(hash, pairs->middle[n]);
        for (size_t i = pairs->begin[n]; i < pairs->begin[n + 1]; i++)
            hash = attn_mix_hash(hash, (uint64_t)pairs->ids[i]);
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

static void free_pairs(attn_pairs *pairs)
{
    free(pairs->ids);
    free(pairs->begin);
    free(pairs->middle);
    free(pairs->line);
    *pairs = (attn_pairs){0};
}

static attn_status encode(attn_pairs *pairs, const attn_corpus *corpus,
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
        free_pairs(pairs);
    return status;
}

attn_status attn_pairs_examples(attn_examples *examples, const attn_corpus *corpus,
                                const attn_tokenizer *tokenizer, int64_t max_positions,
                                attn_error *error)
{
    attn_pairs *const pairs = calloc(1, sizeof *pairs);
    *examples = (attn_examples){.data = pairs};
    if (!pairs)
        return out_of_memory(error);
    ATTN_TRY(encode(pairs, corpus, tokenizer, max_positions, error));
    examples->sizes = malloc(pairs->count * sizeof *examples->sizes);
    if (!examples->sizes)
        return out_of_memory(error);
    examples->count = pairs->count;
    examples->hash = pairs->hash;
    for (size_t n = 0; n < pairs->count; n++) {
        const int32_t target = (int32_t)target_length_of(pairs, n);
        const int32_t source = (int32_t)source_length_of(pairs, n);
        examples->sizes[n] = (attn_example_size){target, source + target, target};
    }
    return ATTN_OK;
}

void attn_pairs_examples_free(attn_examples *examples)
{
    attn_pairs *const pairs = examples->data;
    if (pairs)
        free_pairs(pairs);
    free(pairs);
    examples->data = NULL;
}

bool attn_pairs_pack(attn_pair_batch *packed, attn_tape *tape,
                     const attn_shard_batch *batch)
{
    const attn_pairs *const pairs = batch->examples->data;
    size_t sources = 0, targets = 0;
    for (size_t n = 0; n < batch->count; n++) {
        sources += (size_t)source_length_of(pairs, batch->list[n]);
        targets += (size_t)target_length_of(pairs, batch->list[n]);
    }
    int32_t *const source = attn_tape_allocate(tape, sources * sizeof *source);
    int32_t *const in = attn_tape_allocate(tape, targets * sizeof *in);
    int32_t *const out = attn_tape_allocate(tape, targets * sizeof *out);
    const size_t starts_bytes = (batch->count + 1) * sizeof(int64_t);
    int64_t *const source_starts = attn_tape_allocate(tape, starts_bytes);
    int64_t *const target_starts = attn_tape_allocate(tape, starts_bytes);
    if (!source || !in || !out || !source_starts || !target_starts)
        return false;
    source_starts[0] = target_starts[0] = 0;
    for (size_t n = 0; n < batch->count; n++) {
        const size_t pair = batch->list[n];
        const int32_t *const ids = pairs->ids + pairs->begin[pair];
        const int64_t source_length = source_length_of(pairs, pair);
        const int64_t target_length = target_length_of(pairs, pair);
        const int64_t from = source_starts[n], to = target_starts[n];
        memcpy(source + from, ids, (size_t)source_length * sizeof *ids);
        memcpy(out + to, ids + source_length, (size_t)target_length * sizeof *ids);
        /* What is fed is what is to be written, one later, after the decoder's start. */
        in[to] = ATTN_TOKEN_EOS;
        memcpy(in + to + 1, ids + source_length,
               (size_t)(target_length - 1) * sizeof *ids);
        source_starts[n + 1] = from + source_length;
        target_starts[n + 1] = to + target_length;
    }
    *packed = (attn_pair_batch){(int64_t)batch->count, source, source_starts, in, out,
                                target_starts};
    return true;
}
