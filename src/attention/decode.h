/* Decoding: sequences of one query.  The heads that read one key head share each key, and
 * the keys are split at multiples of 512 (many 8-bit keys: of 2,048), or by 512 of those
 * that are seen.  A unit of
 * work is one such group of heads over a run of splits; each leaves a partial result, and
 * whoever finishes a group's last unit merges them in rising order.  So the bits depend
 * on the sequence alone. */
#ifndef ATTN_ATTENTION_DECODE_H
#define ATTN_ATTENTION_DECODE_H

#include "attention/panel.h"
#include <stdatomic.h>

struct attn_forward;

enum { ATTN_SPLIT_KEYS = 512 };

/* What attn_forward keeps for decoding. */
struct attn_splits {
    int64_t run;           /* splits of one unit of work */
    int64_t groups, slots; /* of all sequences; a slot holds a split's partial result */
    size_t head_bytes;     /* of one head in a slot */
    size_t worker_bytes, bytes, left_offset; /* bytes of both arrays, left the second */
    char *partials;                          /* [slots][heads of a group][head_bytes] */
    _Atomic int64_t *left;                   /* [groups]: units to be done */
};

/* Of one sequence, or of all before one. */
struct attn_decode_counts {
    int64_t groups, slots, units;
};

/* Whether the sequence has one query, without dropout and features, and rows without
 * gaps inside for keys and values. */
bool attn_decode_takes(const struct attn_problem *problem,
                       const struct attn_sequence *sequence);

/* Nothing of a sequence that is not decoded. */
struct attn_decode_counts attn_decode_count(const struct attn_forward *forward,
                                            const struct attn_sequence *sequence);

/* Sets forward->splits but for its memory. */
void attn_decode_layout(struct attn_forward *forward, size_t threads);

/* Gives it memory of splits.bytes. */
void attn_decode_begin(struct attn_forward *forward, void *memory);

/* Unit nth of the sequence; memory is a worker's, splits.worker_bytes. */
void attn_decode_work(const struct attn_forward *forward, void *memory,
                      const struct attn_sequence *sequence,
                      struct attn_decode_counts before, int64_t nth);

#endif
