/* A recurrent translator's life: its configuration checked, its parameters named, created
 * and destroyed.  What it computes lives in recurrent_forward.c and recurrent_decoding.c,
 * its files in recurrent_file.c. */
#include "base/context.h"
#include "model/recurrent_parts.h"
#include "text/tokenizer.h"
#include <stdlib.h>

const char *const attn_cross_names[ATTN_CROSS_SCORES] = {"none", "additive", "dot",
                                                         "general", "scaled_dot"};

int64_t attn_recurrent_source_width(const attn_recurrent_translator_config *config)
{
    return config->encoder_width * (config->both_ways ? 2 : 1);
}

/* Bounds of what a configuration may say: small enough that no product of two overflows
 * or takes seconds to outline. */
struct bound {
    const char *name;
    int64_t value, low, high;
};

static attn_status check_sizes(const attn_recurrent_translator_config *config,
                               attn_error *error)
{
    const bool is_additive = config->attention == ATTN_CROSS_ADDITIVE;
    const struct bound bounds[] = {
        {"vocabulary", config->vocabulary, ATTN_TOKEN_UNK + 1, 1 << 24},
        {"embedding", config->embedding, 1, 1 << 16},
        {"encoder_width", config->encoder_width, 1, 1 << 16},
        {"width", config->width, 1, 1 << 16},
        {"encoder_layers", config->encoder_layers, 1, ATTN_RECURRENT_LAYERS},
        {"decoder_layers", config->decoder_layers, 1, ATTN_RECURRENT_LAYERS},
        {"attention_width", config->attention_width, is_additive, is_additive << 16},
        {"max_positions", config->max_positions, 1, 1 << 20},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return attn_error_set(error, ATTN_EINVAL,
                                  "recurrent translator: %s is %lld, expected %lld to "
                                  "%lld",
                                  bounds[i].name, (long long)bounds[i].value,
                                  (long long)bounds[i].low, (long long)bounds[i].high);
    return ATTN_OK;
}

attn_status
attn_recurrent_translator_check(const attn_recurrent_translator_config *config,
                                attn_error *error)
{
    if (config->attention < ATTN_CROSS_NONE || config->attention >= ATTN_CROSS_SCORES)
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent translator: attention is %d, unknown",
                              (int)config->attention);
    if (config->cell != ATTN_CELL_GRU && config->cell != ATTN_CELL_LSTM)
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent translator: cell is %d, expected ATTN_CELL_GRU "
                              "or ATTN_CELL_LSTM",
                              (int)config->cell);
    ATTN_TRY(check_sizes(config, error));
    const int64_t source_width = attn_recurrent_source_width(config);
    const bool is_product =
        config->attention == ATTN_CROSS_DOT || config->attention == ATTN_CROSS_SCALED_DOT;
    if (is_product && source_width != config->width)
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent translator: attention %s between states of "
                              "width %lld and %lld of the source, expected one width",
                              attn_cross_names[config->attention],
                              (long long)config->width, (long long)source_width);
    if (!(config->dropout >= 0.0f && config->dropout < 1.0f))
        return attn_error_set(error, ATTN_EINVAL,
                              "recurrent translator: dropout is %g, expected 0 to below "
                              "1",
                              (double)config->dropout);
    return ATTN_OK;
}

/* ---- Parameters ------------------------------------------------------------------- */

static attn_status add_matrix(attn_recurrent_translator *translator, const char *name,
                              int64_t rows, int64_t columns, attn_initial initial,
                              size_t *index)
{
    const int64_t extent[] = {rows, columns};
    return attn_parameters_add(&translator->parameters, name, 2, extent, initial, index);
}

static attn_status add_attention(attn_recurrent_translator *translator)
{
    const attn_recurrent_translator_config *const config = &translator->config;
    const int64_t source_width = attn_recurrent_source_width(config);
    const int64_t width = config->attention_width;
    if (config->attention == ATTN_CROSS_GENERAL)
        return add_matrix(translator, "attention.query.weight", source_width,
                          config->width, ATTN_INITIAL_XAVIER, &translator->query_weight);
    if (config->attention != ATTN_CROSS_ADDITIVE)
        return ATTN_OK;
    ATTN_TRY(add_matrix(translator, "attention.query.weight", width, config->width,
                        ATTN_INITIAL_XAVIER, &translator->query_weight));
    ATTN_TRY(attn_parameters_add(&translator->parameters, "attention.query.bias", 1,
                                 &width, ATTN_INITIAL_ZEROS, &translator->query_bias));
    ATTN_TRY(add_matrix(translator, "attention.key.weight", width, source_width,
                        ATTN_INITIAL_XAVIER, &translator->key_weight));
    return add_matrix(translator, "attention.score.weight", 1, width, ATTN_INITIAL_XAVIER,
                      &translator->score_weight);
}

static attn_status add_encoder(attn_recurrent_translator *translator)
{
    const attn_recurrent_translator_config *const config = &translator->config;
    const attn_recurrent_options options = {.cell = config->cell,
                                            .in = config->embedding,
                                            .width = config->encoder_width,
                                            .layers = config->encoder_layers,
                                            .both_ways = config->both_ways,
                                            .has_bias = true};
    return attn_recurrent_layer_add(&translator->encoder, &translator->parameters,
                                    "encoder", &options);
}

static attn_status add_decoder(attn_recurrent_translator *translator)
{
    const attn_recurrent_translator_config *const config = &translator->config;
    const int64_t source_width = attn_recurrent_source_width(config);
    const attn_recurrent_options options = {
        .cell = config->cell,
        .in = config->embedding + (config->context_enters ? source_width : 0),
        .width = config->width,
        .layers = config->decoder_layers,
        .has_bias = true};
    return attn_recurrent_layer_add(&translator->decoder, &translator->parameters,
                                    "decoder", &options);
}

static attn_status add_parameters(attn_recurrent_translator *translator)
{
    const attn_recurrent_translator_config *const config = &translator->config;
    attn_parameters *const parameters = &translator->parameters;
    const int64_t source_width = attn_recurrent_source_width(config);
    const int64_t states = config->cell == ATTN_CELL_LSTM ? 2 : 1;
    ATTN_TRY(add_matrix(translator, "embedding.weight", config->vocabulary,
                        config->embedding, ATTN_INITIAL_NORMAL, &translator->embedding));
    ATTN_TRY(add_encoder(translator));
    ATTN_TRY(attn_linear_layer_add(&translator->bridge, parameters, "bridge",
                                   source_width,
                                   states * config->decoder_layers * config->width));
    ATTN_TRY(add_decoder(translator));
    ATTN_TRY(add_attention(translator));
    ATTN_TRY(attn_linear_layer_add(&translator->merge, parameters, "merge",
                                   config->width + source_width, config->embedding));
    translator->output = translator->embedding;
    if (config->untied)
        ATTN_TRY(add_matrix(translator, "output.weight", config->vocabulary,
                            config->embedding, ATTN_INITIAL_NORMAL, &translator->output));
    return attn_parameters_add(parameters, "output.bias", 1, &config->vocabulary,
                               ATTN_INITIAL_ZEROS, &translator->output_bias);
}

/* ---- Life ------------------------------------------------------------------------- */

attn_status
attn_recurrent_translator_outline(attn_recurrent_translator **translator,
                                  const attn_recurrent_translator_config *config,
                                  attn_error *error)
{
    *translator = NULL;
    ATTN_TRY(attn_recurrent_translator_check(config, error));
    attn_recurrent_translator *const outlined = calloc(1, sizeof *outlined);
    if (!outlined)
        return attn_error_set(error, ATTN_ENOMEM, "recurrent translator: no memory");
    outlined->config = *config;
    const attn_status status = add_parameters(outlined);
    if (status != ATTN_OK) {
        attn_recurrent_translator_destroy(outlined);
        return attn_error_set(error, status,
                              "recurrent translator: the list of parameters: %s",
                              attn_status_name(status));
    }
    *translator = outlined;
    return ATTN_OK;
}

attn_status
attn_recurrent_translator_create(attn_recurrent_translator **translator,
                                 const attn_recurrent_translator_config *config,
                                 uint64_t seed, attn_error *error)
{
    attn_recurrent_translator *created;
    *translator = NULL;
    ATTN_TRY(attn_recurrent_translator_outline(&created, config, error));
    if (attn_parameters_allocate(&created->parameters) != ATTN_OK) {
        const size_t floats = created->parameters.floats;
        attn_recurrent_translator_destroy(created);
        return attn_error_set(error, ATTN_ENOMEM,
                              "recurrent translator: no memory for %zu parameters",
                              floats);
    }
    attn_parameters_initialise(&created->parameters, seed);
    *translator = created;
    return ATTN_OK;
}

void attn_recurrent_translator_destroy(attn_recurrent_translator *translator)
{
    if (!translator)
        return;
    attn_parameters_free(&translator->parameters);
    free(translator);
}

const attn_recurrent_translator_config *
attn_recurrent_translator_config_of(const attn_recurrent_translator *translator)
{
    return &translator->config;
}

attn_parameters *
attn_recurrent_translator_parameters(attn_recurrent_translator *translator)
{
    return &translator->parameters;
}

/* ---- As any model that reads and writes ------------------------------------------- */

static attn_tensor *hidden(const void *model, const attn_pass *pass,
                           const attn_pair_batch *batch)
{
    return attn_recurrent_translator_hidden(model, pass, batch);
}

static attn_tensor *loss(const void *model, const attn_pass *pass,
                         const attn_pair_batch *batch, float smoothing, double divisor,
                         double *plain)
{
    return attn_recurrent_translator_loss(model, pass, batch, smoothing, divisor, plain);
}

static attn_status save(const void *model, const char *folder, int dtype,
                        attn_error *error)
{
    return attn_recurrent_translator_save(model, folder, dtype, error);
}

static void destroy(void *model)
{
    attn_recurrent_translator_destroy(model);
}

attn_seq2seq attn_recurrent_translator_seq2seq(attn_recurrent_translator *translator)
{
    static const attn_seq2seq_kind kind = {attn_recurrent_decoder_start, hidden, loss,
                                           save, destroy};
    const attn_recurrent_translator_config *const config = &translator->config;
    const int64_t attentions = config->attention != ATTN_CROSS_NONE;
    return (attn_seq2seq){
        .kind = &kind,
        .model = translator,
        .parameters = &translator->parameters,
        .vocabulary = config->vocabulary,
        .max_positions = config->max_positions,
        .attention = {[ATTN_PART_CROSS] = {attentions, attentions}},
        .note = translator->note,
    };
}
