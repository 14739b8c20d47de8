/* The operations of the tape.  Rows are tokens unless said; every gradient is checked
 * against central differences in tests/tensor/test_tensor.c.  A shape that does not fit
 * fails the tape with a message that names both. */
#ifndef ATTN_TENSOR_OPERATIONS_H
#define ATTN_TENSOR_OPERATIONS_H

#include "tensor/tape.h"

/** y[n][out] = x[n][in] · weight[out][in]ᵀ + bias[out]; bias may be absent: pass has_bias
 * false and any bias. */
attn_tensor *attn_linear(attn_tape *tape, attn_tensor *x, attn_tensor *weight,
                         attn_tensor *bias, bool has_bias);

/** Same shapes. */
attn_tensor *attn_add(attn_tape *tape, attn_tensor *a, attn_tensor *b);

typedef enum attn_activation {
    ATTN_RELU,
    ATTN_GELU, /* x·Φ(x), by erf */
    ATTN_SILU, /* x·sigmoid(x), "swish" in Marian's configuration */
    ATTN_TANH
} attn_activation;

attn_tensor *attn_activate(attn_tape *tape, attn_tensor *x, attn_activation activation);

/** dropout(activate(linear(x))), in one pass over the result. */
attn_tensor *attn_linear_activate(attn_tape *tape, attn_tensor *x, attn_tensor *weight,
                                  attn_tensor *bias, attn_activation activation,
                                  float dropout);

/** Each element is 0 with the probability, the others are divided by 1 − probability; x
 * itself outside training. */
attn_tensor *attn_dropout(attn_tape *tape, attn_tensor *x, float probability);

/** x + dropout(branch), in one pass: how a residual connection ends. */
attn_tensor *attn_add_dropout(attn_tape *tape, attn_tensor *x, attn_tensor *branch,
                              float probability);

/** Of each row: (x − mean)/√(variance + epsilon)·gain + bias; variance is /n. */
attn_tensor *attn_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *gain,
                             attn_tensor *bias, float epsilon);

/** y[n][·] = table[ids[n]][·]·scale.  An id outside the table fails the tape and names
 * the id, its place and the size.  ids is read again by backward. */
attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const int32_t *ids,
                            int64_t count, float scale);

/** Cross-entropy, in nats, of softmax(x · weightᵀ + bias) with label smoothing (target 1
 * − smoothing plus smoothing/V on all V classes): the sum over the rows that count,
 * divided by divisor; one element.  targets[n] < 0 does not count.  *plain, where not
 * NULL, gets the sum of the unsmoothed loss, not divided.
 *
 * Fused with the projection: logits exist a few hundred rows at a time, and in training
 * their gradient is taken at once, so divisor must be known before. */
attn_tensor *attn_linear_cross_entropy(attn_tape *tape, attn_tensor *x,
                                       attn_tensor *weight, attn_tensor *bias,
                                       bool has_bias, const int32_t *targets,
                                       float smoothing, double divisor, double *plain);

/** Attention over packed sequences: query [tokens][H·D], key [tokens][Hk·D], value
 * [tokens][Hk·Dv] → [tokens][H·Dv].  options as in attn/attention.h with query_starts and
 * key_starts set; its dropout applies in training only, with a seed of the tape's.
 * Statistics asked for are written, indexed [1][H][tokens].  What the operation was given
 * is left in *tensors and *shape (if not NULL) for attn_weights, valid until the next
 * begin. */
typedef struct attn_packed_attention {
    int64_t H, Hk;
    attn_options options;
    attn_statistics statistics;
} attn_packed_attention;

attn_tensor *attn_attend(attn_tape *tape, attn_tensor *query, attn_tensor *key,
                         attn_tensor *value, const attn_packed_attention *attention,
                         attn_shape *shape, attn_tensors *tensors);

#endif
