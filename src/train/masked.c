/* Texts with tokens hidden. */
#include "train/masked.h"
#include "base/context.h"
#include "base/mix.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_OF_TEXT = ATTN_TOKEN_UNK + 1 };

static attn_status out_of_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "out of memory while encoding texts");
}

/* ---- Texts ----------------------------------------------------------------------- */

struct encoder {
    attn_masked_texts *texts;
    const attn_tokenizer *tokenizer;
    size_t room; /* tokens of a text, without <s> and </s> */
    bool refuses_long;
    size_t ids_capacity, begin_capacity;
};

/* Room for so many ids, and one text more. */
static bool reserve(struct encoder *encoder, size_t ids)
{
    attn_masked_texts *const texts = encoder->texts;
    if (ids > encoder->ids_capacity) {
        const size_t capacity = 2 * ids + 4096;
        int32_t *const list = realloc(texts->ids, capacity * sizeof *list);
        if (!list)
            return false;
        texts->ids = list;
        encoder->ids_capacity = capacity;
    }
    if (texts->count + 2 > encoder->begin_capacity) {
        const size_t capacity = 2 * texts->count + 1024;
        size_t *const begin = realloc(texts->begin, capacity * sizeof *begin);
        if (!begin)
            return false;
        texts->begin = begin;
        encoder->begin_capacity = capacity;
    }
    return true;
}

static bool add_text(struct encoder *encoder, const attn_token *tokens, size_t count)
{
    attn_masked_texts *const texts = encoder->texts;
    const size_t from = texts->count > 0 ? texts->begin[texts->count] : 0;
    if (!reserve(encoder, from + count + 2))
        return false;
    int32_t *const ids = texts->ids + from;
    ids[0] = ATTN_TOKEN_BOS;
    for (size_t i = 0; i < count; i++)
        ids[i + 1] = tokens[i].id;
    ids[count + 1] = ATTN_TOKEN_EOS;
    texts->begin[texts->count] = from;
    texts->begin[++texts->count] = from + count + 2;
    texts->tokens += (int64_t)count + 2;
    return true;
}

/* A line that is too long becomes texts of about equal length. */
static attn_status add_line(struct encoder *encoder, size_t line,
                            const attn_token *tokens, size_t count, attn_error *error)
{
    attn_masked_texts *const texts = encoder->texts;
    if (count == 0) {
        texts->empty++;
        return ATTN_OK;
    }
    const size_t parts = (count + encoder->room - 1) / encoder->room;
    char place[32];
    snprintf(place, sizeof place, "line %zu", line + 1);
    if (parts > 1 && encoder->refuses_long)
        return attn_tokens_fit(place, count, (int64_t)encoder->room, error);
    texts->lines++;
    texts->cut += parts > 1;
    for (size_t part = 0; part < parts; part++) {
        const size_t first = count * part / parts;
        if (!add_text(encoder, tokens + first, count * (part + 1) / parts - first))
            return out_of_memory(error);
    }
    return ATTN_OK;
}

static attn_status encode_line(struct encoder *encoder, size_t line, const char *text,
                               attn_error *error)
{
    attn_token *tokens;
    size_t count;
    ATTN_TRY(attn_tokenizer_encode(encoder->tokenizer, text, strlen(text), &tokens,
                                   &count, error));
    const attn_status status = add_line(encoder, line, tokens, count, error);
    free(tokens);
    return status;
}

attn_status attn_masked_encode(attn_masked_texts *texts, const attn_corpus *corpus,
                               const attn_tokenizer *tokenizer, int64_t max_positions,
                               bool refuses_long, attn_error *error)
{
    *texts = (attn_masked_texts){0};
    struct encoder encoder = {.texts = texts,
                              .tokenizer = tokenizer,
                              .room = (size_t)max_positions - 2,
                              .refuses_long = refuses_long};
    attn_status status = ATTN_OK;
    for (size_t line = 0; line < corpus->lines && status == ATTN_OK; line++)
        status =
            encode_line(&encoder, line, corpus->fields[corpus->first_field[line]], error);
    if (status == ATTN_OK && texts->count == 0)
        status =
            attn_error_set(error, ATTN_EFORMAT,
                           "no text in %zu lines, expected one at least", corpus->lines);
    if (status != ATTN_OK)
        attn_masked_texts_free(texts);
    return status;
}

void attn_masked_texts_free(attn_masked_texts *texts)
{
    free(texts->ids);
    free(texts->begin);
    *texts = (attn_masked_texts){0};
}

/* ---- Hiding ---------------------------------------------------------------------- */

size_t attn_masked_targets(size_t count, double share)
{
    const size_t inner = count - 2;
    const size_t wanted = (size_t)lround(share * (double)inner);
    return wanted < 1 ? 1 : wanted > inner ? inner : wanted;
}

static int32_t hidden(int32_t id, int32_t mask, uint64_t seed, uint64_t count)
{
    const double draw = attn_mix_unit(seed, count);
    if (draw < 0.8)
        return mask;
    if (draw >= 0.9)
        return id;
    const double other = attn_mix_unit(seed, count + 1);
    return FIRST_OF_TEXT + (int32_t)(other * (double)(mask - FIRST_OF_TEXT));
}

void attn_masked_hide(int32_t *ids, int32_t *targets, size_t count, double share,
                      int32_t mask, uint64_t seed)
{
    size_t wanted = attn_masked_targets(count, share);
    targets[0] = targets[count - 1] = -1;
    for (size_t i = 1; i + 1 < count; i++) {
        /* Of those that are left, each is as likely as any other (Knuth, volume 2,
         * algorithm 3.4.2 S). */
        const double left = (double)(count - 1 - i);
        const bool is_chosen = attn_mix_unit(seed, 3 * i) * left < (double)wanted;
        targets[i] = is_chosen ? ids[i] : -1;
        if (!is_chosen)
            continue;
        wanted--;
        ids[i] = hidden(ids[i], mask, seed, 3 * i + 1);
    }
}

/* ---- Examples -------------------------------------------------------------------- */

static uint64_t hash_of(const attn_masked_texts *texts, double share)
{
    uint64_t hash = attn_mix_hash(ATTN_MIX_HASH, (uint64_t)(share * 0x1p52));
    for (size_t n = 0; n < texts->count; n++) {
        hash = attn_mix_hash(hash, texts->begin[n]);
        for (size_t i = texts->begin[n]; i < texts->begin[n + 1]; i++)
            hash = attn_mix_hash(hash, (uint64_t)texts->ids[i]);
    }
    return hash;
}

static size_t length_of(const attn_masked_texts *texts, size_t n)
{
    return texts->begin[n + 1] - texts->begin[n];
}

/* An example for each token that is not <s> or </s>. */
static bool list_each(attn_masked *masked, size_t count)
{
    const attn_masked_texts *const texts = &masked->texts;
    size_t example = 0;
    masked->text = malloc(count * sizeof *masked->text);
    masked->place = malloc(count * sizeof *masked->place);
    if (!masked->text || !masked->place)
        return false;
    for (size_t n = 0; n < texts->count; n++)
        for (size_t i = 1; i + 1 < length_of(texts, n); i++) {
            masked->text[example] = n;
            masked->place[example++] = (int32_t)i;
        }
    return true;
}

static size_t text_of(const attn_masked *masked, size_t example)
{
    return masked->text ? masked->text[example] : example;
}

attn_status attn_masked_examples(attn_examples *examples, attn_masked_texts *texts,
                                 double share, int32_t mask, bool each, attn_error *error)
{
    attn_masked *const masked = calloc(1, sizeof *masked);
    *examples = (attn_examples){.data = masked};
    if (!masked) {
        attn_masked_texts_free(texts);
        return out_of_memory(error);
    }
    *masked = (attn_masked){.texts = *texts, .share = share, .mask = mask};
    *texts = (attn_masked_texts){0};
    examples->count = each ? (size_t)masked->texts.tokens - 2 * masked->texts.count
                           : masked->texts.count;
    examples->hash = hash_of(&masked->texts, share);
    examples->sizes = malloc(examples->count * sizeof *examples->sizes);
    if (!examples->sizes || (each && !list_each(masked, examples->count)))
        return out_of_memory(error);
    for (size_t n = 0; n < examples->count; n++) {
        const size_t length = length_of(&masked->texts, text_of(masked, n));
        const size_t targets = each ? 1 : attn_masked_targets(length, share);
        examples->sizes[n] =
            (attn_example_size){(int32_t)length, (int32_t)length, (int32_t)targets};
    }
    return ATTN_OK;
}

void attn_masked_examples_free(attn_examples *examples)
{
    attn_masked *const masked = examples->data;
    if (!masked)
        return;
    attn_masked_texts_free(&masked->texts);
    free(masked->text);
    free(masked->place);
    free(masked);
    examples->data = NULL;
}

static void hide_one(int32_t *ids, int32_t *targets, size_t count, int32_t place,
                     int32_t mask)
{
    for (size_t i = 0; i < count; i++)
        targets[i] = -1;
    targets[place] = ids[place];
    ids[place] = mask;
}

bool attn_masked_pack(attn_bert_input *input, const int32_t **targets, attn_tape *tape,
                      const attn_shard_batch *batch)
{
    const attn_masked *const masked = batch->examples->data;
    size_t tokens = 0;
    for (size_t n = 0; n < batch->count; n++)
        tokens += (size_t)batch->examples->sizes[batch->list[n]].size;
    int32_t *const ids = attn_tape_allocate(tape, tokens * sizeof *ids);
    int32_t *const wanted = attn_tape_allocate(tape, tokens * sizeof *wanted);
    int64_t *const starts = attn_tape_allocate(tape, (batch->count + 1) * sizeof *starts);
    if (!ids || !wanted || !starts)
        return false;
    starts[0] = 0;
    for (size_t n = 0; n < batch->count; n++) {
        const size_t example = batch->list[n], text = text_of(masked, example);
        const size_t count = length_of(&masked->texts, text);
        const size_t to = (size_t)starts[n];
        memcpy(ids + to, masked->texts.ids + masked->texts.begin[text],
               count * sizeof *ids);
        if (masked->place)
            hide_one(ids + to, wanted + to, count, masked->place[example], masked->mask);
        else
            attn_masked_hide(ids + to, wanted + to, count, masked->share, masked->mask,
                             attn_mix(batch->seed, example));
        starts[n + 1] = (int64_t)(to + count);
    }
    *input = (attn_bert_input){.ids = ids, .packing = {(int64_t)batch->count, starts}};
    *targets = wanted;
    return true;
}
