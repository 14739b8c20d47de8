/* How attn_forward shares its work out: units, runs of units, workers, and their scratch.
 */
#include "attention/ahead.h"
#include "attention/forget.h"
#include "attention/forward_group.h"
#include "attention/widen.h"
#include "kernel/dropout.h"
#include "kernel/pair_table.h"

/* As many queries for each of so many groups as for the others, or workers would wait for
 * each other where groups are few; but not where that would take another panel. */
static int64_t alike(const struct attn_kernels *kernels, int64_t Lq, int64_t groups)
{
    const int64_t full = attn_panel_queries(kernels), lanes = (int64_t)kernels->lanes;
    const int64_t size = (Lq + groups * lanes - 1) / (groups * lanes) * lanes;
    const int64_t whole = (size + full - 1) / full, last = Lq - (groups - 1) * size;
    const int64_t panels = (groups - 1) * whole + (last + full - 1) / full;
    return panels * full < Lq + full ? size : whole * full;
}

struct attn_share attn_forward_share(const struct attn_forward *forward,
                                     const struct attn_sequence *sequence)
{
    const struct attn_kernels *const kernels = forward->kernels;
    if (forward->problem->tensors->statistics.received)
        return attn_received_share(forward->problem, kernels, sequence);
    const int64_t size =
        attn_group_queries(forward->problem, kernels, (int64_t)forward->panels);
    const int64_t Lq = sequence->Lq, groups = Lq > 0 ? (Lq + size - 1) / size : 1;
    return (struct attn_share){
        .panels = (int64_t)forward->panels,
        .queries = forward->problem->options->blocks.data || groups == 1
                       ? size
                       : alike(kernels, Lq, groups),
        .groups = 1,
        .units = groups, /* one for the padding */
    };
}

static bool any_pairs_pay(const struct attn_forward *forward)
{
    const struct attn_problem *const problem = forward->problem;
    for (int64_t s = 0; s < problem->sequences; s += attn_sequences_alike(problem, s)) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        if (attn_pairs_pay(forward->pairs, problem->shape, &sequence))
            return true;
    }
    return false;
}

/* Twice as many as usual share what it takes to turn a block into pairs, as long as
 * there are groups enough for all threads, which one thread always has. */
static size_t panels_of_group(const struct attn_forward *forward, size_t threads)
{
    const struct attn_problem *const problem = forward->problem;
    const int64_t size = ATTN_GROUP_PANELS * attn_panel_queries(forward->kernels);
    int64_t groups = 0;
    if (!forward->pairs || problem->tensors->statistics.received)
        return ATTN_USUAL_PANELS;
    for (int64_t s = 0, same; s < problem->sequences && !problem->empty; s += same) {
        const int64_t Lq = attn_problem_sequence(problem, s).Lq;
        same = attn_sequences_alike(problem, s);
        groups += same * problem->shape->H * (Lq / size);
    }
    return threads == 1 || groups >= 8 * (int64_t)threads ? ATTN_GROUP_PANELS
                                                          : ATTN_USUAL_PANELS;
}

/* Multiply-adds of all pairs, hidden or not. */
static double work_bound(const struct attn_problem *problem)
{
    double pairs = 0.0;
    for (int64_t s = 0, alike; s < problem->sequences; s += alike) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        alike = attn_sequences_alike(problem, s);
        pairs += (double)alike * (double)sequence.Lq * (double)sequence.Lk;
    }
    return pairs * (double)problem->shape->H *
           (double)(problem->shape->D + problem->shape->Dv);
}

/* Below this many multiply-adds a worker is not worth waking: about 20 µs. */
#define WORKER_MINIMUM 1e6

/* Short sequences are taken by runs, so that a worker reads memory along and not every
 * other head of it; four runs a worker leave little to wait for. */
static int64_t units_of_run(const struct attn_forward *forward)
{
    const double unit = work_bound(forward->problem) / (double)forward->units;
    const int64_t share = forward->units / (4 * (int64_t)forward->workers);
    const double most = 4.0 * WORKER_MINIMUM / (unit > 1.0 ? unit : 1.0);
    return most < (double)share ? 1 + (int64_t)most : share > 0 ? share : 1;
}

/* ---- Scratch --------------------------------------------------------------------------
 */

/* Rows of a panel's output. */
static size_t output_rows(const struct attn_forward *forward)
{
    const size_t Dv = (size_t)forward->problem->shape->Dv;
    return forward->pairs ? (Dv + 15) / 16 * 16 : Dv;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Of a panel's queries, in whole tiles if of pairs, or as they are: sequences differ. */
static size_t query_floats(const struct attn_forward *forward)
{
    const size_t D = (size_t)forward->problem->shape->D;
    const size_t plain = attn_query_floats(forward->problem, forward->kernels);
    const size_t parts = forward->pairs ? forward->pairs->parts : 0;
    return larger(plain, parts * ((D + 31) / 32 * 16) *
                             (size_t)attn_panel_queries(forward->kernels));
}

static size_t wide_floats(const struct attn_forward *forward)
{
    return larger(
        attn_wide_floats(forward->problem, forward->kernels, NULL, true),
        attn_wide_floats(forward->problem, forward->kernels, forward->pairs, true));
}

/* A worker's scratch, but for what it keeps. */
static size_t group_bytes(const struct attn_forward *forward)
{
    const size_t width = (size_t)attn_panel_queries(forward->kernels);
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    const size_t per_lane = output_rows(forward) + classes + 2 * top;
    const size_t query = query_floats(forward);
    const size_t shared = ATTN_BLOCK_KEYS + (size_t)forward->problem->shape->Dv;
    const size_t floats = forward->panels * query +
                          (forward->panels * per_lane + shared) * width +
                          attn_added_floats(forward->problem, forward->kernels) +
                          attn_forget_floats(forward->problem) + wide_floats(forward);
    return attn_round_up(sizeof(struct attn_group)) +
           attn_round_up(floats * sizeof(float));
}

struct attn_group *attn_forward_place_group(const struct attn_forward *forward,
                                            size_t worker)
{
    const struct attn_problem *const problem = forward->problem;
    const size_t width = (size_t)attn_panel_queries(forward->kernels);
    const size_t D = (size_t)problem->shape->D, Dv = (size_t)problem->shape->Dv;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    char *const memory = (char *)forward->scratch + worker * forward->worker_bytes;
    struct attn_group *const group = (struct attn_group *)memory;
    float *next = (float *)(memory + attn_round_up(sizeof *group));
    for (size_t p = 0; p < forward->panels; p++) {
        struct attn_panel *const panel = &group->panels[p];
        panel->D = D;
        panel->Dv = Dv;
        panel->query = next;
        panel->output = panel->query + query_floats(forward);
        panel->class_sum = panel->output + output_rows(forward) * width;
        panel->top_score = panel->class_sum + classes * width;
        panel->top_key = (int32_t *)(panel->top_score + top * width);
        next = panel->top_score + 2 * top * width;
    }
    group->scores = next;
    group->sums = group->scores + ATTN_BLOCK_KEYS * width;
    next = group->sums + Dv * width;
    group->known.value = NULL;
    group->turn = 0;
    group->pipeline = (struct attn_pipeline){.turn = 0};
    const bool adds = attn_added_floats(problem, forward->kernels) > 0;
    group->walk = (struct attn_walk){
        .problem = problem,
        .kernels = forward->kernels,
        .added = adds ? next : NULL,
    };
    next += attn_added_floats(problem, forward->kernels);
    attn_forget_init(&group->walk, next);
    group->wide_memory = next + attn_forget_floats(problem);
    const bool keeps = problem->tensors->statistics.received;
    group->kept_memory =
        keeps ? memory + forward->worker_bytes - forward->kept_bytes : NULL;
    return group;
}

/* ---- All of it
 * -------------------------------------------------------------------------
 */

attn_status attn_forward_layout(struct attn_forward *forward, attn_context *context,
                                const struct attn_problem *problem)
{
    const attn_statistics *const wanted = &problem->tensors->statistics;
    const attn_options *const options = problem->options;
    const attn_shape *const shape = problem->shape;
    *forward = (struct attn_forward){
        .problem = problem,
        .kernels = context->kernels,
        .pairs = attn_pairs_for(problem, context->kernels),
        .statistics = attn_statistics_any(wanted),
        .calls_ahead = attn_forward_calls_ahead(problem, context->kernels),
        .sweep = attn_statistics_sweep(wanted),
    };
    forward->sweep.narrowed = options->keep.data || options->bias.data;
    forward->sweep.dropout = options->dropout > 0.0;
    forward->sweep.dropout_threshold = attn_dropout_threshold(options->dropout);
    forward->sweep.dropout_factor = (float)attn_dropout_factor(options->dropout);
    attn_decode_layout(forward, context->threads);
    if (!any_pairs_pay(forward))
        forward->pairs = NULL;
    forward->panels = panels_of_group(forward, context->threads);
    for (int64_t s = 0, alike; s < problem->sequences && !problem->empty; s += alike) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        alike = attn_sequences_alike(problem, s);
        const int64_t decoded = alike * attn_decode_count(forward, &sequence).units;
        forward->units += decoded;
        if (decoded == 0)
            forward->panel_units +=
                alike * shape->H * attn_forward_share(forward, &sequence).units;
    }
    forward->units += forward->panel_units;

    const double useful = 1.0 + work_bound(problem) / WORKER_MINIMUM;
    forward->workers = context->threads;
    if ((double)forward->workers > useful)
        forward->workers = (size_t)useful;
    if ((int64_t)forward->workers > forward->units)
        forward->workers = (size_t)forward->units;
    if (forward->units > 0)
        forward->run = units_of_run(forward);
    forward->group_bytes = group_bytes(forward);
    forward->worker_bytes = forward->group_bytes + forward->splits.worker_bytes;
    size_t received_bytes = 0;
    if (wanted->received) {
        forward->kept_bytes = attn_kept_bytes(problem, context->kernels);
        forward->worker_bytes += forward->kept_bytes;
        received_bytes =
            attn_round_up(attn_received_rows(problem, context->kernels) *
                          (size_t)(shape->B * shape->H * shape->Lk) * sizeof(float));
    }
    if (__builtin_mul_overflow(forward->worker_bytes, forward->workers,
                               &forward->scratch_bytes) ||
        __builtin_add_overflow(forward->scratch_bytes, received_bytes,
                               &forward->scratch_bytes) ||
        __builtin_add_overflow(forward->scratch_bytes, forward->splits.bytes,
                               &forward->scratch_bytes))
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "attn_forward: scratch for %zu workers exceeds memory",
                                 forward->workers);
    return ATTN_OK;
}
