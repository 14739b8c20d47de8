/* A step of the recurrent decoder, which a whole pass and a search have in common. */
#ifndef ATTN_MODEL_RECURRENT_STEP_H
#define ATTN_MODEL_RECURRENT_STEP_H

#include "model/recurrent_decoder.h"

/* One token more for each of some rows.
 * @param rows      a sequence of one token each.
 * @param beams     the same rows, those of each sequence of the source together.
 * @param query     NULL, or out: what attention was asked with.
 * @return [rows][width + source width]: state and context. */
attn_tensor *attn_recurrent_step(const attn_recurrent_decoder *decoder,
                                 const attn_pass *pass, const int32_t *ids,
                                 attn_packing rows, attn_packing beams,
                                 const attn_recurrent_source *source,
                                 const attn_recurrent_states *before,
                                 attn_recurrent_states *after, attn_tensor **query);

/* tanh(merge(state and context)) */
attn_tensor *attn_recurrent_merge(const attn_recurrent_decoder *decoder,
                                  const attn_pass *pass, attn_tensor *joined);

#endif
