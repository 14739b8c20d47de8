/* Decoding: how the heads and keys of a sequence fall into groups and splits, and what a
 * worker keeps while it decodes. */
#ifndef ATTN_ATTENTION_DECODE_LAYOUT_H
#define ATTN_ATTENTION_DECODE_LAYOUT_H

#include "attention/cache.h"
#include "attention/forward.h"
#include "kernel/decode_table.h"

enum { ATTN_DECODE_HEADS = 16 /* of a group at most: lanes of the widest vectors */ };

/* Keys that are read together; see decode_pieces.h. */
struct attn_decode_piece {
    int64_t first, end;             /* the same: there is none */
    bool hides;                     /* whether it is hidden from any head */
    bool hidden[ATTN_DECODE_HEADS]; /* from these, if any */
    struct attn_cached_rows rows;
};

/* What a worker keeps; query, output, class sums, top, scores, `added` and `behind`
 * follow it in memory. */
struct attn_decoder {
    struct attn_decode_panel panel;
    struct attn_panel row; /* of one lane: what the statistics are stored from */
    const struct attn_forward *forward;
    struct attn_sweep sweep;
    struct attn_sequence sequence;
    struct attn_key_range seen;
    struct attn_head heads[ATTN_DECODE_HEADS];
    int64_t count; /* of heads */
    float slopes[ATTN_PANEL_LANES];
    float *scores, *added;
    struct attn_decode_piece pieces[2]; /* that is read, and the next one, by turns */

    /* Of forget gates, for one split. */
    float *behind;     /* [key][heads]: ln of what is left of the key at the split's end;
                        * NULL: there are no gates */
    int64_t split_key; /* the first of these keys */
    double forgotten[ATTN_DECODE_HEADS]; /* ln of what all its gates leave */
};

/* Groups of one key head: as few as the lanes allow. */
int64_t attn_decode_groups(const struct attn_forward *forward);

/* Heads of a group; the last of a key head may have fewer. */
int64_t attn_decode_heads(const struct attn_forward *forward);

/* Splits of the keys; one where none is seen: somebody has to store the row. */
int64_t attn_decode_splits(const struct attn_forward *forward,
                           const struct attn_sequence *sequence);

/* Finds the next split from split->end on, the first one from 0 on: keys up to a multiple
 * of 512, or more of many; or, where rules cut holes and all heads alike, up to 512 keys
 * that are seen.  Beyond the last one, an empty one. */
void attn_decode_next_split(const struct attn_problem *problem,
                            const struct attn_sequence *sequence,
                            struct attn_key_range *split);

/* Whether keys and values are whole numbers of 8 bits. */
bool attn_decode_stores_bytes(const struct attn_forward *forward);

/* Keys of a block at most. */
int64_t attn_decode_keys(const struct attn_forward *forward);

/* Whether pairs of bfloat16 are multiplied: everything is bfloat16, and the instruction
 * set has it. */
bool attn_decode_pairs(const struct attn_forward *forward);

/* Whether bfloat16 is multiplied with queries and weights in parts of it. */
bool attn_decode_parts(const struct attn_forward *forward);

/* Floats of a row, filled up to pairs of vectors. */
size_t attn_decode_row(const struct attn_forward *forward, int64_t floats);

/* The worker's memory, laid out as attn_decode_layout counted it. */
struct attn_decoder *attn_decode_place(const struct attn_forward *forward, void *memory);

#endif
