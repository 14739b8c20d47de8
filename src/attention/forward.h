/* How attn_forward is laid out: shared with its plan and what it keeps. */
#ifndef ATTN_ATTENTION_FORWARD_H
#define ATTN_ATTENTION_FORWARD_H

#include "attention/decode.h"
#include "attention/statistics.h"
#include <stdatomic.h>

/* Panels of a group at most; and usually, for 8 measured the same, 1 and 2 are 1-3 %
 * slower. */
enum { ATTN_GROUP_PANELS = 8, ATTN_USUAL_PANELS = 4 };

struct attn_forward {
    const struct attn_problem *problem;
    const struct attn_kernels *kernels;
    const struct attn_pair_kernels *pairs; /* that stand in for some of them, or NULL */
    bool statistics;                       /* any that the panels keep */
    bool calls_ahead;                      /* for the next head, if sequences are short */
    struct attn_sweep sweep;

    size_t panels;              /* of a full group */
    int64_t units, panel_units; /* the others decode */
    int64_t run;                /* units that a worker takes at once */
    size_t group_bytes; /* of a worker's scratch; then what decodes, what is kept */
    size_t kept_bytes;
    size_t workers, worker_bytes, scratch_bytes;
    struct attn_splits splits;
    void *scratch;        /* of the workers, one after the other; then: */
    float *received;      /* NULL, or [attn_received_rows][B][H][Lk] */
    _Atomic int64_t next; /* unit */
};

/* Everything but the memory.  A problem whose shape has a Dv of 0, which no caller can
 * give, leaves values and output alone: its lse and statistics are wanted. */
ATTN_CHECKED attn_status attn_forward_layout(struct attn_forward *forward,
                                             attn_context *context,
                                             const struct attn_problem *problem);

/* How the queries of a head go to units: each group is one, unless its weights are kept.
 */
struct attn_share attn_forward_share(const struct attn_forward *forward,
                                     const struct attn_sequence *sequence);

/* Does it, once it is laid out. */
ATTN_CHECKED attn_status attn_forward_run(struct attn_forward *forward,
                                          attn_context *context);

/* Says what that would be. */
void attn_forward_plan(const struct attn_forward *forward, attn_plan *plan);

/* The scores of a panel, by what multiplies the elements that blocks hold. */
void attn_score_block(const struct attn_walk *walk, float *scores,
                      struct attn_panel *panel, const struct attn_block *block);

/* Writes empty rows for the queries of the walk's head beyond its sequence's length. */
void attn_store_padding(const struct attn_walk *walk);

#endif
