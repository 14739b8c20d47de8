/* A group of the forward pass: the panels that walk together, and a worker's scratch. */
#ifndef ATTN_ATTENTION_FORWARD_GROUP_H
#define ATTN_ATTENTION_FORWARD_GROUP_H

#include "attention/forward.h"
#include "attention/received.h"
#include "kernel/pair_table.h"

/* Which of ATTN_KNOWN_BLOCKS blocks of values are finite, as far as was looked: a bit
 * each. Looking once a group took 1 % where keep or bias asks. */
enum { ATTN_KNOWN_BLOCKS = 64 };
struct attn_known_values {
    const void *value; /* of the head that is known of; NULL: of none */
    int64_t Lk, first_block;
    uint64_t looked, finite;
};

/* Calls of a pipeline whose shows stay: the last, and two that may be undone. */
enum { ATTN_SHOWS = 3 };

/* Scratch of one worker; what the panels point to, scores and `added` follow it in
 * memory. */
struct attn_group {
    struct attn_panel panels[ATTN_GROUP_PANELS];
    struct attn_show shows[ATTN_SHOWS][ATTN_GROUP_PANELS]; /* of a run of a block, and
                                                            * those before, by turns */
    size_t turn;
    struct attn_pipeline pipeline;
    struct attn_walk walk;
    size_t count;
    bool empty[ATTN_GROUP_PANELS];  /* shown no block yet */
    bool stored[ATTN_GROUP_PANELS]; /* its rows are in the output */
    bool calls_ahead;               /* the next unit is this worker's too */
    struct attn_calls calls;        /* and this is what it needs */
    float *scores, *sums;           /* sums: attn_block.sums */
    float *wide_memory;             /* of walk.wide */
    struct attn_known_values known;

    /* Only if received mass is wanted. */
    struct attn_kept kept[ATTN_GROUP_PANELS];
    void *kept_memory; /* NULL if not */
};

/* The worker's scratch, laid out as attn_forward_layout counted it. */
struct attn_group *attn_forward_place_group(const struct attn_forward *forward,
                                            size_t worker);

/* The rows of queries first_query ≤ query < end_query of the walk's head, at most as many
 * as the group's panels have lanes. */
void attn_forward_attend(struct attn_group *group, const struct attn_forward *forward,
                         int64_t first_query, int64_t end_query);

#endif
