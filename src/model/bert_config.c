/* A BERT's config.json, as Hugging Face's BertConfig reads and writes it, and the
 * tokenizer_config.json beside it.  Reading takes a model that the library computes
 * exactly as `transformers` does, and refuses every other by the name of what differs. */
#include "base/context.h"
#include "model/bert_parts.h"
#include "model/folder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const ARCHITECTURES[] = {
    [ATTN_BERT_MASKED] = "BertForMaskedLM",
    [ATTN_BERT_SEQUENCE] = "BertForSequenceClassification",
    [ATTN_BERT_TOKENS] = "BertForTokenClassification",
    [ATTN_BERT_MEAN] = "AttnBertMeanClassifier", /* tensors of the last */
};
enum { HEADS = sizeof ARCHITECTURES / sizeof ARCHITECTURES[0] };

/* ---- Reading --------------------------------------------------------------------- */

static attn_status read_head(const attn_config_file *file, attn_bert_head *head)
{
    static const char expected[] = "BertForMaskedLM, BertForSequenceClassification, "
                                   "BertForTokenClassification or "
                                   "AttnBertMeanClassifier";
    const json_t *const list = json_object_get(file->root, "architectures");
    const json_t *const first = json_array_get(list, 0);
    if (!json_is_string(first))
        return attn_config_file_refuse(file, list ? "architectures[0]" : "architectures",
                                       first, expected);
    for (size_t i = 0; i < HEADS; i++)
        if (strcmp(json_string_value(first), ARCHITECTURES[i]) == 0) {
            *head = (attn_bert_head)i;
            return ATTN_OK;
        }
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: architectures[0] is \"%.60s\", expected %s", file->path,
                          json_string_value(first), expected);
}

/* A text that is missing or as expected. */
static attn_status expect_text(const attn_config_file *file, const char *key,
                               bool may_be_missing, const char *expected)
{
    const json_t *const value = json_object_get(file->root, key);
    if (!value && may_be_missing)
        return ATTN_OK;
    if (!json_is_string(value))
        return attn_config_file_refuse(file, key, value, "a text");
    if (strcmp(json_string_value(value), expected) == 0)
        return ATTN_OK;
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: %s is \"%.40s\", expected \"%s\"", file->path, key,
                          json_string_value(value), expected);
}

/* Null: as elsewhere. */
static attn_status read_classifier_dropout(const attn_config_file *file,
                                           attn_bert_config *config)
{
    static const char key[] = "classifier_dropout";
    config->classifier_dropout = config->dropout;
    if (json_is_null(json_object_get(file->root, key)))
        return ATTN_OK;
    return attn_config_file_probability(file, key, (double)config->dropout,
                                        &config->classifier_dropout);
}

static attn_status read_sizes(const attn_config_file *file, attn_bert_config *config)
{
    const struct {
        const char *key;
        int64_t *out;
    } sizes[] = {
        {"vocab_size", &config->vocabulary},
        {"hidden_size", &config->width},
        {"num_hidden_layers", &config->layers},
        {"num_attention_heads", &config->heads},
        {"intermediate_size", &config->inner},
        {"max_position_embeddings", &config->max_positions},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN_TRY(attn_config_file_integer(file, sizes[i].key, -1, sizes[i].out));
    return attn_config_file_integer(file, "type_vocab_size", 2, &config->types);
}

static attn_status read_type(const attn_config_file *file, bool *linear_attention)
{
    static const char *const types[] = {ATTN_BERT_TYPE, ATTN_BERT_VARIANT, NULL};
    size_t type;
    ATTN_TRY(attn_config_file_choice(file, "model_type", types, &type));
    return types[type] == types[0]
               ? ATTN_OK
               : attn_config_file_flag(file, "linear_attention", false, linear_attention);
}

attn_status attn_bert_config_read(const attn_config_file *file, attn_bert_config *config)
{
    double epsilon;
    bool tied;
    *config = (attn_bert_config){0};
    ATTN_TRY(read_type(file, &config->linear_attention));
    ATTN_TRY(read_head(file, &config->head));
    ATTN_TRY(expect_text(file, "position_embedding_type", true, "absolute"));
    ATTN_TRY(attn_config_file_expect_flag(file, "is_decoder", false, false));
    ATTN_TRY(attn_config_file_expect_flag(file, "add_cross_attention", false, false));
    ATTN_TRY(read_sizes(file, config));
    if (config->head != ATTN_BERT_MASKED)
        ATTN_TRY(attn_labels_count(file, &config->labels));
    ATTN_TRY(
        attn_config_file_activation(file, "hidden_act", "gelu", &config->activation));
    ATTN_TRY(attn_config_file_number(file, "layer_norm_eps", 1e-12, &epsilon));
    config->epsilon = (float)epsilon;
    ATTN_TRY(
        attn_config_file_probability(file, "hidden_dropout_prob", 0.1, &config->dropout));
    ATTN_TRY(attn_config_file_probability(file, "attention_probs_dropout_prob", 0.1,
                                          &config->attention_dropout));
    ATTN_TRY(read_classifier_dropout(file, config));
    ATTN_TRY(attn_config_file_flag(file, "tie_word_embeddings", true, &tied));
    config->untied = !tied && config->head == ATTN_BERT_MASKED;
    return ATTN_OK;
}

/* ---- Writing --------------------------------------------------------------------- */

/* NULL when memory is short: json_pack gives NULL where one of its values is. */
static json_t *common_config(const attn_bert_config *config, int dtype)
{
    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o,"
        " s:f, s:b, s:b, s:i, s:i, s:i}",
        "architectures", ARCHITECTURES[config->head], "model_type",
        config->linear_attention ? ATTN_BERT_VARIANT : ATTN_BERT_TYPE, "dtype",
        attn_json_dtype(dtype), "vocab_size", (json_int_t)config->vocabulary,
        "hidden_size", (json_int_t)config->width, "num_hidden_layers",
        (json_int_t)config->layers, "num_attention_heads", (json_int_t)config->heads,
        "intermediate_size", (json_int_t)config->inner, "max_position_embeddings",
        (json_int_t)config->max_positions, "type_vocab_size", (json_int_t)config->types,
        "hidden_act", attn_activation_name(config->activation), "layer_norm_eps",
        attn_json_decimal(config->epsilon), "hidden_dropout_prob",
        attn_json_decimal(config->dropout), "attention_probs_dropout_prob",
        attn_json_decimal(config->attention_dropout), "classifier_dropout",
        attn_json_decimal(config->classifier_dropout), "initializer_range", 0.02,
        "is_decoder", 0, "tie_word_embeddings", !config->untied, "bos_token_id",
        ATTN_TOKEN_BOS, "pad_token_id", ATTN_TOKEN_PAD, "eos_token_id", ATTN_TOKEN_EOS);
}

static json_t *model_config(const attn_bert *bert, int dtype)
{
    json_t *const document = common_config(&bert->config, dtype);
    bool is_whole = document;
    if (is_whole && bert->config.labels > 0)
        is_whole = attn_labels_write(&bert->labels, document);
    if (is_whole && bert->config.linear_attention)
        is_whole = json_object_set_new(document, "linear_attention", json_true()) == 0;
    if (is_whole && bert->config.head == ATTN_BERT_SEQUENCE)
        is_whole = json_object_set_new(document, "problem_type",
                                       json_string("single_label_classification")) == 0;
    if (is_whole)
        return document;
    json_decref(document);
    return NULL;
}

static json_t *tokenizer_config(const attn_bert_config *config)
{
    json_t *const document =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:b}", "tokenizer_class",
                  "PreTrainedTokenizerFast", "bos_token", "<s>", "eos_token", "</s>",
                  "pad_token", "<pad>", "unk_token", "<unk>", "cls_token", "<s>",
                  "sep_token", "</s>", "model_max_length",
                  (json_int_t)config->max_positions, "clean_up_tokenization_spaces", 0);
    if (!document || config->head != ATTN_BERT_MASKED ||
        json_object_set_new(document, "mask_token", json_string("<mask>")) == 0)
        return document;
    json_decref(document);
    return NULL;
}

attn_status attn_bert_config_write(const attn_bert *bert, const char *folder, int dtype,
                                   attn_error *error)
{
    ATTN_TRY(attn_folder_make(folder, "attn_bert_save", dtype, error));
    ATTN_TRY(
        attn_config_file_write(model_config(bert, dtype), folder, "config.json", error));
    return attn_config_file_write(tokenizer_config(&bert->config), folder,
                                  "tokenizer_config.json", error);
}
