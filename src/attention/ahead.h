/* Memory called ahead.  Short sequences lie in pages of their own,
 * at whose ends what a processor foresees by itself stops: whoever works on one calls the
 * next one near, into the second-level cache. */
#ifndef ATTN_ATTENTION_AHEAD_H
#define ATTN_ATTENTION_AHEAD_H

#include "attention/backward_group.h"

/* Whether that pays in the forward pass: what it reads and writes does not stay near. Its
 * sequences should also be short, of a block of keys. */
bool attn_forward_calls_ahead(const struct attn_problem *problem,
                              const struct attn_kernels *kernels);

/* Lists what the head after the walk's reads and writes. */
void attn_forward_list_ahead(struct attn_calls *calls, const struct attn_walk *walk);

/* Calls one part of so many of what is left. */
void attn_call_part(struct attn_calls *calls, size_t parts);

/* The same of the backward pass: sequences are short, and many. */
bool attn_backward_calls_ahead(const struct attn_backward *backward);

/* Lists what a unit reads and writes. */
void attn_backward_list_ahead(struct attn_calls *calls,
                              const struct attn_backward *backward, int64_t unit);

#endif
