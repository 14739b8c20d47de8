/* A BERT's life: its configuration checked, its parameters named as Hugging Face names
 * them, created and destroyed.  What it computes lives in bert_forward.c, its files in
 * bert_file.c and bert_config.c. */
#include "base/context.h"
#include "model/bert_parts.h"
#include "model/checks.h"
#include "nn/name.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void attn_bert_config_init(attn_bert_config *config)
{
    *config = (attn_bert_config){
        .types = 2,
        .activation = ATTN_GELU,
        .epsilon = 1e-12f,
        .dropout = 0.1f,
        .attention_dropout = 0.1f,
        .classifier_dropout = 0.1f,
    };
}

/* ---- The configuration ----------------------------------------------------------- */

static attn_status check_sizes(const attn_bert_config *config, attn_error *error)
{
    const attn_bound bounds[] = {
        {"vocabulary", config->vocabulary, 1, 1 << 24},
        {"width", config->width, 1, 1 << 16},
        {"layers", config->layers, 1, 256},
        {"heads", config->heads, 1, config->width},
        {"inner", config->inner, 1, 1 << 18},
        {"max_positions", config->max_positions, 1, 1 << 20},
        {"types", config->types, 1, 1 << 16},
        {"labels", config->labels, config->head == ATTN_BERT_MASKED ? 0 : 2,
         config->head == ATTN_BERT_MASKED ? 0 : 1 << 16},
    };
    ATTN_TRY(attn_check_bounds("bert", bounds, sizeof bounds / sizeof bounds[0], error));
    if (config->width % config->heads != 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "bert: width %lld is not a multiple of %lld heads",
                              (long long)config->width, (long long)config->heads);
    return ATTN_OK;
}

static attn_status check_config(const attn_bert_config *config, attn_error *error)
{
    if (config->head < ATTN_BERT_MASKED || config->head > ATTN_BERT_MEAN)
        return attn_error_set(error, ATTN_EINVAL, "bert: head is %d, unknown",
                              (int)config->head);
    ATTN_TRY(check_sizes(config, error));
    const float dropouts[] = {config->dropout, config->attention_dropout,
                              config->classifier_dropout};
    ATTN_TRY(attn_check_dropouts("bert", dropouts, 3, error));
    if (config->linear_attention && config->attention_dropout != 0.0f)
        return attn_error_set(error, ATTN_EINVAL,
                              "bert: attention_dropout is %g with linear attention, "
                              "expected 0: it has no scores to drop",
                              (double)config->attention_dropout);
    if (!(config->epsilon >= 0.0f && config->epsilon < 1.0f))
        return attn_error_set(error, ATTN_EINVAL,
                              "bert: epsilon is %g, expected 0 to below 1",
                              (double)config->epsilon);
    if (config->activation < ATTN_RELU || config->activation > ATTN_TANH)
        return attn_error_set(error, ATTN_EINVAL, "bert: activation is %d, unknown",
                              (int)config->activation);
    if (config->untied && config->head != ATTN_BERT_MASKED)
        return attn_error_set(error, ATTN_EINVAL,
                              "bert: untied with labels, expected only where the head is "
                              "the vocabulary");
    return ATTN_OK;
}

/* ---- Parameters ------------------------------------------------------------------ */

static attn_status add_embeddings(attn_bert *bert)
{
    const attn_bert_config *const config = &bert->config;
    const struct {
        const char *name;
        int64_t rows;
        size_t *index;
    } tables[] = {
        {ATTN_BERT_EMBEDDING, config->vocabulary, &bert->embedding},
        {"bert.embeddings.position_embeddings.weight", config->max_positions,
         &bert->positions},
        {"bert.embeddings.token_type_embeddings.weight", config->types, &bert->types},
    };
    for (size_t i = 0; i < 3; i++)
        ATTN_TRY(attn_parameters_add(&bert->parameters, tables[i].name, 2,
                                     (const int64_t[]){tables[i].rows, config->width},
                                     ATTN_INITIAL_NORMAL, tables[i].index));
    return attn_norm_layer_add(&bert->embedding_norm, &bert->parameters,
                               "bert.embeddings.LayerNorm", config->width,
                               config->epsilon);
}

static attn_status add_layer(attn_bert *bert, int64_t index)
{
    const attn_bert_config *const config = &bert->config;
    attn_parameters *const parameters = &bert->parameters;
    attn_bert_layer *const layer = &bert->layers[index];
    const int64_t width = config->width, inner = config->inner;
    const struct {
        const char *name;
        attn_linear_layer *linear; /* NULL: a norm */
        attn_norm_layer *norm;
        int64_t in, out;
    } parts[] = {
        {".attention.self.query", &layer->self.query, NULL, width, width},
        {".attention.self.key", &layer->self.key, NULL, width, width},
        {".attention.self.value", &layer->self.value, NULL, width, width},
        {".attention.output.dense", &layer->self.out, NULL, width, width},
        {".attention.output.LayerNorm", NULL, &layer->self_norm, width, width},
        {".intermediate.dense", &layer->feed_forward.in, NULL, width, inner},
        {".output.dense", &layer->feed_forward.out, NULL, inner, width},
        {".output.LayerNorm", NULL, &layer->final_norm, width, width},
    };
    char prefix[64];
    snprintf(prefix, sizeof prefix, "bert.encoder.layer.%lld", (long long)index);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        attn_layer_name name;
        ATTN_TRY(attn_layer_name_join(&name, prefix, parts[i].name));
        if (parts[i].linear)
            ATTN_TRY(attn_linear_layer_add(parts[i].linear, parameters, name.text,
                                           parts[i].in, parts[i].out));
        else
            ATTN_TRY(attn_norm_layer_add(parts[i].norm, parameters, name.text,
                                         parts[i].in, config->epsilon));
    }
    layer->self.heads = config->heads;
    layer->self.width = width;
    layer->self.part = ATTN_PART_ENCODER;
    layer->self.index = index;
    layer->self.linear = config->linear_attention;
    layer->feed_forward.activation = config->activation;
    return ATTN_OK;
}

static attn_status add_vocabulary_head(attn_bert *bert)
{
    const attn_bert_config *const config = &bert->config;
    attn_parameters *const parameters = &bert->parameters;
    ATTN_TRY(attn_linear_layer_add(&bert->transform, parameters,
                                   "cls.predictions.transform.dense", config->width,
                                   config->width));
    ATTN_TRY(attn_norm_layer_add(&bert->transform_norm, parameters,
                                 "cls.predictions.transform.LayerNorm", config->width,
                                 config->epsilon));
    ATTN_TRY(attn_parameters_add(
        parameters, config->untied ? ATTN_BERT_UNTIED_BIAS : ATTN_BERT_BIAS, 1,
        &config->vocabulary, ATTN_INITIAL_ZEROS, &bert->output_bias));
    bert->output = bert->embedding;
    if (!config->untied)
        return ATTN_OK;
    return attn_parameters_add(parameters, ATTN_BERT_OUTPUT, 2,
                               (const int64_t[]){config->vocabulary, config->width},
                               ATTN_INITIAL_NORMAL, &bert->output);
}

static attn_status add_parameters(attn_bert *bert)
{
    const attn_bert_config *const config = &bert->config;
    ATTN_TRY(add_embeddings(bert));
    for (int64_t i = 0; i < config->layers; i++)
        ATTN_TRY(add_layer(bert, i));
    if (config->head == ATTN_BERT_MASKED)
        return add_vocabulary_head(bert);
    if (config->head == ATTN_BERT_SEQUENCE)
        ATTN_TRY(attn_linear_layer_add(&bert->pooler, &bert->parameters,
                                       ATTN_BERT_POOLER "dense", config->width,
                                       config->width));
    return attn_linear_layer_add(&bert->classifier, &bert->parameters, "classifier",
                                 config->width, config->labels);
}

/* ---- Labels ---------------------------------------------------------------------- */

const char *attn_bert_label(const attn_bert *bert, int64_t index)
{
    return index >= 0 && index < bert->labels.count ? bert->labels.names[index] : NULL;
}

attn_status attn_bert_name_labels(attn_bert *bert, const char *const *names,
                                  attn_error *error)
{
    return attn_labels_set(&bert->labels, names, error);
}

/* ---- Life ------------------------------------------------------------------------ */

attn_status attn_bert_outline(attn_bert **bert, const attn_bert_config *config,
                              attn_error *error)
{
    *bert = NULL;
    ATTN_TRY(check_config(config, error));
    attn_bert *const outlined = calloc(1, sizeof *outlined);
    if (!outlined)
        return attn_error_set(error, ATTN_ENOMEM, "bert: no memory");
    outlined->config = *config;
    outlined->layers = calloc((size_t)config->layers, sizeof *outlined->layers);
    attn_status status =
        outlined->layers ? attn_labels_number(&outlined->labels, config->labels, error)
                         : ATTN_ENOMEM;
    if (status == ATTN_OK)
        status = add_parameters(outlined);
    if (status != ATTN_OK) {
        attn_bert_destroy(outlined);
        return attn_error_set(error, status, "bert: the list of parameters: %s",
                              attn_status_name(status));
    }
    *bert = outlined;
    return ATTN_OK;
}

attn_status attn_bert_create(attn_bert **bert, const attn_bert_config *config,
                             uint64_t seed, attn_error *error)
{
    attn_bert *created;
    *bert = NULL;
    ATTN_TRY(attn_bert_outline(&created, config, error));
    const attn_status status =
        attn_allocate_parameters("bert", &created->parameters, error);
    if (status != ATTN_OK) {
        attn_bert_destroy(created);
        return status;
    }
    attn_parameters_initialise(&created->parameters, seed);
    *bert = created;
    return ATTN_OK;
}

void attn_bert_destroy(attn_bert *bert)
{
    if (!bert)
        return;
    attn_parameters_free(&bert->parameters);
    attn_labels_free(&bert->labels);
    free(bert->layers);
    free(bert);
}

const attn_bert_config *attn_bert_config_of(const attn_bert *bert)
{
    return &bert->config;
}

const char *attn_bert_note(const attn_bert *bert)
{
    return bert->note;
}

attn_parameters *attn_bert_parameters(attn_bert *bert)
{
    return &bert->parameters;
}
