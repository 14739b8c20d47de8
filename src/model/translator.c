/* A translator's life: its configuration checked, its parameters named as Hugging Face's
 * M2M100ForConditionalGeneration and MarianMTModel name them, created and destroyed.
 * What it computes lives in translator_forward.c, its files in translator_file.c. */
#include "base/context.h"
#include "model/checks.h"
#include "model/decoding.h"
#include "model/translator_parts.h"
#include <stdio.h>
#include <stdlib.h>

static const float NORM_EPSILON = 1e-5f;
static const int64_t MOST_POSITION_FLOATS = (int64_t)1 << 24;

/* Bounds wide enough for every published model of the class, and small enough that no
 * product of two overflows or takes seconds to outline. */
static attn_status check_config(const attn_translator_config *config, attn_error *error)
{
    const attn_bound bounds[] = {
        {"vocabulary", config->vocabulary, ATTN_TOKEN_UNK + 1, 1 << 24},
        {"width", config->width, 4, 1 << 16},
        {"heads", config->heads, 1, config->width},
        {"encoder_layers", config->encoder_layers, 1, 256},
        {"decoder_layers", config->decoder_layers, 1, 256},
        {"inner", config->inner, 1, 1 << 18},
        {"max_positions", config->max_positions, 1, 1 << 20},
    };
    ATTN_TRY(
        attn_check_bounds("translator", bounds, sizeof bounds / sizeof bounds[0], error));
    if (config->width % config->heads != 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "translator: width %lld is not a multiple of %lld heads",
                              (long long)config->width, (long long)config->heads);
    if ((config->max_positions + ATTN_FIRST_POSITION) * config->width >
        MOST_POSITION_FLOATS)
        return attn_error_set(
            error, ATTN_EINVAL,
            "translator: %lld positions of width %lld, expected at most "
            "%lld numbers in their table",
            (long long)config->max_positions, (long long)config->width,
            (long long)MOST_POSITION_FLOATS);
    const float dropouts[] = {config->dropout, config->attention_dropout,
                              config->activation_dropout};
    ATTN_TRY(attn_check_dropouts("translator", dropouts, 3, error));
    if (config->learned_positions && config->normalise_first)
        return attn_error_set(error, ATTN_EINVAL,
                              "translator: learned_positions with normalise_first, "
                              "expected one of them: the layout of M2M100 has no place "
                              "for positions");
    if (config->activation < ATTN_RELU || config->activation > ATTN_TANH)
        return attn_error_set(error, ATTN_EINVAL, "translator: activation is %d, unknown",
                              (int)config->activation);
    return ATTN_OK;
}

/* "model.PART.layers.INDEX" and what follows. */
struct name {
    char text[96];
};

static struct name layer_name(const char *part, int64_t index, const char *rest)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "model.%s.layers.%lld%s", part,
             (long long)index, rest);
    return name;
}

static attn_status add_attention(attn_translator *translator, attn_multihead_layer *layer,
                                 attn_norm_layer *norm, const char *stack,
                                 const char *name, attn_part part, int64_t index)
{
    const int64_t width = translator->config.width;
    char norm_name[48];
    snprintf(norm_name, sizeof norm_name, "%s_layer_norm", name);
    ATTN_TRY(attn_multihead_layer_add(layer, &translator->parameters,
                                      layer_name(stack, index, name).text, width,
                                      translator->config.heads, part, index));
    return attn_norm_layer_add(norm, &translator->parameters,
                               layer_name(stack, index, norm_name).text, width,
                               NORM_EPSILON);
}

static attn_status add_feed_forward(attn_translator *translator,
                                    attn_feed_forward_layer *layer, attn_norm_layer *norm,
                                    const char *stack, int64_t index)
{
    const attn_translator_config *const config = &translator->config;
    ATTN_TRY(attn_feed_forward_layer_add(layer, &translator->parameters,
                                         layer_name(stack, index, "").text, config->width,
                                         config->inner, config->activation));
    return attn_norm_layer_add(norm, &translator->parameters,
                               layer_name(stack, index, ".final_layer_norm").text,
                               config->width, NORM_EPSILON);
}

static attn_status add_encoder_layer(attn_translator *translator, int64_t index)
{
    attn_encoder_layer *const layer = &translator->encoder[index];
    ATTN_TRY(add_attention(translator, &layer->self, &layer->self_norm, "encoder",
                           ".self_attn", ATTN_PART_ENCODER, index));
    return add_feed_forward(translator, &layer->feed_forward, &layer->final_norm,
                            "encoder", index);
}

static attn_status add_decoder_layer(attn_translator *translator, int64_t index)
{
    attn_decoder_layer *const layer = &translator->decoder[index];
    ATTN_TRY(add_attention(translator, &layer->self, &layer->self_norm, "decoder",
                           ".self_attn", ATTN_PART_DECODER, index));
    ATTN_TRY(add_attention(translator, &layer->cross, &layer->cross_norm, "decoder",
                           ".encoder_attn", ATTN_PART_CROSS, index));
    return add_feed_forward(translator, &layer->feed_forward, &layer->final_norm,
                            "decoder", index);
}

/* A table of positions where they are learned, and the norm that ends a stack where
 * normalising comes first. */
static attn_status add_stack(attn_translator *translator, attn_norm_layer *norm,
                             const char *norm_name, size_t *positions,
                             const char *positions_name)
{
    const attn_translator_config *const config = &translator->config;
    attn_parameters *const parameters = &translator->parameters;
    const int64_t table[] = {config->max_positions, config->width};
    if (config->learned_positions)
        ATTN_TRY(attn_parameters_add(parameters, positions_name, 2, table,
                                     ATTN_INITIAL_NORMAL, positions));
    if (config->normalise_first)
        ATTN_TRY(attn_norm_layer_add(norm, parameters, norm_name, config->width,
                                     NORM_EPSILON));
    return ATTN_OK;
}

static attn_status add_output(attn_translator *translator)
{
    const attn_translator_config *const config = &translator->config;
    attn_parameters *const parameters = &translator->parameters;
    const int64_t table[] = {config->vocabulary, config->width};
    const int64_t row[] = {1, config->vocabulary};
    translator->output = translator->embedding;
    if (config->untied)
        ATTN_TRY(attn_parameters_add(parameters, "lm_head.weight", 2, table,
                                     ATTN_INITIAL_NORMAL, &translator->output));
    if (config->normalise_first)
        return ATTN_OK;
    ATTN_TRY(attn_parameters_add(parameters, "final_logits_bias", 2, row,
                                 ATTN_INITIAL_ZEROS, &translator->output_bias));
    parameters->list[translator->output_bias].decays = false; /* a bias, of rank 2 */
    return ATTN_OK;
}

static attn_status add_parameters(attn_translator *translator)
{
    const attn_translator_config *const config = &translator->config;
    const int64_t table[] = {config->vocabulary, config->width};
    ATTN_TRY(attn_parameters_add(&translator->parameters, "model.shared.weight", 2, table,
                                 ATTN_INITIAL_NORMAL, &translator->embedding));
    for (int64_t i = 0; i < config->encoder_layers; i++)
        ATTN_TRY(add_encoder_layer(translator, i));
    ATTN_TRY(add_stack(translator, &translator->encoder_norm, "model.encoder.layer_norm",
                       &translator->encoder_positions,
                       "model.encoder.embed_positions.weight"));
    for (int64_t i = 0; i < config->decoder_layers; i++)
        ATTN_TRY(add_decoder_layer(translator, i));
    ATTN_TRY(add_stack(translator, &translator->decoder_norm, "model.decoder.layer_norm",
                       &translator->decoder_positions,
                       "model.decoder.embed_positions.weight"));
    return add_output(translator);
}

attn_status attn_translator_outline(attn_translator **translator,
                                    const attn_translator_config *config,
                                    attn_error *error)
{
    *translator = NULL;
    ATTN_TRY(check_config(config, error));
    attn_translator *const outlined = calloc(1, sizeof *outlined);
    if (!outlined)
        return attn_error_set(error, ATTN_ENOMEM, "translator: no memory");
    outlined->config = *config;
    outlined->first_position = config->normalise_first ? ATTN_FIRST_POSITION : 0;
    outlined->encoder = calloc((size_t)config->encoder_layers, sizeof *outlined->encoder);
    outlined->decoder = calloc((size_t)config->decoder_layers, sizeof *outlined->decoder);
    const attn_status status =
        outlined->encoder && outlined->decoder ? add_parameters(outlined) : ATTN_ENOMEM;
    if (status != ATTN_OK) {
        attn_translator_destroy(outlined);
        return attn_error_set(error, status, "translator: the list of parameters: %s",
                              attn_status_name(status));
    }
    *translator = outlined;
    return ATTN_OK;
}

attn_status attn_translator_add_positions(attn_translator *translator, attn_error *error)
{
    const attn_translator_config *const config = &translator->config;
    const int64_t rows = translator->first_position + config->max_positions;
    if (config->learned_positions)
        return ATTN_OK;
    translator->positions = malloc((size_t)(rows * config->width) * sizeof(float));
    if (!translator->positions)
        return attn_error_set(error, ATTN_ENOMEM,
                              "translator: no memory for %lld positions",
                              (long long)rows);
    if (config->normalise_first)
        attn_sinusoidal_positions_fairseq(translator->positions, rows, config->width,
                                          ATTN_POSITION_OF_PADDING);
    else
        attn_sinusoidal_positions(translator->positions, rows, config->width, true);
    return ATTN_OK;
}

attn_status attn_translator_create(attn_translator **translator,
                                   const attn_translator_config *config, uint64_t seed,
                                   attn_error *error)
{
    attn_translator *created;
    *translator = NULL;
    ATTN_TRY(attn_translator_outline(&created, config, error));
    attn_status status =
        attn_allocate_parameters("translator", &created->parameters, error);
    if (status == ATTN_OK)
        status = attn_translator_add_positions(created, error);
    if (status != ATTN_OK) {
        attn_translator_destroy(created);
        return status;
    }
    attn_parameters_initialise(&created->parameters, seed);
    *translator = created;
    return ATTN_OK;
}

void attn_translator_destroy(attn_translator *translator)
{
    if (!translator)
        return;
    attn_parameters_free(&translator->parameters);
    free(translator->positions);
    free(translator->encoder);
    free(translator->decoder);
    free(translator);
}

const attn_translator_config *attn_translator_config_of(const attn_translator *translator)
{
    return &translator->config;
}

const char *attn_translator_note(const attn_translator *translator)
{
    return translator->note;
}

attn_parameters *attn_translator_parameters(attn_translator *translator)
{
    return &translator->parameters;
}

/* ---- As any model that reads and writes ------------------------------------------- */

static attn_status start(attn_decoder *decoder, const void *model, attn_tape *tape,
                         const int32_t *source, attn_packing packing, int64_t max_rows,
                         attn_error *error)
{
    return attn_decoding_start(decoder, model, tape, source, packing, max_rows, error);
}

static attn_tensor *hidden(const void *model, const attn_pass *pass,
                           const attn_pair_batch *batch)
{
    return attn_translator_hidden(model, pass, batch);
}

static attn_tensor *loss(const void *model, const attn_pass *pass,
                         const attn_pair_batch *batch, float smoothing, double divisor,
                         double *plain)
{
    return attn_translator_loss(model, pass, batch, smoothing, divisor, plain);
}

static attn_status save(const void *model, const char *folder, int dtype,
                        attn_error *error)
{
    return attn_translator_save(model, folder, dtype, error);
}

static void destroy(void *model)
{
    attn_translator_destroy(model);
}

attn_seq2seq attn_translator_seq2seq(attn_translator *translator)
{
    static const attn_seq2seq_kind kind = {start, hidden, loss, save, destroy};
    const attn_translator_config *const config = &translator->config;
    return (attn_seq2seq){
        .kind = &kind,
        .model = translator,
        .parameters = &translator->parameters,
        .vocabulary = config->vocabulary,
        .max_positions = config->max_positions,
        .attention = {[ATTN_PART_ENCODER] = {config->encoder_layers, config->heads},
                      [ATTN_PART_DECODER] = {config->decoder_layers, config->heads},
                      [ATTN_PART_CROSS] = {config->decoder_layers, config->heads}},
        .languages = &config->languages,
        .note = translator->note,
    };
}
