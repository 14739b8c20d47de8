/* Decoding: how the heads and keys of a sequence fall into groups and splits, and what a
 * worker keeps while it decodes. */
#ifndef ATTN_ATTENTION_DECODE_LAYOUT_H
#define ATTN_ATTENTION_DECODE_LAYOUT_H

#include "attention/forward.h"
#include "kernel/decode_table.h"

enum { ATTN_DECODE_HEADS = 16 /* of a group at most: lanes of the widest vectors */ };

/* What a worker keeps; query, output, class sums, top, scores and `added` follow it in
 * memory. */
struct attn_decoder {
    struct attn_decode_panel panel;
    struct attn_panel row; /* of one lane: what the statistics are stored from */
    struct attn_places places;
    const struct attn_forward *forward;
    struct attn_sweep sweep;
    struct attn_sequence sequence;
    struct attn_key_range seen;
    struct attn_head heads[ATTN_DECODE_HEADS];
    int64_t count; /* of heads */
    float slopes[ATTN_PANEL_LANES];
    float *scores, *added;
};

/* Groups of one key head: as few as the lanes allow. */
int64_t attn_decode_groups(const struct attn_forward *forward);

/* Heads of a group; the last of a key head may have fewer. */
int64_t attn_decode_heads(const struct attn_forward *forward);

/* One where no key is seen: somebody has to store the row. */
int64_t attn_decode_splits(const struct attn_forward *forward,
                           const struct attn_sequence *sequence);

/* Of one group. */
int64_t attn_decode_units(const struct attn_forward *forward,
                          const struct attn_sequence *sequence);

/* Whether keys and values are whole numbers of 8 bits. */
bool attn_decode_stores_bytes(const struct attn_forward *forward);

/* Whether pairs of bfloat16 are multiplied: everything is bfloat16, and the instruction
 * set has it. */
bool attn_decode_pairs(const struct attn_forward *forward);

/* Floats of a row, filled up to pairs of vectors. */
size_t attn_decode_row(const struct attn_forward *forward, int64_t floats);

/* The worker's memory, laid out as attn_decode_layout counted it. */
struct attn_decoder *attn_decode_place(const struct attn_forward *forward, void *memory);

#endif
