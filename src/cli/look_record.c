/* Which model is asked, and how. */
#include "cli/look_record.h"
#include "base/context.h"
#include "cli/cli.h"
#include "cli/model.h"
#include "inspect/build.h"
#include "inspect/build_picture.h"
#include "model/folder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(char *folder)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        folder[--length] = '\0';
    const char *slash = strrchr(folder, '/');
    return slash == NULL || slash[1] == '\0' ? folder : slash + 1;
}

static attn_status look_translator(const look_request *request, const char *folder,
                                   const char *name, attn_context *context,
                                   attn_record **record, attn_error *error)
{
    cli_model model = {0};
    attn_status status = cli_model_load(&model, "look", folder, error);
    attn_record_request asked = {.translator = &model.seq2seq,
                                 .tokenizer = model.tokenizer,
                                 .context = context,
                                 .model = name,
                                 .translation = request->translation};
    attn_search_options_init(&asked.search);
    if (request->beams > 0)
        asked.search.beams = request->beams;
    if (status == ATTN_OK)
        status = attn_record_build(record, &asked, request->text, request->length, error);
    cli_model_free(&model);
    return status;
}

static attn_status look_captioner(const look_request *request, const char *folder,
                                  const char *name, attn_context *context,
                                  attn_record **record, attn_error *error)
{
    attn_captioner *captioner = NULL;
    attn_tokenizer *tokenizer = NULL;
    attn_picture picture = {0};
    attn_status status = attn_captioner_load(&captioner, folder, error);
    if (status == ATTN_OK)
        cli_note("look", attn_captioner_note(captioner));
    if (status == ATTN_OK)
        status = attn_folder_tokenizer_load(
            &tokenizer, folder, attn_captioner_config_of(captioner)->decoder.vocabulary,
            error);
    if (status == ATTN_OK)
        status = attn_picture_load(&picture, request->text, error);
    attn_picture_request asked = {.captioner = captioner,
                                  .tokenizer = tokenizer,
                                  .context = context,
                                  .model = name,
                                  .caption = request->translation};
    attn_search_options_init(&asked.search);
    if (request->beams > 0)
        asked.search.beams = request->beams;
    if (status == ATTN_OK)
        status =
            attn_record_build_picture(record, &asked, &picture, request->text, error);
    attn_picture_free(&picture);
    attn_tokenizer_destroy(tokenizer);
    attn_captioner_destroy(captioner);
    return status;
}

/* The folder's model_type into type; "" where config.json has none. */
static attn_status read_type(const char *path, char *type, size_t size, attn_error *error)
{
    attn_folder folder;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const char *const text =
        json_string_value(json_object_get(folder.config.root, "model_type"));
    snprintf(type, size, "%s", text ? text : "");
    attn_folder_close(&folder);
    return ATTN_OK;
}

static bool is_one_of(const char *type, const char *const *types)
{
    while (*types && strcmp(*types, type) != 0)
        types++;
    return *types != NULL;
}

attn_status look_make_record(const look_request *request, attn_record **record,
                             attn_error *error)
{
    static const char *const texts[] = {"attn-reader", "bert",          "bert-variant",
                                        "llama",       "llama-variant", "lstm-language",
                                        NULL};
    static const char *const pictures[] = {"attn-captioner", NULL};
    char folder[ATTN_PATH_BYTES], type[64];
    attn_context *context = NULL;
    attn_status status = cli_find_model(
        request->model == NULL ? "translate-en-fr" : request->model, folder, error);
    if (status == ATTN_OK)
        status = read_type(folder, type, sizeof type, error);
    if (status != ATTN_OK)
        return status;
    status = attn_context_open(&context, NULL, error);
    if (status != ATTN_OK)
        return status;
    const char *const name = base_name(folder);
    if (request->is_picture && !is_one_of(type, pictures))
        status = attn_error_set(error, ATTN_EINVAL,
                                "%s is a picture; %.60s reads text: expected a "
                                "captioner as --model",
                                request->text, name);
    else if (is_one_of(type, texts) && (request->translation || request->beams > 0))
        status = attn_error_set(error, ATTN_EINVAL,
                                "%.60s reads a text and writes none: expected no "
                                "--translation and no --beam",
                                name);
    else if (is_one_of(type, texts))
        status =
            look_read_text_model(request, folder, name, type, context, record, error);
    else if (is_one_of(type, pictures))
        status = look_captioner(request, folder, name, context, record, error);
    else
        status = look_translator(request, folder, name, context, record, error);
    attn_context_destroy(context);
    return status;
}
