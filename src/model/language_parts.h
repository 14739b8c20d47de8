/* What the files of the language model share: the model from inside. */
#ifndef ATTN_MODEL_LANGUAGE_PARTS_H
#define ATTN_MODEL_LANGUAGE_PARTS_H

#include "model/language.h"
#include "nn/recurrent.h"

/* Indices of parameters. */
typedef struct attn_language_layer {
    size_t attention_norm, query, key, value, out;
    attn_linear_layer forget; /* where the model forgets */
    size_t sinks;             /* where it has some */
    size_t feed_norm, gate, up, down;
} attn_language_layer;

struct attn_language {
    attn_language_config config;
    attn_parameters parameters;
    size_t embedding, norm, output; /* output is the embedding where they are tied */
    attn_language_layer *layers;
    float *cosine, *sine;           /* [max_positions][head width/2] */
    float *slopes;                  /* [heads], where the model has ALiBi; else NULL */
    attn_recurrent_layer recurrent; /* the LSTM body, in place of layers and norm */
    char note[160];
};

/* Names and shapes of the parameters, whose memory is not yet there. */
ATTN_CHECKED attn_status attn_language_outline(attn_language **language,
                                               const attn_language_config *config,
                                               attn_error *error);
/* What positions are told by: the table of angles, and slopes. */
ATTN_CHECKED attn_status attn_language_add_positions(attn_language *language,
                                                     attn_error *error);

/* A pass over packed tokens, and what differs between a pass over whole texts and one
 * that goes on from a cache. */
typedef struct attn_language_reading {
    const attn_language *language;
    const attn_pass *pass;
    attn_packing packing;
    const int32_t *positions; /* of each token in its text */

    /* Attention of a layer, from queries and keys that are not yet turned; NULL: each
     * text to itself. */
    attn_tensor *(*attend)(const struct attn_language_reading *reading, int64_t layer,
                           attn_tensor *query, const attn_memory *memory);
    void *user;

    /* Of the LSTM; NULL: zeros before, and not wanted after. */
    const attn_recurrent_states *before;
    attn_recurrent_states *after;
} attn_language_reading;

/* Rows of queries (heads) or keys (key_heads) turned by their positions, where the model
 * has some. */
attn_tensor *attn_language_turn(const attn_language_reading *reading, attn_tensor *x,
                                const int32_t *positions, int64_t heads);
/* What attention of the model's heads is told. */
attn_heads attn_language_heads(const attn_language *language, const attn_pass *pass,
                               int64_t layer);
/* Hidden states that the output reads, [tokens][width]. */
attn_tensor *attn_language_read(const attn_language_reading *reading, const int32_t *ids);
/* Logits of hidden states. */
attn_tensor *attn_language_project(const attn_language *language, const attn_pass *pass,
                                   attn_tensor *hidden);

#endif
