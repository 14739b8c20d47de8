/* Queries, outputs and their gradients of a group in parts. */
#include "attention/backward_part_keys.h"
#include "attention/backward_parts.h"
#include "attention/rows.h"
#include "attention/weighting.h"

void attn_backward_look_at_keys(struct attn_backward_group *group, int64_t hk)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const attn_tensors *const tensors = backward->problem.tensors;
    const attn_shape *const shape = backward->problem.shape;
    group->keys_finite = true;
    group->keys_fit = false;
    if (sequence->Lk == 0)
        return;
    const void *const first_key =
        attn_input_row(&tensors->key, sequence->b, hk, sequence->first_key);
    const void *const first_value =
        attn_input_row(&tensors->value, sequence->b, hk, sequence->first_key);
    const struct attn_matrix key =
        attn_rows_of(&tensors->key, first_key, 0, sequence->Lk, shape->D);
    const struct attn_matrix value =
        attn_rows_of(&tensors->value, first_value, 0, sequence->Lk, shape->Dv);
    group->keys_fit = attn_backward_takes_parts(backward, sequence) &&
                      attn_part_keys_begin(group, &key, &value);
    group->keys_finite = group->keys_fit || backward->kernels->backward->is_finite(&key);
}

struct attn_matrix attn_rows_of_floats(const struct attn_backward *backward,
                                       const struct attn_matrix *from, float *floats)
{
    const size_t lanes = backward->kernels->lanes;
    if (!floats || (from->type == ATTN_F32 && from->element_stride == 1))
        return *from;
    backward->kernels->widen(floats, from);
    return (struct attn_matrix){
        .x = floats,
        .row_stride = (ptrdiff_t)attn_whole(from->size, lanes),
        .element_stride = 1,
        .rows = from->rows,
        .size = from->size,
        .type = ATTN_F32,
    };
}

bool attn_backward_parts_load_rows(struct attn_backward_group *group,
                                   struct attn_group_rows *rows)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_part_kernels *const kernels = backward->parts;
    const struct attn_backward_parts *const parts = &group->parts;
    const float *const lse =
        backward->problem.tensors->lse + group->walk.head.row + group->first_query;
    if (!group->keys_fit || !attn_lse_serves(lse, group->queries))
        return false;
    const struct attn_group_rows floats = {
        .query = attn_rows_of_floats(backward, &rows->query, group->query_pack),
        .output = attn_rows_of_floats(backward, &rows->output, parts->output_floats),
        .output_gradient =
            attn_rows_of_floats(backward, &rows->output_gradient, group->gradient_pack),
    };
    if (!attn_fits_parts(kernels->split_right(parts->query_rows, &floats.query)) ||
        !attn_fits_parts(kernels->split_left(parts->output, &floats.output)) ||
        !attn_fits_parts(
            kernels->split_right(parts->gradient_rows, &floats.output_gradient)))
        return false;
    *rows = floats;
    return true;
}

/* The panel's g·o by tiles, so that where a query's output is a value it is what g·v is,
 * and gradients of its scores are exactly 0. */
static void multiply_outputs(struct attn_backward_group *group, size_t p)
{
    const struct attn_part_kernels *const kernels = group->backward->parts;
    const struct attn_backward_parts *const parts = &group->parts;
    struct attn_backward_panel *const panel = &group->panels[p];
    const size_t vectors = panel->forward.vectors, Dv = panel->forward.Dv;
    const size_t steps = attn_tile_steps(Dv);
    for (size_t v = 0; v < vectors; v++) {
        float square[ATTN_TILE_FLOATS];
        const struct attn_part_product product = {
            .left =
                parts->output + attn_parts_of_panel(p, Dv) + v * steps * ATTN_PART_FLOATS,
            .right = parts->output_gradient + attn_parts_of_panel(p, Dv) +
                     v * ATTN_PART_FLOATS,
            .left_step = ATTN_PART_FLOATS,
            .right_step = (ptrdiff_t)(vectors * ATTN_PART_FLOATS),
            .steps = steps,
            .out = square,
            .out_row = ATTN_TILE_EDGE,
            .rows = ATTN_TILE_EDGE,
            .columns = 1,
        };
        kernels->multiply(&product);
        for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
            panel->delta[v * ATTN_TILE_EDGE + i] = square[i * ATTN_TILE_EDGE + i];
    }
}

void attn_backward_parts_load_panel(struct attn_backward_group *group, size_t p,
                                    const struct attn_group_rows *rows)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_backward_parts *const parts = &group->parts;
    struct attn_backward_panel *const panel = &group->panels[p];
    const size_t width = panel->forward.vectors * backward->kernels->lanes;
    const int64_t first = panel->forward.first_query - group->first_query;
    const int64_t count = panel->forward.queries;
    const struct attn_matrix query = attn_rows_among(&rows->query, first, count);
    const struct attn_matrix gradient =
        attn_rows_among(&rows->output_gradient, first, count);
    panel->column = 0; /* its matrices are its own */
    backward->parts->split_lanes(parts->query + attn_parts_of_panel(p, query.size), width,
                                 &query, panel->forward.scale);
    backward->parts->split_lanes(parts->output_gradient +
                                     attn_parts_of_panel(p, gradient.size),
                                 width, &gradient, 1.0f);
    multiply_outputs(group, p);
}
