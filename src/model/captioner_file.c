/* A captioner's folder: config.json and model.safetensors, which is held against the
 * configuration before memory is taken; and written. */
#include "base/context.h"
#include "model/captioner_parts.h"
#include "model/folder.h"
#include "model/recurrent_config.h"
#include <string.h>

static const char MODEL_TYPE[] = "attn-captioner";

/* ---- config.json ------------------------------------------------------------------ */

static attn_status read_channels(const attn_config_file *file,
                                 attn_captioner_config *config)
{
    static const char expected[] = "a list of 1 to 6 whole numbers";
    const json_t *const list = json_object_get(file->root, "channels");
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count < 1 || count > ATTN_CAPTIONER_LAYERS)
        return attn_config_file_refuse(file, "channels", list, expected);
    config->layers = (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        if (!json_is_integer(json_array_get(list, i)))
            return attn_config_file_refuse(file, "channels", list, expected);
        config->channels[i] = json_integer_value(json_array_get(list, i));
    }
    return ATTN_OK;
}

static attn_status read_config(const attn_config_file *file,
                               attn_captioner_config *config)
{
    const struct {
        const char *key;
        int64_t fallback, *out;
    } sizes[] = {
        {"picture_rows", -1, &config->rows},
        {"picture_columns", -1, &config->columns},
        {"cell_rows", 1, &config->cell_rows},
        {"cell_columns", 1, &config->cell_columns},
        {"halvings", -1, &config->halvings},
        {"max_position_embeddings", -1, &config->max_positions},
    };
    static const char *const types[] = {MODEL_TYPE, NULL};
    size_t type;
    ATTN_TRY(attn_config_file_choice(file, "model_type", types, &type));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN_TRY(attn_config_file_integer(file, sizes[i].key, sizes[i].fallback,
                                          sizes[i].out));
    ATTN_TRY(read_channels(file, config));
    config->decoder.source_width = config->channels[config->layers - 1];
    return attn_recurrent_config_read(file, &config->decoder);
}

static json_t *config_json(const attn_captioner_config *config, int dtype)
{
    json_t *const channels = json_array();
    for (int64_t i = 0; i < config->layers; i++)
        json_array_append_new(channels, json_integer((json_int_t)config->channels[i]));
    json_t *const json = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "model_type", MODEL_TYPE,
        "dtype", attn_json_dtype(dtype), "picture_rows", (json_int_t)config->rows,
        "picture_columns", (json_int_t)config->columns, "cell_rows",
        (json_int_t)config->cell_rows, "cell_columns", (json_int_t)config->cell_columns,
        "channels", channels, "halvings", (json_int_t)config->halvings,
        "max_position_embeddings", (json_int_t)config->max_positions);
    attn_recurrent_config_write(&config->decoder, json);
    return json;
}

/* ---- Loading ---------------------------------------------------------------------- */

static attn_status load(attn_captioner **captioner, attn_folder *folder)
{
    static const char *const others[] = {ATTN_RECURRENT_OUTPUT, NULL};
    const attn_tensor_file *const file = &folder->tensors;
    attn_captioner_config config = {0};
    attn_captioner *loaded;
    char note[sizeof(*captioner)->note] = "";
    ATTN_TRY(read_config(&folder->config, &config));
    ATTN_TRY(attn_folder_open_tensors(folder));
    const attn_parameter embedding = {
        .name = "embedding.weight",
        .rank = 2,
        .extent = {config.decoder.vocabulary, config.decoder.embedding}};
    ATTN_TRY(attn_tensor_file_tie(file, &embedding, ATTN_RECURRENT_OUTPUT,
                                  &config.decoder.untied, note, sizeof note));
    ATTN_TRY(attn_config_file_blame(
        &folder->config, attn_captioner_outline(&loaded, &config, file->error)));
    memcpy(loaded->note, note, sizeof note);
    const attn_status status = attn_tensor_file_load(file, &loaded->parameters, others);
    if (status == ATTN_OK)
        *captioner = loaded;
    else
        attn_captioner_destroy(loaded);
    return status;
}

attn_status attn_captioner_load(attn_captioner **captioner, const char *path,
                                attn_error *error)
{
    attn_folder folder;
    *captioner = NULL;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = load(captioner, &folder);
    attn_folder_close(&folder);
    return status;
}

/* ---- Saving ----------------------------------------------------------------------- */

attn_status attn_captioner_save(const attn_captioner *captioner, const char *folder,
                                int dtype, attn_error *error)
{
    ATTN_TRY(attn_folder_make(folder, "attn_captioner_save", dtype, error));
    ATTN_TRY(attn_config_file_write(config_json(&captioner->config, dtype), folder,
                                    "config.json", error));
    ATTN_TRY(attn_tokenizer_config_write(folder, captioner->config.max_positions,
                                         &(attn_languages){0}, error));
    return attn_tensor_file_write(&captioner->parameters, NULL, 0, folder, dtype, error);
}
