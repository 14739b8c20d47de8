/* A record from a translator. */
#include "inspect/build.h"
#include "inspect/texts.h"
#include "inspect/watch.h"
#include "text/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is gathered on the way. */
typedef struct builder {
    const attn_record_request *request;
    attn_record *record;
    attn_error *error;
    attn_token *source_tokens;
    size_t source_count;
    attn_written target;
    int32_t *source_ids; /* with </s> */
    int32_t *target_ids; /* </s>, then the translation */
    attn_joining source, written, read;
    attn_watch watch;
} builder;

static void builder_free(builder *b)
{
    free(b->source_tokens);
    attn_written_free(&b->target);
    free(b->source_ids);
    free(b->target_ids);
    attn_watch_free(&b->watch);
    attn_joining_free(&b->source);
    attn_joining_free(&b->written);
    attn_joining_free(&b->read);
}

static attn_status no_memory(builder *b)
{
    return attn_error_set(b->error, ATTN_ENOMEM, "memory was refused for a record");
}

static attn_status encode(builder *b, const char *what, const char *text, size_t length,
                          attn_token **tokens, size_t *count)
{
    attn_status status = attn_check_sentence(what, text, length, b->error);
    if (status == ATTN_OK)
        status = attn_tokenizer_encode(b->request->tokenizer, text, length, tokens, count,
                                       b->error);
    return status == ATTN_OK
               ? attn_tokens_fit(what, *count, b->request->translator->max_positions - 1,
                                 b->error)
               : status;
}

static attn_status encode_source(builder *b, const char *text, size_t length)
{
    attn_status status =
        encode(b, "the text", text, length, &b->source_tokens, &b->source_count);
    if (status != ATTN_OK)
        return status;
    b->source_ids = calloc(b->source_count + 1, sizeof *b->source_ids);
    b->record->source = strndup(text, length);
    if (b->source_ids == NULL || b->record->source == NULL)
        return no_memory(b);
    for (size_t i = 0; i < b->source_count; i++)
        b->source_ids[i] = b->source_tokens[i].id;
    b->source_ids[b->source_count] = ATTN_TOKEN_EOS;
    return ATTN_OK;
}

static attn_status place_tokens(builder *b, const attn_translation *translation)
{
    const attn_status status =
        attn_written_place(&b->target, b->request->tokenizer, translation->ids,
                           translation->count, b->error);
    if (status != ATTN_OK)
        return status;
    b->record->translation = b->target.text;
    b->target.text = NULL;
    return ATTN_OK;
}

static attn_status search(builder *b)
{
    const int64_t most = b->request->translator->max_positions;
    const int64_t starts[] = {0, (int64_t)b->source_count + 1};
    const attn_packing packing = {1, starts};
    attn_search_options options = b->request->search;
    attn_translation translation = {0};
    attn_status status =
        attn_seq2seq_translate(b->request->translator, b->request->context, b->source_ids,
                               packing, &options, &translation, b->error);
    if (status == ATTN_OK && (int64_t)translation.count + 1 > most) {
        /* It ran to its last position without an end; with the start mark before it that
         * is one token more than can be looked at. */
        options.max_length = most - 1;
        free(translation.ids);
        translation = (attn_translation){0};
        status = attn_seq2seq_translate(b->request->translator, b->request->context,
                                        b->source_ids, packing, &options, &translation,
                                        b->error);
    }
    if (status == ATTN_OK)
        status = place_tokens(b, &translation);
    free(translation.ids);
    b->record->beams = options.beams;
    b->record->finished = translation.finished;
    return status;
}

/* What a search found before.  One that was stopped at the last position has a token too
 * many behind the start mark, and is looked at without it. */
static attn_status take_written(builder *b)
{
    const int64_t most = b->request->translator->max_positions;
    attn_translation written = *b->request->written;
    if (!written.finished && (int64_t)written.count == most)
        written.count--;
    b->record->beams = b->request->search.beams;
    b->record->finished = written.finished;
    return place_tokens(b, &written);
}

static attn_status take_translation(builder *b)
{
    const char *text = b->request->translation;
    attn_status status = encode(b, "the translation", text, strlen(text),
                                &b->target.tokens, &b->target.count);
    if (status != ATTN_OK)
        return status;
    b->target.raw = strdup(text);
    b->target.length = strlen(text);
    b->record->translation = strdup(text);
    b->record->forced = true;
    b->record->finished = true;
    return b->target.raw == NULL || b->record->translation == NULL ? no_memory(b)
                                                                   : ATTN_OK;
}

static attn_status encode_target(builder *b)
{
    const attn_status status = b->request->translation != NULL ? take_translation(b)
                               : b->request->written != NULL   ? take_written(b)
                                                               : search(b);
    if (status != ATTN_OK)
        return status;
    b->target_ids = calloc(b->target.count + 1, sizeof *b->target_ids);
    if (b->target_ids == NULL)
        return no_memory(b);
    b->target_ids[0] = ATTN_TOKEN_EOS;
    for (size_t i = 0; i < b->target.count; i++)
        b->target_ids[i + 1] = b->target.tokens[i].id;
    return ATTN_OK;
}

static attn_status join_words(builder *b)
{
    attn_record *record = b->record;
    attn_status status = attn_join_text(
        &record->source_words, &b->source, NULL, record->source, strlen(record->source),
        b->source_tokens, b->source_count, "</s>", b->error);
    if (status == ATTN_OK)
        status = attn_join_text(&record->written_words, &b->written, NULL, b->target.raw,
                                b->target.length, b->target.tokens, b->target.count,
                                "</s>", b->error);
    if (status == ATTN_OK)
        status = attn_join_text(&record->read_words, &b->read, "<s>", b->target.raw,
                                b->target.length, b->target.tokens, b->target.count, NULL,
                                b->error);
    return status;
}

static attn_status add_parts(builder *b)
{
    const attn_seq2seq *model = b->request->translator;
    const attn_joining *const rows[] = {&b->source, &b->read, &b->written};
    const attn_joining *const keys[] = {&b->source, &b->read, &b->source};
    attn_status status = ATTN_OK;
    for (int kind = 0; status == ATTN_OK && kind <= ATTN_PART_CROSS; kind++)
        if (model->attention[kind].layers > 0)
            status = attn_watch_add(
                &b->watch, b->record, (attn_part)kind, model->attention[kind].layers,
                model->attention[kind].heads, rows[kind], keys[kind], b->error);
    if (status == ATTN_OK && b->record->part_count == 0)
        status = attn_error_set(b->error, ATTN_EUNSUPPORTED,
                                "%.60s has no attention: there is nothing to look at",
                                b->request->model);
    return status;
}

static attn_status watch(builder *b)
{
    const attn_observer observer = {&b->watch, attn_watch_keep};
    const attn_seq2seq *model = b->request->translator;
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, b->request->context);
    if (status != ATTN_OK)
        return attn_error_from_context(b->error, status, b->request->context);
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {
        .tape = tape, .parameters = model->parameters, .observer = &observer};
    const int64_t source_starts[] = {0, (int64_t)b->source_count + 1};
    const int64_t target_starts[] = {0, (int64_t)b->target.count + 1};
    const attn_pair_batch batch = {.sentences = 1,
                                   .source = b->source_ids,
                                   .source_starts = source_starts,
                                   .target_in = b->target_ids,
                                   .target_starts = target_starts};
    model->kind->hidden(model->model, &pass, &batch);
    status = attn_tape_report(tape, b->error);
    attn_tape_destroy(tape);
    attn_watch_end(&b->watch);
    return status;
}

static attn_status name_record(builder *b)
{
    const attn_record_request *request = b->request;
    attn_record *record = b->record;
    record->model = strdup(request->model);
    if (record->model == NULL)
        return no_memory(b);
    const attn_languages *languages = request->translator->languages;
    snprintf(record->source_language, sizeof record->source_language, "%s",
             languages->source);
    snprintf(record->target_language, sizeof record->target_language, "%s",
             languages->target);
    return ATTN_OK;
}

attn_status attn_record_build(attn_record **record, const attn_record_request *request,
                              const char *text, size_t length_bytes, attn_error *error)
{
    builder b = {.request = request, .error = error};
    attn_status status = attn_record_create(&b.record, error);
    if (status != ATTN_OK)
        return status;
    status = name_record(&b);
    if (status == ATTN_OK)
        status = encode_source(&b, text, length_bytes);
    if (status == ATTN_OK)
        status = encode_target(&b);
    if (status == ATTN_OK)
        status = join_words(&b);
    if (status == ATTN_OK)
        status = add_parts(&b);
    if (status == ATTN_OK)
        status = watch(&b);
    builder_free(&b);
    if (status == ATTN_OK)
        *record = b.record;
    else
        attn_record_destroy(b.record);
    return status;
}
