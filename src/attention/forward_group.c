/* A group's walk over the blocks of keys.  What kernels can take together goes through
 * their pipeline (pair_table.h), which goes on from block to block as long as what was
 * shown stays in memory; the rest goes panel by panel. */
#include "attention/forward_group.h"
#include "attention/ahead.h"
#include "attention/forget.h"
#include "attention/rows.h"
#include "attention/widen.h"
#include "kernel/backward_table.h"
#include "kernel/dropout.h"
#include <math.h>
#include <string.h>

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
    for (size_t n = 0; sweep->places && n < ATTN_PLACES; n++)
        fill(panel->place_score[n], width, -INFINITY);
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
    if (forward->statistics)
        begin_statistics(panel, &forward->sweep, width);
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

/* Kernels that multiply fp32 call lines themselves, and those that blocks stay for; for
 * others this is one of so many steps of a group. */
static void call_ahead(struct attn_group *group, size_t step)
{
    if (group->walk.calls && group->walk.pairs && group->walk.wide.blocks == 1)
        attn_call_part(group->walk.calls, 2 * group->count - step);
}

/* Shows panel p a run of the keys of a block, less those that none of its queries sees;
 * says whether any are left. */
static bool show_block(struct attn_group *group, size_t p, struct attn_key_range keys,
                       struct attn_key_range run, struct attn_show *show)
{
    const struct attn_walk *const walk = &group->walk;
    struct attn_panel *const panel = &group->panels[p];
    struct attn_block *const block = &show->block;
    show->panel = panel;
    block->sums = group->sums;
    if (!attn_block_show(block, panel, walk, run.first, run.end))
        return false;
    block->careful = !walk->pairs && panel->Dv > 0 && hides_keys(block) &&
                     !values_are_finite(group, keys.first, keys.end);
    block->opens = group->empty[p];
    group->empty[p] = false;
    return true;
}

/* What is split of the next block comes near meanwhile.  Of a layout it may be none of
 * the panels', and gained nothing. */
static void call_block(struct attn_group *group, int64_t next, int64_t end_key)
{
    struct attn_walk *const walk = &group->walk;
    if (walk->wide.blocks == 1)
        return;
    walk->calls = NULL;
    if (next >= end_key || walk->head.blocks)
        return;
    walk->calls = &group->calls;
    attn_wide_list(walk->calls, walk, next);
}

/* Without a sink. */
static void finish_lse(float *lse, const struct attn_panel *panel)
{
    for (int64_t i = 0; i < panel->queries; i++)
        lse[i] = attn_one_nan(
            (float)((double)panel->reference[i] + (double)logf(panel->sum[i])));
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
            tensors->lse[row] = attn_one_nan((float)end.lse);
        if (forward->statistics)
            attn_statistics_store(&tensors->statistics, row, panel, (size_t)i, width,
                                  end);
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
                         const struct attn_forward *forward,
                         const struct attn_block *block, const float *weights)
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
        attn_kept_finish(&group->kept[p], panel, inverse, &group->walk,
                         &group->shows[group->turn][0].block, group->scores);
    if (panel->Dv == 0)
        return;
    const struct attn_target to = attn_rows_to(output, head->output, panel->first_query,
                                               panel->queries, (int64_t)panel->Dv);
    if (weights) {
        const struct attn_weighted_rows from = {
            .weights = weights,
            .width = width,
            .rows = block->value,
            .row_stride = block->value_stride,
            .factors = inverse,
        };
        forward->kernels->store_weighted(&to, &from, block);
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

/* Whether a panel sees no block but this, and its weights give rows at once. */
static bool is_only_block(const struct attn_group *group,
                          const struct attn_forward *forward,
                          const struct attn_block *block)
{
    const struct attn_walk *const walk = &group->walk;
    const attn_output *const output = &forward->problem->tensors->output;
    return walk->sequence.Lk <= ATTN_BLOCK_KEYS && !attn_has_runs(forward->problem) &&
           !walk->pairs && !block->careful && !group->kept_memory &&
           block->value_element_stride == 1 && output->stride[3] == 1 &&
           output->type == ATTN_F32 &&
           forward->problem->shape->Dv >= (int64_t)forward->kernels->lanes;
}

/* Score, softmax and value one after the other. */
static void attend_alone(struct attn_group *group, const struct attn_forward *forward,
                         const struct attn_show *show, const struct attn_sweep *sweep)
{
    const struct attn_walk *const walk = &group->walk;
    const struct attn_block *const block = &show->block;
    struct attn_panel *const panel = show->panel;
    const size_t p = (size_t)(panel - group->panels);
    struct attn_kept *const kept = group->kept_memory ? &group->kept[p] : NULL;
    float *scores = group->scores;
    if (kept)
        scores = attn_kept_open(kept, walk->kernels, panel, block);
    call_ahead(group, 2 * p);
    attn_score_block(walk, scores, panel, block);
    walk->kernels->softmax(panel, scores, block, sweep);
    if (kept)
        attn_kept_note(kept, panel, block);
    if (panel->Dv == 0)
        return;
    call_ahead(group, 2 * p + 1);
    const float *const weights = sweep->dropped ? sweep->dropped : scores;
    if (is_only_block(group, forward, block))
        finish_panel(group, p, forward, block, weights);
    else if (walk->pairs)
        walk->pairs->value(panel, weights, block);
    else
        walk->kernels->value(panel, weights, block);
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

/* Whether panels may be shown the block together. */
static bool may_attend_together(const struct attn_group *group,
                                const struct attn_forward *forward)
{
    const struct attn_walk *const walk = &group->walk;
    const struct attn_pair_kernels *const pairs = walk->pairs;
    return pairs && pairs->attend && walk->wide.value && !walk->wide.any_special &&
           !group->kept_memory &&
           !(pairs->attends_plain && (forward->statistics || forward->sweep.dropout));
}

static bool is_whole_and_plain(const struct attn_block *block)
{
    return block->keys == ATTN_BLOCK_KEYS && !hides_keys(block) &&
           block->softcap == 0.0f && block->alibi_slope == 0.0f && !block->forget_high;
}

static void drain(struct attn_group *group, const struct attn_sweep *sweep)
{
    if (group->pipeline.turn > 0)
        group->walk.pairs->drain(&group->pipeline, sweep);
}

/* Shows all panels their next run of the block's keys; says whether there were any. */
static bool attend_run(struct attn_group *group, const struct attn_forward *forward,
                       const struct attn_sweep *sweep, struct attn_key_range keys,
                       struct attn_key_range run[ATTN_GROUP_PANELS])
{
    const struct attn_walk *const walk = &group->walk;
    const bool together = may_attend_together(group, forward);
    struct attn_show *const shows = group->shows[group->turn];
    size_t count = 0;
    bool any = false;
    if (!together)
        drain(group, sweep);
    for (size_t p = 0; p < group->count; p++) {
        struct attn_show *const show = &shows[count];
        if (!attn_panel_run(&group->panels[p], walk, keys.end, &run[p]))
            continue;
        any = true;
        if (!show_block(group, p, keys, run[p], show))
            continue;
        if (!together ||
            (walk->pairs->attends_plain && !is_whole_and_plain(&show->block))) {
            attend_alone(group, forward, show, sweep);
            continue;
        }
        call_ahead(group, 2 * p);
        call_ahead(group, 2 * p + 1);
        count++;
    }
    if (count > 0) {
        walk->pairs->attend(&group->pipeline, shows, count, sweep);
        group->turn = (group->turn + 1) % ATTN_SHOWS;
    }
    return any;
}

/* Shows the panels a block of keys. */
static void attend_block(struct attn_group *group, const struct attn_forward *forward,
                         const struct attn_sweep *sweep, struct attn_key_range keys)
{
    struct attn_key_range run[ATTN_GROUP_PANELS];
    for (size_t p = 0; p < group->count; p++)
        run[p] = (struct attn_key_range){keys.first, keys.first};
    while (attend_run(group, forward, sweep, keys, run))
        continue;
    if (group->walk.wide.blocks == 1) /* the next takes its place */
        drain(group, sweep);
}

void attn_forward_attend(struct attn_group *group, const struct attn_forward *forward,
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
        call_block(group, attn_next_block(&group->walk, first_query, key), end_key);
        attend_block(group, forward, &sweep, keys);
    }
    drain(group, &sweep);

    for (size_t p = 0; p < group->count; p++)
        if (!group->stored[p])
            finish_panel(group, p, forward, NULL, NULL);
    if (pairs && pairs->close)
        pairs->close();
}
