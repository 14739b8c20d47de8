/* A record from a captioner. */
#include "inspect/build_picture.h"
#include "inspect/texts.h"
#include "inspect/watch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    const attn_picture_request *request;
    const attn_picture *picture;
    attn_record *record;
    attn_error *error;
    attn_written caption;
    int32_t *ids; /* </s>, then the caption */
    attn_joining words, places;
    attn_watch watch;
} builder;

static void builder_free(builder *b)
{
    attn_written_free(&b->caption);
    free(b->ids);
    attn_joining_free(&b->words);
    attn_joining_free(&b->places);
    attn_watch_free(&b->watch);
}

static attn_status no_memory(const builder *b)
{
    return attn_error_set(b->error, ATTN_ENOMEM, "memory was refused for a record");
}

attn_status attn_check_picture(const attn_captioner *captioner,
                               const attn_picture *picture, const char *name,
                               attn_error *error)
{
    const attn_captioner_config *const config = attn_captioner_config_of(captioner);
    if (picture->rows == config->rows && picture->columns == config->columns)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT,
                          "%s has %lld × %lld points, expected %lld × %lld, as the "
                          "model reads",
                          name, (long long)picture->columns, (long long)picture->rows,
                          (long long)config->columns, (long long)config->rows);
}

/* The model's own caption. */
static attn_status write_caption(builder *b)
{
    attn_translation written = {0};
    attn_status status =
        attn_captioner_write(b->request->captioner, b->request->context, b->picture->grey,
                             1, &b->request->search, &written, b->error);
    if (status == ATTN_OK)
        status = attn_written_place(&b->caption, b->request->tokenizer, written.ids,
                                    written.count, b->error);
    b->record->beams = b->request->search.beams;
    b->record->finished = written.finished;
    free(written.ids);
    return status;
}

/* The one that was given. */
static attn_status take_caption(builder *b)
{
    const char *const text = b->request->caption;
    attn_status status = attn_check_sentence("the caption", text, strlen(text), b->error);
    if (status == ATTN_OK)
        status = attn_tokenizer_encode(b->request->tokenizer, text, strlen(text),
                                       &b->caption.tokens, &b->caption.count, b->error);
    if (status == ATTN_OK)
        status = attn_tokens_fit(
            "the caption", b->caption.count,
            attn_captioner_config_of(b->request->captioner)->max_positions - 1, b->error);
    if (status != ATTN_OK)
        return status;
    b->caption.raw = strdup(text);
    b->caption.text = strdup(text);
    b->caption.length = strlen(text);
    b->record->forced = true;
    b->record->finished = true;
    return b->caption.raw && b->caption.text ? ATTN_OK : no_memory(b);
}

static attn_status set_texts(builder *b, const char *name)
{
    attn_record *const record = b->record;
    int64_t rows, columns;
    attn_captioner_grid(b->request->captioner, &rows, &columns);
    const attn_record_picture picture = {b->picture->rows, b->picture->columns,
                                         b->picture->grey, rows, columns};
    record->model = strdup(b->request->model);
    record->source = strdup(name);
    record->translation = b->caption.text;
    b->caption.text = NULL;
    snprintf(record->source_language, sizeof record->source_language, "file");
    snprintf(record->target_language, sizeof record->target_language, "says");
    if (record->model == NULL || record->source == NULL)
        return no_memory(b);
    attn_status status = attn_record_set_picture(record, &picture, b->error);
    if (status == ATTN_OK)
        status = attn_join_text(&record->written_words, &b->words, NULL, b->caption.raw,
                                b->caption.length, b->caption.tokens, b->caption.count,
                                "</s>", b->error);
    if (status != ATTN_OK)
        return status;
    b->places = (attn_joining){.tokens = rows * columns};
    b->places.word = calloc((size_t)(rows * columns) + 1, sizeof *b->places.word);
    b->ids = calloc(b->caption.count + 1, sizeof *b->ids);
    if (b->places.word == NULL || b->ids == NULL)
        return no_memory(b);
    for (int64_t i = 0; i < rows * columns; i++)
        b->places.word[i] = i;
    b->ids[0] = ATTN_TOKEN_EOS;
    for (size_t i = 0; i < b->caption.count; i++)
        b->ids[i + 1] = b->caption.tokens[i].id;
    return ATTN_OK;
}

static attn_status watch(builder *b)
{
    const attn_observer observer = {&b->watch, attn_watch_keep};
    const int64_t starts[] = {0, (int64_t)b->caption.count + 1};
    attn_tape *tape;
    attn_status status = attn_watch_add(&b->watch, b->record, ATTN_PART_CROSS, 1, 1,
                                        &b->words, &b->places, b->error);
    if (status != ATTN_OK)
        return status;
    status = attn_tape_create(&tape, b->request->context);
    if (status != ATTN_OK)
        return attn_error_from_context(b->error, status, b->request->context);
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {.tape = tape,
                            .parameters =
                                attn_captioner_parameters(b->request->captioner),
                            .observer = &observer};
    const attn_caption_batch batch = {.pictures = 1,
                                      .grey = b->picture->grey,
                                      .target_in = b->ids,
                                      .target_starts = starts};
    attn_captioner_hidden(b->request->captioner, &pass, &batch);
    status = attn_tape_report(tape, b->error);
    attn_tape_destroy(tape);
    attn_watch_end(&b->watch);
    return status;
}

attn_status attn_record_build_picture(attn_record **record,
                                      const attn_picture_request *request,
                                      const attn_picture *picture, const char *name,
                                      attn_error *error)
{
    builder b = {.request = request, .picture = picture, .error = error};
    if (attn_captioner_config_of(request->captioner)->decoder.attention ==
        ATTN_CROSS_NONE)
        return attn_error_set(error, ATTN_EUNSUPPORTED,
                              "%.60s has no attention: there is nothing to look at",
                              request->model);
    attn_status status = attn_check_picture(request->captioner, picture, name, error);
    if (status == ATTN_OK)
        status = attn_record_create(&b.record, error);
    if (status != ATTN_OK)
        return status;
    status = request->caption ? take_caption(&b) : write_caption(&b);
    if (status == ATTN_OK)
        status = set_texts(&b, name);
    if (status == ATTN_OK)
        status = watch(&b);
    builder_free(&b);
    if (status == ATTN_OK)
        *record = b.record;
    else
        attn_record_destroy(b.record);
    return status;
}
