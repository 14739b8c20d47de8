/* A group of the forward pass: the panels that walk together, and a worker's scratch. */
#ifndef ATTN_ATTENTION_FORWARD_GROUP_H
#define ATTN_ATTENTION_FORWARD_GROUP_H

#include "attention/forward.h"
#include "attention/received.h"

/* Which of ATTN_KNOWN_BLOCKS blocks of values are finite, as far as was looked: a bit
 * each. Looking once a group took 1 % where keep or bias asks. */
enum { ATTN_KNOWN_BLOCKS = 64 };
struct attn_known_values {
    const void *value; /* of the head that is known of; NULL: of none */
    int64_t Lk, first_block;
    uint64_t looked, finite;
};

/* Scratch of one worker; what the panels point to, scores and `added` follow it in
 * memory. */
struct attn_group {
    struct attn_panel panels[ATTN_GROUP_PANELS];
    struct attn_places places[ATTN_GROUP_PANELS];
    struct attn_block block;
    struct attn_walk walk;
    size_t count;
    bool empty[ATTN_GROUP_PANELS];  /* shown no block yet */
    bool stored[ATTN_GROUP_PANELS]; /* its rows are in the output */
    bool calls_ahead;               /* the next unit is this worker's too */
    struct attn_calls calls;        /* and this is what it needs */
    float *scores;
    float *wide_memory; /* of walk.wide */
    struct attn_known_values known;

    /* Only if received mass is wanted. */
    struct attn_kept kept[ATTN_GROUP_PANELS];
    void *kept_memory; /* NULL if not */
};

/* The worker's scratch, laid out as attn_forward_layout counted it. */
struct attn_group *attn_forward_place_group(const struct attn_forward *forward,
                                            size_t worker);

#endif
