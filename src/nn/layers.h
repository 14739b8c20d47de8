/* Layers: each is a handful of parameter indices.  `…_add` names and shapes the
 * parameters, the function without suffix computes. Names follow the Hugging Face files:
 * prefix "model.encoder.layers.0.self_attn" gets ".q_proj.weight" and so on. */
#ifndef ATTN_NN_LAYERS_H
#define ATTN_NN_LAYERS_H

#include "nn/observer.h"
#include "nn/parameters.h"
#include "nn/scoring.h"
#include "tensor/operations.h"

typedef struct attn_linear_layer {
    size_t weight, bias; /* .weight [out][in], .bias [out] */
} attn_linear_layer;

attn_status attn_linear_layer_add(attn_linear_layer *layer, attn_parameters *parameters,
                                  const char *prefix, int64_t in, int64_t out);
attn_tensor *attn_linear_layer_forward(const attn_linear_layer *layer,
                                       const attn_pass *pass, attn_tensor *x);

typedef struct attn_norm_layer {
    size_t weight, bias;
    float epsilon;
} attn_norm_layer;

attn_status attn_norm_layer_add(attn_norm_layer *layer, attn_parameters *parameters,
                                const char *prefix, int64_t width, float epsilon);
attn_tensor *attn_norm_layer_forward(const attn_norm_layer *layer, const attn_pass *pass,
                                     attn_tensor *x);

/** Where the sequences of a packed batch start: [sequences + 1], the last is the number
 * of tokens. */
typedef struct attn_packing {
    int64_t sequences;
    const int64_t *starts;
} attn_packing;

/** .q_proj .k_proj .v_proj .out_proj, each width × width with bias. */
typedef struct attn_multihead_layer {
    attn_linear_layer query, key, value, out;
    int64_t heads, width;
    attn_part part; /* told to the observer */
    int64_t index;
    attn_scoring_layer scoring; /* all zeros: scaled dot products */
    bool linear;                /* as in attn_heads; set after the layer is added */
    bool forgets;
    attn_linear_layer forget; /* with forgets */
} attn_multihead_layer;

attn_status attn_multihead_layer_add(attn_multihead_layer *layer,
                                     attn_parameters *parameters, const char *prefix,
                                     int64_t width, int64_t heads, attn_part part,
                                     int64_t index);

/** Scores of another kind than scaled dot products; after the layer is added. */
attn_status attn_multihead_layer_add_scoring(attn_multihead_layer *layer,
                                             attn_parameters *parameters,
                                             const char *prefix, attn_scoring scoring);

/** Forget gates of each head, σ(.forget_proj of x), [heads][width] with bias: Lin et al.
 * 2025.  For causal self-attention; after the layer is added. */
attn_status attn_multihead_layer_add_forget(attn_multihead_layer *layer,
                                            attn_parameters *parameters,
                                            const char *prefix);

/** Keys and values that attention reads, from x by the layer's key and value projections.
 */
typedef struct attn_memory {
    attn_tensor *key, *value; /* [tokens][width] */
    attn_packing packing;
    attn_tensor *log_forget; /* [tokens][heads], NULL: nothing is forgotten */
} attn_memory;

attn_memory attn_multihead_layer_memory(const attn_multihead_layer *layer,
                                        const attn_pass *pass, attn_tensor *x,
                                        attn_packing packing);

/** Attention between what is projected already: query [tokens][heads·D]. */
typedef struct attn_heads {
    int64_t heads, key_heads; /* heads is a multiple of key_heads */
    attn_part part;           /* told to the observer */
    int64_t index;
    bool causal; /* aligned at the bottom right */
    float dropout;
    attn_tensor *additive; /* [heads][D]: scores are additive, v·tanh(q + k) (Bahdanau et
                            * al. 2014); NULL: they are products */
    bool unscaled;         /* products as they are, and not divided by √D */
    bool linear; /* linear attention of elu + 1 (attn/linear.h) in place of softmax's, and
                  * then none of additive, window, sink_keys, blocks, sinks, alibi_slopes,
                  * dropout */
    int64_t window;    /* keys that a query sees, its own the last; 0: all before */
    int64_t sink_keys; /* of a sequence, seen beside the window */
    attn_keep blocks;  /* data NULL, or a block-sparse layout of block_size, as in
                        * attn_options; read again by backward */
    int64_t block_size;
    attn_tensor *sinks; /* [heads]: learned logits that join the sum of each row, and
                         * so take weight from its keys; NULL: none */
    const float *alibi_slopes; /* [heads], as in attn_options; read again by backward */
    float *received; /* out: the weight that each key received, [heads][tokens of keys];
                      * NULL: not wanted */
} attn_heads;

attn_tensor *attn_heads_forward(const attn_heads *heads, const attn_pass *pass,
                                attn_tensor *query, attn_packing packing,
                                const attn_memory *memory);

/** x attends to memory (for self-attention: memory made of x itself).  Causal is aligned
 * at the bottom right, so a memory with a longer past serves incremental decoding. */
attn_tensor *attn_multihead_layer_forward(const attn_multihead_layer *layer,
                                          const attn_pass *pass, attn_tensor *x,
                                          attn_packing packing, const attn_memory *memory,
                                          bool causal, float dropout);

/** .fc1, activation, dropout, .fc2 */
typedef struct attn_feed_forward_layer {
    attn_linear_layer in, out;
    attn_activation activation;
} attn_feed_forward_layer;

attn_status attn_feed_forward_layer_add(attn_feed_forward_layer *layer,
                                        attn_parameters *parameters, const char *prefix,
                                        int64_t width, int64_t inner,
                                        attn_activation activation);
attn_tensor *attn_feed_forward_layer_forward(const attn_feed_forward_layer *layer,
                                             const attn_pass *pass, attn_tensor *x,
                                             float dropout);

/** The position of each token, counted within its sequence from `first`, in memory of the
 * tape; NULL after failing the tape where one is not below rows, or where the sequences
 * are not the tokens. */
int32_t *attn_positions(attn_tape *tape, attn_packing packing, int64_t tokens,
                        int64_t rows, int64_t first);

/** x + table[position + offset], positions counted within each sequence from `first`.
 * Fails the tape where a position passes the table. */
attn_tensor *attn_add_positions(const attn_pass *pass, attn_tensor *x,
                                attn_packing packing, attn_tensor *table, int64_t first);

/** Sinusoids of Vaswani et al. 2017, section 3.5, as the fairseq family lays them out:
 * the first half of a row sines, the second cosines, frequencies 10000^(−i/(half − 1));
 * an odd width ends in a 0.  Row `zero_row` (the padding's) is zeros; −1 for none. */
void attn_sinusoidal_positions_fairseq(float *table, int64_t rows, int64_t width,
                                       int64_t zero_row);
/** The paper's own: frequencies 10000^(−2i/width), sines and cosines interleaved; or in
 * halves, the sines first, as Hugging Face's Marian lays them out. */
void attn_sinusoidal_positions(float *table, int64_t rows, int64_t width, bool halves);

#endif
