/* Which keys a query sees.  By the rules of position (causal, window, length) they are
 * one interval, whose ends never move back from one query to the next: all skipping and
 * masking of blocks rests on that.  Two rules cut through it:
 *
 *     sink keys    below sink_keys there is an interval of its own, without the window
 *     blocks       queries of one row of the layout see the same runs of keys
 *
 * so whoever walks over keys asks attn_next_run for runs that lie on one side of the sink
 * keys and in visible blocks, and no panel has queries of two rows.  What keep and bias
 * hide is left to the kernels. */
#ifndef ATTN_ATTENTION_VISIBILITY_H
#define ATTN_ATTENTION_VISIBILITY_H

#include "attention/problem.h"

struct attn_key_range {
    int64_t first, end; /* 0 ≤ first ≤ end ≤ Lk */
};

/* What the rules of position leave the query; with sink keys, a range that has them all.
 */
struct attn_key_range attn_visible_keys(const struct attn_problem *problem,
                                        const struct attn_sequence *sequence,
                                        int64_t query);

/* Those of the sink keys, if key is one, or else those of the others. */
struct attn_key_range attn_keys_near(const struct attn_problem *problem,
                                     const struct attn_sequence *sequence, int64_t query,
                                     int64_t key);

/* Finds the next run of keys from run->end on and below end, at most Lk, that the layout
 * shows the query's row, and of which all or none are sink keys.  False when there is
 * none. */
bool attn_next_run(const struct attn_problem *problem, const struct attn_head *head,
                   int64_t query, int64_t end, struct attn_key_range *run);

/* Whether there is more than one run to find. */
static inline bool attn_has_runs(const struct attn_problem *problem)
{
    return problem->options->sink_keys > 0 || problem->options->blocks.data;
}

/* Finds the next run of keys from run->end on and below end, at most Lk, that all rules
 * but keep and bias show the query.  False when there is none. */
bool attn_next_seen(const struct attn_problem *problem,
                    const struct attn_sequence *sequence, const struct attn_head *head,
                    int64_t query, int64_t end, struct attn_key_range *run);

/* How many of the queries left share query's row of the layout. */
int64_t attn_queries_alike(const struct attn_problem *problem, int64_t query,
                           int64_t queries_left);

/* Whether keep and bias let query see key: the rules that go element by element. */
bool attn_element_visible(const struct attn_problem *problem,
                          const struct attn_head *head, int64_t query, int64_t key);

/* How many keys all rules but keep and bias show the query. */
int64_t attn_count_visible(const struct attn_problem *problem,
                           const struct attn_sequence *sequence,
                           const struct attn_head *head, int64_t query);

/* The same, of all queries of all heads. */
double attn_problem_visible_pairs(const struct attn_problem *problem);

#endif
