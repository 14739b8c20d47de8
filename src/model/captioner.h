/* A captioner (Xu et al. 2015, "soft" attention, small): convolutions make a grid of
 * features of a picture, and a recurrent decoder writes about it, attending to the places
 * of the grid with every word.  See recurrent_decoder.h for the decoder.
 *
 *     x ← relu(convolution 3 × 3 of x)
 *     features = x + place
 *
 * with a layer for each width of channels, of which the first, `halvings` of them, keep
 * every second place either way, and a learned vector for each place of the grid.
 *
 * Parameters: convolutions.N.weight [out][9·in] and .bias, places.weight, and those of
 * the decoder. */
#ifndef ATTN_MODEL_CAPTIONER_H
#define ATTN_MODEL_CAPTIONER_H

#include "model/recurrent_decoder.h"

enum { ATTN_CAPTIONER_LAYERS = 6 };

typedef struct attn_captioner_config {
    int64_t rows, columns;           /* of a picture, points */
    int64_t cell_rows, cell_columns; /* what the picture is made of, for those who ask
                                      * whether a word looked into its cell; 1 × 1 where
                                      * it is not made of cells */
    int64_t layers, channels[ATTN_CAPTIONER_LAYERS];
    int64_t halvings;                      /* at most layers */
    int64_t max_positions;                 /* longest caption in tokens, </s> included */
    attn_recurrent_decoder_config decoder; /* source_width is the last of channels */
} attn_captioner_config;

typedef struct attn_captioner attn_captioner;

/** New, with initialised parameters.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: a size out of range, cells that do not
 *         divide the picture, what attn_recurrent_decoder_add refuses. */
ATTN_CHECKED attn_status attn_captioner_create(attn_captioner **captioner,
                                               const attn_captioner_config *config,
                                               uint64_t seed, attn_error *error);
/** From config.json (model_type "attn-captioner") and model.safetensors; see
 * attn_translator_load, whose checks and returns these are. */
ATTN_CHECKED attn_status attn_captioner_load(attn_captioner **captioner,
                                             const char *folder, attn_error *error);
/** config.json, tokenizer_config.json and model.safetensors (attn_dtype ATTN_DTYPE_F32 or
 * ATTN_DTYPE_BF16), each whole or not at all; the folder is made where it is missing. */
ATTN_CHECKED attn_status attn_captioner_save(const attn_captioner *captioner,
                                             const char *folder, int dtype,
                                             attn_error *error);
void attn_captioner_destroy(attn_captioner *captioner);
const attn_captioner_config *attn_captioner_config_of(const attn_captioner *captioner);
/** Its parameters: training changes their values. */
attn_parameters *attn_captioner_parameters(attn_captioner *captioner);
/** What loading found worth saying, or "". */
const char *attn_captioner_note(const attn_captioner *captioner);

/** Places of the grid over a picture, either way. */
void attn_captioner_grid(const attn_captioner *captioner, int64_t *rows,
                         int64_t *columns);

/** Captions to be learnt, packed. */
typedef struct attn_caption_batch {
    int64_t pictures;
    const uint8_t *grey;       /* [pictures][rows][columns], 255 ink */
    const int32_t *target_in;  /* </s> first */
    const int32_t *target_out; /* </s> last; same starts */
    const int64_t *target_starts;
} attn_caption_batch;

/** What the vocabulary projection reads, [target tokens][embedding]; the pass's observer
 * hears of the attention to the grid, all steps at once. */
attn_tensor *attn_captioner_hidden(const attn_captioner *captioner, const attn_pass *pass,
                                   const attn_caption_batch *batch);
/** Sum over target tokens of the smoothed loss, divided by divisor; see
 * attn_linear_cross_entropy. */
attn_tensor *attn_captioner_loss(const attn_captioner *captioner, const attn_pass *pass,
                                 const attn_caption_batch *batch, float smoothing,
                                 double divisor, double *plain);

/** Writes about pictures, grey [pictures][rows][columns]; see attn_search.
 * @param captions  [pictures], zeros before; free each one's ids, also on failure. */
ATTN_CHECKED attn_status attn_captioner_write(const attn_captioner *captioner,
                                              attn_context *context, const uint8_t *grey,
                                              int64_t pictures,
                                              const attn_search_options *options,
                                              attn_translation *captions,
                                              attn_error *error);

#endif
