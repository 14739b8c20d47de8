/* What the files of this room share: a translator from inside. */
#ifndef ATTN_MODEL_TRANSFORMER_H
#define ATTN_MODEL_TRANSFORMER_H

#include "model/translator.h"

enum {
    /* Row 1 of the position table is the padding's, so that the first token of a sequence
     * has row 2, in M2M100 as in fairseq. */
    ATTN_POSITION_OF_PADDING = 1,
    ATTN_FIRST_POSITION = 2
};

typedef struct attn_encoder_layer {
    attn_norm_layer self_norm, final_norm;
    attn_multihead_layer self;
    attn_feed_forward_layer feed_forward;
} attn_encoder_layer;

typedef struct attn_decoder_layer {
    attn_norm_layer self_norm, cross_norm, final_norm;
    attn_multihead_layer self, cross;
    attn_feed_forward_layer feed_forward;
} attn_decoder_layer;

struct attn_translator {
    attn_translator_config config;
    attn_parameters parameters;
    size_t embedding, output; /* the same parameter where they are tied */
    float *positions;         /* [max_positions + 2][width] */
    attn_encoder_layer *encoder;
    attn_decoder_layer *decoder;
    attn_norm_layer encoder_norm, decoder_norm;
    char note[160];
};

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_translator_outline(attn_translator **translator,
                                                 const attn_translator_config *config,
                                                 attn_error *error);
/* Memory for the parameters (not initialised) and the table of positions. */
ATTN_CHECKED attn_status attn_translator_allocate(attn_translator *translator,
                                                  attn_error *error);

/* config.json and its companions, see config.c. */
ATTN_CHECKED attn_status attn_translator_config_read(attn_translator_config *config,
                                                     const char *path, attn_error *error);
ATTN_CHECKED attn_status
attn_translator_config_write(const attn_translator_config *config, const char *folder,
                             int dtype, attn_error *error);

/* Embeds ids, adds positions from `first`, drops. */
attn_tensor *attn_translator_embed(const attn_translator *translator,
                                   const attn_pass *pass, const int32_t *ids,
                                   attn_packing packing, int64_t first);
/* One layer of the decoder; self and cross are what its attentions read. */
attn_tensor *attn_decoder_layer_forward(
    const attn_translator *translator, const attn_decoder_layer *layer,
    const attn_pass *pass, attn_tensor *x, attn_tensor *normed, attn_packing packing,
    const attn_memory *self, attn_packing cross_packing, const attn_memory *cross);

#endif
