/* What attn_forward would do. */
#include "attention/decode_layout.h"
#include "attention/forward.h"
#include "kernel/pair_table.h"

static const char *path_of(const struct attn_forward *forward)
{
    const struct attn_kernels *const kernels = forward->kernels;
    const bool received = forward->problem->tensors->statistics.received;
    if (forward->problem->empty)
        return "nothing";
    if (forward->problem->options->additive)
        return received ? kernels->additive_weights_kept : kernels->additive_one_pass;
    const struct attn_pair_kernels *const pairs = forward->pairs;
    if (forward->splits.slots > 0 && forward->panel_units == 0)
        return attn_decode_stores_bytes(forward) ? kernels->decode->bytes_path
               : attn_decode_pairs(forward)      ? kernels->decode->pairs_path
                                                 : kernels->decoding;
    if (forward->splits.slots > 0)
        return pairs ? pairs->decoding_too : kernels->decoding_too;
    if (received)
        return pairs ? pairs->weights_kept : kernels->weights_kept;
    return pairs ? pairs->one_pass : kernels->one_pass;
}

void attn_forward_plan(const struct attn_forward *forward, attn_plan *plan)
{
    *plan = (attn_plan){
        .path = path_of(forward),
        .scratch_bytes = forward->scratch_bytes,
        .visible_pairs = attn_problem_visible_pairs(forward->problem),
    };
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
    attn_forward_plan(&forward, plan);
    return ATTN_OK;
}
