/* The Transformer's decoder one token at a time, for many beams of many sentences at
 * once, with the keys and values of what was written kept. */
#ifndef ATTN_MODEL_DECODING_H
#define ATTN_MODEL_DECODING_H

#include "model/translator_parts.h"

/**
 * Encodes the sources and keeps what every cross-attention reads of them:
 * once a sentence, whatever the number of its beams.  translator, tape and packing
 * outlive the decoder; decoder->destroy(decoder->state) in the end.
 * @param max_rows  beams of all sentences together, at most.
 */
ATTN_CHECKED attn_status attn_decoding_start(attn_decoder *decoder,
                                             const attn_translator *translator,
                                             attn_tape *tape, const int32_t *source,
                                             attn_packing packing, int64_t max_rows,
                                             attn_error *error);

#endif
