/* A group of the backward pass: walks a block, and stores its gradients.  Loading it is
 * the work of backward_load.c. */
#include "attention/backward_at_once.h"
#include "attention/backward_bias.h"
#include "attention/backward_forget.h"
#include "attention/backward_parts.h"
#include "attention/rows.h"
#include "attention/widen.h"
#include "kernel/dropout.h"
#include <string.h>

/* ---- Scratch --------------------------------------------------------------------------
 */

static size_t whole_lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

float *attn_take_floats(float **scratch, size_t *floats, size_t count)
{
    float *const taken = *scratch;
    *floats += whole_lines(count);
    if (*scratch)
        *scratch += whole_lines(count);
    return taken;
}

static size_t lay_out(struct attn_backward_group *group,
                      const struct attn_backward *backward, float *scratch)
{
    const attn_shape *const shape = backward->problem.shape;
    const size_t D = (size_t)shape->D, Dv = (size_t)shape->Dv;
    const size_t width = backward->plain.panel_lanes;
    const size_t matrix = ATTN_BLOCK_KEYS * backward->lanes;
    const size_t query = attn_query_floats(&backward->problem, backward->kernels);
    size_t floats = 0;
    for (size_t p = 0; p < backward->panels; p++) {
        struct attn_backward_panel *const panel = &group->panels[p];
        panel->forward.D = D;
        panel->forward.Dv = Dv;
        panel->forward.query = attn_take_floats(&scratch, &floats, query);
        panel->output_gradient = attn_take_floats(&scratch, &floats, Dv * width);
        if (backward->gradients->query.data)
            panel->query_gradient = attn_take_floats(&scratch, &floats, D * width);
    }
    group->weight = attn_take_floats(&scratch, &floats, matrix);
    group->gradient = attn_take_floats(&scratch, &floats, matrix);
    group->block.score = attn_take_floats(&scratch, &floats, ATTN_BLOCK_KEYS * width);
    group->block.slope = attn_take_floats(&scratch, &floats, ATTN_BLOCK_KEYS * width);
    group->query_pack =
        attn_take_floats(&scratch, &floats, backward->lanes * backward->D_whole);
    group->gradient_pack =
        attn_take_floats(&scratch, &floats, backward->lanes * backward->Dv_whole);
    group->output = attn_take_floats(&scratch, &floats, Dv * width);
    if (backward->gradients->additive)
        group->vector_sums =
            attn_take_floats(&scratch, &floats, D * backward->kernels->lanes);
    const size_t added = attn_added_floats(&backward->problem, backward->kernels);
    float *const added_scratch = attn_take_floats(&scratch, &floats, added);
    group->walk.added = added > 0 ? added_scratch : NULL;
    const size_t forget = attn_forget_floats(&backward->problem);
    float *const forget_scratch = attn_take_floats(&scratch, &floats, forget);
    if (forget_scratch)
        attn_forget_init(&group->walk, forget_scratch);
    const size_t parts = attn_backward_parts_floats(backward);
    float *const part_scratch = attn_take_floats(&scratch, &floats, parts);
    if (part_scratch && parts > 0)
        attn_backward_parts_init(group, part_scratch);
    const size_t wide =
        attn_wide_floats(&backward->problem, backward->kernels, false, true);
    float *const wide_scratch = attn_take_floats(&scratch, &floats, wide);
    if (wide_scratch)
        attn_wide_init(&group->walk, wide_scratch, true);
    return floats;
}

size_t attn_backward_group_floats(const struct attn_backward *backward)
{
    struct attn_backward_group group;
    return lay_out(&group, backward, NULL);
}

void attn_backward_group_init(struct attn_backward_group *group,
                              const struct attn_backward *backward, float *scratch)
{
    const attn_options *const options = backward->problem.options;
    memset(group, 0, sizeof *group);
    group->backward = backward;
    group->walk.problem = &backward->problem;
    group->walk.kernels = backward->kernels;
    lay_out(group, backward, scratch);
    group->block.row = backward->lanes;
    group->block.rounded = backward->problem.tensors->output.type != ATTN_F32;
    group->block.dropout = options->dropout > 0.0;
    group->block.dropout_threshold = attn_dropout_threshold(options->dropout);
    group->block.dropout_factor = (float)attn_dropout_factor(options->dropout);
}

/* ---- A block of keys ------------------------------------------------------------------
 */

struct attn_key_range attn_backward_group_keys(const struct attn_backward_group *group)
{
    const struct attn_walk *const walk = &group->walk;
    const int64_t last = group->first_query + group->queries - 1;
    return (struct attn_key_range){
        attn_visible_keys(walk->problem, &walk->sequence, group->first_query).first,
        attn_visible_keys(walk->problem, &walk->sequence, last).end,
    };
}

static struct attn_key_range seen_by_lane(const struct attn_backward_group *group,
                                          int64_t lane, int64_t key)
{
    return attn_keys_near(group->walk.problem, &group->walk.sequence,
                          group->first_query + lane, key);
}

/* Which lanes see each key of the run by their position.  The first and the end of what
 * lanes see never fall, so both pointers walk once. */
static void fill_lanes(struct attn_backward_group *group, struct attn_key_range keys)
{
    const int64_t lanes = group->queries;
    const bool all = seen_by_lane(group, lanes - 1, keys.first).first <= keys.first &&
                     seen_by_lane(group, 0, keys.first).end >= keys.end;
    int64_t begin = 0, end = all ? lanes : 0;
    for (int64_t key = keys.first; key < keys.end; key++) {
        while (!all && begin < lanes && seen_by_lane(group, begin, key).end <= key)
            begin++;
        while (end < lanes && seen_by_lane(group, end, key).first <= key)
            end++;
        group->lane_begin[key - keys.first] = (int32_t)begin;
        group->lane_end[key - keys.first] = (int32_t)end;
    }
}

static void clear_columns(const struct attn_backward_group *group,
                          const struct attn_backward_panel *panel, int64_t first,
                          int64_t end)
{
    const size_t bytes = (size_t)panel->forward.queries * sizeof(float);
    for (int64_t row = first; row < end; row++) {
        const size_t at = (size_t)row * group->block.row + panel->column;
        memset(group->weight + at, 0, bytes);
        memset(group->gradient + at, 0, bytes);
    }
}

/* Fills the panel's columns of the group's matrices, whose row 0 is key keys.first, in
 * the rows it returns: those of keys that it sees anything of. */
static struct attn_key_range show_panel(struct attn_backward_group *group, size_t p,
                                        struct attn_key_range keys)
{
    struct attn_backward_panel *const panel = &group->panels[p];
    const struct attn_backward_kernels *const kernels =
        group->backward->kernels->backward;
    struct attn_backward_block *const block = &group->block;
    if (!attn_block_show(&block->forward, &panel->forward, &group->walk, keys.first,
                         keys.end))
        return (struct attn_key_range){0, 0};
    const int64_t first = block->forward.first_key - keys.first;
    block->weight = group->weight + (size_t)first * block->row;
    block->gradient = group->gradient + (size_t)first * block->row;
    block->careful = !group->keys_finite;
    kernels->differentiate(panel, block);
    if (group->backward->bias.data)
        attn_backward_add_to_bias(group, panel, block);
    if (group->forget_sums)
        attn_backward_add_to_forget(group, panel, block);
    if (group->at_once)
        attn_backward_store_query(group, p);
    else
        kernels->query(panel, block);
    return (struct attn_key_range){first, first + (int64_t)block->forward.keys};
}

/* What the panels filled of the group's matrices. */
struct filled {
    struct attn_key_range rows[ATTN_BACKWARD_PANELS];
    struct attn_key_range all;    /* from the first row that any filled to the last */
    int32_t first_lane, end_lane; /* likewise */
};

static void show_panels(struct attn_backward_group *group, struct attn_key_range keys,
                        struct filled *filled)
{
    filled->all = (struct attn_key_range){keys.end - keys.first, 0};
    filled->end_lane = 0;
    for (size_t p = 0; p < group->count; p++) {
        const struct attn_backward_panel *const panel = &group->panels[p];
        const struct attn_key_range rows = show_panel(group, p, keys);
        filled->rows[p] = rows;
        if (rows.first == rows.end)
            continue;
        if (filled->end_lane == 0)
            filled->first_lane = (int32_t)panel->column;
        filled->end_lane = (int32_t)panel->column + (int32_t)panel->forward.queries;
        filled->all.first = attn_least(filled->all.first, rows.first);
        filled->all.end = rows.end > filled->all.end ? rows.end : filled->all.end;
    }
}

/* Zeros where a panel filled less than the others, and no lanes where none did. */
static void fit_together(struct attn_backward_group *group, const struct filled *filled)
{
    for (size_t p = 0; p < group->count; p++) {
        const struct attn_key_range rows = filled->rows[p], all = filled->all;
        const bool is_empty = rows.first == rows.end;
        clear_columns(group, &group->panels[p], all.first,
                      is_empty ? all.end : rows.first);
        clear_columns(group, &group->panels[p], is_empty ? all.end : rows.end, all.end);
    }
    for (int64_t row = filled->all.first; row < filled->all.end; row++) {
        if (group->lane_begin[row] < filled->first_lane)
            group->lane_begin[row] = filled->first_lane;
        if (group->lane_end[row] > filled->end_lane)
            group->lane_end[row] = filled->end_lane;
    }
}

/* Lanes without a query hold nonsense, NaN where a key is. */
static void clear_beyond_queries(const struct attn_backward_group *group, int64_t first,
                                 int64_t end)
{
    const struct attn_backward_panel *const last = &group->panels[group->count - 1];
    const size_t lanes = last->forward.vectors * group->backward->kernels->lanes;
    const size_t beyond = last->column + lanes - (size_t)group->queries;
    for (int64_t row = first; row < end; row++)
        memset(group->gradient + (size_t)row * group->block.row + group->queries, 0,
               beyond * sizeof(float));
}

static void gather_additive(const struct attn_backward_group *group,
                            struct attn_key_range keys, int64_t row)
{
    const struct attn_backward *const backward = group->backward;
    struct attn_block block = {.first_key = keys.first};
    attn_block_point(&block, &group->walk);
    const struct attn_additive_gradients gather = {
        .panels = group->panels,
        .count = group->count,
        .key = block.key,
        .key_stride = block.key_stride,
        .key_element_stride = block.key_element_stride,
        .keys = (size_t)(keys.end - keys.first),
        .gradient = group->gradient + (size_t)row * group->block.row,
        .row = group->block.row,
        .lane_begin = group->lane_begin + row,
        .lane_end = group->lane_end + row,
        .key_sums = backward->gradients->key.data
                        ? group->sums.key + keys.first * (int64_t)backward->D_whole
                        : NULL,
        .key_sums_stride = (ptrdiff_t)backward->D_whole,
        .vector_sums = group->vector_sums,
    };
    clear_beyond_queries(group, row, row + keys.end - keys.first);
    if (gather.key_sums || gather.vector_sums || backward->gradients->query.data)
        backward->kernels->backward->additive(&gather);
}

/* Keys, whose first has that row in the group's matrices. */
static void gather_keys(struct attn_backward_group *group, struct attn_key_range keys,
                        int64_t row)
{
    const struct attn_backward *const backward = group->backward;
    const size_t skipped = (size_t)row * group->block.row;
    const float scale = backward->problem.options->scale;
    struct attn_gather gather = {
        .out = group->sums.value + keys.first * (int64_t)backward->Dv_whole,
        .out_stride = (ptrdiff_t)backward->Dv_whole,
        .left = group->weight + skipped,
        .left_stride = group->block.row,
        .right = group->gradient_rows.x,
        .right_stride = group->gradient_rows.stride,
        .lanes = (size_t)group->queries,
        .keys = (size_t)(keys.end - keys.first),
        .size = backward->Dv_whole,
        .lane_begin = group->lane_begin + row,
        .lane_end = group->lane_end + row,
        .careful = !group->queries_finite,
        .sets = group->at_once,
        .scale = 1.0f,
        .calls = group->walk.calls,
    };
    if (group->at_once)
        attn_backward_aim(group, &gather, &backward->gradients->value, keys);
    if (backward->gradients->value.data)
        backward->kernels->backward->gather(&gather);
    if (group->walk.head.additive) {
        gather_additive(group, keys, row);
        return;
    }
    gather.out = group->sums.key + keys.first * (int64_t)backward->D_whole;
    gather.out_stride = (ptrdiff_t)backward->D_whole;
    gather.left = group->gradient + skipped;
    gather.right = group->query_rows.x;
    gather.right_stride = group->query_rows.stride;
    gather.size = backward->D_whole;
    gather.scale = scale;
    if (group->at_once)
        attn_backward_aim(group, &gather, &backward->gradients->key, keys);
    if (backward->gradients->key.data)
        backward->kernels->backward->gather(&gather);
}

/* Panels of a group have one row of the layout, and so the same runs. */
static void show_run(struct attn_backward_group *group, struct attn_key_range run)
{
    const struct attn_key_range of_first = seen_by_lane(group, 0, run.first);
    const struct attn_key_range of_last =
        seen_by_lane(group, group->queries - 1, run.first);
    const struct attn_key_range keys = {
        attn_clamp(of_first.first, run.first, run.end),
        attn_clamp(of_last.end, run.first, run.end),
    };
    if (keys.first >= keys.end)
        return;
    if (group->by_parts) {
        attn_backward_parts_show(group, keys);
        return;
    }
    attn_widen(&group->walk, keys.first, keys.end);
    fill_lanes(group, keys);
    struct filled filled;
    show_panels(group, keys, &filled);
    if (filled.end_lane == 0)
        return;
    fit_together(group, &filled);
    gather_keys(group,
                (struct attn_key_range){keys.first + filled.all.first,
                                        keys.first + filled.all.end},
                filled.all.first);
}

void attn_backward_group_show(struct attn_backward_group *group, int64_t first)
{
    const int64_t end = attn_least(first + ATTN_BLOCK_KEYS, group->walk.sequence.Lk);
    struct attn_key_range run = {first, first};
    while (attn_next_run(group->walk.problem, &group->walk.head, group->first_query, end,
                         &run))
        show_run(group, run);
}

/* ---- Storing --------------------------------------------------------------------------
 */

void attn_backward_group_store(const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    const attn_output *const to = &backward->gradients->query;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    if (group->at_once) {
        attn_backward_clear_unseeing(group);
        return;
    }
    if (!to->data)
        return;
    void *const head = attn_output_row(to, sequence->b, group->walk.head.h, 0);
    for (size_t p = 0; p < group->count; p++) {
        const struct attn_backward_panel *const panel = &group->panels[p];
        const struct attn_target rows =
            attn_rows_to(to, head, sequence->first_query + panel->forward.first_query,
                         panel->forward.queries, (int64_t)panel->forward.D);
        backward->kernels->backward->store(&rows, panel->query_gradient,
                                           panel->forward.vectors *
                                               backward->kernels->lanes,
                                           backward->problem.options->scale);
    }
}
