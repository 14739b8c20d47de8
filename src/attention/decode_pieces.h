/* Decoding: keys are read in pieces of one page and one block of the kernels, of which a
 * head of the group sees all or none; keys that no head sees are in none of them. */
#ifndef ATTN_ATTENTION_DECODE_PIECES_H
#define ATTN_ATTENTION_DECODE_PIECES_H

#include "attention/decode_layout.h"

/* The first piece of the group's keys from `from` on and below end. */
void attn_decode_find_piece(struct attn_decode_piece *piece,
                            const struct attn_decoder *decoder, int64_t from,
                            int64_t end);

/* Where the keys and values of `piece` lie, and of `next`, which is read after it. */
void attn_decode_point(struct attn_decode_block *block,
                       const struct attn_decoder *decoder,
                       const struct attn_decode_piece *piece,
                       const struct attn_decode_piece *next);

/* Calls bytes into the second-level cache. */
void attn_decode_call_lines(const void *from, size_t bytes);

/* Calls a piece of 8 bits, or of bfloat16 that is read as much at a time, into the
 * second-level cache: the first of a run, which no piece before it could call. */
void attn_decode_call_first(const struct attn_decoder *decoder,
                            const struct attn_decode_piece *piece);

#endif
