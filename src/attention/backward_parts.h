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

/* Takes on these rows, as floats from then on, if they and the keys fit and lse serves
 * for them; or returns false. */
bool attn_backward_parts_load_rows(struct attn_backward_group *group,
                                   struct attn_group_rows *rows);

/* Those of panel p in its lanes, and their g·o. */
void attn_backward_parts_load_panel(struct attn_backward_group *group, size_t p,
                                    const struct attn_group_rows *rows);

/* Rows of floats: these, or where they are of another type, or elements not side by side,
 * copies of whole vectors, in `floats` unless that is NULL. */
struct attn_matrix attn_rows_of_floats(const struct attn_backward *backward,
                                       const struct attn_matrix *from, float *floats);

/* Where queries, or output gradients, of panel p lie in the lanes. */
static inline size_t attn_parts_of_panel(size_t p, size_t size)
{
    return p * attn_floats_in_parts(size, ATTN_TILE_STEP);
}

/* Shows the group a run of keys, at most ATTN_BLOCK_KEYS. */
void attn_backward_parts_show(struct attn_backward_group *group,
                              struct attn_key_range keys);

#endif
