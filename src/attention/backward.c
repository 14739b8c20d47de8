/* The backward pass of attention:
 *
 *     P = exp(score − lse)        dV = (P ∘ dropout)ᵀ dO
 *     dP = dO Vᵀ ∘ dropout        dS = P ∘ (dP − rowsum(dO ∘ O))
 *     dQ = scale · dS K           dK = scale · dSᵀ Q
 *
 * in one sweep: scores are computed again, block by block, and nothing of size Lq · Lk is
 * kept.  This file checks and plans; who does what is for backward_units.c, and a group
 * of queries is the work of backward_group.c. */
#include "attention/backward_units.h"

/* ---- Checks ---------------------------------------------------------------------------
 */

/* No two elements may share an address, which a stride of 0 is the usual way to break.
 * Those of `like`, where it is given, decide instead. */
static attn_status check_gradient(attn_context *context, const char *function,
                                  const char *name, const attn_output *gradient,
                                  const int64_t extent[4], const attn_input *like)
{
    if (!gradient->data)
        return ATTN_OK;
    ATTN_TRY(attn_check_type(context, function, name, gradient->type));
    ATTN_TRY(attn_check_strides(context, function, name, gradient->stride, extent));
    const bool has_elements =
        extent[0] > 0 && extent[1] > 0 && extent[2] > 0 && extent[3] > 0;
    for (int axis = 0; axis < 4 && has_elements; axis++) {
        const bool is_shared = gradient->stride[axis] == 0;
        const bool may_be_shared = like && like->stride[axis] == 0;
        if (extent[axis] > 1 && is_shared != may_be_shared)
            return attn_context_fail(context, ATTN_EINVAL,
                                     "%s: %s.stride[%d] is %lld, expected %s", function,
                                     name, axis, (long long)gradient->stride[axis],
                                     may_be_shared ? "0, as in options.bias" : "not 0");
    }
    return ATTN_OK;
}

static attn_status check_gradients(attn_context *context, const char *function,
                                   const attn_shape *s, const attn_options *options,
                                   const attn_gradients *g)
{
    const int64_t query[] = {s->B, s->H, s->Lq, s->D};
    const int64_t key[] = {s->B, s->Hk, s->Lk, s->D};
    const int64_t value[] = {s->B, s->Hk, s->Lk, s->Dv};
    const int64_t output[] = {s->B, s->H, s->Lq, s->Dv};
    const int64_t pairs[] = {s->B, s->H, s->Lq, s->Lk};
    if (!g->output.data && s->B > 0 && s->H > 0 && s->Lq > 0)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.output is NULL, expected data", function);
    if (g->output.data) {
        ATTN_TRY(attn_check_type(context, function, "gradients.output", g->output.type));
        ATTN_TRY(attn_check_strides(context, function, "gradients.output",
                                    g->output.stride, output));
    }
    ATTN_TRY(
        check_gradient(context, function, "gradients.query", &g->query, query, NULL));
    ATTN_TRY(check_gradient(context, function, "gradients.key", &g->key, key, NULL));
    ATTN_TRY(
        check_gradient(context, function, "gradients.value", &g->value, value, NULL));
    ATTN_TRY(check_gradient(context, function, "gradients.bias", &g->bias, pairs,
                            &options->bias));
    if (g->bias.data && !options->bias.data)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.bias is given without options.bias, "
                                 "expected both or gradients.bias NULL",
                                 function);
    if (g->sinks && !options->sinks)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.sinks is given without options.sinks, "
                                 "expected both or gradients.sinks NULL",
                                 function);
    return ATTN_OK;
}

/* ---- Plan -----------------------------------------------------------------------------
 */

static size_t whole(int64_t size, size_t lanes)
{
    return ((size_t)size + lanes - 1) / lanes * lanes;
}

/* A bias gradient of 16 bits is summed in fp32, in rows of whole vectors, once along the
 * axes that are summed over. */
static void lay_out_bias(struct attn_backward *backward, const attn_shape *shape)
{
    const attn_output *const to = &backward->gradients->bias;
    const int64_t extent[] = {shape->B, shape->H, shape->Lq,
                              (int64_t)whole(shape->Lk, backward->kernels->lanes)};
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
    ATTN_TRY(attn_check_given(context, function, "gradients", gradients));
    ATTN_TRY(check_gradients(context, function, shape, options, gradients));
    const size_t width = context->kernels->panel_vectors * lanes;
    backward->panels = width < ATTN_BACKWARD_LANES ? ATTN_BACKWARD_LANES / width : 1;
    backward->lanes = backward->panels * width;
    backward->D_whole = whole(shape->D, lanes);
    backward->Dv_whole = whole(shape->Dv, lanes);
    lay_out_bias(backward, shape);
    for (int64_t s = 0; s < backward->problem.sequences; s++) {
        const int64_t Lk = attn_problem_sequence(&backward->problem, s).Lk;
        if (Lk > backward->longest_keys)
            backward->longest_keys = Lk;
    }
    return ATTN_OK;
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
        .path = backward.problem.empty ? "nothing"
                : layout.in_turns      ? context->kernels->in_turns
                                       : context->kernels->by_heads,
        .scratch_bytes = layout.bytes,
        .visible_pairs =
            backward.problem.empty ? 0.0 : attn_problem_visible_pairs(&backward.problem),
    };
    return ATTN_OK;
}

/* ---- Work -----------------------------------------------------------------------------
 */

/* Once along an axis with a stride of 0, even if nothing lies along it: a sum of nothing
 * is 0. */
static void clear(const attn_output *x, int64_t B, int64_t heads, int64_t rows,
                  int64_t size)
{
    int64_t extent[4] = {B, heads, rows, size};
    for (int axis = 0; axis < 4; axis++)
        extent[axis] = x->stride[axis] == 0 ? 1 : extent[axis];
    for (int64_t b = 0; b < extent[0] && x->data; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            attn_clear_rows(x, b, h, 0, extent[2], extent[3]);
}

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
            const struct attn_target rows = {
                .x =
                    attn_place(to->data, to->type, b * to->stride[0] + h * to->stride[1]),
                .row_stride = to->stride[2],
                .element_stride = to->stride[3],
                .rows = (size_t)extent[2],
                .size = (size_t)extent[3],
                .type = to->type,
            };
            const float *const sums =
                (const float *)from->data + b * from->stride[0] + h * from->stride[1];
            backward->kernels->backward->put(&rows, sums, (size_t)from->stride[2], 1.0f);
        }
}

/* Without queries every gradient that has elements is 0. */
static void clear_all(const attn_shape *shape, const attn_gradients *gradients)
{
    clear(&gradients->query, shape->B, shape->H, shape->Lq, shape->D);
    clear(&gradients->key, shape->B, shape->Hk, shape->Lk, shape->D);
    clear(&gradients->value, shape->B, shape->Hk, shape->Lk, shape->Dv);
    clear(&gradients->bias, shape->B, shape->H, shape->Lq, shape->Lk);
    for (int64_t h = 0; h < shape->H && gradients->sinks; h++)
        gradients->sinks[h] = 0.0f;
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
        clear_all(shape, gradients);
        return ATTN_OK;
    }
    struct attn_backward_layout layout = {0};
    void *memory = NULL;
    ATTN_TRY(attn_backward_lay_out(&layout, context, function, &backward));
    ATTN_TRY(attn_context_reserve(context, layout.bytes, &memory));

    if (backward.bias_floats > 0)
        backward.bias.data = (char *)memory + layout.bytes - layout.bias_bytes;
    clear(&backward.bias, shape->B, shape->H, shape->Lq, shape->Lk);
    attn_backward_run(context, &backward, &layout, memory);
    if (backward.bias_floats > 0)
        round_bias(&backward, shape);
    return ATTN_OK;
}
