/* The recurrent translator: a GRU or LSTM reads the source, both ways or one, another
 * writes the target, and between them stands attention of one head with a score to
 * choose, or none (Cho et al. 2014; Bahdanau et al. 2014; Luong et al. 2015).  With s the
 * decoder's states of its last layer, h the encoder's, e the embedding of the token that
 * is fed:
 *
 *     h = encoder(e of the source)        s_0 = tanh(bridge([h's last states]))
 *     score(s, h_j) = v·tanh(W s + b + U h_j)      additive
 *                   = s·h_j  or  s·W h_j           dot, general
 *                   = s·h_j/√(width of h)          scaled dot
 *     c = Σ softmax(score)_j h_j          or without attention h's last states
 *     output:  s_t = decoder(s_{t−1}, e_t)         c_t from s_t      (Luong, no feeding)
 *     input:   s_t = decoder(s_{t−1}, [e_t; c_t])  c_t from s_{t−1}  (Bahdanau)
 *     logits = embedding · tanh(merge([s_t; c_t])) + bias
 *
 * With the context at the output the recurrence runs over the whole target at once, and
 * one attention follows for all steps; at the input it goes step by step, all sequences
 * of the batch together.  Parameters have the names and shapes of PyTorch's GRU, LSTM,
 * Linear and Embedding. */
#ifndef ATTN_MODEL_RECURRENT_TRANSLATOR_H
#define ATTN_MODEL_RECURRENT_TRANSLATOR_H

#include "model/seq2seq.h"

typedef enum attn_cross_score {
    ATTN_CROSS_NONE,
    ATTN_CROSS_ADDITIVE,
    ATTN_CROSS_DOT,
    ATTN_CROSS_GENERAL,
    ATTN_CROSS_SCALED_DOT,
    ATTN_CROSS_SCORES
} attn_cross_score;

/** "none", "additive", "dot", "general", "scaled_dot" */
extern const char *const attn_cross_names[ATTN_CROSS_SCORES];

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
