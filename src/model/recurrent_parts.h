/* The recurrent translator from inside, for the two files that make it. */
#ifndef ATTN_MODEL_RECURRENT_PARTS_H
#define ATTN_MODEL_RECURRENT_PARTS_H

#include "model/recurrent_translator.h"

struct attn_recurrent_translator {
    attn_recurrent_translator_config config;
    attn_parameters parameters;
    attn_recurrent_layer encoder;
    attn_recurrent_decoder decoder;
    char note[160];
};

/* The part of a configuration that is the decoder's. */
attn_recurrent_decoder_config
attn_recurrent_decoder_of(const attn_recurrent_translator_config *config);

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_recurrent_translator_outline(
    attn_recurrent_translator **translator,
    const attn_recurrent_translator_config *config, attn_error *error);

#endif
