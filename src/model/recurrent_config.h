/* The recurrent decoder in a config.json, for every model that has one. */
#ifndef ATTN_MODEL_RECURRENT_CONFIG_H
#define ATTN_MODEL_RECURRENT_CONFIG_H

#include "model/config_file.h"
#include "model/recurrent_decoder.h"

/* The tensor of an output that is not tied. */
#define ATTN_RECURRENT_OUTPUT "output.weight"

/* Everything but source_width. */
ATTN_CHECKED attn_status attn_recurrent_config_read(
    const attn_config_file *file, attn_recurrent_decoder_config *config);
/* Adds it to the document, NULL for no memory. */
void attn_recurrent_config_write(const attn_recurrent_decoder_config *config,
                                 json_t *document);

#endif
