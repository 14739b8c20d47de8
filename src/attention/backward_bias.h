/* The gradient of the bias: a panel's part of it, and where parts meet.  Elements that
 * several units share are added to in the order of the units; a bias of one element for
 * all pairs of a head is a sum of its own in every group. */
#ifndef ATTN_ATTENTION_BACKWARD_BIAS_H
#define ATTN_ATTENTION_BACKWARD_BIAS_H

#include "attention/backward_group.h"

/* Whether all pairs of a head share one element. */
bool attn_bias_is_of_head(const attn_output *bias);

/* Adds the gradients of the panel's scores over the block it was shown: to the bias, or
 * to the group's bias_sum. */
void attn_backward_add_to_bias(struct attn_backward_group *group,
                               const struct attn_backward_panel *panel,
                               const struct attn_backward_block *block);

/* Adds sums [sequences][H] to a bias that is of heads. */
void attn_backward_store_bias(const struct attn_backward *backward, const double *sums);

/* Units that add to the same elements are a chain, which one worker takes in order: count
 * units from first on, step apart. */
struct attn_chain {
    int64_t first, step, count;
};

int64_t attn_chain_count(const struct attn_backward *backward);
struct attn_chain attn_chain_of(const struct attn_backward *backward, int64_t index);

#endif
