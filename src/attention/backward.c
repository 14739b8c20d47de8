/* The backward pass of attention:
 *
 *     P = exp(score − lse)        dV = (P ∘ dropout)ᵀ dO
 *     dP = dO Vᵀ ∘ dropout        dS = P ∘ (dP − rowsum(dO ∘ O))
 *     dQ = scale · dS K           dK = scale · dSᵀ Q
 *
 * (additive scores: backward_additive.h has what stands for the last line)
 *
 * in one sweep: scores are computed again, block by block, and nothing of size Lq · Lk is
 * kept.  This file checks and plans; who does what is for backward_units.c, and a group
 * of queries is the work of backward_group.c. */
#include "attention/backward_part_keys.h"
#include "attention/backward_parts.h"
#include "attention/backward_units.h"
#include "attention/gradients.h"
#include "attention/rows.h"

/* ---- Plan -----------------------------------------------------------------------------
 */

/* A bias gradient of 16 bits is summed in fp32, in rows of whole vectors, once along the
 * axes that are summed over. */
static void lay_out_bias(struct attn_backward *backward, const attn_shape *shape)
{
    const attn_output *const to = &backward->gradients->bias;
    const int64_t extent[] = {shape->B, shape->H, shape->Lq,
                              (int64_t)attn_whole(shape->Lk, backward->kernels->lanes)};
    backward->bias = *to;
    if (!to->data || to->type == ATTN_F32)
        return;
    int64_t floats = 1;
    bool overflows = false;
    for (int axis = 3; axis >= 0; axis--) {
        const bool is_shared = to->stride[axis] == 0;
        backward->bias.stride[axis] = is_shared ? 0 : floats;
        overflows |= !is_shared && __builtin_mul_overflow(floats, extent[axis], &floats);
        if (axis == 3 && is_shared)
            floats = (int64_t)backward->kernels->lanes;
    }
    backward->bias.type = ATTN_F32;
    backward->bias_floats = overflows ? SIZE_MAX : (size_t)floats;
}

static struct attn_group_size group_size(size_t panel_lanes, size_t lanes)
{
    const size_t panels = panel_lanes < lanes ? lanes / panel_lanes : 1;
    return (struct attn_group_size){panel_lanes, panels, panels * panel_lanes};
}

static bool any_takes_parts(const struct attn_backward *backward)
{
    bool any = false;
    for (int64_t s = 0; s < backward->problem.sequences && backward->parts && !any;
         s += attn_sequences_alike(&backward->problem, s)) {
        const struct attn_sequence sequence =
            attn_problem_sequence(&backward->problem, s);
        any = attn_backward_takes_parts(backward, &sequence);
    }
    return any;
}

static void choose_groups(struct attn_backward *backward)
{
    const struct attn_kernels *const kernels = backward->kernels;
    const size_t width = kernels->panel_vectors * kernels->lanes;
    backward->parts = attn_backward_parts_for(&backward->problem, kernels);
    if (!any_takes_parts(backward))
        backward->parts = NULL;
    backward->plain = group_size(width, ATTN_BACKWARD_LANES);
    backward->by_parts =
        backward->parts ? group_size(ATTN_TILE_STEP, ATTN_PART_LANES) : backward->plain;
    backward->by_kept_parts = group_size(ATTN_TILE_STEP, ATTN_KEPT_PART_LANES);
    const bool more = backward->by_parts.panels > backward->plain.panels;
    backward->panels = more ? backward->by_parts.panels : backward->plain.panels;
    backward->lanes = more ? backward->by_parts.lanes : backward->plain.lanes;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void find_longest(struct attn_backward *backward)
{
    for (int64_t s = 0; s < backward->problem.sequences;
         s += attn_sequences_alike(&backward->problem, s)) {
        const struct attn_sequence sequence =
            attn_problem_sequence(&backward->problem, s);
        backward->longest_keys = larger(backward->longest_keys, sequence.Lk);
        if (backward->parts && attn_part_keys_stay(backward, &sequence))
            backward->longest_kept_keys =
                larger(backward->longest_kept_keys, sequence.Lk);
    }
}

static attn_status backward_init(struct attn_backward *backward, attn_context *context,
                                 const char *function, const attn_shape *shape,
                                 const attn_tensors *tensors, const attn_options *options,
                                 const attn_gradients *gradients)
{
    const size_t lanes = context->kernels->lanes;
    *backward =
        (struct attn_backward){.gradients = gradients, .kernels = context->kernels};
    ATTN_TRY(attn_problem_init(&backward->problem, context, function, shape, tensors,
                               options,
                               ATTN_NEEDS_VALUE | ATTN_NEEDS_OUTPUT | ATTN_NEEDS_LSE));
    if (attn_problem_is_linear(&backward->problem))
        return attn_context_fail(context, ATTN_EUNSUPPORTED,
                                 "%s: options.score is ATTN_SCORE_LINEAR, expected "
                                 "another: attn_linear_backward has its gradients",
                                 function);
    ATTN_TRY(attn_check_given(context, function, "gradients", gradients));
    ATTN_TRY(attn_check_gradients(context, function, shape, options, gradients));
    choose_groups(backward);
    backward->D_whole = attn_whole(shape->D, lanes);
    backward->Dv_whole = attn_whole(shape->Dv, lanes);
    lay_out_bias(backward, shape);
    find_longest(backward);
    return ATTN_OK;
}

static const char *path_of(const struct attn_backward *backward,
                           const attn_options *options,
                           const struct attn_backward_layout *layout)
{
    const struct attn_kernels *const kernels = backward->kernels;
    if (backward->parts)
        return layout->in_turns ? backward->parts->in_turns : backward->parts->by_heads;
    if (options->additive)
        return layout->in_turns ? kernels->additive_in_turns : kernels->additive_by_heads;
    return layout->in_turns ? kernels->in_turns : kernels->by_heads;
}

attn_status attn_plan_backward(attn_context *context, const attn_shape *shape,
                               const attn_tensors *tensors, const attn_options *options,
                               const attn_gradients *gradients, attn_plan *plan)
{
    static const char function[] = "attn_plan_backward";
    struct attn_backward backward;
    struct attn_backward_layout layout = {0};
    ATTN_TRY(attn_check_given(context, function, "plan", plan));
    ATTN_TRY(
        backward_init(&backward, context, function, shape, tensors, options, gradients));
    if (!backward.problem.empty)
        ATTN_TRY(attn_backward_lay_out(&layout, context, function, &backward));
    *plan = (attn_plan){
        .path = backward.problem.empty ? "nothing" : path_of(&backward, options, &layout),
        .scratch_bytes = layout.bytes,
        .visible_pairs =
            backward.problem.empty ? 0.0 : attn_problem_visible_pairs(&backward.problem),
    };
    return ATTN_OK;
}

/* ---- Work -----------------------------------------------------------------------------
 */

/* The bias gradient from its sums. */
static void round_bias(const struct attn_backward *backward, const attn_shape *shape)
{
    const attn_output *const to = &backward->gradients->bias;
    const attn_output *const from = &backward->bias;
    int64_t extent[4] = {shape->B, shape->H, shape->Lq, shape->Lk};
    for (int axis = 0; axis < 4; axis++)
        extent[axis] = to->stride[axis] == 0 ? 1 : extent[axis];
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++) {
            const struct attn_target rows =
                attn_rows_to(to, attn_output_row(to, b, h, 0), 0, extent[2], extent[3]);
            const float *const sums =
                (const float *)from->data + b * from->stride[0] + h * from->stride[1];
            backward->kernels->backward->put(&rows, sums, (size_t)from->stride[2], 1.0f);
        }
}

attn_status attn_backward(attn_context *context, const attn_shape *shape,
                          const attn_tensors *tensors, const attn_options *options,
                          const attn_gradients *gradients)
{
    static const char function[] = "attn_backward";
    struct attn_backward backward;
    ATTN_TRY(
        backward_init(&backward, context, function, shape, tensors, options, gradients));
    if (backward.problem.empty) {
        attn_clear_gradients(shape, gradients);
        return ATTN_OK;
    }
    struct attn_backward_layout layout = {0};
    void *memory = NULL;
    ATTN_TRY(attn_backward_lay_out(&layout, context, function, &backward));
    ATTN_TRY(attn_context_reserve(context, layout.bytes, &memory));

    if (backward.bias_floats > 0)
        backward.bias.data = (char *)memory + layout.bytes - layout.bias_bytes;
    attn_clear_tensor(&backward.bias, shape->B, shape->H, shape->Lq, shape->Lk);
    attn_backward_run(context, &backward, &layout, memory);
    if (backward.bias_floats > 0)
        round_bias(&backward, shape);
    return ATTN_OK;
}
