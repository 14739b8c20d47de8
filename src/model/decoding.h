/* The Transformer's decoder one token at a time, for many beams of many sentences at
 * once, with the keys and values of what was written kept. */
#ifndef ATTN_MODEL_DECODING_H
#define ATTN_MODEL_DECODING_H

#include "model/transformer.h"

typedef struct attn_decoding attn_decoding;

/**
 * Encodes the sources and keeps what every cross-attention reads of them:
 * once a sentence, whatever the number of its beams.  translator, tape and packing
 * outlive it.
 * @param max_rows  beams of all sentences together, at most.
 */
ATTN_CHECKED attn_status attn_decoding_create(attn_decoding **decoding,
                                              const attn_translator *translator,
                                              attn_tape *tape, const int32_t *source,
                                              attn_packing packing, int64_t max_rows,
                                              attn_error *error);
void attn_decoding_destroy(attn_decoding *decoding);

/**
 * Feeds every live beam one token.
 * @param row_starts  [sentences + 1]: sentence s has rows row_starts[s] to row_starts[s +
 * 1] − 1, none when it is done.
 * @param parents     [rows]: the row of the last step that this row continues; not
 *                    consulted in the first.
 * @param ids         [rows]: the token it wrote, or the start.
 * @param logits      out: [rows][vocabulary], valid until the next step.
 */
ATTN_CHECKED attn_status attn_decoding_step(attn_decoding *decoding,
                                            const int64_t *row_starts,
                                            const int64_t *parents, const int32_t *ids,
                                            const float **logits, attn_error *error);

#endif
