/* The backward pass of a group: a few panels of queries of one head, walked together over
 * the blocks of keys they see.  The group's query gradients are whole when it is done;
 * what it adds to its keys' and values' gradients goes to sums that all groups of the
 * unit share, one after the other. */
#ifndef ATTN_ATTENTION_BACKWARD_GROUP_H
#define ATTN_ATTENTION_BACKWARD_GROUP_H

#include "attention/panel.h"
#include "kernel/part_table.h"

/* Panels of a group at most.  144 lanes of queries share a block: 96 and 192 are 1-4 %
 * slower at one head size or the other.  By tiles 192 do, in panels of two vectors, or
 * where split keys stay 128. */
enum {
    ATTN_BACKWARD_PANELS = 12,
    ATTN_BACKWARD_LANES = 144,
    ATTN_PART_LANES = 192,
    ATTN_KEPT_PART_LANES = 128,
};

/* A full group. */
struct attn_group_size {
    size_t panel_lanes, panels;
    size_t lanes; /* of all panels */
};

/* What all workers of a call share. */
struct attn_backward {
    struct attn_problem problem;
    const attn_gradients *gradients;
    attn_output bias;   /* its gradient, or where that is summed in fp32 */
    size_t bias_floats; /* of the latter; 0 for none */
    const struct attn_kernels *kernels;
    const struct attn_part_kernels *parts; /* NULL: not used */
    /* Of sequences that take no parts, or do, or whose keys stay in parts. */
    struct attn_group_size plain, by_parts, by_kept_parts;
    size_t panels, lanes;      /* the more of either */
    size_t D_whole, Dv_whole;  /* D and Dv rounded up to whole vectors */
    int64_t longest_keys;      /* of any sequence */
    int64_t longest_kept_keys; /* of those whose keys stay in parts */
};

/* Of all queries of a group. */
struct attn_group_rows {
    struct attn_matrix query, output, output_gradient;
};

/* Gradients of the keys of one sequence and key head, before the scale. */
struct attn_backward_sums {
    float *key;   /* [Lk][D_whole] */
    float *value; /* [Lk][Dv_whole] */
};

/* Keys and values of a head in parts, of all blocks or one; see backward_part_keys.h. */
struct attn_kept_keys {
    float *key, *value, *turned_key;                /* of the first block */
    size_t key_floats, value_floats, turned_floats; /* of a block */
    struct attn_matrix key_rows, value_rows;        /* all of the head's */
    bool stay;                                      /* all blocks are there */
};

/* Scratch of a group by tiles; see backward_parts.h. */
struct attn_backward_parts {
    struct attn_kept_keys keys;
    float *output, *output_floats;          /* left; row by row, if not fp32 */
    float *query, *output_gradient;         /* in the lanes: [panel] */
    float *query_rows, *gradient_rows;      /* row by row */
    float *weight, *gradient;               /* [tile of keys][panel] */
    float *slope, *score[2], *by_weight[2]; /* [ATTN_BLOCK_KEYS][width] */
    float *by_key[2];
    float *gate_sums; /* [ATTN_BLOCK_KEYS][lanes of a vector] */
    struct attn_part_show shows[ATTN_BACKWARD_PANELS];
};

struct attn_backward_group {
    const struct attn_backward *backward;
    struct attn_walk walk;
    struct attn_backward_sums sums;
    bool keys_finite;    /* those of the walk's sequence and key head */
    bool keys_fit;       /* they, and its values, fit parts */
    double sink_sum;     /* the group's part of the gradient of the sink */
    double bias_sum;     /* and of a bias that is one element for all pairs */
    double *forget_sums; /* gradients of F of the walk's head, by key: [Lk of the
                          * tensors]; NULL if not wanted */
    double *forget_rows; /* the share of the sink in them, by query: [Lq of the tensors];
                          * NULL likewise */
    float *vector_sums; /* and of the additive scores' vector, before the scale: [D][lanes
                         * of a vector]; NULL if not wanted */

    size_t count; /* panels */
    int64_t first_query, queries;
    struct attn_backward_panel panels[ATTN_BACKWARD_PANELS];
    struct attn_backward_block block;
    bool queries_finite;
    bool by_parts;                     /* as all of the group's numbers fit */
    bool at_once;                      /* see backward_at_once.h; then: */
    bool stored[ATTN_BACKWARD_PANELS]; /* the gradients of these queries */
    struct attn_key_range gathered;    /* those of these keys */
    struct attn_calls calls;           /* of the next unit */

    /* Scratch */
    float *weight, *gradient;          /* [ATTN_BLOCK_KEYS][lanes] */
    float *query_pack, *gradient_pack; /* [lanes][whole size] */
    struct attn_gather_rows {
        const float *x;
        ptrdiff_t stride;        /* 0: packed */
    } query_rows, gradient_rows; /* there or in the tensors */
    float *output;               /* [Dv][width], of one panel */
    int32_t lane_begin[ATTN_BLOCK_KEYS], lane_end[ATTN_BLOCK_KEYS];
    struct attn_backward_parts parts;
};

/* Floats of scratch of one group. */
size_t attn_backward_group_floats(const struct attn_backward *backward);

/* Takes whole cache lines off the scratch, or only counts them while that is NULL. */
float *attn_take_floats(float **scratch, size_t *floats, size_t count);

/* Lays out the group over scratch of that many floats, aligned to 64 bytes. */
void attn_backward_group_init(struct attn_backward_group *group,
                              const struct attn_backward *backward, float *scratch);

/* A full group of the sequence. */
struct attn_group_size attn_backward_group_size(const struct attn_backward *backward,
                                                const struct attn_sequence *sequence);

/* How many of the queries left from there on a group takes: of one row of the layout. */
int64_t attn_backward_group_queries(const struct attn_backward *backward,
                                    const struct attn_sequence *sequence, int64_t query,
                                    int64_t queries_left);

/* Takes the queries from first_query on; walk and sums stand already.  Returns the first
 * one not taken. */
int64_t attn_backward_group_load(struct attn_backward_group *group, int64_t first_query);

/* The keys that any query of the group sees. */
struct attn_key_range attn_backward_group_keys(const struct attn_backward_group *group);

/* Shows the group the block of keys that begins at first, a multiple of ATTN_BLOCK_KEYS.
 */
void attn_backward_group_show(struct attn_backward_group *group, int64_t first);

/* Stores the query gradients. */
void attn_backward_group_store(const struct attn_backward_group *group);

#endif
