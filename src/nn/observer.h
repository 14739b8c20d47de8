/* How a model tells whoever asks what its heads did: a callback for each attention of the
 * pass, called right after its forward.  nn and model know nothing of who listens. */
#ifndef ATTN_NN_OBSERVER_H
#define ATTN_NN_OBSERVER_H

#include "attn/attention.h"

typedef enum attn_part {
    ATTN_PART_ENCODER, /* self-attention of an encoder */
    ATTN_PART_DECODER, /* causal self-attention */
    ATTN_PART_CROSS,   /* decoder to encoder */
    ATTN_PART_POOL     /* one query a text: how a classifier makes its tokens one */
} attn_part;

/** "encoder", "decoder", "cross", "pooling" */
const char *attn_part_name(attn_part part);

/** One attention, all its heads.  attn_weights(context, shape, tensors, options, …) gives
 * the exact weights; everything is valid during the call only. */
typedef struct attn_observation {
    attn_part part;
    int64_t layer; /* from 0 */
    attn_context *context;
    const attn_shape *shape;
    const attn_tensors *tensors; /* with lse, unless attention is linear, and the
                                  * statistics the observer asked for */
    const attn_options *options; /* packed: one sequence is starts {0, Lq}, {0, Lk} */
} attn_observation;

typedef struct attn_observer {
    void *user;
    attn_status (*attention)(void *user, const attn_observation *observation);
} attn_observer;

#endif
