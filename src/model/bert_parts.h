/* What the files of BERT share: the model from inside. */
#ifndef ATTN_MODEL_BERT_PARTS_H
#define ATTN_MODEL_BERT_PARTS_H

#include "model/bert.h"
#include "model/config_file.h"
#include "model/labels.h"

typedef struct attn_bert_layer {
    attn_multihead_layer self;
    attn_feed_forward_layer feed_forward;
    attn_norm_layer self_norm, final_norm;
} attn_bert_layer;

struct attn_bert {
    attn_bert_config config;
    attn_parameters parameters;
    size_t embedding, positions, types;
    attn_norm_layer embedding_norm;
    attn_bert_layer *layers;
    attn_linear_layer transform; /* masked: before the projection */
    attn_norm_layer transform_norm;
    size_t output, output_bias; /* masked; output is the embedding where they are tied */
    attn_linear_layer pooler;   /* of texts */
    attn_linear_layer classifier;
    attn_labels labels; /* [config.labels] */
    char note[160];
};

/* Names that files and parameters tell things apart by.  What starts with bert. stands
 * below the head, the pooler too.  `transformers` adds the bias of the decoder, which is
 * cls.predictions.bias where the decoder is tied. */
#define ATTN_BERT_ENCODER "bert."
#define ATTN_BERT_POOLER "bert.pooler."
#define ATTN_BERT_EMBEDDING "bert.embeddings.word_embeddings.weight"
#define ATTN_BERT_OUTPUT "cls.predictions.decoder.weight"
#define ATTN_BERT_BIAS "cls.predictions.bias"
#define ATTN_BERT_UNTIED_BIAS "cls.predictions.decoder.bias"

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_bert_outline(attn_bert **bert,
                                           const attn_bert_config *config,
                                           attn_error *error);

/* config.json and tokenizer_config.json, see bert_config.c. */
ATTN_CHECKED attn_status attn_bert_config_read(const attn_config_file *file,
                                               attn_bert_config *config);
ATTN_CHECKED attn_status attn_bert_config_write(const attn_bert *bert, const char *folder,
                                                int dtype, attn_error *error);

#endif
