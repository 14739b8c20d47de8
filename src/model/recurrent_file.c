/* A recurrent translator's folder: config.json and model.safetensors, which is held
 * against the configuration before memory is taken; and written. */
#include "base/context.h"
#include "model/folder.h"
#include "model/recurrent_config.h"
#include "model/recurrent_parts.h"
#include <string.h>

static const char MODEL_TYPE[] = "attn-recurrent-translator";

/* ---- config.json ------------------------------------------------------------------ */

static attn_status read_config(const attn_config_file *file,
                               attn_recurrent_translator_config *config)
{
    const struct {
        const char *key;
        int64_t fallback, *out;
    } sizes[] = {
        {"encoder_hidden_size", -1, &config->encoder_width},
        {"encoder_layers", 1, &config->encoder_layers},
        {"max_position_embeddings", -1, &config->max_positions},
    };
    static const char *const types[] = {MODEL_TYPE, NULL};
    attn_recurrent_decoder_config decoder = {0};
    size_t type;
    ATTN_TRY(attn_config_file_choice(file, "model_type", types, &type));
    ATTN_TRY(attn_config_file_flag(file, "bidirectional", true, &config->both_ways));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN_TRY(attn_config_file_integer(file, sizes[i].key, sizes[i].fallback,
                                          sizes[i].out));
    ATTN_TRY(attn_recurrent_config_read(file, &decoder));
    config->vocabulary = decoder.vocabulary;
    config->embedding = decoder.embedding;
    config->cell = decoder.cell;
    config->width = decoder.width;
    config->decoder_layers = decoder.layers;
    config->attention = decoder.attention;
    config->attention_width = decoder.attention_width;
    config->context_enters = decoder.context_enters;
    config->dropout = decoder.dropout;
    config->untied = decoder.untied;
    return ATTN_OK;
}

static json_t *config_json(const attn_recurrent_translator_config *config, int dtype)
{
    const attn_recurrent_decoder_config decoder = attn_recurrent_decoder_of(config);
    json_t *const json = json_pack(
        "{s:s, s:s, s:I, s:I, s:b, s:I}", "model_type", MODEL_TYPE, "dtype",
        attn_json_dtype(dtype), "encoder_hidden_size", (json_int_t)config->encoder_width,
        "encoder_layers", (json_int_t)config->encoder_layers, "bidirectional",
        config->both_ways, "max_position_embeddings", (json_int_t)config->max_positions);
    attn_recurrent_config_write(&decoder, json);
    return json;
}

/* ---- Loading ---------------------------------------------------------------------- */

static attn_status load(attn_recurrent_translator **translator, attn_folder *folder)
{
    static const char *const others[] = {ATTN_RECURRENT_OUTPUT, NULL};
    const attn_tensor_file *const file = &folder->tensors;
    attn_recurrent_translator_config config = {0};
    attn_recurrent_translator *loaded;
    char note[sizeof(*translator)->note] = "";
    ATTN_TRY(read_config(&folder->config, &config));
    ATTN_TRY(attn_folder_languages_load(&config.languages, folder->path, file->error));
    ATTN_TRY(attn_folder_open_tensors(folder));
    const attn_parameter embedding = {.name = "embedding.weight",
                                      .rank = 2,
                                      .extent = {config.vocabulary, config.embedding}};
    ATTN_TRY(attn_tensor_file_tie(file, &embedding, ATTN_RECURRENT_OUTPUT, &config.untied,
                                  note, sizeof note));
    ATTN_TRY(attn_config_file_blame(&folder->config, attn_recurrent_translator_outline(
                                                         &loaded, &config, file->error)));
    memcpy(loaded->note, note, sizeof note);
    const attn_status status = attn_tensor_file_load(file, &loaded->parameters, others);
    if (status == ATTN_OK)
        *translator = loaded;
    else
        attn_recurrent_translator_destroy(loaded);
    return status;
}

attn_status attn_recurrent_translator_load(attn_recurrent_translator **translator,
                                           const char *path, attn_error *error)
{
    attn_folder folder;
    *translator = NULL;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = load(translator, &folder);
    attn_folder_close(&folder);
    return status;
}

/* ---- Saving ----------------------------------------------------------------------- */

attn_status attn_recurrent_translator_save(const attn_recurrent_translator *translator,
                                           const char *folder, int dtype,
                                           attn_error *error)
{
    ATTN_TRY(attn_folder_make(folder, "attn_recurrent_translator_save", dtype, error));
    ATTN_TRY(attn_config_file_write(config_json(&translator->config, dtype), folder,
                                    "config.json", error));
    ATTN_TRY(attn_tokenizer_config_write(folder, translator->config.max_positions,
                                         &translator->config.languages, error));
    return attn_tensor_file_write(&translator->parameters, NULL, 0, folder, dtype, error);
}
