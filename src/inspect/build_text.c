/* A record from a model that reads one text. */
#include "inspect/build_text.h"
#include "inspect/texts.h"
#include "inspect/watch.h"
#include "text/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is gathered on the way. */
typedef struct builder {
    const attn_text_request *request;
    attn_record *record;
    attn_error *error;
    attn_token *tokens;
    size_t count;
    int32_t *ids;
    attn_word *words;
    size_t word_count;
    int64_t *starts;         /* [word_count + 1] */
    const char **texts;      /* [word_count] */
    attn_joining pieces;     /* of tokens and marks to the record's words */
    attn_joining words_only; /* of words to themselves */
    attn_joining label;      /* of the one row of pooling */
    attn_watch watch;
    attn_text_answer answer;
} builder;

static void builder_free(builder *b)
{
    free(b->tokens);
    free(b->ids);
    free(b->words);
    free(b->starts);
    free(b->texts);
    attn_joining_free(&b->pieces);
    attn_joining_free(&b->words_only);
    attn_joining_free(&b->label);
    attn_watch_free(&b->watch);
    free(b->answer.says);
    free(b->answer.label);
}

static attn_status no_memory(const builder *b)
{
    return attn_error_set(b->error, ATTN_ENOMEM, "memory was refused for a record");
}

/* Puts tokens of what stands at `begin` after those that are there, and frees them. */
static attn_status take_tokens(builder *b, attn_token *tokens, size_t count, size_t begin)
{
    attn_token *const all =
        realloc(b->tokens, (b->count + count + 1) * sizeof *b->tokens);
    if (all != NULL)
        b->tokens = all;
    for (size_t i = 0; all != NULL && i < count; i++)
        b->tokens[b->count++] = (attn_token){.id = tokens[i].id,
                                             .begin = tokens[i].begin + (int64_t)begin,
                                             .end = tokens[i].end + (int64_t)begin};
    free(tokens);
    return all != NULL ? ATTN_OK : no_memory(b);
}

static attn_status append(builder *b, const char *text, size_t begin, size_t end)
{
    attn_token *tokens;
    size_t count;
    const attn_status status = attn_tokenizer_encode(
        b->request->tokenizer, text + begin, end - begin, &tokens, &count, b->error);
    return status == ATTN_OK ? take_tokens(b, tokens, count, begin) : status;
}

/* The text between masks, and the masks. */
static attn_status tokenize(builder *b, const char *text, size_t length)
{
    static const char MASK[] = "<mask>";
    const size_t mask = sizeof MASK - 1;
    size_t begin = 0;
    for (size_t at = 0; b->request->mask >= 0 && at + mask <= length; at++) {
        if (memcmp(text + at, MASK, mask) != 0)
            continue;
        const attn_status status = append(b, text, begin, at);
        if (status != ATTN_OK)
            return status;
        b->tokens[b->count++] = (attn_token){
            .id = b->request->mask, .begin = (int64_t)at, .end = (int64_t)(at + mask)};
        begin = at + mask;
        at = begin - 1;
    }
    return append(b, text, begin, length);
}

/* The words first, as treebanks split, and then each word's tokens: as a tagger has them.
 */
static attn_status tokenize_words(builder *b, const char *text, size_t length)
{
    attn_status status =
        attn_words_of_text(text, length, &b->words, &b->word_count, b->error);
    if (status == ATTN_OK && b->word_count == 0)
        return attn_error_set(b->error, ATTN_EINVAL,
                              "the text has no word; expected a sentence");
    for (size_t w = 0; status == ATTN_OK && w < b->word_count; w++) {
        attn_word *const word = &b->words[w];
        attn_token *tokens;
        size_t count;
        status = attn_word_encode(b->request->tokenizer, text + word->begin,
                                  (size_t)(word->end - word->begin), &tokens, &count,
                                  b->error);
        if (status != ATTN_OK)
            break;
        word->first_token = (int64_t)b->count;
        status = take_tokens(b, tokens, count, (size_t)word->begin);
        word->end_token = (int64_t)b->count;
    }
    return status;
}

static attn_status encode(builder *b, const char *text, size_t length)
{
    attn_status status = attn_check_sentence("the text", text, length, b->error);
    if (status == ATTN_OK)
        status = b->request->labels_words ? tokenize_words(b, text, length)
                                          : tokenize(b, text, length);
    if (status == ATTN_OK)
        status = attn_tokens_fit("the text", b->count, b->request->most_tokens, b->error);
    if (status != ATTN_OK)
        return status;
    b->ids = calloc(b->count + 1, sizeof *b->ids);
    b->record->source = strndup(text, length);
    if (b->ids == NULL || b->record->source == NULL)
        return no_memory(b);
    for (size_t i = 0; i < b->count; i++)
        b->ids[i] = b->tokens[i].id;
    return ATTN_OK;
}

/* A model with causal attention is shown by what it has read so far. */
static bool is_causal(const builder *b)
{
    return b->request->attention[ATTN_PART_DECODER].layers > 0;
}

static attn_joining identity(int64_t count)
{
    attn_joining joining = {.tokens = count};
    joining.word = calloc((size_t)count + 1, sizeof *joining.word);
    for (int64_t i = 0; joining.word != NULL && i < count; i++)
        joining.word[i] = i;
    return joining;
}

/* The words of the text, for the record and for the model. */
static attn_status find_words(builder *b)
{
    attn_record *const record = b->record;
    const char *const text = record->source;
    attn_record_words *const shown =
        is_causal(b) ? &record->read_words : &record->source_words;
    attn_status status = ATTN_OK;
    if (b->words == NULL)
        status = attn_words_of_tokens(text, b->tokens, b->count, &b->words,
                                      &b->word_count, b->error);
    if (status == ATTN_OK)
        status = attn_join_words(shown, &b->pieces, b->request->before, text, b->words,
                                 b->word_count, b->request->after, b->error);
    if (status != ATTN_OK)
        return status;
    b->starts = calloc(b->word_count + 1, sizeof *b->starts);
    b->texts = calloc(b->word_count + 1, sizeof *b->texts);
    b->words_only = identity((int64_t)b->word_count);
    b->label = identity(1);
    if (b->starts == NULL || b->texts == NULL || b->words_only.word == NULL ||
        b->label.word == NULL)
        return no_memory(b);
    const size_t first = b->request->before != NULL;
    for (size_t w = 0; w < b->word_count; w++) {
        b->starts[w + 1] = b->words[w].end_token;
        b->texts[w] = shown->list[first + w].text;
    }
    return ATTN_OK;
}

static attn_status add_parts(builder *b)
{
    const attn_text_request *const request = b->request;
    attn_status status =
        attn_record_words_create(&b->record->written_words,
                                 request->attention[ATTN_PART_POOL].layers > 0, b->error);
    for (int kind = 0; status == ATTN_OK && kind < ATTN_RECORD_PARTS; kind++) {
        const attn_joining *const keys = request->attends_words && kind != ATTN_PART_POOL
                                             ? &b->words_only
                                             : &b->pieces;
        if (request->attention[kind].layers > 0)
            status = attn_watch_add(
                &b->watch, b->record, (attn_part)kind, request->attention[kind].layers,
                request->attention[kind].heads, kind == ATTN_PART_POOL ? &b->label : keys,
                keys, b->error);
    }
    return status;
}

static attn_status read(builder *b)
{
    const attn_text_request *const request = b->request;
    const attn_observer observer = {&b->watch, attn_watch_keep};
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, request->context);
    if (status != ATTN_OK)
        return attn_error_from_context(b->error, status, request->context);
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {
        .tape = tape, .parameters = request->parameters, .observer = &observer};
    status = request->read(request->user, &pass, b->ids, b->count, b->starts,
                           b->word_count, b->texts, &b->answer, b->error);
    if (attn_tape_status(tape) != ATTN_OK)
        status = attn_tape_report(tape, b->error);
    attn_tape_destroy(tape);
    attn_watch_end(&b->watch);
    return status;
}

static attn_status take_answer(builder *b)
{
    attn_record *const record = b->record;
    record->model = strdup(b->request->model);
    record->translation = b->answer.says ? b->answer.says : strdup("");
    b->answer.says = NULL;
    record->finished = true;
    snprintf(record->source_language, sizeof record->source_language, "text");
    snprintf(record->target_language, sizeof record->target_language, "%s",
             b->request->says);
    if (record->model == NULL || record->translation == NULL)
        return no_memory(b);
    if (record->written_words.length == 0)
        return ATTN_OK;
    const char *const label = b->answer.label ? b->answer.label : "label";
    return attn_record_word_set(&record->written_words, 0, label, strlen(label), true,
                                b->error);
}

attn_status attn_record_build_text(attn_record **record, const attn_text_request *request,
                                   const char *text, size_t length_bytes,
                                   attn_error *error)
{
    builder b = {.request = request, .error = error};
    attn_status status = attn_record_create(&b.record, error);
    if (status != ATTN_OK)
        return status;
    status = encode(&b, text, length_bytes);
    if (status == ATTN_OK)
        status = find_words(&b);
    if (status == ATTN_OK)
        status = add_parts(&b);
    if (status == ATTN_OK)
        status = read(&b);
    if (status == ATTN_OK)
        status = take_answer(&b);
    builder_free(&b);
    if (status == ATTN_OK)
        *record = b.record;
    else
        attn_record_destroy(b.record);
    return status;
}
