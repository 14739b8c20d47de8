/* Decoding with forget gates.  A split of the keys knows what its own gates leave of
 * each of its keys at its end; what is forgotten after that, all of its keys alike, is
 * added to its scores when splits are merged.  So every gate is read once, and sums are
 * taken from the query back: nothing cancels. */
#ifndef ATTN_ATTENTION_DECODE_GATES_H
#define ATTN_ATTENTION_DECODE_GATES_H

#include "attention/decode_layout.h"

/* Scratch of a group of so many heads; 0 without gates. */
size_t attn_decode_gate_floats(const struct attn_problem *problem, size_t heads);

/* Fills the decoder's `behind` and `forgotten`, for a split that has these keys. */
void attn_decode_sum_gates(struct attn_decoder *decoder, struct attn_key_range keys);

#endif
