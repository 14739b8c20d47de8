/* Linear attention in double precision, pair by pair, for tests and students. */
#ifndef ATTN_ATTENTION_REFERENCE_LINEAR_H
#define ATTN_ATTENTION_REFERENCE_LINEAR_H

#include "attn/linear.h"

/* As attn_linear_forward without a state.  Returns ATTN_OK or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_linear_forward_reference(const attn_shape *shape,
                                                       const attn_tensors *tensors,
                                                       const attn_options *options,
                                                       attn_feature feature);

/* As attn_linear_backward, from query, key and value alone; fp32 gradients, all wanted.
 * Returns ATTN_OK or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_linear_backward_reference(const attn_shape *shape,
                                                        const attn_tensors *tensors,
                                                        const attn_options *options,
                                                        attn_feature feature,
                                                        const attn_gradients *gradients);

#endif
