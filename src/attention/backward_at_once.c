/* Gradients that are stored as they are found; see backward_at_once.h. */
#include "attention/backward_at_once.h"
#include "attention/backward_parts.h"
#include "attention/rows.h"
#include <string.h>

/* Rows that kernels write themselves: of fp32, whole vectors. */
static bool takes_rows(const attn_output *x, int64_t size, size_t lanes)
{
    return !x->data ||
           (x->type == ATTN_F32 && x->stride[3] == 1 && size % (int64_t)lanes == 0);
}

/* Whether keys are rows of fp32, as they are or widened. */
static bool gives_rows(const attn_input *x)
{
    return x->type != ATTN_F32 || x->stride[3] == 1;
}

bool attn_backward_goes_at_once(const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_problem *const problem = &backward->problem;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const attn_gradients *const gradients = backward->gradients;
    const attn_shape *const shape = problem->shape;
    const size_t lanes = backward->kernels->lanes;
    return shape->H == shape->Hk && sequence->Lk <= ATTN_BLOCK_KEYS &&
           sequence->Lq <= (int64_t)backward->plain.lanes && !attn_has_runs(problem) &&
           !problem->options->additive && problem->options->softcap == 0.0f &&
           !attn_backward_takes_parts(backward, sequence) &&
           takes_rows(&gradients->query, shape->D, lanes) &&
           takes_rows(&gradients->key, shape->D, lanes) &&
           takes_rows(&gradients->value, shape->Dv, lanes) &&
           gives_rows(&problem->tensors->key);
}

/* Two thirds of a first cache of 48 KB; of rows that lie apart, and in few of its sets,
 * half of that. */
enum { NEAR_FLOATS = 8192 };

struct attn_gather_rows attn_backward_rows(const struct attn_backward_group *group,
                                           float *pack, const struct attn_matrix *rows)
{
    const struct attn_kernels *const kernels = group->backward->kernels;
    const size_t floats = rows->rows * rows->size;
    const bool side_by_side = rows->row_stride == (ptrdiff_t)rows->size;
    if (group->at_once && rows->type == ATTN_F32 && rows->element_stride == 1 &&
        rows->size % kernels->lanes == 0 && floats <= NEAR_FLOATS &&
        (side_by_side || 2 * floats <= NEAR_FLOATS))
        return (struct attn_gather_rows){rows->x, rows->row_stride};
    kernels->backward->pack(pack, rows);
    return (struct attn_gather_rows){pack, 0};
}

void attn_backward_aim(struct attn_backward_group *group, struct attn_gather *gather,
                       const attn_output *to, struct attn_key_range keys)
{
    const struct attn_sequence *const sequence = &group->walk.sequence;
    group->gathered = keys;
    if (!to->data)
        return;
    gather->out = attn_output_row(to, sequence->b, group->walk.head.h,
                                  sequence->first_key + keys.first);
    gather->out_stride = (ptrdiff_t)to->stride[2];
}

static struct attn_target rows_of_panel(const struct attn_backward_group *group,
                                        const struct attn_backward_panel *panel)
{
    const attn_output *const to = &group->backward->gradients->query;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    return attn_rows_to(to, attn_output_row(to, sequence->b, group->walk.head.h, 0),
                        sequence->first_query + panel->forward.first_query,
                        panel->forward.queries, (int64_t)panel->forward.D);
}

void attn_backward_store_query(struct attn_backward_group *group, size_t p)
{
    const struct attn_kernels *const kernels = group->backward->kernels;
    struct attn_backward_panel *const panel = &group->panels[p];
    const struct attn_backward_block *const block = &group->block;
    if (!panel->query_gradient)
        return;
    group->stored[p] = true;
    const size_t width = panel->forward.vectors * kernels->lanes;
    const struct attn_target to = rows_of_panel(group, panel);
    const float scale = group->backward->problem.options->scale;
    if (block->careful) {
        memset(panel->query_gradient, 0, panel->forward.D * width * sizeof(float));
        kernels->backward->query(panel, block);
        kernels->backward->store(&to, panel->query_gradient, width, scale);
        return;
    }
    float factors[ATTN_PANEL_LANES];
    for (size_t lane = 0; lane < ATTN_PANEL_LANES; lane++)
        factors[lane] = scale;
    const struct attn_weighted_rows from = {
        .weights = block->gradient + panel->column,
        .width = block->row,
        .rows = block->forward.key,
        .row_stride = block->forward.key_stride,
        .factors = factors,
    };
    kernels->store_weighted(&to, &from, &block->forward);
}

void attn_backward_clear_unseeing(const struct attn_backward_group *group)
{
    const struct attn_sequence *const sequence = &group->walk.sequence;
    for (size_t p = 0; p < group->count; p++) {
        const struct attn_panel *const panel = &group->panels[p].forward;
        const int64_t first = sequence->first_query + panel->first_query;
        if (!group->stored[p])
            attn_clear_rows(&group->backward->gradients->query, sequence->b,
                            group->walk.head.h, first, first + panel->queries,
                            (int64_t)panel->D);
    }
}

static void clear_around(const struct attn_backward_group *group, const attn_output *to,
                         int64_t size)
{
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const int64_t b = sequence->b, h = group->walk.head.h, first = sequence->first_key;
    attn_clear_rows(to, b, h, first, first + group->gathered.first, size);
    attn_clear_rows(to, b, h, first + group->gathered.end, first + sequence->Lk, size);
}

void attn_backward_clear_unseen(const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    clear_around(group, &backward->gradients->key, backward->problem.shape->D);
    clear_around(group, &backward->gradients->value, backward->problem.shape->Dv);
}
