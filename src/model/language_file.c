/* A language model's folder: config.json as Hugging Face's LlamaConfig reads and writes
 * it (the LSTM's is of ours), model.safetensors held against it, and the small files
 * beside them.  Reading takes a model that the library computes exactly as `transformers`
 * does, and refuses every other by the name of what differs. */
#include "base/context.h"
#include "model/folder.h"
#include "model/language_parts.h"
#include <string.h>

/* Of a Llama without positions, or with ALiBi, sinks, forget gates or linear attention,
 * the type and class are ours, so that nothing else takes it for what it is not. */
static const char LLAMA[] = "llama", VARIANT[] = "llama-variant",
                  LSTM[] = "lstm-language";

/* ---- Reading config.json --------------------------------------------------------- */

/* A token's id; missing or null: −1. */
static attn_status read_token(const attn_config_file *file, const char *key, int64_t *out)
{
    const json_t *const value = json_object_get(file->root, key);
    *out = -1;
    if (!value || json_is_null(value))
        return ATTN_OK;
    return attn_config_file_integer(file, key, -1, out);
}

static attn_status read_shared(const attn_config_file *file, attn_language_config *config)
{
    bool tied = false; /* LlamaConfig's */
    ATTN_TRY(attn_config_file_integer(file, "vocab_size", -1, &config->vocabulary));
    ATTN_TRY(attn_config_file_integer(file, "hidden_size", -1, &config->width));
    ATTN_TRY(attn_config_file_integer(file, "num_hidden_layers", -1, &config->layers));
    ATTN_TRY(attn_config_file_integer(file, "max_position_embeddings", -1,
                                      &config->max_positions));
    ATTN_TRY(attn_config_file_probability(file, "dropout", 0.0, &config->dropout));
    ATTN_TRY(attn_config_file_flag(file, "tie_word_embeddings", false, &tied));
    config->untied = !tied;
    ATTN_TRY(attn_config_file_integer(file, "text_window", 0, &config->text_window));
    ATTN_TRY(read_token(file, "bos_token_id", &config->bos));
    return read_token(file, "eos_token_id", &config->eos);
}

/* The base stands alone, or since version 5 of `transformers` among the parameters of the
 * positions, which may ask for others. */
static attn_status read_rotary(const attn_config_file *file, double *base)
{
    const json_t *const scaling = json_object_get(file->root, "rope_scaling");
    json_t *const parameters = json_object_get(file->root, "rope_parameters");
    if (scaling && !json_is_null(scaling))
        return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                              "%s: rope_scaling is there, expected null", file->path);
    if (!parameters || json_is_null(parameters))
        return attn_config_file_number(file, "rope_theta", 10000.0, base);
    if (!json_is_object(parameters))
        return attn_config_file_refuse(file, "rope_parameters", parameters, "an object");
    const char *const type = json_string_value(json_object_get(parameters, "rope_type"));
    if (type && strcmp(type, "default") != 0)
        return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                              "%s: rope_type is \"%.40s\", expected \"default\"",
                              file->path, type);
    const attn_config_file inner = {parameters, file->path, file->error};
    return attn_config_file_number(&inner, "rope_theta", 10000.0, base);
}

static attn_status read_llama(const attn_config_file *file, attn_language_config *config)
{
    double epsilon;
    const json_t *const activation = json_object_get(file->root, "hidden_act");
    ATTN_TRY(attn_config_file_integer(file, "num_attention_heads", -1, &config->heads));
    ATTN_TRY(attn_config_file_integer(file, "num_key_value_heads", config->heads,
                                      &config->key_heads));
    ATTN_TRY(attn_config_file_integer(file, "intermediate_size", -1, &config->inner));
    ATTN_TRY(attn_config_file_number(file, "rms_norm_eps", 1e-6, &epsilon));
    config->epsilon = (float)epsilon;
    ATTN_TRY(attn_config_file_probability(file, "attention_dropout", 0.0,
                                          &config->attention_dropout));
    ATTN_TRY(read_rotary(file, &config->rotary_base));
    ATTN_TRY(attn_config_file_expect_flag(file, "attention_bias", false, false));
    ATTN_TRY(attn_config_file_expect_flag(file, "mlp_bias", false, false));
    if (activation && (!json_is_string(activation) ||
                       strcmp(json_string_value(activation), "silu") != 0))
        return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                              "%s: hidden_act is not \"silu\", which is expected",
                              file->path);
    const json_t *const head = json_object_get(file->root, "head_dim");
    if (!head || json_is_null(head) || config->heads < 1)
        return ATTN_OK;
    return attn_config_file_expect(file, "head_dim", config->width / config->heads);
}

static attn_status read_config(const attn_config_file *file, attn_language_config *config)
{
    static const char *const types[] = {LLAMA, VARIANT, LSTM, NULL};
    size_t type;
    ATTN_TRY(attn_config_file_choice(file, "model_type", types, &type));
    const bool is_variant = types[type] == VARIANT, is_lstm = types[type] == LSTM;
    *config = (attn_language_config){.body = is_lstm ? ATTN_LANGUAGE_LSTM
                                                     : ATTN_LANGUAGE_LLAMA};
    if (is_variant) {
        ATTN_TRY(
            attn_config_file_flag(file, "no_positions", false, &config->no_positions));
        ATTN_TRY(attn_config_file_flag(file, "alibi", false, &config->alibi));
        ATTN_TRY(attn_config_file_flag(file, "sink_logits", false, &config->sink_logits));
        ATTN_TRY(attn_config_file_flag(file, "forget_gate", false, &config->forgets));
        ATTN_TRY(attn_config_file_flag(file, "linear_attention", false,
                                       &config->linear_attention));
    }
    ATTN_TRY(read_shared(file, config));
    return config->body == ATTN_LANGUAGE_LLAMA ? read_llama(file, config) : ATTN_OK;
}

/* ---- Loading --------------------------------------------------------------------- */

static attn_status load(attn_language **language, attn_folder *folder)
{
    static const char *const others[] = {"lm_head.weight", NULL};
    const attn_tensor_file *const file = &folder->tensors;
    attn_language_config config;
    attn_language *loaded;
    char note[sizeof(*language)->note] = "";
    ATTN_TRY(read_config(&folder->config, &config));
    ATTN_TRY(attn_folder_open_tensors(folder));
    attn_parameter embedding = {.name = "model.embed_tokens.weight",
                                .rank = 2,
                                .extent = {config.vocabulary, config.width}};
    if (config.body == ATTN_LANGUAGE_LSTM)
        strcpy(embedding.name, "embedding.weight");
    ATTN_TRY(attn_tensor_file_tie(file, &embedding, others[0], &config.untied, note,
                                  sizeof note));
    ATTN_TRY(attn_config_file_blame(
        &folder->config, attn_language_outline(&loaded, &config, file->error)));
    memcpy(loaded->note, note, sizeof note);
    attn_status status = attn_tensor_file_load(file, &loaded->parameters, others);
    if (status == ATTN_OK)
        status = attn_language_add_positions(loaded, file->error);
    if (status == ATTN_OK)
        *language = loaded;
    else
        attn_language_destroy(loaded);
    return status;
}

attn_status attn_language_load(attn_language **language, const char *path,
                               attn_error *error)
{
    attn_folder folder;
    *language = NULL;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = load(language, &folder);
    attn_folder_close(&folder);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

static json_t *token_json(int64_t id)
{
    return id < 0 ? json_null() : json_integer((json_int_t)id);
}

static bool is_variant_of_llama(const attn_language_config *config)
{
    return config->body == ATTN_LANGUAGE_LLAMA &&
           (config->no_positions || config->alibi || config->sink_logits ||
            config->forgets || config->linear_attention);
}

static json_t *shared_json(const attn_language_config *config, int dtype)
{
    const bool is_variant = is_variant_of_llama(config);
    const bool is_llama = config->body == ATTN_LANGUAGE_LLAMA;
    const char *const class = is_variant ? "LlamaVariantForCausalLM"
                              : is_llama ? "LlamaForCausalLM"
                                         : "LstmForCausalLM";
    const char *const type = is_variant ? VARIANT : is_llama ? LLAMA : LSTM;
    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:i, s:I}",
        "architectures", class, "model_type", type, "dtype", attn_json_dtype(dtype),
        "vocab_size", (json_int_t)config->vocabulary, "hidden_size",
        (json_int_t)config->width, "num_hidden_layers", (json_int_t)config->layers,
        "max_position_embeddings", (json_int_t)config->max_positions,
        "tie_word_embeddings", !config->untied, "use_cache", 1, "dropout",
        attn_json_decimal(config->dropout), "bos_token_id", token_json(config->bos),
        "eos_token_id", token_json(config->eos), "pad_token_id", ATTN_TOKEN_PAD,
        "text_window", (json_int_t)config->text_window);
}

/* Once for `transformers` before version 5, once for later ones. */
static json_t *llama_json(const attn_language_config *config, int dtype)
{
    json_t *const document = shared_json(config, dtype);
    json_t *const own = json_pack(
        "{s:I, s:I, s:I, s:I, s:s, s:b, s:b, s:o, s:o, s:f, s:{s:s, s:f}, s:f}",
        "num_attention_heads", (json_int_t)config->heads, "num_key_value_heads",
        (json_int_t)config->key_heads, "head_dim",
        (json_int_t)(config->width / config->heads), "intermediate_size",
        (json_int_t)config->inner, "hidden_act", "silu", "attention_bias", 0, "mlp_bias",
        0, "attention_dropout", attn_json_decimal(config->attention_dropout),
        "rms_norm_eps", attn_json_decimal(config->epsilon), "rope_theta",
        config->rotary_base, "rope_parameters", "rope_type", "default", "rope_theta",
        config->rotary_base, "initializer_range", 0.02);
    bool joined = document && own && json_object_update(document, own) == 0;
    if (joined && is_variant_of_llama(config))
        joined =
            json_object_set_new(document, "no_positions",
                                json_boolean(config->no_positions)) == 0 &&
            json_object_set_new(document, "alibi", json_boolean(config->alibi)) == 0 &&
            json_object_set_new(document, "sink_logits",
                                json_boolean(config->sink_logits)) == 0 &&
            json_object_set_new(document, "forget_gate", json_boolean(config->forgets)) ==
                0 &&
            json_object_set_new(document, "linear_attention",
                                json_boolean(config->linear_attention)) == 0;
    json_decref(own);
    if (joined)
        return document;
    json_decref(document);
    return NULL;
}

static json_t *generation_json(const attn_language_config *config)
{
    return json_pack("{s:o, s:o, s:i, s:I, s:b, s:[i, i]}", "bos_token_id",
                     token_json(config->bos), "eos_token_id", token_json(config->eos),
                     "pad_token_id", ATTN_TOKEN_PAD, "max_length",
                     (json_int_t)config->max_positions, "do_sample", 0, "suppress_tokens",
                     ATTN_TOKEN_PAD, ATTN_TOKEN_UNK);
}

attn_status attn_language_save(const attn_language *language, const char *folder,
                               int dtype, attn_error *error)
{
    const attn_language_config *const config = &language->config;
    const bool is_llama = config->body == ATTN_LANGUAGE_LLAMA;
    ATTN_TRY(attn_folder_make(folder, "attn_language_save", dtype, error));
    ATTN_TRY(attn_config_file_write(is_llama ? llama_json(config, dtype)
                                             : shared_json(config, dtype),
                                    folder, "config.json", error));
    if (is_llama)
        ATTN_TRY(attn_config_file_write(generation_json(config), folder,
                                        "generation_config.json", error));
    ATTN_TRY(attn_tokenizer_config_write(folder, config->max_positions,
                                         &(attn_languages){0}, error));
    return attn_tensor_file_write(&language->parameters, NULL, 0, folder, dtype, error);
}
