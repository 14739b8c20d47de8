/* A reader's folder: config.json and model.safetensors, held against each other. */
#include "base/context.h"
#include "model/folder.h"
#include "model/reader_parts.h"
#include <string.h>

static const char MODEL_TYPE[] = "attn-reader";
static const char *const CLASSES[] = {"AttnTextClassifier", "AttnWordTagger", NULL};
static const char *const BODIES[] = {"bag", "convolution", "rnn", "gru", "lstm", NULL};
static const char *const POOLINGS[] = {"mean", "max", "last", "attention", NULL};
static const char *const ATTENTIONS[] = {"none", "additive", "dot", NULL};
static const char *const WORD_STATES[] = {"first", "mean", NULL};

/* ---- Reading config.json --------------------------------------------------------- */

static attn_status read_choice(const attn_config_file *file, const char *key,
                               const json_t *value, const char *const *names, int *out)
{
    if (!json_is_string(value))
        return attn_config_file_refuse(file, key, value, "a text");
    for (*out = 0; names[*out]; ++*out)
        if (strcmp(json_string_value(value), names[*out]) == 0)
            return ATTN_OK;
    char known[160] = "";
    for (int n = 0; names[n]; n++) {
        strcat(known, n == 0 ? "" : names[n + 1] ? ", " : " or ");
        strcat(known, names[n]);
    }
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: %s is \"%.40s\", expected %s", file->path, key,
                          json_string_value(value), known);
}

static attn_status read_filters(const attn_config_file *file, attn_reader_config *config)
{
    static const char key[] = "filters";
    const json_t *const list = json_object_get(file->root, key);
    if (!json_is_array(list))
        return attn_config_file_refuse(file, key, list, "a list");
    config->filter_count = (int64_t)json_array_size(list);
    if (config->filter_count > ATTN_READER_FILTERS)
        return attn_error_set(file->error, ATTN_EFORMAT,
                              "%s: %s has %lld lengths, expected at most %d", file->path,
                              key, (long long)config->filter_count, ATTN_READER_FILTERS);
    for (int64_t i = 0; i < config->filter_count; i++) {
        const json_t *const value = json_array_get(list, (size_t)i);
        if (!json_is_integer(value))
            return attn_config_file_refuse(file, "a length in filters", value,
                                           "a whole number");
        config->filters[i] = json_integer_value(value);
    }
    return ATTN_OK;
}

static attn_status read_choices(const attn_config_file *file, attn_reader_config *config)
{
    const json_t *const root = file->root;
    int tags, body, pooling, attention, word_state;
    ATTN_TRY(read_choice(file, "architectures",
                         json_array_get(json_object_get(root, "architectures"), 0),
                         CLASSES, &tags));
    ATTN_TRY(read_choice(file, "body", json_object_get(root, "body"), BODIES, &body));
    ATTN_TRY(read_choice(file, "pooling", json_object_get(root, "pooling"), POOLINGS,
                         &pooling));
    ATTN_TRY(read_choice(file, "attention", json_object_get(root, "attention"),
                         ATTENTIONS, &attention));
    ATTN_TRY(read_choice(file, "word_state", json_object_get(root, "word_state"),
                         WORD_STATES, &word_state));
    config->tags = tags == 1;
    config->body = (attn_reader_body)body;
    config->pooling = (attn_reader_pooling)pooling;
    config->attention = (attn_reader_attention)attention;
    config->mean_pieces = word_state == 1;
    return ATTN_OK;
}

static attn_status read_config(attn_reader_config *config, const attn_config_file *file)
{
    *config = (attn_reader_config){0};
    const struct {
        const char *key;
        int64_t *value;
    } sizes[] = {
        {"vocab_size", &config->vocabulary},
        {"max_position_embeddings", &config->max_positions},
        {"embedding_size", &config->embedding},
        {"buckets", &config->buckets},
        {"hidden_size", &config->width},
        {"num_hidden_layers", &config->layers},
        {"attention_size", &config->attention_width},
    };
    ATTN_TRY(read_choices(file, config));
    ATTN_TRY(attn_labels_count(file, &config->labels));
    ATTN_TRY(read_filters(file, config));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN_TRY(attn_config_file_integer(file, sizes[i].key, -1, sizes[i].value));
    ATTN_TRY(attn_config_file_flag(file, "bidirectional", false, &config->both_ways));
    ATTN_TRY(attn_config_file_probability(file, "dropout", 0.0, &config->dropout));
    ATTN_TRY(
        attn_config_file_probability(file, "token_dropout", 0.0, &config->token_dropout));
    return attn_config_file_probability(file, "attention_dropout", 0.0,
                                        &config->attention_dropout);
}

/* ---- Loading --------------------------------------------------------------------- */

static attn_status load_own(attn_reader **reader, attn_folder *folder)
{
    static const char *const others[] = {NULL};
    attn_error *const error = folder->config.error;
    attn_reader_config config;
    attn_reader *loaded;
    ATTN_TRY(read_config(&config, &folder->config));
    ATTN_TRY(attn_config_file_blame(&folder->config,
                                    attn_reader_outline(&loaded, &config, error)));
    attn_status status = attn_labels_read(&loaded->labels, &folder->config);
    if (status == ATTN_OK)
        status = attn_folder_open_tensors(folder);
    if (status == ATTN_OK)
        status = attn_tensor_file_load(&folder->tensors, &loaded->parameters, others);
    if (status == ATTN_OK)
        *reader = loaded;
    else
        attn_reader_destroy(loaded);
    return status;
}

/* What a reader's configuration says of BERT's. */
static attn_reader_config config_of_bert(const attn_bert_config *bert)
{
    return (attn_reader_config){
        .tags = bert->head == ATTN_BERT_TOKENS,
        .labels = bert->labels,
        .vocabulary = bert->vocabulary,
        .max_positions = bert->max_positions,
        .body = ATTN_BODY_TRANSFORMER,
        .pooling =
            bert->head == ATTN_BERT_SEQUENCE ? ATTN_READER_FIRST : ATTN_READER_MEAN,
        .width = bert->width,
        .layers = bert->layers,
        .heads = bert->heads,
        .inner = bert->inner,
        .dropout = bert->dropout,
        .attention_dropout = bert->attention_dropout,
        .linear_attention = bert->linear_attention,
    };
}

static attn_status load_bert(attn_reader **reader, const attn_config_file *file,
                             const char *path)
{
    attn_error *const error = file->error;
    attn_bert *bert;
    ATTN_TRY(attn_bert_load(&bert, path, error));
    const attn_bert_config *const of_bert = attn_bert_config_of(bert);
    const attn_reader_config config = config_of_bert(of_bert);
    attn_status status = ATTN_OK;
    if (of_bert->head == ATTN_BERT_MASKED)
        status = attn_error_set(error, ATTN_EUNSUPPORTED,
                                "%s: a masked language model, expected one with "
                                "labels of texts or tokens",
                                path);
    if (status == ATTN_OK)
        status =
            attn_config_file_blame(file, attn_reader_outline(reader, &config, error));
    if (status == ATTN_OK)
        (*reader)->bert = bert;
    else
        attn_bert_destroy(bert);
    return status;
}

attn_status attn_reader_load(attn_reader **reader, const char *path, attn_error *error)
{
    attn_folder folder;
    *reader = NULL;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    static const char *const types[] = {MODEL_TYPE, ATTN_BERT_TYPE, ATTN_BERT_VARIANT,
                                        NULL};
    size_t type = 0;
    attn_status status =
        attn_config_file_choice(&folder.config, "model_type", types, &type);
    if (status == ATTN_OK)
        status = type == 0 ? load_own(reader, &folder)
                           : load_bert(reader, &folder.config, path);
    attn_folder_close(&folder);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

static json_t *model_config(const attn_reader *reader, int dtype)
{
    const attn_reader_config *const config = &reader->config;
    json_t *const filters = json_array();
    for (int64_t i = 0; i < config->filter_count; i++)
        json_array_append_new(filters, json_integer((json_int_t)config->filters[i]));
    json_t *const document = json_pack(
        "{s:[s], s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, "
        "s:o, s:o, s:o, s:o}",
        "architectures", CLASSES[config->tags ? 1 : 0], "model_type", MODEL_TYPE, "dtype",
        attn_json_dtype(dtype), "body", BODIES[config->body], "pooling",
        POOLINGS[config->pooling], "attention", ATTENTIONS[config->attention],
        "word_state", WORD_STATES[config->mean_pieces ? 1 : 0], "vocab_size",
        (json_int_t)config->vocabulary, "max_position_embeddings",
        (json_int_t)config->max_positions, "embedding_size",
        (json_int_t)config->embedding, "buckets", (json_int_t)config->buckets,
        "hidden_size", (json_int_t)config->width, "num_hidden_layers",
        (json_int_t)config->layers, "attention_size", (json_int_t)config->attention_width,
        "bidirectional", config->both_ways, "filters", filters, "dropout",
        attn_json_decimal(config->dropout), "token_dropout",
        attn_json_decimal(config->token_dropout), "attention_dropout",
        attn_json_decimal(config->attention_dropout));
    if (document && attn_labels_write(&reader->labels, document))
        return document;
    json_decref(document);
    return NULL;
}

attn_status attn_reader_save(const attn_reader *reader, const char *folder, int dtype,
                             attn_error *error)
{
    if (reader->bert)
        return attn_bert_save(reader->bert, folder, dtype, error);
    ATTN_TRY(attn_folder_make(folder, "attn_reader_save", dtype, error));
    ATTN_TRY(attn_config_file_write(model_config(reader, dtype), folder, "config.json",
                                    error));
    ATTN_TRY(attn_tokenizer_config_write(folder, reader->config.max_positions,
                                         &(attn_languages){0}, error));
    return attn_tensor_file_write(&reader->parameters, NULL, 0, folder, dtype, error);
}
