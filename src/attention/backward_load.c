/* A group of the backward pass: takes its queries into panels. */
#include "attention/backward_at_once.h"
#include "attention/backward_part_keys.h"
#include "attention/backward_parts.h"
#include "attention/rows.h"
#include "attention/weighting.h"
#include "kernel/dropout.h"
#include <math.h>
#include <string.h>

/* What each lane knows of its query before it sees a key. */
static void load_lanes(struct attn_backward_group *group,
                       struct attn_backward_panel *panel)
{
    const struct attn_problem *const problem = &group->backward->problem;
    const struct attn_head *const head = &group->walk.head;
    const float *const lse_of_rows =
        problem->tensors->lse + head->row + panel->forward.first_query;
    attn_weighting_find(&panel->forward, panel->inverse, &group->walk, lse_of_rows,
                        &group->block.forward, group->block.score);
    panel->has_nan = false;
    for (int64_t lane = 0; lane < panel->forward.queries; lane++) {
        const int64_t query = panel->forward.first_query + lane;
        const double lse = (double)lse_of_rows[lane];
        const double of_sink = head->sink == -INFINITY ? 0.0
                                                       : exp((double)head->sink - lse) *
                                                             (double)panel->delta[lane];
        group->sink_sum -= of_sink;
        const float delta = panel->delta[lane];
        panel->has_nan |= isnan(lse);
        if (group->forget_rows)
            group->forget_rows[query] =
                isnan(lse) || isnan(delta) ? (double)NAN : of_sink;
        if (problem->options->dropout > 0.0) {
            const struct attn_dropout_row row =
                attn_dropout_row(problem->options->dropout_seed,
                                 group->walk.sequence.index, head->h, query);
            panel->forward.draw_low[lane] = (int32_t)row.low;
            panel->forward.draw_high[lane] = (int32_t)row.high;
        }
    }
}

/* The panel's output gradients in its lanes, and their products with the outputs. */
static void load_gradient(struct attn_backward_group *group,
                          struct attn_backward_panel *panel,
                          const struct attn_group_rows *rows)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_backward_kernels *const kernels = backward->kernels->backward;
    const size_t width = panel->forward.vectors * backward->kernels->lanes;
    const int64_t queries = panel->forward.queries;
    const int64_t first = panel->forward.first_query - group->first_query;
    const struct attn_matrix gradient =
        attn_rows_among(&rows->output_gradient, first, queries);
    const struct attn_matrix output = attn_rows_among(&rows->output, first, queries);
    kernels->load(panel->output_gradient, width, &gradient, 1.0f);
    kernels->load(group->output, width, &output, 1.0f);
    kernels->delta(panel, group->output);
    panel->column = (size_t)first;
}

/* Takes queries into the next panel of the group. */
static void load_panel(struct attn_backward_group *group,
                       const struct attn_group_rows *rows, int64_t first_query,
                       int64_t queries)
{
    struct attn_backward_panel *const panel = &group->panels[group->count];
    if (group->by_parts) {
        attn_panel_place(&panel->forward, &group->walk, first_query, queries);
        attn_backward_parts_load_panel(group, group->count, rows);
    } else {
        attn_panel_load(&panel->forward, &group->walk, first_query, queries);
        load_gradient(group, panel, rows);
    }
    if (panel->query_gradient && !group->at_once)
        memset(panel->query_gradient, 0,
               panel->forward.D * panel->forward.vectors *
                   group->backward->kernels->lanes * sizeof(float));
    load_lanes(group, panel);
    group->stored[group->count++] = false;
}

static struct attn_group_rows rows_of_group(const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_problem *const problem = &backward->problem;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const struct attn_head *const head = &group->walk.head;
    const int64_t first = group->first_query, count = group->queries;
    const attn_input *const gradient = &backward->gradients->output;
    const attn_input O = attn_read_output(&problem->tensors->output);
    const void *const gradient_head =
        attn_input_row(gradient, sequence->b, head->h, sequence->first_query);
    return (struct attn_group_rows){
        .query = attn_rows_of(&problem->tensors->query, head->query, first, count,
                              problem->shape->D),
        .output = attn_rows_of(&O, head->output, first, count, problem->shape->Dv),
        .output_gradient =
            attn_rows_of(gradient, gradient_head, first, count, problem->shape->Dv),
    };
}

/* The queries of the group and their output's gradients, row by row. */
static void load_rows(struct attn_backward_group *group, struct attn_group_rows *rows)
{
    const struct attn_backward_kernels *const kernels =
        group->backward->kernels->backward;
    group->by_parts = attn_backward_parts_load_rows(group, rows);
    if (group->by_parts)
        return;
    group->query_rows = attn_backward_rows(group, group->query_pack, &rows->query);
    group->gradient_rows =
        attn_backward_rows(group, group->gradient_pack, &rows->output_gradient);
    group->queries_finite =
        kernels->is_finite(&rows->query) && kernels->is_finite(&rows->output_gradient);
}

struct attn_group_size attn_backward_group_size(const struct attn_backward *backward,
                                                const struct attn_sequence *sequence)
{
    if (!attn_backward_takes_parts(backward, sequence))
        return backward->plain;
    return attn_part_keys_stay(backward, sequence) ? backward->by_kept_parts
                                                   : backward->by_parts;
}

/* How many of the queries left, all of one row of the layout, the next panel takes. */
static int64_t next_panel(const struct attn_backward *backward,
                          const struct attn_group_size *size, int64_t queries_left)
{
    return size->panel_lanes == backward->plain.panel_lanes
               ? attn_next_panel(backward->kernels, queries_left)
               : attn_least(queries_left, (int64_t)size->panel_lanes);
}

int64_t attn_backward_group_queries(const struct attn_backward *backward,
                                    const struct attn_sequence *sequence, int64_t query,
                                    int64_t queries_left)
{
    const struct attn_group_size size = attn_backward_group_size(backward, sequence);
    int64_t queries = 0;
    queries_left = attn_queries_alike(&backward->problem, query, queries_left);
    for (size_t p = 0; p < size.panels && queries < queries_left; p++)
        queries += next_panel(backward, &size, queries_left - queries);
    return queries;
}

int64_t attn_backward_group_load(struct attn_backward_group *group, int64_t first_query)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const struct attn_group_size size = attn_backward_group_size(backward, sequence);
    const int64_t end =
        first_query + attn_backward_group_queries(backward, sequence, first_query,
                                                  sequence->Lq - first_query);
    group->first_query = first_query;
    group->queries = end - first_query;
    group->count = 0;
    group->sink_sum = 0.0;
    group->bias_sum = 0.0;
    if (group->vector_sums)
        memset(group->vector_sums, 0,
               (size_t)backward->problem.shape->D * backward->kernels->lanes *
                   sizeof *group->vector_sums);
    struct attn_group_rows rows = rows_of_group(group);
    load_rows(group, &rows);
    for (int64_t query = first_query; query < end;) {
        const int64_t queries = next_panel(backward, &size, end - query);
        load_panel(group, &rows, query, queries);
        query += queries;
    }
    return end;
}
