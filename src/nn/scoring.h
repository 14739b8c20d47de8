/* The kinds of scores that a query q and a key k of a head may have, with what each has
 * to learn.  All of them are one attention: a kind only makes its queries and options. */
#ifndef ATTN_NN_SCORING_H
#define ATTN_NN_SCORING_H

#include "nn/parameters.h"

typedef enum attn_scoring {
    ATTN_SCORING_SCALED,  /* q·k / √D: Vaswani et al. 2017 */
    ATTN_SCORING_DOT,     /* q·k: Luong et al. 2015, section 3.1, as is the next one */
    ATTN_SCORING_GENERAL, /* (W q)·k, where W may also lead to another width */
    ATTN_SCORING_ADDITIVE /* v·tanh(q + k), both projected before: Bahdanau et al. 2014 */
} attn_scoring;

/** "scaled", "dot", "general", "additive"; NULL for what is none of them. */
const char *attn_scoring_name(attn_scoring scoring);

typedef struct attn_scoring_layer {
    attn_scoring scoring;
    size_t parameter; /* .general.weight [key width][query width], .additive
                       * [heads][width / heads] */
} attn_scoring_layer;

struct attn_heads;

/**
 * @param key_width  of all heads' keys side by side; the query's too, unless general.
 * @return ATTN_EINVAL where a width is not a multiple of heads, or they differ.
 */
attn_status attn_scoring_layer_add(attn_scoring_layer *layer, attn_parameters *parameters,
                                   const char *prefix, attn_scoring scoring,
                                   int64_t heads, int64_t query_width, int64_t key_width);

/** The queries that attention is to be given; and says in heads how it scores. */
attn_tensor *attn_scoring_layer_forward(const attn_scoring_layer *layer,
                                        const attn_pass *pass, attn_tensor *query,
                                        struct attn_heads *heads);

#endif
