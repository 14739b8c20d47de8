/* Forget gates: a query at position p adds F(p) − F(j) to the score of key j, F being the
 * sum of ln f up to a position.  Sums are taken in double and kept as two floats each, so
 * that a difference is exact to fp32 however long the sequence.
 *
 * Their gradient: the score's sums over queries, with their sign turned, are that of
 * F(j); sums over keys vanish, since a row's weights do not change when all its scores
 * move alike, but for the share of the sink.  ln f of a position is part of F of all
 * after it, so its gradient is the sum of theirs. */
#ifndef ATTN_ATTENTION_FORGET_H
#define ATTN_ATTENTION_FORGET_H

#include "attention/panel.h"

/* A gate as it is summed: e^−10000 is nothing, and sums of these stay finite. */
static inline double attn_bounded_log_forget(float log_forget)
{
    return (double)(log_forget < -10000.0f ? -10000.0f : log_forget);
}

/* Scratch of a walk; 0 without gates. */
size_t attn_forget_floats(const struct attn_problem *problem);

/* Lays the walk's sums out over scratch of that many floats. */
void attn_forget_init(struct attn_walk *walk, float *scratch);

/* Takes the sums of the walk's head. */
void attn_forget_take_head(struct attn_walk *walk);

/* What the lanes know of their positions, and what a block shows of its keys. */
void attn_forget_load(struct attn_panel *panel, const struct attn_walk *walk);
void attn_forget_show(struct attn_block *block, const struct attn_walk *walk);

/* The key whose gate is the last before or at the query's position; −1 for none. */
int64_t attn_forget_place(const struct attn_sequence *sequence, int64_t query);

#endif
