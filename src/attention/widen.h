/* Keys and values of 16 bits as kernels want them: a block at a time in fp32, widened
 * once for all panels that share it, which costs about one part in a hundred of the
 * products.  Tensors that are fp32 already are read where they lie, but for the keys of
 * linear attention, whose features lie here. */
#ifndef ATTN_ATTENTION_WIDEN_H
#define ATTN_ATTENTION_WIDEN_H

#include "attention/panel.h"

/* The kernels that multiply the problem's numbers as pairs of bfloat16, of one part if it
 * has nothing else, or of three, if there are such kernels, or NULL.  What walk.pairs
 * holds is the caller's choice: blocks are then of pairs, not of fp32. */
const struct attn_pair_kernels *attn_pairs_for(const struct attn_problem *problem,
                                               const struct attn_kernels *kernels);

/* Whether they do for a sequence: those of parts for one with queries enough, of elements
 * enough. */
bool attn_pairs_pay(const struct attn_pair_kernels *pairs, const attn_shape *shape,
                    const struct attn_sequence *sequence);

/* Floats of scratch that a walk needs: 0 where there is nothing to widen.  Kernels that
 * never look at values need none for them. */
size_t attn_wide_floats(const struct attn_problem *problem,
                        const struct attn_kernels *kernels,
                        const struct attn_pair_kernels *pairs, bool values);

/* Gives the walk, whose problem, kernels and pairs stand, scratch of that many floats,
 * aligned to 64 bytes. */
void attn_wide_init(struct attn_walk *walk, float *scratch, bool values);

/* Before attn_block_show: makes keys [first, end) of the walk's head ready, at most
 * ATTN_BLOCK_KEYS of them.  What is shown must lie within. */
void attn_widen(struct attn_walk *walk, int64_t first, int64_t end);

/* Lists the lines of the block of keys from `first` on, if it is ready, where blocks
 * stay.
 */
void attn_wide_list(struct attn_calls *calls, const struct attn_walk *walk,
                    int64_t first);

#endif
