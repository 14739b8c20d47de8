/* Linear attention: a product of features stands in the place of softmax's exponential,
 *
 *     O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j)        over the visible keys j
 *
 * so that what a query needs of all keys before it is a matrix of D · Dv numbers, and
 * work grows with the length and not with its square.  It is another model than softmax
 * attention, not a faster way to it.  Its weights, w_ij = φ(q_i)·φ(k_j) over their sum,
 * are there to be looked into as those of softmax are, by a walk over all pairs.
 *
 * Formula: Katharopoulos et al. 2020, "Transformers are RNNs", equations 5 and 12. */
#ifndef ATTN_LINEAR_H
#define ATTN_LINEAR_H

#include "attn/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Three ways to the same numbers, up to rounding. */
typedef enum attn_linear_form {
    ATTN_LINEAR_CHUNKED, /* a state from chunk to chunk, products within: the fast one */
    ATTN_LINEAR_RECURRENT, /* key by key, as a recurrent network: the state at each step
                            */
    ATTN_LINEAR_QUADRATIC  /* every pair of query and key: what the sums stand for */
} attn_linear_form;

typedef struct attn_linear_options {
    attn_feature feature;
    attn_linear_form form;

    /** NULL, or [B][H][D][Dv + 1] (packed: [sequences][H]…), where Σ φ(k) vᵀ of all keys
     * that came before is read, with Σ φ(k) as the last column, and that of all keys up
     * to the last one is left: how text is generated token by token.  0 at first.
     * Without queries nothing happens. */
    float *state;
} attn_linear_options;

/**
 * Writes tensors->output.  Of options causal, alignment, query_offset, lengths and packed
 * sequences count; what else would change a score (softcap, a window, keep, bias, slopes,
 * sinks, dropout, additive scores) is refused; scale is not consulted.  A score of
 * ATTN_SCORE_LINEAR is one that changes nothing, if its feature is linear's.
 *
 * Writes lse, which is ln Σ_j φ(q_i)·φ(k_j) here, and statistics of the weights where
 * asked for: what attn_forward gives with ATTN_SCORE_LINEAR, in the same time, which
 * grows with the square of the length, and with its errors; memory grows as there.  No
 * bit of the output changes.  attn_weights with that score gives the weights themselves.
 *
 * With a state both are refused: of keys that came before only sums are left.
 *
 * A query that sees no key, or whose features and those of all its keys are orthogonal
 * (the denominator is 0), gets output 0.  What a query cannot see is never read into its
 * row; a NaN or ∞ in the value of a key that it sees, but with which its product is 0,
 * may reach it or not.  A sequence has the same bits whatever else is in the batch, and
 * for any number of threads.  Memory of the context: a few hundred rows and D · Dv floats
 * a thread.
 *
 * @param linear  NULL for chunked, no state, and elu + 1 or the feature of a score of
 *                ATTN_SCORE_LINEAR.
 * @return ATTN_OK, ATTN_EINVAL, ATTN_EUNSUPPORTED (an option that is refused) or
 *         ATTN_ENOMEM; outputs are untouched unless ATTN_OK.
 */
ATTN_API ATTN_CHECKED attn_status attn_linear_forward(attn_context *context,
                                                      const attn_shape *shape,
                                                      const attn_tensors *tensors,
                                                      const attn_options *options,
                                                      const attn_linear_options *linear);

/**
 * Gradients of query, key and value (those of bias and sinks are to be NULL), from what
 * attn_linear_forward was given and wrote (lse and statistics are not consulted); a state
 * is refused.  Takes sums of the longest sequence's keys and queries as scratch.
 */
ATTN_API ATTN_CHECKED attn_status attn_linear_backward(attn_context *context,
                                                       const attn_shape *shape,
                                                       const attn_tensors *tensors,
                                                       const attn_options *options,
                                                       const attn_linear_options *linear,
                                                       const attn_gradients *gradients);

#ifdef __cplusplus
}
#endif
#endif
