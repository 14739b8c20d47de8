/* A translator's config.json, as Hugging Face's M2M100Config and MarianConfig read and
 * write it, and the small files beside it: generation_config.json, tokenizer_config.json.
 * Reading takes a model that the library computes exactly as `transformers` does, and
 * refuses every other by the name of what differs. */
#include "base/context.h"
#include "file/file.h"
#include "file/safetensors.h"
#include "model/transformer.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_CONFIG_BYTES = 1 << 20, MOST_PATH_BYTES = 4096 };

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
enum { LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

/* ---- Reading --------------------------------------------------------------------- */

struct reader {
    const json_t *root;
    const char *path;
    attn_error *error;
};

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "a list", "a text", "a whole number",
                                        "a decimal", "true",   "false",  "null"};
    return names[json_typeof(value)];
}

static attn_status wrong_type(const struct reader *reader, const char *key,
                              const json_t *value, const char *expected)
{
    return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is %s, expected %s",
                          reader->path, key, value ? type_name(value) : "missing",
                          expected);
}

/* fallback below 0: the key must be there. */
static attn_status read_integer(const struct reader *reader, const char *key,
                                int64_t fallback, int64_t *out)
{
    const json_t *const value = json_object_get(reader->root, key);
    if (!value && fallback >= 0) {
        *out = fallback;
        return ATTN_OK;
    }
    if (!json_is_integer(value))
        return wrong_type(reader, key, value, "a whole number");
    *out = json_integer_value(value);
    return ATTN_OK;
}

static attn_status read_probability(const struct reader *reader, const char *key,
                                    double fallback, float *out)
{
    const json_t *const value = json_object_get(reader->root, key);
    const double number = value ? json_number_value(value) : fallback;
    if (value && !json_is_number(value))
        return wrong_type(reader, key, value, "a number");
    if (!(number >= 0.0 && (float)number < 1.0f))
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: %s is %g, expected 0 to below 1", reader->path, key,
                              number);
    *out = (float)number;
    return ATTN_OK;
}

static attn_status read_flag(const struct reader *reader, const char *key, bool fallback,
                             bool *out)
{
    const json_t *const value = json_object_get(reader->root, key);
    if (value && !json_is_boolean(value))
        return wrong_type(reader, key, value, "true or false");
    *out = value ? json_is_true(value) : fallback;
    return ATTN_OK;
}

static const struct {
    const char *name;
    attn_activation activation;
} ACTIVATIONS[] = {
    /* The first of each is what is written. */
    {"relu", ATTN_RELU}, {"gelu", ATTN_GELU},  {"silu", ATTN_SILU},
    {"tanh", ATTN_TANH}, {"swish", ATTN_SILU},
};
enum { ACTIVATION_COUNT = sizeof ACTIVATIONS / sizeof ACTIVATIONS[0] };

static attn_status read_activation(const struct reader *reader, const char *fallback,
                                   attn_activation *out)
{
    const json_t *const value = json_object_get(reader->root, "activation_function");
    if (value && !json_is_string(value))
        return wrong_type(reader, "activation_function", value, "a text");
    const char *const name = value ? json_string_value(value) : fallback;
    for (size_t i = 0; i < ACTIVATION_COUNT; i++)
        if (strcmp(name, ACTIVATIONS[i].name) == 0) {
            *out = ACTIVATIONS[i].activation;
            return ATTN_OK;
        }
    return attn_error_set(
        reader->error, ATTN_EUNSUPPORTED,
        "%s: activation_function is \"%.40s\", expected relu, gelu, silu, "
        "swish or tanh",
        reader->path, name);
}

static attn_status read_layout(const struct reader *reader, const struct layout **out)
{
    const json_t *const type = json_object_get(reader->root, "model_type");
    if (!json_is_string(type))
        return wrong_type(reader, "model_type", type, "\"m2m_100\" or \"marian\"");
    for (size_t i = 0; i < LAYOUT_COUNT; i++)
        if (strcmp(json_string_value(type), LAYOUTS[i].model_type) == 0) {
            *out = &LAYOUTS[i];
            return ATTN_OK;
        }
    return attn_error_set(reader->error, ATTN_EUNSUPPORTED,
                          "%s: model_type is \"%.40s\", expected \"m2m_100\" or "
                          "\"marian\"",
                          reader->path, json_string_value(type));
}

static attn_status expect_true(const struct reader *reader, const char *key,
                               bool fallback)
{
    bool flag = fallback;
    ATTN_TRY(read_flag(reader, key, fallback, &flag));
    return flag ? ATTN_OK
                : attn_error_set(reader->error, ATTN_EUNSUPPORTED,
                                 "%s: %s is false, expected true", reader->path, key);
}

/* Marian may have an embedding for each side; here it is one. */
static attn_status check_embeddings(const struct reader *reader, int64_t vocabulary)
{
    static const char key[] = "decoder_vocab_size";
    int64_t other = vocabulary;
    ATTN_TRY(expect_true(reader, "share_encoder_decoder_embeddings", true));
    if (json_object_get(reader->root, key))
        ATTN_TRY(read_integer(reader, key, -1, &other));
    if (other != vocabulary)
        return attn_error_set(reader->error, ATTN_EUNSUPPORTED,
                              "%s: %s is %lld and vocab_size is %lld, expected the same",
                              reader->path, key, (long long)other, (long long)vocabulary);
    return ATTN_OK;
}

static attn_status check_specials(const struct reader *reader,
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
        ATTN_TRY(read_integer(reader, specials[i].key,
                              may_be_missing ? specials[i].expected : -1, &id));
        if (id != specials[i].expected)
            return attn_error_set(reader->error, ATTN_EUNSUPPORTED,
                                  "%s: %s is %lld, expected %lld", reader->path,
                                  specials[i].key, (long long)id,
                                  (long long)specials[i].expected);
    }
    return ATTN_OK;
}

/* The two stacks may differ in the number of layers only. */
static attn_status read_common(const struct reader *reader, const char *encoder_key,
                               const char *decoder_key, int64_t *out)
{
    int64_t other;
    ATTN_TRY(read_integer(reader, encoder_key, -1, out));
    ATTN_TRY(read_integer(reader, decoder_key, -1, &other));
    if (other != *out)
        return attn_error_set(reader->error, ATTN_EUNSUPPORTED,
                              "%s: %s is %lld and %s is %lld, expected the same",
                              reader->path, encoder_key, (long long)*out, decoder_key,
                              (long long)other);
    return ATTN_OK;
}

static attn_status read_config(const struct reader *reader,
                               attn_translator_config *config)
{
    if (!json_is_object(reader->root))
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: the whole is %s, expected an object", reader->path,
                              type_name(reader->root));
    const struct layout *layout = LAYOUTS;
    ATTN_TRY(read_layout(reader, &layout));
    config->normalise_first = layout->normalise_first;
    ATTN_TRY(expect_true(reader, "scale_embedding", layout->scale_embedding));
    ATTN_TRY(check_specials(reader, layout));
    ATTN_TRY(read_integer(reader, "vocab_size", -1, &config->vocabulary));
    if (!config->normalise_first)
        ATTN_TRY(check_embeddings(reader, config->vocabulary));
    ATTN_TRY(read_integer(reader, "d_model", -1, &config->width));
    ATTN_TRY(read_integer(reader, "encoder_layers", -1, &config->encoder_layers));
    ATTN_TRY(read_integer(reader, "decoder_layers", -1, &config->decoder_layers));
    ATTN_TRY(read_integer(reader, "max_position_embeddings", -1, &config->max_positions));
    ATTN_TRY(read_common(reader, "encoder_attention_heads", "decoder_attention_heads",
                         &config->heads));
    ATTN_TRY(read_common(reader, "encoder_ffn_dim", "decoder_ffn_dim", &config->inner));
    ATTN_TRY(read_activation(reader, layout->activation, &config->activation));
    ATTN_TRY(read_probability(reader, "dropout", 0.1, &config->dropout));
    ATTN_TRY(read_probability(reader, "attention_dropout", layout->attention_dropout,
                              &config->attention_dropout));
    ATTN_TRY(
        read_probability(reader, "activation_dropout", 0.0, &config->activation_dropout));
    bool tied = true;
    ATTN_TRY(read_flag(reader, "tie_word_embeddings", true, &tied));
    config->untied = !tied;
    return ATTN_OK;
}

attn_status attn_translator_config_read(attn_translator_config *config, const char *path,
                                        attn_error *error)
{
    char *text;
    size_t length;
    ATTN_TRY(attn_file_read(path, MOST_CONFIG_BYTES, &text, &length, error));
    json_error_t parse_error;
    json_t *const root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &parse_error);
    free(text);
    if (!root)
        return attn_error_set(error, ATTN_EFORMAT, "%s: line %d: %s", path,
                              parse_error.line, parse_error.text);
    const struct reader reader = {root, path, error};
    *config = (attn_translator_config){0};
    const attn_status status = read_config(&reader, config);
    json_decref(root);
    return status;
}

/* ---- Writing --------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same float: 0.1, not 0.10000000149. */
static json_t *decimal(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return json_real(strtod(text, NULL));
}

static const char *activation_name(attn_activation activation)
{
    size_t i = 0;
    while (ACTIVATIONS[i].activation != activation)
        i++;
    return ACTIVATIONS[i].name;
}

static json_t *common_config(const attn_translator_config *config,
                             const struct layout *layout, int dtype)
{
    return json_pack(
        "{s:[s], s:s, s:s, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I,"
        " s:s, s:o, s:o, s:o, s:f, s:f, s:f, s:i, s:i, s:i, s:i}",
        "architectures", layout->architecture, "model_type", layout->model_type, "dtype",
        dtype == ATTN_DTYPE_BF16 ? "bfloat16" : "float32", "is_encoder_decoder", 1,
        "scale_embedding", 1, "tie_word_embeddings", !config->untied, "use_cache", 1,
        "vocab_size", (json_int_t)config->vocabulary, "d_model",
        (json_int_t)config->width, "encoder_layers", (json_int_t)config->encoder_layers,
        "decoder_layers", (json_int_t)config->decoder_layers, "encoder_attention_heads",
        (json_int_t)config->heads, "decoder_attention_heads", (json_int_t)config->heads,
        "encoder_ffn_dim", (json_int_t)config->inner, "decoder_ffn_dim",
        (json_int_t)config->inner, "max_position_embeddings",
        (json_int_t)config->max_positions, "activation_function",
        activation_name(config->activation), "dropout", decimal(config->dropout),
        "attention_dropout", decimal(config->attention_dropout), "activation_dropout",
        decimal(config->activation_dropout), "encoder_layerdrop", 0.0,
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

static json_t *tokenizer_config(const attn_translator_config *config)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b}", "tokenizer_class",
                     "PreTrainedTokenizerFast", "bos_token", "<s>", "eos_token", "</s>",
                     "pad_token", "<pad>", "unk_token", "<unk>", "model_max_length",
                     (json_int_t)config->max_positions, "clean_up_tokenization_spaces",
                     0);
}

/* Takes over the document. */
static attn_status write_json(json_t *document, const char *folder, const char *name,
                              attn_error *error)
{
    char path[MOST_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *const text = document ? json_dumps(document, JSON_INDENT(2) | JSON_SORT_KEYS |
                                                           JSON_REAL_PRECISION(9))
                                : NULL;
    json_decref(document);
    if (!text)
        return attn_error_set(error, ATTN_ENOMEM, "%s: no memory", path);
    size_t length = strlen(text);
    text[length++] = '\n'; /* in the place of the NUL, which is not written */
    const attn_status status = attn_file_write(path, text, length, error);
    free(text);
    return status;
}

attn_status attn_translator_config_write(const attn_translator_config *config,
                                         const char *folder, int dtype, attn_error *error)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return attn_error_set(error, ATTN_EIO, "%s: cannot make the folder: %s", folder,
                              strerror(errno));
    ATTN_TRY(write_json(model_config(config, dtype), folder, "config.json", error));
    ATTN_TRY(
        write_json(generation_config(config), folder, "generation_config.json", error));
    return write_json(tokenizer_config(config), folder, "tokenizer_config.json", error);
}
