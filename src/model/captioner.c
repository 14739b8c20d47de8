/* The captioner: its grid of features, and what it asks of the decoder.  Its files are in
 * captioner_file.c. */
#include "base/context.h"
#include "model/captioner_parts.h"
#include "model/checks.h"
#include "nn/convolution.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>

enum { TAPS = 3, MOST_SIDE = 1024 };

/* ---- Life ------------------------------------------------------------------------- */

static attn_status check_config(const attn_captioner_config *config, attn_error *error)
{
    const attn_bound bounds[] = {
        {"rows", config->rows, 1, MOST_SIDE},
        {"columns", config->columns, 1, MOST_SIDE},
        {"cell_rows", config->cell_rows, 1, config->rows},
        {"cell_columns", config->cell_columns, 1, config->columns},
        {"layers", config->layers, 1, ATTN_CAPTIONER_LAYERS},
        {"halvings", config->halvings, 0, config->layers},
        {"max_positions", config->max_positions, 1, 1 << 20},
    };
    ATTN_TRY(
        attn_check_bounds("captioner", bounds, sizeof bounds / sizeof bounds[0], error));
    for (int64_t i = 0; i < config->layers; i++)
        if (config->channels[i] < 1 || config->channels[i] > 4096)
            return attn_error_set(error, ATTN_EINVAL,
                                  "captioner: channels %lld are %lld, expected 1 to 4096",
                                  (long long)i + 1, (long long)config->channels[i]);
    if (config->rows % config->cell_rows != 0 ||
        config->columns % config->cell_columns != 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "captioner: %lld × %lld points in %lld × %lld cells, "
                              "expected cells that divide them",
                              (long long)config->rows, (long long)config->columns,
                              (long long)config->cell_rows,
                              (long long)config->cell_columns);
    if (config->decoder.source_width != config->channels[config->layers - 1])
        return attn_error_set(error, ATTN_EINVAL,
                              "captioner: the decoder reads a width of %lld, expected "
                              "%lld, the last of channels",
                              (long long)config->decoder.source_width,
                              (long long)config->channels[config->layers - 1]);
    return ATTN_OK;
}

void attn_captioner_grid(const attn_captioner *captioner, int64_t *rows, int64_t *columns)
{
    *rows = captioner->config.rows;
    *columns = captioner->config.columns;
    for (int64_t i = 0; i < captioner->config.halvings; i++) {
        *rows = (*rows + 1) / 2;
        *columns = (*columns + 1) / 2;
    }
}

static attn_status add_parameters(attn_captioner *captioner, attn_error *error)
{
    const attn_captioner_config *const config = &captioner->config;
    attn_parameters *const parameters = &captioner->parameters;
    int64_t in = 1, grid_rows, grid_columns;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < config->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "convolutions.%lld", (long long)i);
        status = attn_linear_layer_add(&captioner->convolutions[i], parameters, name,
                                       TAPS * TAPS * in, config->channels[i]);
        in = config->channels[i];
    }
    attn_captioner_grid(captioner, &grid_rows, &grid_columns);
    const int64_t places[] = {grid_rows * grid_columns, in};
    if (status == ATTN_OK)
        status = attn_parameters_add(parameters, "places.weight", 2, places,
                                     ATTN_INITIAL_NORMAL, &captioner->places);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "captioner: the list of parameters: %s",
                              attn_status_name(status));
    return attn_recurrent_decoder_add(&captioner->decoder, parameters, &config->decoder,
                                      error);
}

attn_status attn_captioner_outline(attn_captioner **captioner,
                                   const attn_captioner_config *config, attn_error *error)
{
    *captioner = NULL;
    ATTN_TRY(check_config(config, error));
    attn_captioner *const outlined = calloc(1, sizeof *outlined);
    if (!outlined)
        return attn_error_set(error, ATTN_ENOMEM, "captioner: no memory");
    outlined->config = *config;
    const attn_status status = add_parameters(outlined, error);
    if (status == ATTN_OK)
        *captioner = outlined;
    else
        attn_captioner_destroy(outlined);
    return status;
}

attn_status attn_captioner_create(attn_captioner **captioner,
                                  const attn_captioner_config *config, uint64_t seed,
                                  attn_error *error)
{
    attn_captioner *created;
    *captioner = NULL;
    ATTN_TRY(attn_captioner_outline(&created, config, error));
    const attn_status status =
        attn_allocate_parameters("captioner", &created->parameters, error);
    if (status != ATTN_OK) {
        attn_captioner_destroy(created);
        return status;
    }
    attn_parameters_initialise(&created->parameters, seed);
    *captioner = created;
    return ATTN_OK;
}

void attn_captioner_destroy(attn_captioner *captioner)
{
    if (!captioner)
        return;
    attn_parameters_free(&captioner->parameters);
    free(captioner);
}

const attn_captioner_config *attn_captioner_config_of(const attn_captioner *captioner)
{
    return &captioner->config;
}

attn_parameters *attn_captioner_parameters(attn_captioner *captioner)
{
    return &captioner->parameters;
}

const char *attn_captioner_note(const attn_captioner *captioner)
{
    return captioner->note;
}

/* ---- What it computes ------------------------------------------------------------- */

/* Ink as numbers about 0: a picture of digits is one part ink in ten. */
static attn_tensor *points_of(const attn_captioner *captioner, const attn_pass *pass,
                              const uint8_t *grey, int64_t pictures)
{
    const int64_t extent[] = {
        pictures * captioner->config.rows * captioner->config.columns, 1};
    float *const points =
        attn_tape_allocate(pass->tape, (size_t)extent[0] * sizeof *points);
    for (int64_t i = 0; points && i < extent[0]; i++)
        points[i] = ((float)grey[i] / 255.0f - 0.1f) / 0.3f;
    return points ? attn_tape_leaf(pass->tape, points, NULL, 2, extent) : NULL;
}

/* [pictures·places][channels], and where each picture's places start. */
static attn_tensor *features_of(const attn_captioner *captioner, const attn_pass *pass,
                                const uint8_t *grey, attn_packing *packing)
{
    const attn_captioner_config *const config = &captioner->config;
    const int64_t pictures = packing->sequences;
    attn_grid grid = {pictures, config->rows, config->columns};
    attn_tensor *x = points_of(captioner, pass, grey, pictures);
    for (int64_t i = 0; i < config->layers; i++)
        x = attn_activate(pass->tape,
                          attn_convolve_grid(&captioner->convolutions[i], pass, x, &grid,
                                             TAPS, i < config->halvings ? 2 : 1),
                          ATTN_RELU);
    const int64_t places = grid.rows * grid.columns;
    int64_t *const starts =
        attn_tape_allocate(pass->tape, ((size_t)pictures + 1) * sizeof *starts);
    for (int64_t n = 0; starts && n <= pictures; n++)
        starts[n] = n * places;
    packing->starts = starts;
    if (!starts)
        return NULL;
    return attn_dropout(pass->tape,
                        attn_add_positions(pass, x, *packing,
                                           attn_pass_parameter(pass, captioner->places),
                                           0),
                        config->decoder.dropout);
}

/* What the decoder reads of pictures. */
static bool see(const attn_captioner *captioner, const attn_pass *pass,
                const uint8_t *grey, int64_t pictures, attn_recurrent_source *source)
{
    attn_packing packing = {.sequences = pictures};
    attn_tensor *const features = features_of(captioner, pass, grey, &packing);
    if (!features)
        return false;
    attn_tensor *const summary = attn_pool(pass->tape, features, ATTN_POOL_MEAN,
                                           packing.sequences, packing.starts);
    attn_recurrent_decoder_read(&captioner->decoder, pass, features, summary, packing,
                                source);
    return attn_tape_status(pass->tape) == ATTN_OK;
}

attn_tensor *attn_captioner_hidden(const attn_captioner *captioner, const attn_pass *pass,
                                   const attn_caption_batch *batch)
{
    const attn_packing packing = {batch->pictures, batch->target_starts};
    attn_recurrent_source source;
    if (!see(captioner, pass, batch->grey, batch->pictures, &source))
        return NULL;
    return attn_recurrent_decoder_hidden(&captioner->decoder, pass, batch->target_in,
                                         packing, &source);
}

attn_tensor *attn_captioner_loss(const attn_captioner *captioner, const attn_pass *pass,
                                 const attn_caption_batch *batch, float smoothing,
                                 double divisor, double *plain)
{
    return attn_recurrent_decoder_loss(&captioner->decoder, pass,
                                       attn_captioner_hidden(captioner, pass, batch),
                                       batch->target_out, smoothing, divisor, plain);
}

/* ---- Writing ---------------------------------------------------------------------- */

static attn_status search(const attn_captioner *captioner, attn_tape *tape,
                          const uint8_t *grey, int64_t pictures, const int64_t *limits,
                          const attn_search_options *options, attn_translation *captions,
                          attn_error *error)
{
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {.tape = tape, .parameters = &captioner->parameters};
    attn_recurrent_source source;
    attn_decoder decoder;
    if (!see(captioner, &pass, grey, pictures, &source))
        return attn_tape_report(tape, error);
    ATTN_TRY(attn_recurrent_decoder_start(&decoder, &captioner->decoder, &pass, &source,
                                          pictures * options->beams, error));
    const attn_status status =
        attn_search(&decoder, pictures, limits, options, 0, captions, error);
    decoder.destroy(decoder.state);
    return status;
}

attn_status attn_captioner_write(const attn_captioner *captioner, attn_context *context,
                                 const uint8_t *grey, int64_t pictures,
                                 const attn_search_options *options,
                                 attn_translation *captions, attn_error *error)
{
    attn_tape *tape;
    const attn_status created = attn_tape_create(&tape, context);
    if (created != ATTN_OK)
        return attn_error_from_context(error, created, context);
    int64_t *const limits = malloc(((size_t)pictures + 1) * sizeof *limits);
    attn_status status = ATTN_ENOMEM;
    for (int64_t n = 0; limits && n < pictures; n++)
        limits[n] = options->max_length > 0 &&
                            options->max_length < captioner->config.max_positions
                        ? options->max_length
                        : captioner->config.max_positions;
    if (limits)
        status =
            search(captioner, tape, grey, pictures, limits, options, captions, error);
    else
        attn_error_set(error, status, "captioner: no memory for %lld pictures",
                       (long long)pictures);
    free(limits);
    attn_tape_destroy(tape);
    return status;
}
