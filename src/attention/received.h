/* The mass that each key received, Σ over queries of weight[query][key].
 *
 * A row's weights are final only when its last key was seen.  So panels write theirs
 * where they can be kept, each block with the references it was made at, and a panel's
 * blocks are added up when the next panel comes to write over them, or at the end of a
 * unit:
 *
 *     received[key] += Σ over lanes of weight · e^(reference then − reference at last) ·
 *                      inverse
 *
 * A head's queries are shared out to units in a way that depends on the lengths of its
 * sequence alone, units sum to rows of their own, and these are added in order: bits
 * depend neither on threads nor on the batch.  Memory grows with the keys a panel sees,
 * and with the keys for each of few units. */
#ifndef ATTN_ATTENTION_RECEIVED_H
#define ATTN_ATTENTION_RECEIVED_H

#include "attention/panel.h"

struct attn_forward;

/* How the queries of a head go to units. */
struct attn_share {
    int64_t panels, queries; /* in a group */
    int64_t groups;          /* in a unit */
    int64_t units;
};

struct attn_share attn_received_share(const struct attn_problem *problem,
                                      const struct attn_kernels *kernels,
                                      const struct attn_sequence *sequence);

/* The weights of a run of keys of a block. */
struct attn_kept_block {
    size_t keys; /* 0: nothing is kept */
    int64_t first_key;
    bool current; /* of the panel that is under way */
    float reference[ATTN_PANEL_LANES];
};

/* The weights of a panel that is done and, as it takes its place block by block, of one
 * that is under way. */
struct attn_kept {
    size_t room; /* in blocks: block n of the keys stands at n % room */
    size_t runs; /* of a block at most */
    struct attn_kept_block *blocks; /* [room][runs] */
    float *weights;                 /* [room][ATTN_BLOCK_KEYS][width] */
    size_t stride;                  /* floats from one block to the next */
    float *received;                /* of the sequence's key 0 */

    /* Of the panel that is done. */
    size_t vectors;
    float reference[ATTN_PANEL_LANES], inverse[ATTN_PANEL_LANES];
};

/* What a worker takes of the scratch, and rows that it sums to, beyond the output's own:
 * in [B][H][Lk] each. */
size_t attn_kept_bytes(const struct attn_problem *problem,
                       const struct attn_kernels *kernels);
size_t attn_received_rows(const struct attn_problem *problem,
                          const struct attn_kernels *kernels);

/* Empty, one for each of the share's panels, which add to received. */
void attn_kept_init(struct attn_kept *kept, const struct attn_share *share,
                    const struct attn_walk *walk, void *memory, float *received);

/* Where the panel may write weights of the block; what another one left there is added.
 */
float *attn_kept_open(struct attn_kept *kept, const struct attn_kernels *kernels,
                      const struct attn_panel *panel, const struct attn_block *block);

/* After softmax. */
void attn_kept_note(struct attn_kept *kept, const struct attn_panel *panel,
                    const struct attn_block *block);

/* After the panel's last block.  block and scores are scratch. */
void attn_kept_finish(struct attn_kept *kept, struct attn_panel *panel,
                      const float *inverse, const struct attn_walk *walk,
                      struct attn_block *block, float *scores);

/* Adds what is still kept, of panels that are done. */
void attn_kept_flush(struct attn_kept *kept, const struct attn_kernels *kernels);

/* Where unit n of a head sums, from the sequence's key 0 on. */
float *attn_received_row(const struct attn_forward *forward,
                         const struct attn_sequence *sequence, int64_t h, int64_t n);

/* Turns the scores of a row that is done into its weights: what keys received, where a
 * sequence has one query. */
void attn_received_weigh(float *scores, int64_t keys, const struct attn_kernels *kernels,
                         float reference, float inverse);

/* Adds the rows of every head's units. */
void attn_received_merge(struct attn_forward *forward, const attn_context *context);

#endif
