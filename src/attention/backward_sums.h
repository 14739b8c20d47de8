/* The gradients of keys and values, which all groups of a unit add to: to zeros at first,
 * and to the tensors in the end. */
#ifndef ATTN_ATTENTION_BACKWARD_SUMS_H
#define ATTN_ATTENTION_BACKWARD_SUMS_H

#include "attention/backward_group.h"

void attn_backward_clear_sums(const struct attn_backward_group *group, int64_t first_key,
                              int64_t end_key);

void attn_backward_store_sums(const struct attn_backward_group *group, int64_t hk,
                              struct attn_key_range keys);

/* 0 for what is padding. */
void attn_backward_clear_padding(const struct attn_backward_group *group, int64_t hk);

#endif
