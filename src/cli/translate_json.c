/* A translated line as JSON, with its alignment. */
#include "cli/translate_json.h"
#include "base/context.h"
#include "inspect/build.h"
#include "inspect/summary.h"
#include "text/words.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *words_json(const attn_record_words *words)
{
    json_t *const list = json_array();
    for (int64_t i = 0; i < words->length; i++)
        json_array_append_new(list, json_string(words->list[i].text));
    return list;
}

/* Four decimals: more would be noise, and ten times the text. */
static json_t *decimal(double value)
{
    return json_real(round(value * 1e4) / 1e4);
}

static json_t *weights_json(const attn_summary *summary, const attn_record_part *part)
{
    json_t *const rows = json_array();
    for (int64_t i = 0; i < part->rows->length; i++) {
        json_t *const row = json_array();
        for (int64_t j = 0; j < part->keys->length; j++)
            json_array_append_new(
                row, decimal((double)summary->alignment[i * part->keys->length + j]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static attn_status alignment_json(const attn_record *record, json_t **alignment,
                                  attn_error *error)
{
    attn_summary *summary;
    ATTN_TRY(attn_summary_create(&summary, record, NULL, error));
    *alignment = json_null();
    if (summary->alignment_part >= 0) {
        const attn_record_part *const part = &record->parts[summary->alignment_part];
        *alignment = json_pack("{s:I, s:o, s:o, s:o}", "layer",
                               (json_int_t)summary->alignment_layer + 1, "source_words",
                               words_json(part->keys), "words", words_json(part->rows),
                               "weights", weights_json(summary, part));
    }
    attn_summary_destroy(summary);
    return ATTN_OK;
}

static attn_status find_alignment(const cli_model *model, attn_context *context,
                                  const translate_line *line, json_t **alignment,
                                  attn_error *error)
{
    const attn_record_request request = {
        .translator = &model->seq2seq,
        .tokenizer = model->tokenizer,
        .context = context,
        .model = "",
        .written = &line->translation,
    };
    attn_record *record;
    ATTN_TRY(attn_record_build(&record, &request, line->text, line->length, error));
    const attn_status status = alignment_json(record, alignment, error);
    attn_record_destroy(record);
    return status;
}

/* The pieces that were written; one that is part of a character is shown as U+FFFD. */
static attn_status tokens_json(const attn_tokenizer *tokenizer,
                               const attn_translation *translation, json_t *list,
                               attn_error *error)
{
    for (size_t i = 0; i < translation->count; i++) {
        const char *bytes;
        char *text;
        size_t length;
        bool special;
        ATTN_TRY(attn_tokenizer_bytes(tokenizer, translation->ids[i], &bytes, &length,
                                      &special, error));
        ATTN_TRY(attn_utf8_repair(bytes, length, &text, &length, error));
        json_array_append_new(list, json_stringn(text, length));
        free(text);
    }
    return ATTN_OK;
}

static attn_status fill(const cli_model *model, attn_context *context,
                        const translate_line *line, json_t *object, attn_error *error)
{
    const attn_translation *const translation = &line->translation;
    char *text;
    ATTN_TRY(attn_tokenizer_decode(model->tokenizer, translation->ids, translation->count,
                                   &text, error));
    json_object_set_new(object, "line", json_integer(line->number));
    json_object_set_new(object, "source", json_string(line->text));
    json_object_set_new(object, "translation", json_string(text));
    free(text);
    const bool is_empty = line->count == 0;
    json_t *const tokens = json_array(), *alignment = json_null();
    json_object_set_new(object, "score",
                        is_empty ? json_null() : decimal(translation->score));
    json_object_set_new(object, "finished",
                        json_boolean(is_empty || translation->finished));
    json_object_set_new(object, "tokens", tokens);
    ATTN_TRY(tokens_json(model->tokenizer, translation, tokens, error));
    if (!is_empty && model->seq2seq.attention[ATTN_PART_CROSS].layers > 0)
        ATTN_TRY(find_alignment(model, context, line, &alignment, error));
    json_object_set_new(object, "alignment", alignment);
    return ATTN_OK;
}

attn_status translate_line_json(const cli_model *model, attn_context *context,
                                const translate_line *line, char **text,
                                attn_error *error)
{
    json_t *const object = json_object();
    attn_status status = fill(model, context, line, object, error);
    *text = status == ATTN_OK ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6))
                              : NULL;
    json_decref(object);
    if (status == ATTN_OK && !*text)
        status = attn_error_set(error, ATTN_ENOMEM, "no memory for a line of JSON");
    return status;
}
