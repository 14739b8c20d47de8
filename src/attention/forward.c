/* The forward pass.  The unit of work is a group: four or eight panels of queries of one
 * head of one sequence, which walk together over the blocks of keys that they see, so
 * that a block is shared while it is in cache.  Workers take units from one counter.
 *
 * Blocks begin at multiples of ATTN_BLOCK_KEYS wherever a panel's keys begin, so a row's
 * bits do not depend on the rows it shares a panel with, nor on who computes it. */
#include "attention/ahead.h"
#include "attention/forward_group.h"
#include "attention/received.h"
#include "attention/widen.h"
#include <math.h>
#include <string.h>

/* Queries beyond the sequence's length. */
void attn_store_padding(const struct attn_walk *walk)
{
    const struct attn_problem *const problem = walk->problem;
    const attn_tensors *const tensors = problem->tensors;
    attn_clear_rows(&tensors->output, walk->sequence.b, walk->head.h, walk->sequence.Lq,
                    problem->shape->Lq, problem->shape->Dv);
    for (int64_t i = walk->sequence.Lq; i < problem->shape->Lq; i++) {
        if (tensors->lse)
            tensors->lse[walk->head.row + i] = -INFINITY;
        attn_statistics_store_nothing(&tensors->statistics, walk->head.row + i);
    }
}

/* ---- All of them ----------------------------------------------------------------------
 */

static void begin_received(struct attn_group *group, const struct attn_forward *forward,
                           const struct attn_share *share, int64_t index)
{
    const struct attn_walk *const walk = &group->walk;
    float *const received =
        attn_received_row(forward, &walk->sequence, walk->head.h, index);
    if (index > 0) /* attn_forward cleared the output */
        memset(received, 0, (size_t)walk->sequence.Lk * sizeof *received);
    attn_kept_init(group->kept, share, walk, group->kept_memory, received);
}

static void work_on_unit(struct attn_group *group, const struct attn_forward *forward,
                         const struct attn_share *share, int64_t h, int64_t index)
{
    struct attn_walk *const walk = &group->walk;
    const struct attn_problem *const problem = forward->problem;
    int64_t *const visible_keys = problem->tensors->statistics.visible_keys;
    const int64_t size = share->queries;
    attn_walk_take_head(walk, h);
    walk->visible_keys = visible_keys ? visible_keys + walk->head.row : NULL;
    if (group->kept_memory)
        begin_received(group, forward, share, index);
    for (int64_t n = 0; n < share->groups; n++) {
        const int64_t first = (index * share->groups + n) * size;
        const int64_t end = attn_least(first + size, walk->sequence.Lq);
        if (first < end)
            attn_forward_attend(group, forward, first, end);
    }
    for (int64_t p = 0; group->kept_memory && p < share->panels; p++)
        attn_kept_flush(&group->kept[p], forward->kernels);
    if (index == 0 && !problem->packed)
        attn_store_padding(walk);
}

static void take_sequence(struct attn_group *group, const struct attn_forward *forward,
                          int64_t n)
{
    struct attn_walk *const walk = &group->walk;
    walk->sequence = attn_problem_sequence(forward->problem, n);
    const bool pay =
        attn_pairs_pay(forward->pairs, forward->problem->shape, &walk->sequence);
    walk->pairs = pay ? forward->pairs : NULL;
    attn_wide_init(walk, group->wide_memory, true);
    group->pipeline.scratch = walk->wide.weight_pairs;
}

/* Takes units until there are none.  Units go sequence by sequence, head by head, and in
 * a head the last one first: with causal it has the most keys. */
static void work(void *argument, size_t worker)
{
    struct attn_forward *const forward = argument;
    const int64_t H = forward->problem->shape->H;
    struct attn_group *const group = attn_forward_place_group(forward, worker);
    const struct attn_sequence *const at = &group->walk.sequence;
    void *const decoder = (char *)group + forward->group_bytes;
    struct attn_share share = {.units = 0};
    int64_t sequence = -1, first_unit = 0, end_unit = 0;
    struct attn_decode_counts decoded = {0}, before = {0};
    for (int64_t unit = 0, end = 0;; unit++) {
        if (unit == end) {
            unit = atomic_fetch_add(&forward->next, forward->run);
            end = attn_least(unit + forward->run, forward->units);
        }
        if (unit >= forward->units)
            return;
        while (unit >= end_unit) {
            take_sequence(group, forward, ++sequence);
            before.groups += decoded.groups;
            before.slots += decoded.slots;
            decoded = attn_decode_count(forward, at);
            share = attn_forward_share(forward, at);
            first_unit = end_unit;
            end_unit = first_unit + (decoded.units > 0 ? decoded.units : share.units * H);
        }
        const int64_t nth = unit - first_unit;
        group->calls_ahead =
            forward->calls_ahead && (unit + 1 < end || forward->workers == 1);
        if (decoded.units > 0)
            attn_decode_work(forward, decoder, at, before, nth);
        else
            work_on_unit(group, forward, &share, nth / share.units,
                         share.units - 1 - nth % share.units);
    }
}

attn_status attn_forward_run(struct attn_forward *forward, attn_context *context)
{
    ATTN_TRY(attn_context_reserve(context, forward->scratch_bytes, &forward->scratch));
    char *const after_workers =
        (char *)forward->scratch + forward->workers * forward->worker_bytes;
    const attn_shape *const shape = forward->problem->shape;
    float *const received = forward->problem->tensors->statistics.received;
    if (received) {
        memset(received, 0, (size_t)(shape->B * shape->H * shape->Lk) * sizeof *received);
        if (attn_received_rows(forward->problem, forward->kernels) > 0)
            forward->received = (float *)after_workers;
    }
    attn_decode_begin(forward, (char *)forward->scratch + forward->scratch_bytes -
                                   forward->splits.bytes);
    attn_context_run(context, forward->workers, work, forward);
    attn_received_merge(forward, context);
    return ATTN_OK;
}

attn_status attn_forward(attn_context *context, const attn_shape *shape,
                         const attn_tensors *tensors, const attn_options *options)
{
    struct attn_problem problem;
    struct attn_forward forward;
    ATTN_TRY(attn_problem_init(&problem, context, "attn_forward", shape, tensors, options,
                               ATTN_NEEDS_VALUE | ATTN_NEEDS_OUTPUT));
    ATTN_TRY(attn_check_statistics(context, "attn_forward", &problem));
    ATTN_TRY(attn_forward_layout(&forward, context, &problem));
    return attn_forward_run(&forward, context);
}
