/* The backward pass of attention:
 *
 *     P = exp(score − lse)        dV = (P ∘ dropout)ᵀ dO
 *     dP = dO Vᵀ ∘ dropout        dS = P ∘ (dP − rowsum(dO ∘ O))
 *     dQ = scale · dS K           dK = scale · dSᵀ Q
 *
 * in one sweep: scores are computed again, block by block, and nothing of size Lq · Lk is
 * kept.  A unit is one key head of one sequence, with all query heads that read it; its
 * key and value gradients are summed query by query in rising order, head after head, so
 * that no bit depends on threads.  This file checks, plans and hands out units; a group
 * of queries is the work of backward_group.c. */
#include "attention/backward_group.h"
#include <stdatomic.h>
#include <string.h>

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
    ATTN_TRY(attn_check_strides(context, function, name, gradient->stride, extent));
    for (int axis = 0; axis < 4; axis++) {
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
    if (g->output.data)
        ATTN_TRY(attn_check_strides(context, function, "gradients.output",
                                    g->output.stride, output));
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

/* The scratch: sink gradients, then for each worker a group, its floats and its sums. */
struct layout {
    size_t workers;
    size_t sink_bytes, group_bytes, worker_bytes, bytes;
};

/* Whether units share elements of the bias gradient, and so must take turns. */
static bool units_share_bias(const struct attn_problem *problem,
                             const attn_gradients *gradients)
{
    const int64_t *const stride = gradients->bias.stride;
    const attn_shape *const shape = problem->shape;
    return gradients->bias.data &&
           ((shape->B > 1 && stride[0] == 0) || (shape->H > 1 && stride[1] == 0) ||
            (problem->packed && stride[2] == 0 && stride[3] == 0));
}

static size_t whole(int64_t size, size_t lanes)
{
    return ((size_t)size + lanes - 1) / lanes * lanes;
}

static int64_t unit_count(const struct attn_problem *problem)
{
    return problem->sequences * problem->shape->Hk;
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
    ATTN_TRY(check_gradients(context, function, shape, options, gradients));
    const size_t width = context->kernels->panel_vectors * lanes;
    backward->panels = width < ATTN_BACKWARD_LANES ? ATTN_BACKWARD_LANES / width : 1;
    backward->lanes = backward->panels * width;
    backward->D_whole = whole(shape->D, lanes);
    backward->Dv_whole = whole(shape->Dv, lanes);
    for (int64_t s = 0; s < backward->problem.sequences; s++) {
        const int64_t Lk = attn_problem_sequence(&backward->problem, s).Lk;
        if (Lk > backward->longest_keys)
            backward->longest_keys = Lk;
    }
    return ATTN_OK;
}

static attn_status lay_out(struct layout *layout, attn_context *context,
                           const char *function, const struct attn_backward *backward)
{
    const struct attn_problem *const problem = &backward->problem;
    const int64_t units = unit_count(problem);
    const bool alone = units_share_bias(problem, backward->gradients);
    layout->workers = alone ? 1 : context->threads;
    if ((int64_t)layout->workers > units)
        layout->workers = units > 0 ? (size_t)units : 1;
    layout->group_bytes = (sizeof(struct attn_backward_group) + 63) / 64 * 64;

    const int64_t group_floats = (int64_t)attn_backward_group_floats(backward);
    int64_t floats = 0, bytes = 0, sinks = 0;
    if (__builtin_mul_overflow(backward->longest_keys,
                               (int64_t)(backward->D_whole + backward->Dv_whole),
                               &floats) ||
        __builtin_add_overflow(floats, group_floats + 32, &floats) ||
        __builtin_mul_overflow(floats, (int64_t)sizeof(float), &bytes) ||
        __builtin_mul_overflow(problem->sequences * (int64_t)sizeof(double),
                               problem->shape->H, &sinks) ||
        __builtin_mul_overflow(bytes + (int64_t)layout->group_bytes,
                               (int64_t)layout->workers, &floats) ||
        floats > INT64_MAX - sinks - 64)
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "%s: sums for %lld keys of size %lld do not fit any "
                                 "memory",
                                 function, (long long)backward->longest_keys,
                                 (long long)problem->shape->D);
    layout->sink_bytes = backward->gradients->sinks ? ((size_t)sinks + 63) / 64 * 64 : 0;
    layout->worker_bytes = layout->group_bytes + ((size_t)bytes + 63) / 64 * 64;
    layout->bytes = layout->sink_bytes + layout->workers * layout->worker_bytes;
    return ATTN_OK;
}

attn_status attn_plan_backward(attn_context *context, const attn_shape *shape,
                               const attn_tensors *tensors, const attn_options *options,
                               const attn_gradients *gradients, attn_plan *plan)
{
    static const char function[] = "attn_plan_backward";
    struct attn_backward backward;
    struct layout layout = {0};
    ATTN_TRY(
        backward_init(&backward, context, function, shape, tensors, options, gradients));
    if (!backward.problem.empty)
        ATTN_TRY(lay_out(&layout, context, function, &backward));
    *plan = (attn_plan){
        .path = backward.problem.empty ? "nothing to do" : "one sweep, units in parallel",
        .scratch_bytes = layout.bytes,
        .visible_pairs =
            backward.problem.empty ? 0.0 : attn_problem_visible_pairs(&backward.problem),
    };
    return ATTN_OK;
}

/* ---- Work -----------------------------------------------------------------------------
 */

static void clear_rows(const attn_output *x, int64_t b, int64_t h, int64_t first_row,
                       int64_t end_row, int64_t size)
{
    const int64_t *const stride = x->stride;
    for (int64_t row = first_row; row < end_row && x->data; row++) {
        float *const to = x->data + b * stride[0] + h * stride[1] + row * stride[2];
        for (int64_t n = 0; n < size; n++)
            to[n * stride[3]] = 0.0f;
    }
}

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
            clear_rows(x, b, h, 0, extent[2], extent[3]);
}

static void store_rows(const attn_output *x, const struct attn_sequence *sequence,
                       int64_t hk, const float *from, size_t whole_size, int64_t size,
                       float scale)
{
    const int64_t *const stride = x->stride;
    for (int64_t row = 0; row < sequence->Lk && x->data; row++) {
        float *const to = x->data + sequence->b * stride[0] + hk * stride[1] +
                          (sequence->first_key + row) * stride[2];
#pragma GCC unroll 8
        for (int64_t n = 0; n < size; n++)
            to[n * stride[3]] = from[n] * scale;
        from += whole_size;
    }
}

/* One query head of a unit. */
static void take_head(struct attn_backward_group *group, int64_t h)
{
    group->walk.head =
        attn_problem_head(&group->backward->problem, &group->walk.sequence, h);
    group->sink_sum = 0.0;
    for (int64_t query = 0; query < group->walk.sequence.Lq;) {
        query = attn_backward_group_load(group, query);
        const struct attn_key_range keys = attn_backward_group_keys(group);
        const int64_t first = keys.first - keys.first % ATTN_BLOCK_KEYS;
        for (int64_t key = first; key < keys.end; key += ATTN_BLOCK_KEYS)
            attn_backward_group_show(group, key);
        attn_backward_group_store(group);
    }
}

static bool keys_are_finite(const struct attn_backward *backward,
                            const struct attn_sequence *sequence, int64_t hk)
{
    const attn_input *const key = &backward->problem.tensors->key;
    const struct attn_matrix matrix = {
        .x = key->data,
        .row_stride = key->stride[2],
        .element_stride = key->stride[3],
        .rows = (size_t)sequence->Lk,
        .size = (size_t)backward->problem.shape->D,
    };
    if (sequence->Lk == 0)
        return true;
    struct attn_matrix of_head = matrix;
    of_head.x += sequence->b * key->stride[0] + hk * key->stride[1] +
                 sequence->first_key * key->stride[2];
    return backward->kernels->backward->is_finite(&of_head);
}

/* sink_sums: [H], of the unit's sequence; NULL if not wanted. */
static void take_unit(struct attn_backward_group *group, int64_t unit, double *sink_sums)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_problem *const problem = &backward->problem;
    const attn_gradients *const gradients = backward->gradients;
    const attn_shape *const shape = problem->shape;
    const int64_t hk = unit % shape->Hk, heads = shape->H / shape->Hk;
    struct attn_sequence *const sequence = &group->walk.sequence;
    *sequence = attn_problem_sequence(problem, unit / shape->Hk);
    const size_t Lk = (size_t)sequence->Lk;

    memset(group->sums.key, 0, Lk * backward->D_whole * sizeof(float));
    memset(group->sums.value, 0, Lk * backward->Dv_whole * sizeof(float));
    group->keys_finite = keys_are_finite(backward, sequence, hk);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++) {
        take_head(group, h);
        if (sink_sums)
            sink_sums[h] = group->sink_sum;
        if (!problem->packed)
            clear_rows(&gradients->query, sequence->b, h, sequence->Lq, shape->Lq,
                       shape->D);
    }
    store_rows(&gradients->key, sequence, hk, group->sums.key, backward->D_whole,
               shape->D, problem->options->scale);
    store_rows(&gradients->value, sequence, hk, group->sums.value, backward->Dv_whole,
               shape->Dv, 1.0f);
    if (!problem->packed) {
        clear_rows(&gradients->key, sequence->b, hk, sequence->Lk, shape->Lk, shape->D);
        clear_rows(&gradients->value, sequence->b, hk, sequence->Lk, shape->Lk,
                   shape->Dv);
    }
}

struct work {
    const struct attn_backward *backward;
    const struct layout *layout;
    char *memory;
    _Atomic int64_t next_unit;
};

static void take_units(void *argument, size_t worker)
{
    struct work *const work = argument;
    const struct attn_backward *const backward = work->backward;
    char *const memory =
        work->memory + work->layout->sink_bytes + worker * work->layout->worker_bytes;
    struct attn_backward_group *const group = (void *)memory;
    float *const floats = (float *)(void *)(memory + work->layout->group_bytes);
    attn_backward_group_init(group, backward, floats);
    group->sums.key = floats + attn_backward_group_floats(backward);
    group->sums.value =
        group->sums.key + (size_t)backward->longest_keys * backward->D_whole;

    const int64_t units = unit_count(&backward->problem);
    const int64_t Hk = backward->problem.shape->Hk, H = backward->problem.shape->H;
    double *const sink_sums =
        backward->gradients->sinks ? (double *)(void *)work->memory : NULL;
    for (;;) {
        const int64_t unit = atomic_fetch_add(&work->next_unit, 1);
        if (unit >= units)
            return;
        take_unit(group, unit, sink_sums ? sink_sums + unit / Hk * H : NULL);
    }
}

static void add_sinks(float *to, const double *sums, int64_t sequences, int64_t H)
{
    for (int64_t h = 0; h < H; h++) {
        double sum = 0.0;
        for (int64_t s = 0; s < sequences; s++)
            sum += sums[s * H + h];
        to[h] = (float)sum;
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
    struct layout layout = {0};
    void *memory = NULL;
    ATTN_TRY(lay_out(&layout, context, function, &backward));
    ATTN_TRY(attn_context_reserve(context, layout.bytes, &memory));

    clear(&gradients->bias, shape->B, shape->H, shape->Lq, shape->Lk);
    struct work work = {.backward = &backward, .layout = &layout, .memory = memory};
    attn_context_run(context, layout.workers, take_units, &work);
    if (gradients->sinks)
        add_sinks(gradients->sinks, memory, backward.problem.sequences, shape->H);
    return ATTN_OK;
}
