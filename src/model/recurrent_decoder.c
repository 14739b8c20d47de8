/* What a recurrent decoder has; what it computes is in recurrent_forward.c. */
#include "model/recurrent_decoder.h"
#include "base/context.h"
#include "model/checks.h"
#include "text/tokenizer.h"

const char *const attn_cross_names[ATTN_CROSS_SCORES + 1] = {
    "none", "additive", "dot", "general", "scaled_dot", NULL};

static attn_status check_sizes(const attn_recurrent_decoder_config *config,
                               attn_error *error)
{
    const bool is_additive = config->attention == ATTN_CROSS_ADDITIVE;
    const attn_bound bounds[] = {
        {"vocabulary", config->vocabulary, ATTN_TOKEN_UNK + 1, 1 << 24},
        {"embedding", config->embedding, 1, 1 << 16},
        {"width", config->width, 1, 1 << 16},
        {"layers", config->layers, 1, ATTN_RECURRENT_LAYERS},
        {"source width", config->source_width, 1, 1 << 17},
        {"attention_width", config->attention_width, is_additive, is_additive << 16},
    };
    return attn_check_bounds("recurrent decoder", bounds,
                             sizeof bounds / sizeof bounds[0], error);
}

attn_status attn_recurrent_decoder_check(const attn_recurrent_decoder_config *config,
                                         attn_error *error)
{
    if (config->attention < ATTN_CROSS_NONE || config->attention >= ATTN_CROSS_SCORES)
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent decoder: attention is %d, unknown",
                              (int)config->attention);
    if (config->cell != ATTN_CELL_GRU && config->cell != ATTN_CELL_LSTM)
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent decoder: cell is %d, expected ATTN_CELL_GRU or "
                              "ATTN_CELL_LSTM",
                              (int)config->cell);
    ATTN_TRY(check_sizes(config, error));
    const bool is_product =
        config->attention == ATTN_CROSS_DOT || config->attention == ATTN_CROSS_SCALED_DOT;
    if (is_product && config->source_width != config->width)
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent decoder: attention %s between states of width "
                              "%lld and %lld of the source, expected one width",
                              attn_cross_names[config->attention],
                              (long long)config->width, (long long)config->source_width);
    if (!(config->dropout >= 0.0f && config->dropout < 1.0f))
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent decoder: dropout is %g, expected 0 to below 1",
                              (double)config->dropout);
    return ATTN_OK;
}

static attn_status add_matrix(attn_parameters *parameters, const char *name, int64_t rows,
                              int64_t columns, attn_initial initial, size_t *index)
{
    const int64_t extent[] = {rows, columns};
    return attn_parameters_add(parameters, name, 2, extent, initial, index);
}

static attn_status add_attention(attn_recurrent_decoder *decoder,
                                 attn_parameters *parameters)
{
    const attn_recurrent_decoder_config *const config = &decoder->config;
    const int64_t width = config->attention_width;
    if (config->attention == ATTN_CROSS_GENERAL)
        return add_matrix(parameters, "attention.query.weight", config->source_width,
                          config->width, ATTN_INITIAL_XAVIER, &decoder->query_weight);
    if (config->attention != ATTN_CROSS_ADDITIVE)
        return ATTN_OK;
    ATTN_TRY(add_matrix(parameters, "attention.query.weight", width, config->width,
                        ATTN_INITIAL_XAVIER, &decoder->query_weight));
    ATTN_TRY(attn_parameters_add(parameters, "attention.query.bias", 1, &width,
                                 ATTN_INITIAL_ZEROS, &decoder->query_bias));
    ATTN_TRY(add_matrix(parameters, "attention.key.weight", width, config->source_width,
                        ATTN_INITIAL_XAVIER, &decoder->key_weight));
    return add_matrix(parameters, "attention.score.weight", 1, width, ATTN_INITIAL_XAVIER,
                      &decoder->score_weight);
}

static attn_status add_recurrence(attn_recurrent_decoder *decoder,
                                  attn_parameters *parameters)
{
    const attn_recurrent_decoder_config *const config = &decoder->config;
    const int64_t states = config->cell == ATTN_CELL_LSTM ? 2 : 1;
    const attn_recurrent_options options = {
        .cell = config->cell,
        .in = config->embedding + (config->context_enters ? config->source_width : 0),
        .width = config->width,
        .layers = config->layers,
        .has_bias = true};
    ATTN_TRY(attn_linear_layer_add(&decoder->bridge, parameters, "bridge",
                                   config->source_width,
                                   states * config->layers * config->width));
    return attn_recurrent_layer_add(&decoder->recurrence, parameters, "decoder",
                                    &options);
}

static attn_status add_parameters(attn_recurrent_decoder *decoder,
                                  attn_parameters *parameters)
{
    const attn_recurrent_decoder_config *const config = &decoder->config;
    ATTN_TRY(add_matrix(parameters, "embedding.weight", config->vocabulary,
                        config->embedding, ATTN_INITIAL_NORMAL, &decoder->embedding));
    ATTN_TRY(add_recurrence(decoder, parameters));
    ATTN_TRY(add_attention(decoder, parameters));
    ATTN_TRY(attn_linear_layer_add(&decoder->merge, parameters, "merge",
                                   config->width + config->source_width,
                                   config->embedding));
    decoder->output = decoder->embedding;
    if (config->untied)
        ATTN_TRY(add_matrix(parameters, "output.weight", config->vocabulary,
                            config->embedding, ATTN_INITIAL_NORMAL, &decoder->output));
    return attn_parameters_add(parameters, "output.bias", 1, &config->vocabulary,
                               ATTN_INITIAL_ZEROS, &decoder->output_bias);
}

attn_status attn_recurrent_decoder_add(attn_recurrent_decoder *decoder,
                                       attn_parameters *parameters,
                                       const attn_recurrent_decoder_config *config,
                                       attn_error *error)
{
    ATTN_TRY(attn_recurrent_decoder_check(config, error));
    *decoder = (attn_recurrent_decoder){.config = *config};
    const attn_status status = add_parameters(decoder, parameters);
    if (status == ATTN_OK)
        return ATTN_OK;
    return attn_error_set(error, status, "recurrent decoder: the list of parameters: %s",
                          attn_status_name(status));
}
