/* Additive scores of sequences of one query: what a decoder keeps for each of its heads.
 */
#ifndef ATTN_ATTENTION_DECODE_ADDITIVE_H
#define ATTN_ATTENTION_DECODE_ADDITIVE_H

#include "attention/problem.h"
#include "kernel/decode_table.h"

/* Scratch of the heads: 0 where scores are products. */
size_t attn_decode_additive_bytes(const struct attn_problem *problem, size_t heads);

/* Gives the panel, whose heads and D stand, scratch of that many bytes, if any. */
void attn_decode_additive_place(struct attn_decode_panel *panel,
                                const struct attn_problem *problem, void *memory);

/* Loads the queries of `count` heads; those beyond repeat the last one. */
void attn_decode_additive_load(struct attn_decode_panel *panel,
                               const struct attn_problem *problem,
                               const struct attn_kernels *kernels,
                               const struct attn_head *heads, size_t count);

#endif
