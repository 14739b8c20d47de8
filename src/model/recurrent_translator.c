/* A recurrent translator: its configuration checked, its parameters named, its life, and
 * what it computes with its encoder.  Its files are in recurrent_file.c. */
#include "base/context.h"
#include "model/checks.h"
#include "model/recurrent_parts.h"
#include <stdlib.h>

static int64_t source_width(const attn_recurrent_translator_config *config)
{
    return config->encoder_width * (config->both_ways ? 2 : 1);
}

attn_recurrent_decoder_config
attn_recurrent_decoder_of(const attn_recurrent_translator_config *config)
{
    return (attn_recurrent_decoder_config){
        .vocabulary = config->vocabulary,
        .embedding = config->embedding,
        .cell = config->cell,
        .width = config->width,
        .layers = config->decoder_layers,
        .source_width = source_width(config),
        .attention = config->attention,
        .attention_width = config->attention_width,
        .context_enters = config->context_enters,
        .dropout = config->dropout,
        .untied = config->untied,
    };
}

/* Bounds of what a configuration may say: small enough that no product of two overflows
 * or takes seconds to outline. */
attn_status
attn_recurrent_translator_check(const attn_recurrent_translator_config *config,
                                attn_error *error)
{
    const attn_recurrent_decoder_config decoder = attn_recurrent_decoder_of(config);
    const attn_bound bounds[] = {
        {"encoder_width", config->encoder_width, 1, 1 << 16},
        {"encoder_layers", config->encoder_layers, 1, ATTN_RECURRENT_LAYERS},
        {"max_positions", config->max_positions, 1, 1 << 20},
    };
    ATTN_TRY(attn_check_bounds("recurrent translator", bounds,
                               sizeof bounds / sizeof bounds[0], error));
    return attn_recurrent_decoder_check(&decoder, error);
}

/* ---- Life ------------------------------------------------------------------------- */

static attn_status add_parameters(attn_recurrent_translator *translator,
                                  attn_error *error)
{
    const attn_recurrent_translator_config *const config = &translator->config;
    const attn_recurrent_decoder_config decoder = attn_recurrent_decoder_of(config);
    const attn_recurrent_options encoder = {.cell = config->cell,
                                            .in = config->embedding,
                                            .width = config->encoder_width,
                                            .layers = config->encoder_layers,
                                            .both_ways = config->both_ways,
                                            .has_bias = true};
    const attn_status status = attn_recurrent_layer_add(
        &translator->encoder, &translator->parameters, "encoder", &encoder);
    if (status != ATTN_OK)
        return attn_error_set(error, status,
                              "recurrent translator: the list of parameters: %s",
                              attn_status_name(status));
    return attn_recurrent_decoder_add(&translator->decoder, &translator->parameters,
                                      &decoder, error);
}

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
    const attn_status status = add_parameters(outlined, error);
    if (status == ATTN_OK)
        *translator = outlined;
    else
        attn_recurrent_translator_destroy(outlined);
    return status;
}

attn_status
attn_recurrent_translator_create(attn_recurrent_translator **translator,
                                 const attn_recurrent_translator_config *config,
                                 uint64_t seed, attn_error *error)
{
    attn_recurrent_translator *created;
    *translator = NULL;
    ATTN_TRY(attn_recurrent_translator_outline(&created, config, error));
    const attn_status status =
        attn_allocate_parameters("recurrent translator", &created->parameters, error);
    if (status != ATTN_OK) {
        attn_recurrent_translator_destroy(created);
        return status;
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

/* ---- What it computes ------------------------------------------------------------- */

static void read_source(const attn_recurrent_translator *translator,
                        const attn_pass *pass, const int32_t *ids, attn_packing packing,
                        attn_recurrent_source *source)
{
    const attn_recurrent_translator_config *const config = &translator->config;
    const int64_t ways = config->both_ways ? 2 : 1;
    const int64_t last = (config->encoder_layers - 1) * ways;
    attn_recurrent_states after = {{NULL}, {NULL}};
    attn_tensor *const encoded = attn_recurrent_layer_forward(
        &translator->encoder, pass,
        attn_recurrent_decoder_embed(&translator->decoder, pass, ids,
                                     packing.starts[packing.sequences]),
        packing, NULL, &after, config->dropout);
    attn_tensor *summary = after.state[last];
    if (config->both_ways)
        summary = attn_join(pass->tape, after.state[last], after.state[last + 1]);
    attn_recurrent_decoder_read(&translator->decoder, pass, encoded, summary, packing,
                                source);
}

attn_tensor *attn_recurrent_translator_hidden(const attn_recurrent_translator *translator,
                                              const attn_pass *pass,
                                              const attn_pair_batch *batch)
{
    const attn_packing from = {batch->sentences, batch->source_starts};
    const attn_packing to = {batch->sentences, batch->target_starts};
    attn_recurrent_source source;
    read_source(translator, pass, batch->source, from, &source);
    return attn_recurrent_decoder_hidden(&translator->decoder, pass, batch->target_in, to,
                                         &source);
}

attn_tensor *attn_recurrent_translator_loss(const attn_recurrent_translator *translator,
                                            const attn_pass *pass,
                                            const attn_pair_batch *batch, float smoothing,
                                            double divisor, double *plain)
{
    attn_tensor *const hidden = attn_recurrent_translator_hidden(translator, pass, batch);
    return attn_recurrent_decoder_loss(&translator->decoder, pass, hidden,
                                       batch->target_out, smoothing, divisor, plain);
}

attn_tensor *attn_recurrent_translator_logits(const attn_recurrent_translator *translator,
                                              const attn_pass *pass,
                                              const attn_pair_batch *batch)
{
    attn_tensor *const hidden = attn_recurrent_translator_hidden(translator, pass, batch);
    return attn_recurrent_decoder_project(&translator->decoder, pass, hidden);
}

/* ---- As any model that reads and writes ------------------------------------------- */

static attn_status start(attn_decoder *decoder, const void *model, attn_tape *tape,
                         const int32_t *source, attn_packing packing, int64_t max_rows,
                         attn_error *error)
{
    const attn_recurrent_translator *const translator = model;
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {.tape = tape, .parameters = &translator->parameters};
    attn_recurrent_source read;
    read_source(translator, &pass, source, packing, &read);
    ATTN_TRY(attn_tape_report(tape, error));
    return attn_recurrent_decoder_start(decoder, &translator->decoder, &pass, &read,
                                        max_rows, error);
}

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
    static const attn_seq2seq_kind kind = {start, hidden, loss, save, destroy};
    const attn_recurrent_translator_config *const config = &translator->config;
    const int64_t attentions = config->attention != ATTN_CROSS_NONE;
    return (attn_seq2seq){
        .kind = &kind,
        .model = translator,
        .parameters = &translator->parameters,
        .vocabulary = config->vocabulary,
        .max_positions = config->max_positions,
        .attention = {[ATTN_PART_CROSS] = {attentions, attentions}},
        .languages = &config->languages,
        .note = translator->note,
    };
}
