/* A recurrent translator's folder: config.json and model.safetensors, which is held
 * against the configuration before memory is taken; and written. */
#include "base/context.h"
#include "model/config_file.h"
#include "model/recurrent_config.h"
#include "model/recurrent_parts.h"
#include "model/tensor_file.h"
#include "text/tokenizer.h"
#include <string.h>

enum { MOST_PATH_BYTES = 4096 };

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
    static const char *const types[] = {MODEL_TYPE};
    attn_recurrent_decoder_config decoder = {0};
    size_t type;
    ATTN_TRY(attn_config_file_choice(file, "model_type", types, 1,
                                     "\"attn-recurrent-translator\"", &type));
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

static attn_status config_read(attn_recurrent_translator_config *config, const char *path,
                               attn_error *error)
{
    attn_config_file file;
    *config = (attn_recurrent_translator_config){0};
    ATTN_TRY(attn_config_file_open(&file, path, error));
    const attn_status status = read_config(&file, config);
    attn_config_file_close(&file);
    return status;
}

static json_t *config_json(const attn_recurrent_translator_config *config, int dtype)
{
    const attn_recurrent_decoder_config decoder = attn_recurrent_decoder_of(config);
    json_t *const json = json_pack(
        "{s:s, s:s, s:I, s:I, s:b, s:I}", "model_type", MODEL_TYPE, "dtype",
        dtype == ATTN_DTYPE_BF16 ? "bfloat16" : "float32", "encoder_hidden_size",
        (json_int_t)config->encoder_width, "encoder_layers",
        (json_int_t)config->encoder_layers, "bidirectional", config->both_ways,
        "max_position_embeddings", (json_int_t)config->max_positions);
    attn_recurrent_config_write(&decoder, json);
    return json;
}

/* ---- Loading ---------------------------------------------------------------------- */

static attn_status load_tensors(attn_recurrent_translator **translator,
                                attn_recurrent_translator_config *config,
                                const char *config_path, const attn_tensor_file *file)
{
    static const char *const others[] = {ATTN_RECURRENT_OUTPUT, NULL};
    const attn_parameter embedding = {.name = "embedding.weight",
                                      .rank = 2,
                                      .extent = {config->vocabulary, config->embedding}};
    char note[sizeof(*translator)->note] = "";
    attn_recurrent_translator *loaded;
    ATTN_TRY(attn_tensor_file_tie(file, &embedding, ATTN_RECURRENT_OUTPUT,
                                  &config->untied, note, sizeof note));
    ATTN_TRY(attn_config_file_blame(
        config_path, attn_recurrent_translator_outline(&loaded, config, file->error),
        file->error));
    memcpy(loaded->note, note, sizeof note);
    const attn_status status = attn_tensor_file_load(file, &loaded->parameters, others);
    if (status == ATTN_OK)
        *translator = loaded;
    else
        attn_recurrent_translator_destroy(loaded);
    return status;
}

attn_status attn_recurrent_translator_load(attn_recurrent_translator **translator,
                                           const char *folder, attn_error *error)
{
    char config_path[MOST_PATH_BYTES], path[MOST_PATH_BYTES];
    attn_recurrent_translator_config config;
    attn_tensor_file file = {.path = path, .error = error};
    *translator = NULL;
    ATTN_TRY(
        attn_folder_path(config_path, sizeof config_path, folder, "config.json", error));
    ATTN_TRY(attn_folder_path(path, sizeof path, folder, "model.safetensors", error));
    ATTN_TRY(config_read(&config, config_path, error));
    ATTN_TRY(attn_safetensors_open(&file.tensors, path, error));
    const attn_status status = load_tensors(translator, &config, config_path, &file);
    attn_safetensors_close(file.tensors);
    return status;
}

/* ---- Saving ----------------------------------------------------------------------- */

attn_status attn_recurrent_translator_save(const attn_recurrent_translator *translator,
                                           const char *folder, int dtype,
                                           attn_error *error)
{
    if (dtype != ATTN_DTYPE_F32 && dtype != ATTN_DTYPE_BF16)
        return attn_error_set(error, ATTN_EINVAL,
                              "attn_recurrent_translator_save: dtype is %d, expected "
                              "ATTN_DTYPE_F32 or ATTN_DTYPE_BF16",
                              dtype);
    ATTN_TRY(attn_folder_make(folder, error));
    ATTN_TRY(attn_config_file_write(config_json(&translator->config, dtype), folder,
                                    "config.json", error));
    ATTN_TRY(
        attn_tokenizer_config_write(folder, translator->config.max_positions, error));
    return attn_tensor_file_write(&translator->parameters, NULL, 0, folder, dtype, error);
}
