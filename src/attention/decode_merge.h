/* Decoding: partial results, one for each head of a group in the slot of each split. */
#ifndef ATTN_ATTENTION_DECODE_MERGE_H
#define ATTN_ATTENTION_DECODE_MERGE_H

#include "attention/forward.h"

struct attn_decoder;

/* Of one head in a slot. */
size_t attn_partial_bytes(const struct attn_forward *forward, size_t output_stride);

/* Head n of the group from its lanes, one for each phase, in rising order; places are the
 * scores of key 0, of the key before the own position, there and after. */
void attn_partial_store(const struct attn_decoder *decoder, int64_t slot, size_t n,
                        const float places[ATTN_PLACES], int64_t visible);

/* Merges the group's splits in rising order, and stores its rows. */
void attn_partial_finish(struct attn_decoder *decoder, int64_t first_slot,
                         int64_t splits);

#endif
