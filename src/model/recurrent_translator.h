/* The recurrent translator: a GRU or LSTM reads the source, both ways or one, and a
 * recurrent decoder writes the target, with attention of a score to choose, or none (see
 * recurrent_decoder.h).  With e the embedding of the source's tokens:
 *
 *     h = encoder(e)        summary = h's last states, of both directions
 *
 * Parameters have the names and shapes of PyTorch's GRU, LSTM, Linear and Embedding. */
#ifndef ATTN_MODEL_RECURRENT_TRANSLATOR_H
#define ATTN_MODEL_RECURRENT_TRANSLATOR_H

#include "model/recurrent_decoder.h"
#include "model/seq2seq.h"

typedef struct attn_recurrent_translator_config {
    int64_t vocabulary;
    int64_t embedding;     /* width of an embedding, and of what the projection reads */
    attn_cell cell;        /* ATTN_CELL_GRU or ATTN_CELL_LSTM, of both sides */
    int64_t encoder_width; /* of the state of each direction */
    int64_t encoder_layers, decoder_layers;
    bool both_ways; /* the encoder */
    int64_t width;  /* of the decoder's state */
    attn_cross_score attention;
    int64_t attention_width; /* of additive scores; else 0 */
    bool context_enters;     /* the recurrence ("input"), and not only the output */
    int64_t max_positions;   /* longest source or target in tokens, </s> included */
    float dropout; /* of embeddings, between layers, and of what the projection reads */
    bool untied;   /* the vocabulary projection is output.weight and not the embedding */
    attn_languages languages;
} attn_recurrent_translator_config;

typedef struct attn_recurrent_translator attn_recurrent_translator;

/** ATTN_OK, or ATTN_EINVAL that names what no translator can be: a size out of range, dot
 * products between states of two widths, a dropout outside [0, 1). */
ATTN_CHECKED attn_status attn_recurrent_translator_check(
    const attn_recurrent_translator_config *config, attn_error *error);
/** New, with initialised parameters.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL as attn_recurrent_translator_check. */
ATTN_CHECKED attn_status attn_recurrent_translator_create(
    attn_recurrent_translator **translator,
    const attn_recurrent_translator_config *config, uint64_t seed, attn_error *error);
/** From config.json (model_type "attn-recurrent-translator") and model.safetensors; see
 * attn_translator_load, whose checks and returns these are. */
ATTN_CHECKED attn_status attn_recurrent_translator_load(
    attn_recurrent_translator **translator, const char *folder, attn_error *error);
/** config.json, tokenizer_config.json and model.safetensors, each whole or not at all. */
ATTN_CHECKED attn_status
attn_recurrent_translator_save(const attn_recurrent_translator *translator,
                               const char *folder, int dtype, attn_error *error);
void attn_recurrent_translator_destroy(attn_recurrent_translator *translator);
const attn_recurrent_translator_config *
attn_recurrent_translator_config_of(const attn_recurrent_translator *translator);
attn_parameters *
attn_recurrent_translator_parameters(attn_recurrent_translator *translator);

/** Seen as what search, scores, training and the look inside ask for. */
attn_seq2seq attn_recurrent_translator_seq2seq(attn_recurrent_translator *translator);

/** What the vocabulary projection reads, [target tokens][embedding]. */
attn_tensor *attn_recurrent_translator_hidden(const attn_recurrent_translator *translator,
                                              const attn_pass *pass,
                                              const attn_pair_batch *batch);
attn_tensor *attn_recurrent_translator_loss(const attn_recurrent_translator *translator,
                                            const attn_pass *pass,
                                            const attn_pair_batch *batch, float smoothing,
                                            double divisor, double *plain);
/** [target tokens][vocabulary] */
attn_tensor *attn_recurrent_translator_logits(const attn_recurrent_translator *translator,
                                              const attn_pass *pass,
                                              const attn_pair_batch *batch);

#endif
