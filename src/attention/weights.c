/* The weights of a rectangle of one head.  Rows are taken panel by panel: the scores of
 * the rectangle's keys are computed again and weighed. */
#include "attention/forget.h"
#include "attention/forward.h"
#include "attention/weighting.h"
#include "attention/widen.h"

struct weights {
    const struct attn_problem *problem;
    const struct attn_kernels *kernels;
    const attn_rectangle *rectangle;
    float *to;
    int64_t row_stride;
    int64_t first_sequence, units;
    size_t worker_bytes;
    void *scratch;
    _Atomic int64_t next; /* unit: a panel */
};

/* Scratch of one worker; what it points to follows in memory. */
struct weigher {
    struct attn_panel panel;
    struct attn_block block;
    struct attn_walk walk;
    float inverse[ATTN_PANEL_LANES];
    float *scores;
};

static attn_status check_span(attn_context *context, const char *name, int64_t first,
                              int64_t count, int64_t most)
{
    if (first >= 0 && count >= 0 && first <= most && count <= most - first)
        return ATTN_OK;
    return attn_context_fail(context, ATTN_EINVAL,
                             "attn_weights: rectangle has %lld %s from %lld on, expected "
                             "them within 0 to %lld",
                             (long long)count, name, (long long)first, (long long)most);
}

static attn_status check_rectangle(attn_context *context, const attn_shape *shape,
                                   const attn_rectangle *r, const float *weights,
                                   int64_t row_stride)
{
    ATTN_TRY(check_span(context, "batch", r->b, 1, shape->B));
    ATTN_TRY(check_span(context, "head", r->h, 1, shape->H));
    ATTN_TRY(check_span(context, "queries", r->first_query, r->queries, shape->Lq));
    ATTN_TRY(check_span(context, "keys", r->first_key, r->keys, shape->Lk));
    if (row_stride < r->keys)
        return attn_context_fail(
            context, ATTN_EINVAL,
            "attn_weights: row_stride is %lld, expected at least the "
            "rectangle's keys, %lld",
            (long long)row_stride, (long long)r->keys);
    const int64_t stride[4] = {0, 0, row_stride, 1};
    const int64_t extent[4] = {1, 1, r->queries, r->keys};
    ATTN_TRY(attn_check_strides(context, "attn_weights", "weights", stride, extent));
    if (!weights && r->queries > 0 && r->keys > 0)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_weights: weights is NULL, expected memory");
    return ATTN_OK;
}

/* The rows of the rectangle that lie in the sequence, as its queries. */
static struct attn_key_range rows_in(const struct weights *weights,
                                     const struct attn_sequence *sequence)
{
    const attn_rectangle *const r = weights->rectangle;
    const int64_t first = r->first_query - sequence->first_query;
    const int64_t end = attn_least(first + r->queries, sequence->Lq);
    return (struct attn_key_range){first > 0 ? first : 0, end};
}

static int64_t panels_of(const struct weights *weights,
                         const struct attn_sequence *sequence)
{
    const int64_t size = attn_panel_queries(weights->kernels);
    const struct attn_key_range rows = rows_in(weights, sequence);
    return rows.end > rows.first ? (rows.end - rows.first + size - 1) / size : 0;
}

static void store_block(const struct weigher *weigher, const struct weights *weights)
{
    const struct attn_sequence *const sequence = &weigher->walk.sequence;
    const attn_rectangle *const r = weights->rectangle;
    const size_t width = weigher->panel.vectors * weights->kernels->lanes;
    const int64_t row =
        sequence->first_query + weigher->panel.first_query - r->first_query;
    const int64_t column = sequence->first_key + weigher->block.first_key - r->first_key;
    for (int64_t i = 0; i < weigher->panel.queries; i++) {
        float *const to = weights->to + (row + i) * weights->row_stride + column;
        for (size_t key = 0; key < weigher->block.keys; key++)
            to[key] = weigher->scores[key * width + (size_t)i];
    }
}

static void weigh_panel(struct weigher *weigher, const struct weights *weights,
                        int64_t first_query, int64_t queries)
{
    const attn_rectangle *const r = weights->rectangle;
    struct attn_panel *const panel = &weigher->panel;
    attn_panel_load(panel, &weigher->walk, first_query, queries);
    const float *const lse = weights->problem->tensors->lse;
    attn_weighting_find(panel, weigher->inverse, &weigher->walk,
                        lse ? lse + weigher->walk.head.row + first_query : NULL,
                        &weigher->block, weigher->scores);

    const struct attn_sequence *const sequence = &weigher->walk.sequence;
    const int64_t first = r->first_key - sequence->first_key;
    const int64_t end = attn_least(first + r->keys, sequence->Lk);
    for (int64_t key = first > 0 ? first : 0; key < end; key += ATTN_BLOCK_KEYS) {
        const int64_t stop = attn_least(key + ATTN_BLOCK_KEYS, end);
        struct attn_key_range run = {key, key};
        attn_widen(&weigher->walk, key, stop);
        while (attn_panel_run(panel, &weigher->walk, stop, &run)) {
            if (!attn_block_show(&weigher->block, panel, &weigher->walk, run.first,
                                 run.end))
                continue;
            weights->kernels->score(weigher->scores, panel, &weigher->block);
            weights->kernels->weigh(weigher->scores, panel, weigher->inverse,
                                    weigher->block.keys);
            store_block(weigher, weights);
        }
    }
}

static struct weigher *place_weigher(const struct weights *weights, size_t worker)
{
    const struct attn_problem *const problem = weights->problem;
    const size_t width = (size_t)attn_panel_queries(weights->kernels);
    char *const memory = (char *)weights->scratch + worker * weights->worker_bytes;
    struct weigher *const weigher = (struct weigher *)memory;
    const bool adds = attn_added_floats(problem, weights->kernels) > 0;
    weigher->panel.D = (size_t)problem->shape->D;
    weigher->panel.Dv = 0; /* there is no output to keep */
    weigher->panel.query = (float *)(memory + attn_round_up(sizeof *weigher));
    weigher->scores = weigher->panel.query + attn_query_floats(problem, weights->kernels);
    weigher->walk = (struct attn_walk){
        .problem = problem,
        .kernels = weights->kernels,
        .added = adds ? weigher->scores + ATTN_BLOCK_KEYS * width : NULL,
    };
    float *const next = weigher->scores + ATTN_BLOCK_KEYS * width +
                        attn_added_floats(problem, weights->kernels);
    attn_forget_init(&weigher->walk, next);
    attn_wide_init(&weigher->walk, next + attn_forget_floats(problem), false);
    return weigher;
}

static void work(void *argument, size_t worker)
{
    struct weights *const weights = argument;
    struct weigher *const weigher = place_weigher(weights, worker);
    const int64_t size = attn_panel_queries(weights->kernels);
    int64_t next_sequence = weights->first_sequence, first_unit = 0, end_unit = 0;
    for (;;) {
        const int64_t unit = atomic_fetch_add(&weights->next, 1);
        if (unit >= weights->units)
            return;
        while (unit >= end_unit) {
            weigher->walk.sequence =
                attn_problem_sequence(weights->problem, next_sequence++);
            first_unit = end_unit;
            end_unit = first_unit + panels_of(weights, &weigher->walk.sequence);
        }
        const struct attn_key_range rows = rows_in(weights, &weigher->walk.sequence);
        const int64_t first = rows.first + (unit - first_unit) * size;
        const int64_t end = attn_least(first + size, rows.end);
        attn_walk_take_head(&weigher->walk, weights->rectangle->h);
        for (int64_t query = first; query < end;) {
            const int64_t queries =
                attn_queries_alike(weights->problem, query, end - query);
            weigh_panel(weigher, weights, query, queries);
            query += queries;
        }
    }
}

/* Counts the panels, and sizes the scratch of a worker. */
static void lay_out(struct weights *weights)
{
    const struct attn_problem *const problem = weights->problem;
    const bool packed = problem->packed;
    weights->first_sequence = packed ? 0 : weights->rectangle->b;
    const int64_t end = packed ? problem->sequences : weights->first_sequence + 1;
    for (int64_t s = weights->first_sequence; s < end; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        weights->units += panels_of(weights, &sequence);
    }
    const size_t width = (size_t)attn_panel_queries(weights->kernels);
    const size_t floats =
        attn_query_floats(problem, weights->kernels) + ATTN_BLOCK_KEYS * width +
        attn_added_floats(problem, weights->kernels) + attn_forget_floats(problem) +
        attn_wide_floats(problem, weights->kernels, NULL, false);
    weights->worker_bytes =
        attn_round_up(sizeof(struct weigher)) + attn_round_up(floats * sizeof(float));
}

attn_status attn_weights(attn_context *context, const attn_shape *shape,
                         const attn_tensors *tensors, const attn_options *options,
                         const attn_rectangle *rectangle, float *weights,
                         int64_t row_stride)
{
    struct attn_problem problem;
    ATTN_TRY(
        attn_problem_init(&problem, context, "attn_weights", shape, tensors, options, 0));
    ATTN_TRY(attn_check_given(context, "attn_weights", "rectangle", rectangle));
    ATTN_TRY(check_rectangle(context, shape, rectangle, weights, row_stride));
    struct weights work_on = {
        .problem = &problem,
        .kernels = context->kernels,
        .rectangle = rectangle,
        .to = weights,
        .row_stride = row_stride,
    };
    if (rectangle->keys > 0)
        lay_out(&work_on);
    const size_t units = (size_t)work_on.units;
    const size_t workers = context->threads < units ? context->threads : units;
    ATTN_TRY(
        attn_context_reserve(context, workers * work_on.worker_bytes, &work_on.scratch));
    for (int64_t i = 0; i < rectangle->queries; i++)
        for (int64_t j = 0; j < rectangle->keys; j++)
            weights[i * row_stride + j] = 0.0f;
    attn_context_run(context, workers, work, &work_on);
    return ATTN_OK;
}
