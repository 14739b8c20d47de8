/* The captioner from inside, for the two files that make it. */
#ifndef ATTN_MODEL_CAPTIONER_PARTS_H
#define ATTN_MODEL_CAPTIONER_PARTS_H

#include "model/captioner.h"

struct attn_captioner {
    attn_captioner_config config;
    attn_parameters parameters;
    attn_linear_layer convolutions[ATTN_CAPTIONER_LAYERS];
    size_t places;
    attn_recurrent_decoder decoder;
    char note[160];
};

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_captioner_outline(attn_captioner **captioner,
                                                const attn_captioner_config *config,
                                                attn_error *error);

#endif
