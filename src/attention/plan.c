/* What attn_forward would do. */
#include "attention/forward.h"

static const char *path_of(const struct attn_kernels *kernels,
                           const attn_options *options, bool received)
{
    if (options->additive)
        return received ? kernels->additive_two_passes : kernels->additive_one_pass;
    return received ? kernels->two_passes : kernels->one_pass;
}

attn_status attn_plan_forward(attn_context *context, const attn_shape *shape,
                              const attn_tensors *tensors, const attn_options *options,
                              attn_plan *plan)
{
    struct attn_problem problem;
    struct attn_forward forward;
    ATTN_TRY(attn_check_given(context, "attn_plan_forward", "plan", plan));
    ATTN_TRY(attn_problem_init(&problem, context, "attn_plan_forward", shape, tensors,
                               options, ATTN_NEEDS_VALUE | ATTN_NEEDS_OUTPUT));
    ATTN_TRY(attn_check_statistics(context, "attn_plan_forward", &problem));
    ATTN_TRY(attn_forward_layout(&forward, context, &problem));
    *plan = (attn_plan){
        .path = problem.empty ? "nothing"
                              : path_of(context->kernels, options,
                                        tensors->statistics.received != NULL),
        .scratch_bytes = forward.scratch_bytes,
        .visible_pairs = attn_problem_visible_pairs(&problem),
    };
    return ATTN_OK;
}
