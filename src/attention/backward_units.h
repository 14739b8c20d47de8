/* How the backward pass is shared out.  A unit is one key head of one sequence, with all
 * the query heads that read it; a turn is one group of queries of one of these heads.
 * Turns add to the sums of their unit in one order, whoever takes them, so no bit depends
 * on threads:
 *
 *     enough units     each worker takes whole units, with sums of its own, and all those
 *                      that share elements of a bias
 *     a few long ones  all workers share a unit and its sums, and take its turns one
 * after the other: each stays a block of keys behind the turn before it */
#ifndef ATTN_ATTENTION_BACKWARD_UNITS_H
#define ATTN_ATTENTION_BACKWARD_UNITS_H

#include "attention/backward_group.h"

/* Scratch: gradients of sinks and of biases that are of heads, both [sequences][H], those
 * of additive scores' vectors [sequences][H][D], of forget gates, the progress of each
 * turn, the sums of each worker or of all, for each worker a group with its floats, and
 * the sums of the bias gradient if it is not fp32 itself. */
struct attn_backward_layout {
    bool in_turns;
    size_t workers;
    int64_t turns; /* with in_turns */
    size_t sink_bytes, bias_sum_bytes, vector_bytes, forget_bytes, progress_bytes;
    size_t sums_bytes, group_bytes, worker_bytes;
    size_t bias_bytes;
    size_t bytes; /* of all */
};

/* ATTN_ENOMEM when the number of bytes overflows. */
ATTN_CHECKED attn_status attn_backward_lay_out(struct attn_backward_layout *layout,
                                               attn_context *context,
                                               const char *function,
                                               const struct attn_backward *backward);

/* Writes all gradients but that of the bias, to which it adds. */
void attn_backward_run(const attn_context *context, const struct attn_backward *backward,
                       const struct attn_backward_layout *layout, void *memory);

#endif
