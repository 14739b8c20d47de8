/* A translator's config.json, as Hugging Face's M2M100Config and MarianConfig read and
 * write it, and the small files beside it: generation_config.json, tokenizer_config.json.
 * Reading takes a model that the library computes exactly as `transformers` does, and
 * refuses every other by the name of what differs. */
#include "base/context.h"
#include "model/folder.h"
#include "model/translator_parts.h"
#include <string.h>

/* The two classes, and what each takes for granted where config.json is silent. */
struct layout {
    const char *model_type, *architecture;
    bool normalise_first;
    bool scale_embedding;
    bool specials; /* our ids of </s>, <pad> and the decoder's start are its own */
    const char *activation;
    double attention_dropout;
};

static const struct layout LAYOUTS[] = {
    {"m2m_100", "M2M100ForConditionalGeneration", true, true, true, "relu", 0.1},
    {"marian", "MarianMTModel", false, false, false, "gelu", 0.0},
};

/* ---- Reading --------------------------------------------------------------------- */

/* Marian may have an embedding for each side; here it is one. */
static attn_status check_embeddings(const attn_config_file *file, int64_t vocabulary)
{
    static const char key[] = "decoder_vocab_size";
    int64_t other = vocabulary;
    ATTN_TRY(attn_config_file_expect_flag(file, "share_encoder_decoder_embeddings", true,
                                          true));
    if (json_object_get(file->root, key))
        ATTN_TRY(attn_config_file_integer(file, key, -1, &other));
    if (other != vocabulary)
        return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                              "%s: %s is %lld and vocab_size is %lld, expected the same",
                              file->path, key, (long long)other, (long long)vocabulary);
    return ATTN_OK;
}

static attn_status check_specials(const attn_config_file *file,
                                  const struct layout *layout)
{
    static const struct {
        const char *key;
        int64_t expected;
    } specials[] = {{"bos_token_id", ATTN_TOKEN_BOS},
                    {"pad_token_id", ATTN_TOKEN_PAD},
                    {"eos_token_id", ATTN_TOKEN_EOS},
                    {"decoder_start_token_id", ATTN_TOKEN_EOS}};
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        int64_t id;
        const bool may_be_missing =
            layout->specials || specials[i].expected == ATTN_TOKEN_BOS;
        ATTN_TRY(attn_config_file_integer(
            file, specials[i].key, may_be_missing ? specials[i].expected : -1, &id));
        if (id != specials[i].expected)
            return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                                  "%s: %s is %lld, expected %lld", file->path,
                                  specials[i].key, (long long)id,
                                  (long long)specials[i].expected);
    }
    return ATTN_OK;
}

/* The two stacks may differ in the number of layers only. */
static attn_status read_common(const attn_config_file *file, const char *encoder_key,
                               const char *decoder_key, int64_t *out)
{
    int64_t other;
    ATTN_TRY(attn_config_file_integer(file, encoder_key, -1, out));
    ATTN_TRY(attn_config_file_integer(file, decoder_key, -1, &other));
    if (other != *out)
        return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                              "%s: %s is %lld and %s is %lld, expected the same",
                              file->path, encoder_key, (long long)*out, decoder_key,
                              (long long)other);
    return ATTN_OK;
}

attn_status attn_translator_config_read(attn_translator_config *config,
                                        const attn_config_file *file)
{
    static const char *const types[] = {"m2m_100", "marian", NULL}; /* as LAYOUTS */
    size_t type = 0;
    *config = (attn_translator_config){0};
    ATTN_TRY(attn_config_file_choice(file, "model_type", types, &type));
    const struct layout *const layout = &LAYOUTS[type];
    config->normalise_first = layout->normalise_first;
    ATTN_TRY(attn_config_file_expect_flag(file, "scale_embedding",
                                          layout->scale_embedding, true));
    ATTN_TRY(check_specials(file, layout));
    ATTN_TRY(attn_config_file_integer(file, "vocab_size", -1, &config->vocabulary));
    if (!config->normalise_first)
        ATTN_TRY(check_embeddings(file, config->vocabulary));
    ATTN_TRY(attn_config_file_integer(file, "d_model", -1, &config->width));
    ATTN_TRY(
        attn_config_file_integer(file, "encoder_layers", -1, &config->encoder_layers));
    ATTN_TRY(
        attn_config_file_integer(file, "decoder_layers", -1, &config->decoder_layers));
    ATTN_TRY(attn_config_file_integer(file, "max_position_embeddings", -1,
                                      &config->max_positions));
    ATTN_TRY(read_common(file, "encoder_attention_heads", "decoder_attention_heads",
                         &config->heads));
    ATTN_TRY(read_common(file, "encoder_ffn_dim", "decoder_ffn_dim", &config->inner));
    ATTN_TRY(attn_config_file_activation(file, "activation_function", layout->activation,
                                         &config->activation));
    ATTN_TRY(attn_config_file_probability(file, "dropout", 0.1, &config->dropout));
    ATTN_TRY(attn_config_file_probability(file, "attention_dropout",
                                          layout->attention_dropout,
                                          &config->attention_dropout));
    ATTN_TRY(attn_config_file_probability(file, "activation_dropout", 0.0,
                                          &config->activation_dropout));
    bool tied = true;
    ATTN_TRY(attn_config_file_flag(file, "tie_word_embeddings", true, &tied));
    config->untied = !tied;
    return ATTN_OK;
}

/* ---- Writing --------------------------------------------------------------------- */

static json_t *common_config(const attn_translator_config *config,
                             const struct layout *layout, int dtype)
{
    return json_pack(
        "{s:[s], s:s, s:s, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I,"
        " s:s, s:o, s:o, s:o, s:f, s:f, s:f, s:i, s:i, s:i, s:i}",
        "architectures", layout->architecture, "model_type", layout->model_type, "dtype",
        attn_json_dtype(dtype), "is_encoder_decoder", 1, "scale_embedding", 1,
        "tie_word_embeddings", !config->untied, "use_cache", 1, "vocab_size",
        (json_int_t)config->vocabulary, "d_model", (json_int_t)config->width,
        "encoder_layers", (json_int_t)config->encoder_layers, "decoder_layers",
        (json_int_t)config->decoder_layers, "encoder_attention_heads",
        (json_int_t)config->heads, "decoder_attention_heads", (json_int_t)config->heads,
        "encoder_ffn_dim", (json_int_t)config->inner, "decoder_ffn_dim",
        (json_int_t)config->inner, "max_position_embeddings",
        (json_int_t)config->max_positions, "activation_function",
        attn_activation_name(config->activation), "dropout",
        attn_json_decimal(config->dropout), "attention_dropout",
        attn_json_decimal(config->attention_dropout), "activation_dropout",
        attn_json_decimal(config->activation_dropout), "encoder_layerdrop", 0.0,
        "decoder_layerdrop", 0.0, "init_std", 0.02, "bos_token_id", ATTN_TOKEN_BOS,
        "pad_token_id", ATTN_TOKEN_PAD, "eos_token_id", ATTN_TOKEN_EOS,
        "decoder_start_token_id", ATTN_TOKEN_EOS);
}

static json_t *model_config(const attn_translator_config *config, int dtype)
{
    const struct layout *const layout = &LAYOUTS[config->normalise_first ? 0 : 1];
    json_t *const document = common_config(config, layout, dtype);
    if (config->normalise_first)
        return document;
    /* Left out, it is 0, Marian's own </s>, with which `generate` would end what reaches
     * the length. */
    if (json_object_set_new(document, "forced_eos_token_id", json_null()) != 0 ||
        json_object_set_new(document, "decoder_vocab_size",
                            json_integer((json_int_t)config->vocabulary)) != 0 ||
        json_object_set_new(document, "share_encoder_decoder_embeddings", json_true()) !=
            0) {
        json_decref(document);
        return NULL;
    }
    return document;
}

/* The search of attn_translate, in the words of `generate`. */
static json_t *generation_config(const attn_translator_config *config)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:I, s:i, s:f, s:b, s:[i, i, i]}",
                     "bos_token_id", ATTN_TOKEN_BOS, "pad_token_id", ATTN_TOKEN_PAD,
                     "eos_token_id", ATTN_TOKEN_EOS, "decoder_start_token_id",
                     ATTN_TOKEN_EOS, "max_length", (json_int_t)config->max_positions,
                     "num_beams", 4, "length_penalty", 1.0, "early_stopping", 0,
                     "suppress_tokens", ATTN_TOKEN_BOS, ATTN_TOKEN_PAD, ATTN_TOKEN_UNK);
}

attn_status attn_translator_config_write(const attn_translator_config *config,
                                         const char *folder, int dtype, attn_error *error)
{
    ATTN_TRY(attn_folder_make(folder, "attn_translator_save", dtype, error));
    ATTN_TRY(attn_config_file_write(model_config(config, dtype), folder, "config.json",
                                    error));
    ATTN_TRY(attn_config_file_write(generation_config(config), folder,
                                    "generation_config.json", error));
    return attn_tokenizer_config_write(folder, config->max_positions, &config->languages,
                                       error);
}
