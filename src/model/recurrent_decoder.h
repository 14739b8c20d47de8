/* A recurrent decoder: a GRU or LSTM that writes, token by token, and between it and what
 * was read stands attention of one head with a score to choose, or none (Cho et al. 2014;
 * Bahdanau et al. 2014; Luong et al. 2015).  With s its states of the last layer, h the
 * source's states (of words, or of the places of a picture), e the embedding of the token
 * that is fed:
 *
 *     s_0 = tanh(bridge(summary of the source))
 *     score(s, h_j) = v·tanh(W s + b + U h_j)      additive
 *                   = s·h_j  or  s·W h_j           dot, general
 *                   = s·h_j/√(width of h)          scaled dot
 *     c = Σ softmax(score)_j h_j                   or without attention the summary
 *     output:  s_t = decoder(s_{t−1}, e_t)         c_t from s_t      (Luong, no feeding)
 *     input:   s_t = decoder(s_{t−1}, [e_t; c_t])  c_t from s_{t−1}  (Bahdanau)
 *     logits = embedding · tanh(merge([s_t; c_t])) + bias
 *
 * With the context at the output the recurrence runs over the whole target at once, and
 * one attention follows for all steps; at the input it goes step by step, all sequences
 * of the batch together.  Parameters have the names and shapes of PyTorch's GRU, LSTM,
 * Linear and Embedding. */
#ifndef ATTN_MODEL_RECURRENT_DECODER_H
#define ATTN_MODEL_RECURRENT_DECODER_H

#include "model/search.h"
#include "nn/recurrent.h"

typedef enum attn_cross_score {
    ATTN_CROSS_NONE,
    ATTN_CROSS_ADDITIVE,
    ATTN_CROSS_DOT,
    ATTN_CROSS_GENERAL,
    ATTN_CROSS_SCALED_DOT,
    ATTN_CROSS_SCORES
} attn_cross_score;

/** "none", "additive", "dot", "general", "scaled_dot" */
extern const char *const attn_cross_names[ATTN_CROSS_SCORES + 1]; /* NULL ends them */

typedef struct attn_recurrent_decoder_config {
    int64_t vocabulary;
    int64_t embedding; /* width of an embedding, and of what the projection reads */
    attn_cell cell;    /* ATTN_CELL_GRU or ATTN_CELL_LSTM */
    int64_t width, layers;
    int64_t source_width; /* of the source's states and of its summary */
    attn_cross_score attention;
    int64_t attention_width; /* of additive scores; else 0 */
    bool context_enters;     /* the recurrence ("input"), and not only the output */
    float dropout; /* of embeddings, between layers, and of what the projection reads */
    bool untied;   /* the vocabulary projection is output.weight and not the embedding */
} attn_recurrent_decoder_config;

typedef struct attn_recurrent_decoder {
    attn_recurrent_decoder_config config;
    size_t embedding, output, output_bias; /* output is embedding where they are tied */
    attn_linear_layer bridge; /* summary → [states, or states and memories, of layers] */
    attn_recurrent_layer recurrence;
    size_t query_weight, query_bias; /* additive (with its bias) and general */
    size_t key_weight, score_weight; /* additive */
    attn_linear_layer merge;
} attn_recurrent_decoder;

/** ATTN_OK, or ATTN_EINVAL that names what no decoder can be: a size out of range, dot
 * products between states of two widths, a dropout outside [0, 1). */
ATTN_CHECKED attn_status attn_recurrent_decoder_check(
    const attn_recurrent_decoder_config *config, attn_error *error);

/** Adds its parameters: embedding.weight, bridge, decoder.…, attention.…, merge, output.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL as attn_recurrent_decoder_check. */
ATTN_CHECKED attn_status attn_recurrent_decoder_add(
    attn_recurrent_decoder *decoder, attn_parameters *parameters,
    const attn_recurrent_decoder_config *config, attn_error *error);

/** Embeddings of tokens, after dropout, with √width, as the table is the projection too,
 * whose rows are of norm 1. */
attn_tensor *attn_recurrent_decoder_embed(const attn_recurrent_decoder *decoder,
                                          const attn_pass *pass, const int32_t *ids,
                                          int64_t count);

/** What the decoder reads. */
typedef struct attn_recurrent_source {
    attn_memory memory;           /* keys and values of attention; NULL without it */
    attn_tensor *summary;         /* [sequences][source width] */
    attn_recurrent_states states; /* that the decoder starts from, [sequences][width] */
} attn_recurrent_source;

/** From the source's states, packed, [tokens][source width], and their summary. */
void attn_recurrent_decoder_read(const attn_recurrent_decoder *decoder,
                                 const attn_pass *pass, attn_tensor *encoded,
                                 attn_tensor *summary, attn_packing packing,
                                 attn_recurrent_source *source);

/** What the vocabulary projection reads, [target tokens][embedding], for the tokens that
 * are fed, </s> first; the pass's observer hears of the attention, all steps at once. */
attn_tensor *attn_recurrent_decoder_hidden(const attn_recurrent_decoder *decoder,
                                           const attn_pass *pass, const int32_t *target,
                                           attn_packing packing,
                                           const attn_recurrent_source *source);
/** [target tokens][vocabulary] */
attn_tensor *attn_recurrent_decoder_project(const attn_recurrent_decoder *decoder,
                                            const attn_pass *pass, attn_tensor *hidden);
/** See attn_linear_cross_entropy. */
attn_tensor *attn_recurrent_decoder_loss(const attn_recurrent_decoder *decoder,
                                         const attn_pass *pass, attn_tensor *hidden,
                                         const int32_t *target_out, float smoothing,
                                         double divisor, double *plain);

/** One token at a time, for attn_search: keeps a copy of what was read, and of each row
 * the states after its last token.  decoder, parameters and tape outlive it, and every
 * step begins the tape anew.  A row's bits do not depend on the other rows.
 * @param max_rows  beams of all sequences together, at most. */
ATTN_CHECKED attn_status attn_recurrent_decoder_start(
    attn_decoder *search, const attn_recurrent_decoder *decoder, const attn_pass *pass,
    const attn_recurrent_source *source, int64_t max_rows, attn_error *error);

#endif
