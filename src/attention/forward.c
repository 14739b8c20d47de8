/* The forward pass.  The unit of work is a group: four or eight panels of queries of one
 * head of one sequence, which walk together over the blocks of keys that they see, so
 * that a block is shared while it is in cache.  Workers take units from one counter.
 *
 * Blocks begin at multiples of ATTN_BLOCK_KEYS wherever a panel's keys begin, so a row's
 * bits do not depend on the rows it shares a panel with, nor on who computes it. */
#include "attention/ahead.h"
#include "attention/forget.h"
#include "attention/forward_group.h"
#include "attention/received.h"
#include "attention/rows.h"
#include "attention/widen.h"
#include "kernel/backward_table.h"
#include "kernel/dropout.h"
#include "kernel/pair_table.h"
#include <math.h>
#include <string.h>

/* ---- One group ------------------------------------------------------------------------
 */

static void fill(float *x, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        x[i] = value;
}

static void clear(float *x, size_t count)
{
    memset(x, 0, count * sizeof *x);
}

static void begin_statistics(struct attn_panel *panel, const struct attn_sweep *sweep,
                             size_t width)
{
    if (sweep->entropy)
        clear(panel->entropy_sum, width);
    if (sweep->distance) {
        clear(panel->distance_sum, width);
        clear(panel->signed_sum, width);
    }
    if (sweep->largest)
        fill(panel->largest_score, width, -INFINITY);
    for (size_t i = 0; sweep->largest && i < width; i++)
        panel->largest_key[i] = -1;
    clear(panel->class_sum, sweep->classes * width);
    fill(panel->top_score, width * sweep->top, -INFINITY);
}

static void begin_dropout(struct attn_panel *panel, const struct attn_walk *walk)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    for (size_t lane = 0; lane < width; lane++) {
        const struct attn_dropout_row row =
            attn_dropout_row(walk->problem->options->dropout_seed, walk->sequence.index,
                             walk->head.h, panel->first_query + (int64_t)lane);
        panel->draw_low[lane] = (int32_t)row.low;
        panel->draw_high[lane] = (int32_t)row.high;
    }
}

static void begin_panel(struct attn_group *group, const struct attn_forward *forward,
                        int64_t first_query, int64_t queries)
{
    struct attn_panel *const panel = &group->panels[group->count];
    attn_panel_load(panel, &group->walk, first_query, queries);
    const size_t width = panel->vectors * forward->kernels->lanes;
    if (group->walk.pairs)
        clear(panel->output, panel->Dv * width);
    fill(panel->reference, width, -INFINITY);
    clear(panel->sum, width);
    clear(panel->rounded_sum, width);
    if (forward->sweep.dropout)
        begin_dropout(panel, &group->walk);
    if (forward->statistics) {
        begin_statistics(panel, &forward->sweep, width);
        attn_places_clear(&group->places[group->count]);
    }
    group->stored[group->count] = false;
    group->empty[group->count++] = true;
}

/* Whether the values of the block from first on are. */
static bool values_are_finite(struct attn_group *group, int64_t first, int64_t end)
{
    const struct attn_walk *const walk = &group->walk;
    const attn_input *const value = &walk->problem->tensors->value;
    struct attn_known_values *const known = &group->known;
    const int64_t block = first / ATTN_BLOCK_KEYS, n = block % ATTN_KNOWN_BLOCKS;
    if (known->value != walk->head.value || known->Lk != walk->sequence.Lk ||
        known->first_block != block - n)
        *known = (struct attn_known_values){
            .value = walk->head.value, .Lk = walk->sequence.Lk, .first_block = block - n};
    if (!(known->looked >> n & 1)) {
        const struct attn_matrix values = attn_rows_of(
            value, walk->head.value, first, attn_least(end, walk->sequence.Lk) - first,
            walk->problem->shape->Dv);
        known->looked |= (uint64_t)1 << n;
        if (walk->kernels->backward->is_finite(&values))
            known->finite |= (uint64_t)1 << n;
    }
    return known->finite >> n & 1;
}

static bool hides_keys(const struct attn_block *block)
{
    return block->keep || block->bias.x || block->full_begin > 0 ||
           block->full_end < block->keys;
}

void attn_score_block(const struct attn_walk *walk, float *scores,
                      struct attn_panel *panel, const struct attn_block *block)
{
    if (walk->pairs)
        walk->pairs->score(scores, panel, block);
    else
        walk->kernels->score(scores, panel, block);
}

/* Kernels that multiply fp32 call lines themselves; for others this is one of so many
 * steps of a group. */
static void call_ahead(struct attn_group *group, size_t step)
{
    if (group->walk.calls && group->walk.pairs)
        attn_call_part(group->walk.calls, 2 * group->count - step);
}

/* Shows the panel a run of the keys of a block, less those that none of its queries sees.
 * Returns the weights that their values are wanted with, or NULL. */
static const float *weigh(struct attn_group *group, size_t p,
                          const struct attn_forward *forward,
                          const struct attn_sweep *sweep, struct attn_key_range keys,
                          struct attn_key_range run)
{
    const struct attn_kernels *const kernels = forward->kernels;
    const struct attn_pair_kernels *const pairs = group->walk.pairs;
    struct attn_panel *const panel = &group->panels[p];
    if (!attn_block_show(&group->block, panel, &group->walk, run.first, run.end))
        return NULL;
    group->block.careful = !pairs && panel->Dv > 0 && hides_keys(&group->block) &&
                           !values_are_finite(group, keys.first, keys.end);
    group->block.opens = group->empty[p];
    group->empty[p] = false;
    struct attn_kept *const kept = group->kept_memory ? &group->kept[p] : NULL;
    float *scores = group->scores;
    if (kept)
        scores = attn_kept_open(kept, kernels, panel, &group->block);
    call_ahead(group, 2 * p);
    attn_score_block(&group->walk, scores, panel, &group->block);
    if (forward->statistics)
        attn_places_note(&group->places[p], panel, &group->block, scores,
                         panel->vectors * kernels->lanes,
                         &forward->problem->tensors->statistics);
    kernels->softmax(panel, scores, &group->block, sweep);
    if (kept)
        attn_kept_note(kept, panel, &group->block);
    if (panel->Dv == 0)
        return NULL;
    return sweep->dropped ? sweep->dropped : scores;
}

/* Without a sink. */
static void finish_lse(float *lse, const struct attn_panel *panel)
{
    for (int64_t i = 0; i < panel->queries; i++)
        lse[i] = (float)((double)panel->reference[i] + (double)logf(panel->sum[i]));
}

static void finish_lse_and_statistics(const struct attn_group *group, size_t p,
                                      const struct attn_forward *forward)
{
    const struct attn_panel *const panel = &group->panels[p];
    const attn_tensors *const tensors = forward->problem->tensors;
    const struct attn_head *const head = &group->walk.head;
    const size_t width = panel->vectors * forward->kernels->lanes;
    for (int64_t i = 0; i < panel->queries; i++) {
        const int64_t row = head->row + panel->first_query + i;
        const struct attn_row_end end =
            attn_end_of_row(panel->reference[i], panel->sum[i], (double)head->sink);
        if (tensors->lse)
            tensors->lse[row] = (float)end.lse;
        if (forward->statistics)
            attn_statistics_store(&tensors->statistics, row, panel, &group->places[p],
                                  (size_t)i, width, end);
    }
}

/* Of lanes without a query 0. */
static void invert_sums(float *inverse, const struct attn_panel *panel, const float *sum,
                        size_t width, double sink)
{
    const size_t queries = (size_t)panel->queries;
    for (size_t i = 0; i < queries; i++)
        inverse[i] = attn_inverse_of_row(panel->reference[i], sum[i], sink);
    for (size_t i = queries; i < width; i++)
        inverse[i] = 0.0f;
}

/* Stores the rows of a panel, from its output, or from the weights of its only block. */
static void finish_panel(struct attn_group *group, size_t p,
                         const struct attn_forward *forward, const float *weights)
{
    struct attn_panel *const panel = &group->panels[p];
    const attn_tensors *const tensors = forward->problem->tensors;
    const attn_output *const output = &tensors->output;
    const struct attn_head *const head = &group->walk.head;
    const size_t width = panel->vectors * forward->kernels->lanes;
    float inverse[ATTN_PANEL_LANES];
    group->stored[p] = true;
    invert_sums(inverse, panel, panel->sum, width, (double)head->sink);
    if (tensors->lse && !forward->statistics && head->sink == -INFINITY)
        finish_lse(tensors->lse + head->row + panel->first_query, panel);
    else if (tensors->lse || forward->statistics)
        finish_lse_and_statistics(group, p, forward);
    if (group->kept_memory)
        attn_kept_finish(&group->kept[p], panel, inverse, &group->walk, &group->block,
                         group->scores);
    if (panel->Dv == 0)
        return;
    const struct attn_target to = attn_rows_to(output, head->output, panel->first_query,
                                               panel->queries, (int64_t)panel->Dv);
    if (weights) {
        const struct attn_weighted_rows from = {
            .weights = weights,
            .width = width,
            .rows = group->block.value,
            .row_stride = group->block.value_stride,
            .factors = inverse,
        };
        forward->kernels->store_weighted(&to, &from, &group->block);
        return;
    }
    if (group->empty[p])
        clear(panel->output, panel->Dv * width);
    /* Dropped weights are rounded after they are summed. */
    const struct attn_pair_kernels *const pairs = group->walk.pairs;
    if (pairs && pairs->parts == 1 && !forward->sweep.dropout)
        invert_sums(inverse, panel, panel->rounded_sum, width, (double)head->sink);
    forward->kernels->store(&to, panel->output, width, inverse);
}

/* Whether the panel that was just shown the group's block sees no other, and its weights
 * give rows at once. */
static bool is_only_block(const struct attn_group *group,
                          const struct attn_forward *forward)
{
    const struct attn_walk *const walk = &group->walk;
    const attn_output *const output = &forward->problem->tensors->output;
    return walk->sequence.Lk <= ATTN_BLOCK_KEYS && !attn_has_runs(forward->problem) &&
           !walk->pairs && !group->block.careful && !group->kept_memory &&
           group->block.value_element_stride == 1 && output->stride[3] == 1 &&
           output->type == ATTN_F32 &&
           forward->problem->shape->Dv >= (int64_t)forward->kernels->lanes;
}

/* Shows the panel the values of the group's block. */
static void add_values(struct attn_group *group, size_t p,
                       const struct attn_forward *forward, const float *weights)
{
    struct attn_panel *const panel = &group->panels[p];
    const struct attn_pair_kernels *const pairs = group->walk.pairs;
    call_ahead(group, 2 * p + 1);
    if (is_only_block(group, forward))
        finish_panel(group, p, forward, weights);
    else if (pairs)
        pairs->value(panel, weights, &group->block);
    else
        forward->kernels->value(panel, weights, &group->block);
}

static void count_visible_keys(const struct attn_walk *walk, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        walk->visible_keys[i] =
            attn_count_visible(walk->problem, &walk->sequence, &walk->head, i);
}

static bool any_sees(const struct attn_group *group, struct attn_key_range keys)
{
    for (size_t p = 0; p < group->count; p++) {
        struct attn_key_range run = {keys.first, keys.first};
        if (attn_panel_run(&group->panels[p], &group->walk, keys.end, &run))
            return true;
    }
    return false;
}

/* Whether panels may be shown a block together, where they see all of it. */
static bool may_attend_together(const struct attn_group *group,
                                const struct attn_forward *forward,
                                struct attn_key_range keys)
{
    const attn_options *const options = forward->problem->options;
    const struct attn_walk *const walk = &group->walk;
    return walk->pairs && walk->pairs->attend && walk->wide.value &&
           !walk->wide.any_special && keys.end - keys.first == ATTN_BLOCK_KEYS &&
           walk->wide.first == keys.first && !forward->statistics &&
           !group->kept_memory && !forward->sweep.dropout && options->softcap == 0.0f &&
           walk->head.alibi_slope == 0.0f && !walk->head.keep && !walk->head.bias &&
           !attn_has_runs(forward->problem) && !walk->forgotten.high;
}

/* Shows the block to all panels that see all of it. */
static void attend_together(struct attn_group *group, struct attn_key_range keys,
                            bool done[ATTN_GROUP_PANELS])
{
    struct attn_panel *panels[ATTN_GROUP_PANELS];
    struct attn_block *const block = &group->block;
    size_t count = 0;
    for (size_t p = 0; p < group->count; p++) {
        struct attn_panel *const panel = &group->panels[p];
        done[p] = attn_block_show(block, panel, &group->walk, keys.first, keys.end) &&
                  block->keys == ATTN_BLOCK_KEYS && !hides_keys(block);
        if (!done[p])
            continue;
        panels[count++] = panel;
        group->empty[p] = false;
        call_ahead(group, 2 * p);
        call_ahead(group, 2 * p + 1);
    }
    if (count == 0)
        return;
    attn_block_show(block, panels[0], &group->walk, keys.first, keys.end);
    group->walk.pairs->attend(panels, count, block, group->scores);
}

static void attend_block(struct attn_group *group, const struct attn_forward *forward,
                         const struct attn_sweep *sweep, struct attn_key_range keys)
{
    bool done[ATTN_GROUP_PANELS] = {false};
    if (may_attend_together(group, forward, keys))
        attend_together(group, keys, done);
    for (size_t p = 0; p < group->count; p++) {
        struct attn_key_range run = {keys.first, keys.first};
        while (!done[p] &&
               attn_panel_run(&group->panels[p], &group->walk, keys.end, &run)) {
            const float *const weights = weigh(group, p, forward, sweep, keys, run);
            if (weights)
                add_values(group, p, forward, weights);
        }
    }
}

static void attend_group(struct attn_group *group, const struct attn_forward *forward,
                         int64_t first_query, int64_t end_query)
{
    struct attn_sweep sweep = forward->sweep;
    if (sweep.dropout)
        sweep.dropped = group->scores;
    if (sweep.classes > 0) {
        const attn_statistics *const wanted = &forward->problem->tensors->statistics;
        const struct attn_sequence *const sequence = &group->walk.sequence;
        sweep.key_class = wanted->key_class + sequence->b * wanted->key_class_stride +
                          sequence->first_key;
    }
    if (group->walk.visible_keys)
        count_visible_keys(&group->walk, first_query, end_query);
    const struct attn_pair_kernels *const pairs = group->walk.pairs;
    if (pairs && pairs->open)
        pairs->open();

    group->walk.calls = NULL;
    if (group->calls_ahead && group->walk.sequence.Lk <= ATTN_BLOCK_KEYS) {
        group->walk.calls = &group->calls;
        attn_forward_list_ahead(&group->calls, &group->walk);
    }
    group->count = 0;
    for (int64_t next = first_query; next < end_query;) {
        const int64_t queries = attn_panel_next(&group->walk, next, end_query - next);
        begin_panel(group, forward, next, queries);
        next += queries;
    }

    const int64_t first_key = attn_panel_keys(&group->panels[0], &group->walk).first;
    const int64_t end_key =
        attn_panel_keys(&group->panels[group->count - 1], &group->walk).end;
    for (int64_t key = first_key - first_key % ATTN_BLOCK_KEYS; key < end_key;
         key = attn_next_block(&group->walk, first_query, key)) {
        const struct attn_key_range keys = {
            key, attn_least(key + ATTN_BLOCK_KEYS, group->walk.sequence.Lk)};
        if (group->walk.head.blocks && !any_sees(group, keys))
            continue;
        attn_widen(&group->walk, key > first_key ? key : first_key,
                   attn_least(keys.end, end_key));
        attend_block(group, forward, &sweep, keys);
    }

    for (size_t p = 0; p < group->count; p++)
        if (!group->stored[p])
            finish_panel(group, p, forward, NULL);
    if (pairs && pairs->close)
        pairs->close();
}

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
        clear(received, (size_t)walk->sequence.Lk);
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
            attend_group(group, forward, first, end);
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
    walk->pairs = attn_pairs_pay(forward->pairs, &walk->sequence) ? forward->pairs : NULL;
    attn_wide_init(walk, group->wide_memory, true);
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
        clear(received, (size_t)(shape->B * shape->H * shape->Lk));
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
