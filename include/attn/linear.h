/* Linear attention: a product of features stands in the place of softmax's exponential,
 *
 *     O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j)        over the visible keys j
 *
 * so that what a query needs of all keys before it is a matrix of D · Dv numbers, and
 * work grows with the length and not with its square.  It is another model than softmax
 * attention, not a faster way to it.
 *
 * Formula: Katharopoulos et al. 2020, "Transformers are RNNs", equations 5 and 12. */
#ifndef ATTN_LINEAR_H
#define ATTN_LINEAR_H

#include "attn/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_feature {
    ATTN_FEATURE_ELU,     /* φ(x) = elu(x) + 1, positive: the paper's */
    ATTN_FEATURE_RELU,    /* φ(x) = max(x, 0); a row of features may then be 0 */
    ATTN_FEATURE_IDENTITY /* φ(x) = x, for features made before */
} attn_feature;

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
 * Writes tensors->output; lse and statistics are not consulted, since there is no
 * softmax. Of options causal, alignment, query_offset, lengths and packed sequences
 * count; what else would change a score (softcap, a window, keep, bias, slopes, sinks,
 * dropout, additive scores) is refused; scale is not consulted.
 *
 * A query that sees no key, or whose features and those of all its keys are orthogonal
 * (the denominator is 0), gets output 0.  What a query cannot see is never read into its
 * row.  A sequence has the same bits whatever else is in the batch, and for any number of
 * threads.  Memory of the context: a few hundred rows and D · Dv floats a thread.
 *
 * @param linear  NULL for elu + 1, chunked, no state.
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
 * attn_linear_forward was given and wrote; a state is refused.  Takes sums of the longest
 * sequence's keys and queries as scratch.
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
