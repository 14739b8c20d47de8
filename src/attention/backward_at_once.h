/* Units of one head whose queries are one group and whose keys one block, as those of
 * short sequences are.  Their gradients go to the tensors as they are found: no sums are
 * cleared, added to and copied, and the queries' are not turned. */
#ifndef ATTN_ATTENTION_BACKWARD_AT_ONCE_H
#define ATTN_ATTENTION_BACKWARD_AT_ONCE_H

#include "attention/backward_group.h"

/* Whether those of the group's sequence are such units. */
bool attn_backward_goes_at_once(const struct attn_backward_group *group);

/* The rows that gathers take on their right: as they lie in memory, where that is
 * together and in the first cache, or packed. */
struct attn_gather_rows attn_backward_rows(const struct attn_backward_group *group,
                                           float *pack, const struct attn_matrix *rows);

/* Makes the gather write the keys' rows of that gradient. */
void attn_backward_aim(struct attn_backward_group *group, struct attn_gather *gather,
                       const attn_output *to, struct attn_key_range keys);

/* Stores the gradient of the panel's queries from those of the scores. */
void attn_backward_store_query(struct attn_backward_group *group, size_t p);

/* Zeros for the panels that saw no key, and for keys that no query saw. */
void attn_backward_clear_unseeing(const struct attn_backward_group *group);
void attn_backward_clear_unseen(const struct attn_backward_group *group);

#endif
