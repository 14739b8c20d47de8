/* The gradient of forget gates: forget.h has the formula. */
#ifndef ATTN_ATTENTION_BACKWARD_FORGET_H
#define ATTN_ATTENTION_BACKWARD_FORGET_H

#include "attention/backward_group.h"
#include "attention/forget.h"

/* Adds the gradients of the panel's scores over the block it was shown. */
void attn_backward_add_to_forget(struct attn_backward_group *group,
                                 const struct attn_backward_panel *panel,
                                 const struct attn_backward_block *block);

/* Adds those of keys first ≤ key < end, sums[key − first][lanes of a vector]. */
void attn_backward_add_gate_sums(struct attn_backward_group *group, int64_t first,
                                 int64_t end, const float *sums);

/* Stores what forget_sums, [B][H][Lk], and forget_rows, [B][H][Lq], come to. */
void attn_backward_store_forget(const struct attn_backward *backward, double *sums,
                                const double *rows);

#endif
