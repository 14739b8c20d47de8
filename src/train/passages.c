/* Encodes lines and long texts. */
#include "train/passages.h"
#include "base/context.h"
#include "base/mix.h"
#include "text/containers.h"
#include <stdlib.h>
#include <string.h>

static attn_status no_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "out of memory while encoding texts");
}

static bool is_space(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static int64_t count_words(const char *text, size_t length)
{
    int64_t words = 0;
    for (size_t i = 0; i < length; i++)
        words += !is_space(text[i]) && (i == 0 || is_space(text[i - 1]));
    return words;
}

/* The text's tokens and </s> after the others. */
static bool append_ids(attn_passages *texts, const attn_token *tokens, size_t count)
{
    const size_t first = texts->count > 0 ? texts->begin[texts->count] : 0;
    if (!attn_grow(&texts->ids, &texts->ids_capacity, first + count + 1,
                   sizeof *texts->ids))
        return false;
    for (size_t i = 0; i < count; i++)
        texts->ids[first + i] = tokens[i].id;
    texts->ids[first + count] = ATTN_TOKEN_EOS;
    for (size_t i = first; i <= first + count; i++)
        texts->hash = attn_mix_hash(texts->hash, (uint64_t)texts->ids[i]);
    return true;
}

/* `count` ids that stand behind the last text become texts of at most `window`. */
static bool cut(attn_passages *texts, size_t count, size_t window)
{
    const size_t added = (count + window - 1) / window;
    if (!attn_grow(&texts->begin, &texts->capacity, texts->count + added + 1,
                   sizeof *texts->begin))
        return false;
    if (texts->count == 0)
        texts->begin[0] = 0;
    const size_t first = texts->begin[texts->count];
    for (size_t i = 1; i <= added; i++)
        texts->begin[texts->count + i] = first + (i < added ? i * window : count);
    texts->count += added;
    texts->hash = attn_mix_hash(texts->hash, added);
    return true;
}

attn_status attn_passages_append(attn_passages *texts, const char *text,
                                 size_t length_bytes, const attn_tokenizer *tokenizer,
                                 int64_t window, attn_error *error)
{
    attn_token *tokens;
    size_t count;
    ATTN_TRY(
        attn_tokenizer_encode(tokenizer, text, length_bytes, &tokens, &count, error));
    if (texts->count == 0)
        texts->hash = ATTN_MIX_HASH;
    const bool enough =
        append_ids(texts, tokens, count) && cut(texts, count + 1, (size_t)window);
    free(tokens);
    if (!enough)
        return no_memory(error);
    texts->words += count_words(text, length_bytes) + 1;
    texts->bytes += (int64_t)length_bytes + 1;
    return ATTN_OK;
}

/* ---- Files ----------------------------------------------------------------------- */

struct reading {
    const char *path;
    const attn_tokenizer *tokenizer;
    int64_t positions;
    attn_too_long too_long;
};

static attn_status append_line(attn_passages *texts, const struct reading *reading,
                               const char *line, size_t length, size_t number,
                               attn_error *error)
{
    const size_t before = texts->count;
    ATTN_TRY(attn_passages_append(texts, line, length, reading->tokenizer,
                                  reading->positions, error));
    if (texts->count == before + 1)
        return ATTN_OK;
    texts->split++;
    if (reading->too_long == ATTN_TOO_LONG_SPLIT)
        return ATTN_OK;
    return attn_error_set(
        error, ATTN_EFORMAT,
        "%s, line %zu: %zu tokens with </s>, expected at most the model's %lld positions "
        "(or model.too_long \"split\")",
        reading->path, number, texts->begin[texts->count] - texts->begin[before],
        (long long)reading->positions);
}

static attn_status append_lines(attn_passages *texts, const struct reading *reading,
                                const char *text, size_t length, attn_error *error)
{
    size_t number = 1;
    for (const char *line = text, *const end = text + length; line < end; number++) {
        const char *const newline = memchr(line, '\n', (size_t)(end - line));
        const char *const stop = newline ? newline : end;
        size_t bytes = (size_t)(stop - line);
        if (bytes > 0 && line[bytes - 1] == '\r')
            bytes--;
        if (count_words(line, bytes) > 0)
            ATTN_TRY(append_line(texts, reading, line, bytes, number, error));
        line = stop + 1;
    }
    return ATTN_OK;
}

attn_status attn_passages_load(attn_passages *texts, const char *path,
                               const attn_tokenizer *tokenizer, int64_t window,
                               int64_t positions, attn_too_long too_long,
                               attn_error *error)
{
    const struct reading reading = {path, tokenizer, positions, too_long};
    char *text;
    size_t length;
    *texts = (attn_passages){0};
    ATTN_TRY(attn_text_load(&text, &length, path, error));
    attn_status status = ATTN_OK;
    if (count_words(text, length) == 0)
        status = attn_error_set(error, ATTN_EFORMAT,
                                "%s: no text in it, expected at least a word", path);
    if (status == ATTN_OK && window > 0)
        status = attn_passages_append(texts, text, length, tokenizer, window, error);
    else if (status == ATTN_OK)
        status = append_lines(texts, &reading, text, length, error);
    free(text);
    if (status != ATTN_OK)
        attn_passages_free(texts);
    return status;
}

void attn_passages_free(attn_passages *texts)
{
    free(texts->ids);
    free(texts->begin);
    *texts = (attn_passages){0};
}

/* ---- Batches --------------------------------------------------------------------- */

bool attn_passages_pack(attn_passage_batch *batch, const attn_passages *texts,
                        const size_t *list, size_t count, attn_tape *tape)
{
    int64_t tokens = 0;
    for (size_t n = 0; n < count; n++)
        tokens += attn_passages_length(texts, list[n]);
    batch->ids = attn_tape_allocate(tape, (size_t)tokens * sizeof *batch->ids);
    batch->targets = attn_tape_allocate(tape, (size_t)tokens * sizeof *batch->targets);
    batch->starts = attn_tape_allocate(tape, (count + 1) * sizeof *batch->starts);
    if (!batch->ids || !batch->targets || !batch->starts)
        return false;
    int64_t at = 0;
    for (size_t n = 0; n < count; n++) {
        const int32_t *const ids = texts->ids + texts->begin[list[n]];
        const size_t length = (size_t)attn_passages_length(texts, list[n]);
        batch->starts[n] = at;
        batch->ids[at] = ATTN_TOKEN_BOS;
        memcpy(batch->ids + at + 1, ids, (length - 1) * sizeof *ids);
        memcpy(batch->targets + at, ids, length * sizeof *ids);
        at += (int64_t)length;
    }
    batch->starts[count] = at;
    return true;
}
