/* The step between a problem and the kernels: a panel takes queries of one head of one
 * sequence, and a block shows it a run of keys, with all that hides or bends their
 * scores. */
#ifndef ATTN_ATTENTION_PANEL_H
#define ATTN_ATTENTION_PANEL_H

#include "attention/visibility.h"
#include "kernel/table.h"

enum { ATTN_PLACES_OF_BLOCKS = 64 };

/* A block of keys and values in fp32 or in pairs, for tensors that are not fp32, or of
 * features of keys; see widen.h. */
struct attn_wide {
    float *key, *value; /* NULL: read the tensor itself */
    size_t key_stride, value_stride;
    int64_t first; /* key of the first row */

    /* Of pairs. */
    float *special, *weight_pairs;
    bool any_special;

    /* Blocks of a head that stay where they are made ready, for whoever needs them next,
     * until one that is so many further on or back takes their place.  All that a group
     * sees have places, or there is 1. */
    size_t blocks;
    float *keys, *values; /* key and value of place 0 */
    size_t key_block, value_block;
    const void *of_key, *of_value;           /* the head */
    int64_t block_at[ATTN_PLACES_OF_BLOCKS]; /* −1: none */
};

/* F of each key of a head: the sum of the logarithms of forget gates up to it, as two
 * floats, and what is left of it to the last of its ATTN_GATE_KEYS; see forget.h. */
struct attn_forgotten {
    float *high, *low, *rest; /* NULL: there are no gates */
    int64_t sequence, h;      /* whose they are; −1: nobody's yet */
};

/* One head of one sequence, over which panels walk. */
struct attn_walk {
    const struct attn_problem *problem;
    const struct attn_kernels *kernels;
    struct attn_sequence sequence;
    struct attn_head head;
    const struct attn_pair_kernels *pairs; /* NULL: not used */
    struct attn_wide wide;
    struct attn_forgotten forgotten;
    struct attn_calls *calls; /* NULL, or of blocks */
    float *added;             /* scratch of attn_added_floats, or NULL where that is 0 */
    int64_t *visible_keys;    /* NULL, or [Lq of the tensors] from query 0 of the head on:
                               * keys that blocks showed are added */
};

/* Takes head h of the walk's sequence. */
void attn_walk_take_head(struct attn_walk *walk, int64_t h);

/* Most queries that a panel takes. */
int64_t attn_panel_queries(const struct attn_kernels *kernels);

/* How many blocks of keys so many queries side by side may see some of: with a window
 * few. */
size_t attn_blocks_near(const struct attn_problem *problem, int64_t Lk, int64_t queries);

/* How many of the queries left the next panel takes. */
int64_t attn_next_panel(const struct attn_kernels *kernels, int64_t queries_left);

/* Queries of a full group of so many panels, 2 or more where there is a layout: whole
 * rows of it, or so few that the row ending among them does not take one panel more. */
int64_t attn_group_queries(const struct attn_problem *problem,
                           const struct attn_kernels *kernels, int64_t panels);

/* How many of the queries left from there on the next panel takes: of one row of the
 * layout. */
int64_t attn_panel_next(const struct attn_walk *walk, int64_t query,
                        int64_t queries_left);

/* Finds the next run of keys of the panel; see attn_next_run. */
static inline bool attn_panel_run(const struct attn_panel *panel,
                                  const struct attn_walk *walk, int64_t end,
                                  struct attn_key_range *run)
{
    return attn_next_run(walk->problem, &walk->head, panel->first_query, end, run);
}

/* The block of keys to show after the one that begins there, to queries from query on:
 * not one between the sink keys and the window. */
int64_t attn_next_block(const struct attn_walk *walk, int64_t query, int64_t key);

/* Floats of attn_panel.query for a full panel. */
size_t attn_query_floats(const struct attn_problem *problem,
                         const struct attn_kernels *kernels);

/* Takes queries of the walk, but not their elements: sets vectors and position; D stands
 * already. */
void attn_panel_place(struct attn_panel *panel, const struct attn_walk *walk,
                      int64_t first_query, int64_t queries);

/* The same with the elements, in query, whose memory stands already.  Queries are
 * multiplied by the scale, unless their scores are additive, or become features, if they
 * are linear. */
void attn_panel_load(struct attn_panel *panel, const struct attn_walk *walk,
                     int64_t first_query, int64_t queries);

/* The keys that any query of the panel sees by its position. */
struct attn_key_range attn_panel_keys(const struct attn_panel *panel,
                                      const struct attn_walk *walk);

/* Floats of attn_walk.added: 0 if neither keep nor bias is given. */
size_t attn_added_floats(const struct attn_problem *problem,
                         const struct attn_kernels *kernels);

/* Where the block's keys and values lie, from first_key on: in the tensors, or widened.
 */
void attn_block_point(struct attn_block *block, const struct attn_walk *walk);

/* Describes keys [first, end), at most ATTN_BLOCK_KEYS and within a run, as the panel
 * sees them, less those at the ends that none of its queries sees.  False when that
 * leaves nothing. Keys and values that are not fp32 were widened before. */
bool attn_block_show(struct attn_block *block, const struct attn_panel *panel,
                     const struct attn_walk *walk, int64_t first, int64_t end);

#endif
