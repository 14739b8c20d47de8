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
    ATTN_GELU,      /* x·Φ(x), by erf */
    ATTN_GELU_TANH, /* Φ(x) approximated by (1 + tanh(√(2/π)(x + 0.044715·x³)))/2
                     * (Hendrycks and Gimpel 2016): GPT-2's "gelu_new" */
    ATTN_SILU,      /* x·sigmoid(x), "swish" in Marian's configuration */
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

/** Of each row: x/√(mean of squares + epsilon)·gain (Zhang and Sennrich 2019). */
attn_tensor *attn_rms_norm(attn_tape *tape, attn_tensor *x, attn_tensor *gain,
                           float epsilon);

/** activation(gate) · up, element by element: with ATTN_SILU the inside of SwiGLU
 * (Shazeer 2020). */
attn_tensor *attn_gate(attn_tape *tape, attn_tensor *gate, attn_tensor *up,
                       attn_activation activation);

/** ln σ(x), element by element: what a forget gate gives attention. */
attn_tensor *attn_log_sigmoid(attn_tape *tape, attn_tensor *x);

/** Rotary positions (Su et al. 2021, section 3.4.2): each row is heads of one width, and
 * in each head element i of the first half of `turned` is turned with element
 * i + turned/2 (as Llama does), or 2i with 2i + 1 where interleaved, by the angle whose
 * cosine and sine stand at [position of the row][i].  What is beyond `turned` stays. */
typedef struct attn_rotation {
    int64_t heads, turned;
    bool interleaved;
    const float *cosine, *sine; /* [positions][turned/2]; read again by backward */
    int64_t positions;
} attn_rotation;

/** positions[n] is the row of the table of x's row n; read again by backward.  One
 * outside the table fails the tape and is named. */
attn_tensor *attn_rotary(attn_tape *tape, attn_tensor *x, const int32_t *positions,
                         const attn_rotation *rotation);

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

/** Recurrent cells, with the gates and their order of PyTorch. */
typedef enum attn_cell {
    ATTN_CELL_TANH, /* the plain RNN: 1 gate */
    ATTN_CELL_RELU, /* 1 gate */
    ATTN_CELL_GRU,  /* r z n: Cho et al. 2014, with the candidate's state part inside r */
    ATTN_CELL_LSTM  /* i f g o: Hochreiter and Schmidhuber 1997, Gers et al. 2000 */
} attn_cell;

int attn_cell_gates(attn_cell cell);

typedef struct attn_recurrence {
    attn_cell cell;
    bool backwards; /* from the last token of a sequence to its first */
    int64_t sequences;
    const int64_t *starts;       /* [sequences + 1] */
    attn_tensor *state, *memory; /* before the first step, [sequences][width]; NULL for 0.
                                  * memory is the LSTM's */
    bool gives_memory;           /* LSTM: beside the states */
} attn_recurrence;

typedef struct attn_cell_weights {
    attn_tensor *in, *state;           /* [gates·width][in], [gates·width][width] */
    attn_tensor *in_bias, *state_bias; /* [gates·width] */
    bool has_bias;                     /* both of them; else they are 0 */
} attn_cell_weights;

/** Runs a cell along each packed sequence of x [tokens][in].  Steps are taken by all
 * sequences together, the longest first, so each is one product, and padding does not
 * exist.  A row's bits depend on no other sequence, and in no step on later ones.
 * @return the states [tokens][width], or [tokens][2·width]: beside the state the memory.
 */
attn_tensor *attn_recur(attn_tape *tape, attn_tensor *x, const attn_cell_weights *weights,
                        const attn_recurrence *recurrence);

/** Columns first to first + count − 1 of each row. */
attn_tensor *attn_columns(attn_tape *tape, attn_tensor *x, int64_t first, int64_t count);

/** The columns of b after those of a. */
attn_tensor *attn_join(attn_tape *tape, attn_tensor *a, attn_tensor *b);

/** The rows of each part below those of the part before it: count ≥ 1 parts of one width,
 * whose list is the caller's. */
attn_tensor *attn_stack(attn_tape *tape, attn_tensor *const *parts, size_t count);

/** Rows side by side: y[n] is rows[n·each] to rows[n·each + each − 1] of x, and zeros
 * where the row is −1.  What a convolution reads.  rows is read again by backward. */
attn_tensor *attn_gather(attn_tape *tape, attn_tensor *x, const int32_t *rows,
                         int64_t count, int64_t each);

typedef enum attn_pooling { ATTN_POOL_MEAN, ATTN_POOL_MAX } attn_pooling;

/** One row for each packed sequence, element by element; 0 for an empty one.  starts,
 * [sequences + 1], is read again by backward. */
attn_tensor *attn_pool(attn_tape *tape, attn_tensor *x, attn_pooling pooling,
                       int64_t sequences, const int64_t *starts);

/** Attention over packed sequences: query [tokens][H·D], key [tokens][Hk·D], value
 * [tokens][Hk·Dv] → [tokens][H·Dv].  options as in attn/attention.h with query_starts and
 * key_starts set; its dropout applies in training only, with a seed of the tape's.
 * What else options point to is read again by backward.  With ATTN_SCORE_LINEAR it is
 * linear attention, of attn/linear.h, which refuses dropout.
 * Statistics asked for are written, indexed [1][H][tokens].  What the operation was given
 * is left in *tensors and *shape (if not NULL) for attn_weights, valid until the next
 * begin; of linear attention, without lse. */
typedef struct attn_packed_attention {
    int64_t H, Hk;
    attn_tensor *additive; /* [H][D]: the vectors of additive scores, which the operation
                            * puts into its options, and the caller into those of
                            * attn_weights.  NULL: scores are products */
    attn_tensor *log_forget; /* [tokens of key][H]: ln of forget gates, likewise.  NULL:
                              * nothing is forgotten */
    attn_tensor *sinks; /* [H]: logits that join the sum of each row, likewise.  NULL:
                         * none do */
    attn_options options;
    attn_statistics statistics;
} attn_packed_attention;

attn_tensor *attn_attend(attn_tape *tape, attn_tensor *query, attn_tensor *key,
                         attn_tensor *value, const attn_packed_attention *attention,
                         attn_shape *shape, attn_tensors *tensors);

#endif
