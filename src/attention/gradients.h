/* What every backward pass does with the gradients asked for before and after its work.
 */
#ifndef ATTN_ATTENTION_GRADIENTS_H
#define ATTN_ATTENTION_GRADIENTS_H

#include "base/context.h"

ATTN_CHECKED attn_status attn_check_gradients(attn_context *context, const char *function,
                                              const attn_shape *shape,
                                              const attn_options *options,
                                              const attn_gradients *gradients);

/* All of x is 0: once along an axis with a stride of 0, even if nothing lies along it,
 * since a sum of nothing is 0. */
void attn_clear_tensor(const attn_output *x, int64_t B, int64_t heads, int64_t rows,
                       int64_t size);

/* Without queries every gradient that has elements is 0. */
void attn_clear_gradients(const attn_shape *shape, const attn_gradients *gradients);

#endif
