/* Keys and values in parts (part_table.h).  Of a sequence that is not too long they are
 * split once, and stay for all groups of the heads that share them; of others each group
 * splits what it sees, run by run. */
#ifndef ATTN_ATTENTION_BACKWARD_PART_KEYS_H
#define ATTN_ATTENTION_BACKWARD_PART_KEYS_H

#include "attention/backward_group.h"

/* Whether those of the sequence stay. */
bool attn_part_keys_stay(const struct attn_backward *backward,
                         const struct attn_sequence *sequence);

/* Lays them out over scratch, which may be NULL; returns the floats they take. */
size_t attn_part_keys_lay_out(struct attn_kept_keys *kept,
                              const struct attn_backward *backward, float *scratch);

/* Takes all keys and values of the walk's sequence and one key head; false if they do not
 * fit parts. */
bool attn_part_keys_begin(struct attn_backward_group *group,
                          const struct attn_matrix *key, const struct attn_matrix *value);

/* The run's keys and values, of one block; first may lie before the run. */
struct attn_part_keys attn_part_keys_take(const struct attn_backward_group *group,
                                          struct attn_key_range run);

#endif
