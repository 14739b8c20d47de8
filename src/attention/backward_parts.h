/* The backward pass of a group by tiles of bfloat16, fp32 in three parts (part_table.h):
 * what backward_group.c does with a run of keys, where every number that is multiplied
 * fits such parts. */
#ifndef ATTN_ATTENTION_BACKWARD_PARTS_H
#define ATTN_ATTENTION_BACKWARD_PARTS_H

#include "attention/backward_group.h"

/* The kernels to multiply with, or NULL if the problem has none. */
const struct attn_part_kernels *
attn_backward_parts_for(const struct attn_problem *problem,
                        const struct attn_kernels *kernels);

/* Whether groups of the sequence do, where all numbers fit.  As in the forward pass: with
 * lse of other scores, of which each is rounded in its own way, weights are less exact.
 */
bool attn_backward_takes_parts(const struct attn_backward *backward,
                               const struct attn_sequence *sequence);

/* Floats of scratch of one group. */
size_t attn_backward_parts_floats(const struct attn_backward *backward);

/* Lays out group->parts over scratch of that many floats, aligned to 64 bytes. */
void attn_backward_parts_init(struct attn_backward_group *group, float *scratch);

/* Looks at all keys and values of the walk's sequence and that key head: whether keys are
 * finite, and both fit. */
void attn_backward_look_at_keys(struct attn_backward_group *group, int64_t hk);

/* Takes on the group's queries and output gradients, whose panels are loaded, if they and
 * the keys fit; or returns false. */
bool attn_backward_parts_load(struct attn_backward_group *group,
                              const struct attn_matrix *query,
                              const struct attn_matrix *output,
                              const struct attn_matrix *output_gradient);

/* Shows the group a run of keys, at most ATTN_BLOCK_KEYS, which were widened. */
void attn_backward_parts_show(struct attn_backward_group *group,
                              struct attn_key_range keys);

#endif
