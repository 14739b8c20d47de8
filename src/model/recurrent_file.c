/* A recurrent translator's folder: config.json and model.safetensors, which is held
 * against the configuration before memory is taken; and written. */
#include "base/context.h"
#include "model/config_file.h"
#include "model/recurrent_parts.h"
#include "model/tensor_file.h"
#include "text/tokenizer.h"
#include <string.h>

enum { MOST_PATH_BYTES = 4096 };

static const char MODEL_TYPE[] = "attn-recurrent-translator";
static const char OUTPUT_NAME[] = "output.weight";

/* ---- config.json ------------------------------------------------------------------ */

/* The place of the text under key among names. */
static attn_status read_choice(const attn_config_file *file, const char *key,
                               const char *const *names, size_t count,
                               const char *expected, size_t *out)
{
    const json_t *const value = json_object_get(file->root, key);
    if (!json_is_string(value))
        return attn_config_file_refuse(file, key, value, expected);
    for (size_t i = 0; i < count; i++)
        if (strcmp(json_string_value(value), names[i]) == 0) {
            *out = i;
            return ATTN_OK;
        }
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: %s is \"%.40s\", expected %s", file->path, key,
                          json_string_value(value), expected);
}

static attn_status read_sizes(const attn_config_file *file,
                              attn_recurrent_translator_config *config)
{
    const struct {
        const char *key;
        int64_t fallback, *out;
    } sizes[] = {
        {"vocab_size", -1, &config->vocabulary},
        {"embedding_size", -1, &config->embedding},
        {"encoder_hidden_size", -1, &config->encoder_width},
        {"encoder_layers", 1, &config->encoder_layers},
        {"decoder_hidden_size", -1, &config->width},
        {"decoder_layers", 1, &config->decoder_layers},
        {"attention_size", 0, &config->attention_width},
        {"max_position_embeddings", -1, &config->max_positions},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN_TRY(attn_config_file_integer(file, sizes[i].key, sizes[i].fallback,
                                          sizes[i].out));
    return ATTN_OK;
}

static attn_status read_config(const attn_config_file *file,
                               attn_recurrent_translator_config *config)
{
    static const char *const types[] = {MODEL_TYPE};
    static const char *const cells[] = {"gru", "lstm"};
    static const char *const contexts[] = {"output", "input"};
    static const struct {
        const char *key;
        int64_t expected;
    } specials[] = {{"bos_token_id", ATTN_TOKEN_BOS},
                    {"pad_token_id", ATTN_TOKEN_PAD},
                    {"eos_token_id", ATTN_TOKEN_EOS},
                    {"decoder_start_token_id", ATTN_TOKEN_EOS}};
    size_t type, cell = 0, attention = 0, context = 0;
    bool tied = true;
    ATTN_TRY(read_choice(file, "model_type", types, 1, "\"attn-recurrent-translator\"",
                         &type));
    ATTN_TRY(read_choice(file, "cell", cells, 2, "\"gru\" or \"lstm\"", &cell));
    ATTN_TRY(read_choice(file, "attention", attn_cross_names, ATTN_CROSS_SCORES,
                         "\"none\", \"additive\", \"dot\", \"general\" or \"scaled_dot\"",
                         &attention));
    ATTN_TRY(
        read_choice(file, "context", contexts, 2, "\"output\" or \"input\"", &context));
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        ATTN_TRY(attn_config_file_expect(file, specials[i].key, specials[i].expected));
    ATTN_TRY(attn_config_file_flag(file, "bidirectional", true, &config->both_ways));
    ATTN_TRY(attn_config_file_flag(file, "tie_word_embeddings", true, &tied));
    ATTN_TRY(attn_config_file_probability(file, "dropout", 0.0, &config->dropout));
    config->cell = cell == 0 ? ATTN_CELL_GRU : ATTN_CELL_LSTM;
    config->attention = (attn_cross_score)attention;
    config->context_enters = context == 1;
    config->untied = !tied;
    return read_sizes(file, config);
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
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o,"
        " s:i, s:i, s:i, s:i}",
        "model_type", MODEL_TYPE, "dtype",
        dtype == ATTN_DTYPE_BF16 ? "bfloat16" : "float32", "cell",
        config->cell == ATTN_CELL_LSTM ? "lstm" : "gru", "attention",
        attn_cross_names[config->attention], "context",
        config->context_enters ? "input" : "output", "vocab_size",
        (json_int_t)config->vocabulary, "embedding_size", (json_int_t)config->embedding,
        "encoder_hidden_size", (json_int_t)config->encoder_width, "encoder_layers",
        (json_int_t)config->encoder_layers, "decoder_hidden_size",
        (json_int_t)config->width, "decoder_layers", (json_int_t)config->decoder_layers,
        "attention_size", (json_int_t)config->attention_width, "max_position_embeddings",
        (json_int_t)config->max_positions, "bidirectional", config->both_ways,
        "tie_word_embeddings", !config->untied, "dropout",
        attn_json_decimal(config->dropout), "bos_token_id", ATTN_TOKEN_BOS,
        "pad_token_id", ATTN_TOKEN_PAD, "eos_token_id", ATTN_TOKEN_EOS,
        "decoder_start_token_id", ATTN_TOKEN_EOS);
}

/* ---- Loading ---------------------------------------------------------------------- */

static attn_status load_tensors(attn_recurrent_translator **translator,
                                attn_recurrent_translator_config *config,
                                const char *config_path, const attn_tensor_file *file)
{
    static const char *const others[] = {OUTPUT_NAME, NULL};
    const attn_parameter embedding = {.name = "embedding.weight",
                                      .rank = 2,
                                      .extent = {config->vocabulary, config->embedding}};
    char note[sizeof(*translator)->note] = "";
    attn_recurrent_translator *loaded;
    ATTN_TRY(attn_tensor_file_tie(file, &embedding, OUTPUT_NAME, &config->untied, note,
                                  sizeof note));
    ATTN_TRY(attn_config_file_blame(
        config_path, attn_recurrent_translator_outline(&loaded, config, file->error),
        file->error));
    memcpy(loaded->note, note, sizeof note);
    attn_status status = attn_tensor_file_check_all(file, &loaded->parameters, others);
    if (status == ATTN_OK && attn_parameters_allocate(&loaded->parameters) != ATTN_OK)
        status =
            attn_error_set(file->error, ATTN_ENOMEM, "%s: no memory for %zu parameters",
                           file->path, loaded->parameters.floats);
    if (status == ATTN_OK)
        status = attn_tensor_file_read(file, &loaded->parameters);
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
