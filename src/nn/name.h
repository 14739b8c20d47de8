/* Names of parameters: a layer's prefix and what the layer calls its part. */
#ifndef ATTN_NN_NAME_H
#define ATTN_NN_NAME_H

#include "nn/parameters.h"

typedef struct attn_layer_name {
    char text[96]; /* as attn_parameter.name */
} attn_layer_name;

/* prefix followed by suffix; ATTN_EINVAL when that is too long. */
ATTN_CHECKED attn_status attn_layer_name_join(attn_layer_name *name, const char *prefix,
                                              const char *suffix);

#endif
