/* The rules of visibility, and counts of what they leave. */
#include "attention/visibility.h"
#include <assert.h>
#include <math.h>

/* By causal, window and length. */
static struct attn_key_range in_window(const attn_options *options, int64_t Lk,
                                       int64_t position)
{
    struct attn_key_range seen = {0, Lk};
    if (options->window_left >= 0)
        seen.first = attn_clamp(position - options->window_left, 0, Lk);
    if (options->window_right >= 0)
        seen.end = attn_clamp(position + options->window_right + 1, 0, Lk);
    if (options->causal)
        seen.end = attn_clamp(position + 1, 0, seen.end);
    assert(seen.first <= seen.end);
    return seen;
}

struct attn_key_range attn_keys_near(const struct attn_problem *problem,
                                     const struct attn_sequence *sequence, int64_t query,
                                     int64_t key)
{
    const attn_options *const options = problem->options;
    const int64_t position = query + sequence->offset;
    if (options->sink_keys == 0)
        return in_window(options, sequence->Lk, position);
    const int64_t sinks = attn_least(options->sink_keys, sequence->Lk);
    if (key < sinks)
        return (struct attn_key_range){
            0, options->causal ? attn_clamp(position + 1, 0, sinks) : sinks};
    struct attn_key_range seen = in_window(options, sequence->Lk, position);
    seen.first = seen.first > sinks ? seen.first : sinks;
    seen.end = seen.end > sinks ? seen.end : sinks;
    return seen;
}

struct attn_key_range attn_visible_keys(const struct attn_problem *problem,
                                        const struct attn_sequence *sequence,
                                        int64_t query)
{
    const int64_t sinks = problem->options->sink_keys;
    struct attn_key_range seen = attn_keys_near(problem, sequence, query, sinks);
    if (sinks > 0)
        seen.first = 0;
    return seen;
}

/* ---- Runs ----------------------------------------------------------------------------
 */

/* The first key from there on whose block the row shows, or does not show; or end. */
static int64_t seek(const struct attn_problem *problem, const struct attn_head *head,
                    int64_t query, struct attn_key_range keys, bool shown)
{
    const int64_t *const stride = problem->options->blocks.stride;
    const int64_t size = problem->options->block_size;
    const uint8_t *const row = head->blocks + query / size * stride[2];
    int64_t block = keys.first / size, key = keys.first;
    while (key < keys.end && (row[block * stride[3]] != 0) != shown)
        key = ++block * size;
    return attn_least(key, keys.end);
}

bool attn_next_run(const struct attn_problem *problem, const struct attn_head *head,
                   int64_t query, int64_t end, struct attn_key_range *run)
{
    const int64_t sinks = problem->options->sink_keys;
    int64_t key = run->end;
    if (head->blocks)
        key = seek(problem, head, query, (struct attn_key_range){key, end}, true);
    if (key >= end)
        return false;
    int64_t stop = key < sinks && sinks < end ? sinks : end;
    if (head->blocks)
        stop = seek(problem, head, query, (struct attn_key_range){key, stop}, false);
    *run = (struct attn_key_range){key, stop};
    return true;
}

/* Of the run, keys that the query sees by the rules of position. */
static struct attn_key_range seen_of(const struct attn_problem *problem,
                                     const struct attn_sequence *sequence, int64_t query,
                                     struct attn_key_range run)
{
    const struct attn_key_range seen =
        attn_keys_near(problem, sequence, query, run.first);
    run.first = run.first > seen.first ? run.first : seen.first;
    run.end = attn_least(run.end, seen.end);
    run.end = run.end > run.first ? run.end : run.first;
    return run;
}

bool attn_next_seen(const struct attn_problem *problem,
                    const struct attn_sequence *sequence, const struct attn_head *head,
                    int64_t query, int64_t end, struct attn_key_range *run)
{
    struct attn_key_range next = *run;
    while (attn_next_run(problem, head, query, end, &next)) {
        const struct attn_key_range seen = seen_of(problem, sequence, query, next);
        if (seen.first < seen.end) {
            *run = seen;
            return true;
        }
    }
    return false;
}

int64_t attn_queries_alike(const struct attn_problem *problem, int64_t query,
                           int64_t queries_left)
{
    const int64_t size = problem->options->block_size;
    return problem->options->blocks.data ? attn_least(queries_left, size - query % size)
                                         : queries_left;
}

static bool is_minus_infinity(const void *x, attn_type type)
{
    if (type == ATTN_F32)
        return *(const float *)x == -INFINITY;
    return *(const uint16_t *)x == (type == ATTN_F16 ? 0xfc00 : 0xff80);
}

bool attn_element_visible(const struct attn_problem *problem,
                          const struct attn_head *head, int64_t query, int64_t key)
{
    const int64_t *const keep = problem->options->keep.stride;
    const attn_input *const bias = &problem->options->bias;
    const int64_t at = query * bias->stride[2] + key * bias->stride[3];
    if (head->keep && !head->keep[query * keep[2] + key * keep[3]])
        return false;
    return !head->bias ||
           !is_minus_infinity(attn_element(head->bias, bias->type, at), bias->type);
}

/* ---- Counts --------------------------------------------------------------------------
 */

static int64_t overlap(const struct attn_problem *problem,
                       const struct attn_sequence *sequence, int64_t query,
                       struct attn_key_range run)
{
    const struct attn_key_range seen = seen_of(problem, sequence, query, run);
    return seen.end - seen.first;
}

int64_t attn_count_visible(const struct attn_problem *problem,
                           const struct attn_sequence *sequence,
                           const struct attn_head *head, int64_t query)
{
    const struct attn_key_range all = attn_visible_keys(problem, sequence, query);
    struct attn_key_range run = {all.first, all.first};
    int64_t count = 0;
    while (attn_next_run(problem, head, query, all.end, &run))
        count += overlap(problem, sequence, query, run);
    return count;
}

/* Of queries that share a row of the layout: most runs are seen by all of them. */
static double pairs_of_rows(const struct attn_problem *problem,
                            const struct attn_sequence *sequence,
                            const struct attn_head *head, int64_t first, int64_t end)
{
    const int64_t from = attn_visible_keys(problem, sequence, first).first;
    const int64_t to = attn_visible_keys(problem, sequence, end - 1).end;
    struct attn_key_range run = {from, from};
    double pairs = 0.0;
    while (attn_next_run(problem, head, first, to, &run)) {
        const int64_t keys = run.end - run.first;
        if (overlap(problem, sequence, first, run) == keys &&
            overlap(problem, sequence, end - 1, run) == keys) {
            pairs += (double)(end - first) * (double)keys;
            continue;
        }
        for (int64_t i = first; i < end; i++)
            pairs += (double)overlap(problem, sequence, i, run);
    }
    return pairs;
}

static double pairs_by_runs(const struct attn_problem *problem,
                            const struct attn_sequence *sequence, int64_t h)
{
    const struct attn_head head = attn_problem_head(problem, sequence, h);
    double pairs = 0.0;
    for (int64_t i = 0; i < sequence->Lq;) {
        const int64_t end = i + attn_queries_alike(problem, i, sequence->Lq - i);
        pairs += pairs_of_rows(problem, sequence, &head, i, end);
        i = end;
    }
    return pairs;
}

static double visible_count(const struct attn_problem *problem,
                            const struct attn_sequence *sequence, int64_t query)
{
    const struct attn_head no_layout = {.blocks = NULL};
    return (double)attn_count_visible(problem, sequence, &no_layout, query);
}

static void sort(int64_t *x, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && x[j - 1] > x[j]; j--) {
            const int64_t larger = x[j - 1];
            x[j - 1] = x[j];
            x[j] = larger;
        }
}

/* Without a layout.  Each end of the interval of keys, and of that of the sink keys,
 * stands still, moves with the query, and stands still again; between the queries where
 * one of them turns, counts form an arithmetic series. */
static double pairs_of_sequence(const struct attn_problem *problem,
                                const struct attn_sequence *sequence)
{
    const attn_options *const options = problem->options;
    const int64_t Lq = sequence->Lq, Lk = sequence->Lk, offset = sequence->offset;
    const int64_t left = offset - options->window_left;
    const int64_t right =
        offset + 1 +
        (options->causal || options->window_right < 0 ? 0 : options->window_right);
    const int64_t sinks = attn_least(options->sink_keys, Lk);
    int64_t turns[] = {0,
                       -left,
                       Lk - left,
                       -right,
                       Lk - right,
                       sinks - left,
                       -offset - 1,
                       sinks - offset - 1,
                       sinks - right,
                       Lq};
    enum { TURNS = sizeof turns / sizeof *turns };
    for (size_t n = 0; n < TURNS; n++)
        turns[n] = attn_clamp(turns[n], 0, Lq);
    sort(turns, TURNS);

    double pairs = 0.0;
    for (size_t n = 0; n + 1 < TURNS; n++) {
        if (turns[n] == turns[n + 1])
            continue;
        const double ends = visible_count(problem, sequence, turns[n]) +
                            visible_count(problem, sequence, turns[n + 1] - 1);
        pairs += (double)(turns[n + 1] - turns[n]) * ends / 2.0;
    }
    return pairs;
}

double attn_problem_visible_pairs(const struct attn_problem *problem)
{
    const double H = (double)problem->shape->H;
    double pairs = 0.0;
    const attn_keep *const blocks = &problem->options->blocks;
    for (int64_t s = 0, alike; s < problem->sequences; s += alike) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        alike = attn_sequences_alike(problem, s);
        if (!blocks->data) {
            pairs += (double)alike * H * pairs_of_sequence(problem, &sequence);
            continue;
        }
        const bool one_head = blocks->stride[1] == 0;
        for (int64_t h = 0; h < (one_head ? 1 : problem->shape->H); h++)
            pairs += (double)alike * (one_head ? H : 1.0) *
                     pairs_by_runs(problem, &sequence, h);
    }
    return pairs;
}
