/* What the files of the translator share: the model from inside. */
#ifndef ATTN_MODEL_TRANSLATOR_PARTS_H
#define ATTN_MODEL_TRANSLATOR_PARTS_H

#include "model/config_file.h"
#include "model/translator.h"

enum {
    /* Row 1 of M2M100's position table is the padding's, so that the first token of a
     * sequence has row 2, as in fairseq.  In Marian it has row 0. */
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
    size_t output_bias;       /* where normalising comes last, as the two below */
    size_t encoder_positions, decoder_positions; /* where they are learned */
    float *positions;       /* [first_position + max_positions][width], else */
    int64_t first_position; /* the row of a sequence's first token */
    attn_encoder_layer *encoder;
    attn_decoder_layer *decoder;
    attn_norm_layer encoder_norm, decoder_norm; /* where normalising comes first */
    char note[160];
};

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_translator_outline(attn_translator **translator,
                                                 const attn_translator_config *config,
                                                 attn_error *error);
/* The table of positions, where they are not learned. */
ATTN_CHECKED attn_status attn_translator_add_positions(attn_translator *translator,
                                                       attn_error *error);

/* config.json and its companions, see translator_config.c. */
ATTN_CHECKED attn_status attn_translator_config_read(attn_translator_config *config,
                                                     const attn_config_file *file);
ATTN_CHECKED attn_status
attn_translator_config_write(const attn_translator_config *config, const char *folder,
                             int dtype, attn_error *error);

/* Embeds ids of the encoder's or the decoder's part, adds positions from `first`, drops.
 */
attn_tensor *attn_translator_embed(const attn_translator *translator,
                                   const attn_pass *pass, attn_part part,
                                   const int32_t *ids, attn_packing packing,
                                   int64_t first);
/* What a sub-layer, or what follows a whole stack, reads: norm(x) where normalising comes
 * first, x where it comes last. */
attn_tensor *attn_translator_enter(const attn_translator *translator,
                                   const attn_norm_layer *norm, const attn_pass *pass,
                                   attn_tensor *x);
/* Logits of the decoder's hidden states. */
attn_tensor *attn_translator_project(const attn_translator *translator,
                                     const attn_pass *pass, attn_tensor *hidden);
/* One layer of the decoder; entered is attn_translator_enter of x, self and cross are
 * what its attentions read. */
attn_tensor *attn_decoder_layer_forward(
    const attn_translator *translator, const attn_decoder_layer *layer,
    const attn_pass *pass, attn_tensor *x, attn_tensor *entered, attn_packing packing,
    const attn_memory *self, attn_packing cross_packing, const attn_memory *cross);

#endif
