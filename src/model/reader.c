/* A reader's parameters, and what its configuration may be. */
#include "model/reader.h"
#include "base/context.h"
#include "model/checks.h"
#include "model/reader_parts.h"
#include "text/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What may be ----------------------------------------------------------------- */

static bool is_recurrent(attn_reader_body body)
{
    return body == ATTN_BODY_RNN || body == ATTN_BODY_GRU || body == ATTN_BODY_LSTM;
}

static bool has_attention(const attn_reader_config *config)
{
    return config->pooling == ATTN_READER_ATTENTION ||
           config->attention != ATTN_READER_ALONE;
}

static attn_status check_sizes(const attn_reader_config *config, attn_error *error)
{
    const attn_reader_body body = config->body;
    const bool is_transformer = body == ATTN_BODY_TRANSFORMER;
    const bool has_layers = is_recurrent(body) || is_transformer;
    const attn_bound bounds[] = {
        {"labels", config->labels, 2, 4096},
        {"vocabulary", config->vocabulary, ATTN_TOKEN_UNK + 1, 1 << 24},
        {"max_positions", config->max_positions, 3, 1 << 24},
        {"embedding", config->embedding, !is_transformer, is_transformer ? 0 : 1 << 16},
        {"buckets", config->buckets, 0, body == ATTN_BODY_BAG ? 1 << 24 : 0},
        {"width", config->width, body != ATTN_BODY_BAG,
         body == ATTN_BODY_BAG ? 0 : 1 << 16},
        {"layers", config->layers, has_layers, has_layers ? ATTN_RECURRENT_LAYERS : 0},
        {"filters", config->filter_count, body == ATTN_BODY_CONVOLUTION,
         body == ATTN_BODY_CONVOLUTION ? ATTN_READER_FILTERS : 0},
        {"attention_width", config->attention_width, has_attention(config),
         has_attention(config) ? 1 << 16 : 0},
        {"heads", config->heads, is_transformer, is_transformer ? 1024 : 0},
        {"inner", config->inner, is_transformer, is_transformer ? 1 << 18 : 0},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return attn_error_set(
                error, ATTN_EINVAL, "reader: %s is %lld, expected %lld to %lld %s",
                bounds[i].name, (long long)bounds[i].value, (long long)bounds[i].low,
                (long long)bounds[i].high, "with the other settings");
    for (int64_t i = 0; i < config->filter_count; i++)
        if (config->filters[i] < 1 || config->filters[i] > 64)
            return attn_error_set(error, ATTN_EINVAL,
                                  "reader: filter %lld has %lld tokens, expected 1 to 64",
                                  (long long)i, (long long)config->filters[i]);
    return ATTN_OK;
}

static attn_status check_choices(const attn_reader_config *config, attn_error *error)
{
    const bool is_transformer = config->body == ATTN_BODY_TRANSFORMER;
    const struct {
        bool is_wrong;
        const char *what;
    } rules[] = {
        {config->tags && config->pooling != ATTN_READER_MEAN,
         "words are labelled and pooling is not the mean"},
        {config->tags && config->buckets > 0,
         "words are labelled and there are buckets of pairs"},
        {!config->tags && config->attention != ATTN_READER_ALONE,
         "texts are labelled and words attend to one another"},
        {!config->tags && config->mean_pieces,
         "texts are labelled and a word's state is the mean of its tokens'"},
        {is_transformer && config->attention != ATTN_READER_ALONE,
         "a Transformer has an attention of its own"},
        {is_transformer && config->pooling != ATTN_READER_MEAN &&
             config->pooling != ATTN_READER_FIRST,
         "a Transformer's pooling is neither the mean nor the first token's"},
        {!is_transformer && config->linear_attention,
         "linear attention where the body is no Transformer"},
        {config->linear_attention && config->attention_dropout != 0.0f,
         "attention_dropout with linear attention, which has no scores to drop"},
        {!is_transformer && config->pooling == ATTN_READER_FIRST,
         "the first token's state is read where the body is no Transformer"},
        {is_transformer && config->mean_pieces,
         "a Transformer's word is the mean of its tokens, expected the first"},
        {config->pooling == ATTN_READER_LAST && !is_recurrent(config->body),
         "the last state is read where the body is not recurrent"},
        {config->both_ways && !is_recurrent(config->body),
         "both ways where the body is not recurrent"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].is_wrong)
            return attn_error_set(error, ATTN_EINVAL, "reader: %s", rules[i].what);
    const float dropouts[] = {config->dropout, config->token_dropout,
                              config->attention_dropout};
    return attn_check_dropouts("reader", dropouts, 3, error);
}

attn_status attn_reader_check(const attn_reader_config *config, attn_error *error)
{
    ATTN_TRY(check_sizes(config, error));
    return check_choices(config, error);
}

/* ---- Parameters ------------------------------------------------------------------ */

/* Of a token's state. */
static int64_t state_width(const attn_reader_config *config)
{
    if (config->body == ATTN_BODY_BAG)
        return config->embedding;
    if (config->body == ATTN_BODY_CONVOLUTION)
        return config->filter_count * config->width;
    return config->both_ways ? 2 * config->width : config->width;
}

static attn_status add_body(attn_reader *reader)
{
    const attn_reader_config *const config = &reader->config;
    const int64_t extent[] = {config->vocabulary + config->buckets, config->embedding};
    ATTN_TRY(attn_parameters_add(&reader->parameters, "embeddings.word_embeddings.weight",
                                 2, extent, ATTN_INITIAL_NORMAL, &reader->embedding));
    for (int64_t i = 0; i < config->filter_count; i++) {
        char name[48];
        snprintf(name, sizeof name, "encoder.convolutions.%lld", (long long)i);
        ATTN_TRY(attn_linear_layer_add(&reader->convolutions[i], &reader->parameters,
                                       name, config->filters[i] * config->embedding,
                                       config->width));
    }
    if (!is_recurrent(config->body))
        return ATTN_OK;
    const attn_recurrent_options options = {
        .cell = config->body == ATTN_BODY_RNN   ? ATTN_CELL_TANH
                : config->body == ATTN_BODY_GRU ? ATTN_CELL_GRU
                                                : ATTN_CELL_LSTM,
        .in = config->embedding,
        .width = config->width,
        .layers = config->layers,
        .both_ways = config->both_ways,
        .has_bias = true,
    };
    return attn_recurrent_layer_add(&reader->recurrent, &reader->parameters, "encoder",
                                    &options);
}

static attn_status add_attention(attn_reader *reader)
{
    const attn_reader_config *const config = &reader->config;
    const int64_t width = state_width(config);
    const bool is_additive = config->attention != ATTN_READER_PRODUCT;
    if (!has_attention(config))
        return ATTN_OK;
    if (config->tags)
        ATTN_TRY(attn_linear_layer_add(&reader->query, &reader->parameters,
                                       "attention.query_proj", width,
                                       config->attention_width));
    ATTN_TRY(attn_linear_layer_add(&reader->key, &reader->parameters,
                                   "attention.key_proj", width, config->attention_width));
    if (!is_additive)
        return ATTN_OK;
    return attn_parameters_add(&reader->parameters, "attention.vector", 2,
                               (const int64_t[]){1, config->attention_width},
                               ATTN_INITIAL_NORMAL, &reader->vector);
}

static attn_status add_parameters(attn_reader *reader)
{
    const attn_reader_config *const config = &reader->config;
    const bool joins = config->attention != ATTN_READER_ALONE;
    ATTN_TRY(add_body(reader));
    ATTN_TRY(add_attention(reader));
    return attn_linear_layer_add(&reader->classifier, &reader->parameters, "classifier",
                                 state_width(config) * (joins ? 2 : 1), config->labels);
}

/* ---- Life ------------------------------------------------------------------------ */

attn_status attn_reader_outline(attn_reader **reader, const attn_reader_config *config,
                                attn_error *error)
{
    *reader = NULL;
    ATTN_TRY(attn_reader_check(config, error));
    attn_reader *const outlined = calloc(1, sizeof *outlined);
    if (!outlined)
        return attn_error_set(error, ATTN_ENOMEM, "reader: no memory");
    outlined->config = *config;
    attn_status status = ATTN_OK;
    if (config->body != ATTN_BODY_TRANSFORMER) {
        status = add_parameters(outlined);
        if (status != ATTN_OK)
            attn_error_set(error, status, "reader: its parameters do not fit in memory");
    }
    if (status == ATTN_OK && config->body != ATTN_BODY_TRANSFORMER)
        status = attn_labels_number(&outlined->labels, config->labels, error);
    if (status == ATTN_OK)
        *reader = outlined;
    else
        attn_reader_destroy(outlined);
    return status;
}

/* BERT's tables of embeddings begin with a deviation of 0.02.  A norm stands behind them,
 * so that nothing that is computed depends on it; but a step of the optimiser turns small
 * vectors further, and little data has few steps. */
static void shrink_embeddings(attn_parameters *parameters)
{
    static const char prefix[] = "bert.embeddings.";
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        if (strncmp(p->name, prefix, sizeof prefix - 1) != 0 || p->rank != 2)
            continue;
        const float factor = 0.02f * sqrtf((float)p->extent[1]);
        for (size_t j = 0; j < p->count; j++)
            parameters->values[p->offset + j] *= factor;
    }
}

static attn_status create_transformer(attn_reader *reader, uint64_t seed,
                                      attn_error *error)
{
    const attn_reader_config *const config = &reader->config;
    attn_bert_config bert;
    attn_bert_config_init(&bert);
    bert.head = config->tags                           ? ATTN_BERT_TOKENS
                : config->pooling == ATTN_READER_FIRST ? ATTN_BERT_SEQUENCE
                                                       : ATTN_BERT_MEAN;
    bert.labels = config->labels;
    bert.vocabulary = config->vocabulary;
    bert.max_positions = config->max_positions;
    bert.width = config->width;
    bert.layers = config->layers;
    bert.heads = config->heads;
    bert.inner = config->inner;
    bert.dropout = bert.classifier_dropout = config->dropout;
    bert.attention_dropout = config->attention_dropout;
    bert.linear_attention = config->linear_attention;
    ATTN_TRY(attn_bert_create(&reader->bert, &bert, seed, error));
    shrink_embeddings(attn_bert_parameters(reader->bert));
    return ATTN_OK;
}

attn_status attn_reader_create(attn_reader **reader, const attn_reader_config *config,
                               uint64_t seed, attn_error *error)
{
    attn_reader *created;
    *reader = NULL;
    ATTN_TRY(attn_reader_outline(&created, config, error));
    attn_status status =
        config->body == ATTN_BODY_TRANSFORMER
            ? create_transformer(created, seed, error)
            : attn_allocate_parameters("reader", &created->parameters, error);
    if (status == ATTN_OK && !created->bert)
        attn_parameters_initialise(&created->parameters, seed);
    if (status == ATTN_OK)
        *reader = created;
    else
        attn_reader_destroy(created);
    return status;
}

void attn_reader_destroy(attn_reader *reader)
{
    if (!reader)
        return;
    attn_bert_destroy(reader->bert);
    attn_labels_free(&reader->labels);
    attn_parameters_free(&reader->parameters);
    free(reader);
}

attn_status attn_reader_start(attn_reader *reader, const char *folder, attn_error *error)
{
    if (reader->bert)
        return attn_bert_start(reader->bert, folder, error);
    return attn_error_set(error, ATTN_EINVAL,
                          "reader: the body is no Transformer, expected one that can "
                          "start from %s",
                          folder);
}

/* ---- What it is ------------------------------------------------------------------ */

const attn_reader_config *attn_reader_config_of(const attn_reader *reader)
{
    return &reader->config;
}

attn_parameters *attn_reader_parameters(attn_reader *reader)
{
    return reader->bert ? attn_bert_parameters(reader->bert) : &reader->parameters;
}

const char *attn_reader_label(const attn_reader *reader, int64_t index)
{
    if (reader->bert)
        return attn_bert_label(reader->bert, index);
    return index >= 0 && index < reader->labels.count ? reader->labels.names[index]
                                                      : NULL;
}

attn_status attn_reader_name_labels(attn_reader *reader, const char *const *names,
                                    attn_error *error)
{
    return reader->bert ? attn_bert_name_labels(reader->bert, names, error)
                        : attn_labels_set(&reader->labels, names, error);
}
