/* Walks the panels of a group over a run of keys in parts; see backward_parts.h. */
#include "attention/backward_parts.h"
#include "attention/backward_bias.h"
#include "attention/backward_forget.h"
#include "attention/backward_part_keys.h"
#include "attention/widen.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Factors of the scores between which they, and gradients, stay far from both ends of
 * fp32. */
#define LEAST_SCALE 0x1p-20f
#define MOST_SCALE 0x1p20f

const struct attn_part_kernels *
attn_backward_parts_for(const struct attn_problem *problem,
                        const struct attn_kernels *kernels)
{
    const attn_options *const options = problem->options;
    const attn_shape *const shape = problem->shape;
    const float scale = fabsf(options->scale);
    const bool are_products = options->score == ATTN_SCORE_DOT && !options->additive;
    const bool is_empty = shape->D == 0 || shape->Dv == 0;
    return are_products && !is_empty && scale >= LEAST_SCALE && scale <= MOST_SCALE
               ? kernels->backward->parts
               : NULL;
}

bool attn_backward_takes_parts(const struct attn_backward *backward,
                               const struct attn_sequence *sequence)
{
    return backward->parts &&
           attn_pairs_pay(backward->kernels->parts, backward->problem.shape, sequence);
}

/* ---- Scratch ------------------------------------------------------------------------
 */

enum { GATE_SUMS = ATTN_BLOCK_KEYS * ATTN_TILE_EDGE };

static size_t lay_out(struct attn_backward_parts *parts,
                      const struct attn_backward *backward, float *scratch)
{
    const size_t D = backward->D_whole, Dv = backward->Dv_whole, lanes = backward->lanes;
    const size_t pairs = ATTN_BLOCK_KEYS * ATTN_TILE_STEP;
    size_t floats = 0;
    const size_t keys = attn_part_keys_lay_out(&parts->keys, backward, scratch);
    attn_take_floats(&scratch, &floats, keys);
    parts->output_floats = attn_take_floats(&scratch, &floats, lanes * Dv);
    parts->query = attn_take_floats(&scratch, &floats, attn_floats_in_parts(D, lanes));
    parts->output_gradient =
        attn_take_floats(&scratch, &floats, attn_floats_in_parts(Dv, lanes));
    parts->query_rows =
        attn_take_floats(&scratch, &floats, attn_floats_in_parts(lanes, D));
    parts->gradient_rows =
        attn_take_floats(&scratch, &floats, attn_floats_in_parts(lanes, Dv));
    parts->weight = attn_take_floats(
        &scratch, &floats,
        attn_floats_in_parts(Dv > ATTN_BLOCK_KEYS ? Dv : ATTN_BLOCK_KEYS, lanes));
    parts->output = parts->weight; /* done with before there is a weight */
    parts->gradient =
        attn_take_floats(&scratch, &floats, attn_floats_in_parts(ATTN_BLOCK_KEYS, lanes));
    parts->slope = attn_take_floats(&scratch, &floats, pairs);
    parts->gate_sums = attn_take_floats(&scratch, &floats, GATE_SUMS);
    for (size_t n = 0; n < 2; n++) {
        parts->score[n] = attn_take_floats(&scratch, &floats, pairs);
        parts->by_weight[n] = attn_take_floats(&scratch, &floats, pairs);
        parts->by_key[n] = attn_take_floats(
            &scratch, &floats, attn_floats_in_parts(ATTN_BLOCK_KEYS, ATTN_TILE_STEP));
    }
    return floats;
}

size_t attn_backward_parts_floats(const struct attn_backward *backward)
{
    struct attn_backward_parts parts;
    return backward->parts ? lay_out(&parts, backward, NULL) : 0;
}

void attn_backward_parts_init(struct attn_backward_group *group, float *scratch)
{
    lay_out(&group->parts, group->backward, scratch);
}

/* ---- A run of keys ------------------------------------------------------------------
 */

static bool is_aligned(const struct attn_part_show *show)
{
    return show->first_row % ATTN_TILE_STEP == 0 &&
           show->block.forward.keys % ATTN_TILE_STEP == 0;
}

static bool shows_all(const struct attn_part_show *show)
{
    const struct attn_block *const keys = &show->block.forward;
    return keys->full_begin == 0 && keys->full_end == keys->keys && is_aligned(show);
}

/* Whether weights and gradients come of the products and gates alone, but for what is
 * hidden from a row, which counts as −∞: of a NaN that makes NaN. */
static bool is_plain(const struct attn_part_show *show)
{
    const struct attn_block *const keys = &show->block.forward;
    const bool bends =
        keys->softcap != 0.0f || keys->alibi_slope != 0.0f || keys->keep || keys->bias.x;
    const bool has_nan = show->panel->has_nan;
    return !bends && !show->block.dropout && !show->block.rounded &&
           show->panel->forward.vectors == 2 && (show->shows_all || !has_nan) &&
           (!keys->forget_high || (is_aligned(show) && !has_nan));
}

/* What panel p sees of the keys, of which `first` is row 0; false if that is nothing. */
static bool begin_show(struct attn_backward_group *group, size_t p,
                       struct attn_key_range keys, int64_t first)
{
    struct attn_backward_parts *const parts = &group->parts;
    struct attn_part_show *const show = &parts->shows[p];
    struct attn_backward_panel *const panel = &group->panels[p];
    const size_t step = p * ATTN_PART_FLOATS;
    *show = (struct attn_part_show){.panel = panel, .block = group->block};
    struct attn_block *const block = &show->block.forward;
    if (!attn_block_show(block, &panel->forward, &group->walk, keys.first, keys.end))
        return false;
    show->query = parts->query + attn_parts_of_panel(p, panel->forward.D);
    show->output_gradient =
        parts->output_gradient + attn_parts_of_panel(p, panel->forward.Dv);
    show->first_row = (size_t)(block->first_key - first);
    show->first_step = show->first_row / ATTN_TILE_STEP;
    show->end_step = attn_tile_steps(show->first_row + block->keys);
    show->shows_all = shows_all(show);
    show->plain = is_plain(show) && !group->backward->bias.data;
    show->keeps_gradient =
        !show->plain && (group->backward->bias.data || group->forget_sums);
    show->gate_sums = parts->gate_sums;
    show->weight = parts->weight + step;
    show->gradient = parts->gradient + step;
    show->left_tile = group->count * ATTN_PART_FLOATS;
    return true;
}

/* Gives it matrices that the show after it, or the one before, does not use. */
static void take_buffers(struct attn_backward_group *group, struct attn_part_show *show,
                         size_t n)
{
    const struct attn_backward_parts *const parts = &group->parts;
    const size_t width = show->panel->forward.vectors * group->backward->kernels->lanes;
    const size_t skipped = show->first_row * width;
    show->score = parts->score[n % 2];
    show->by_weight = parts->by_weight[n % 2];
    show->slope = parts->slope;
    show->block.score = show->score + skipped;
    show->block.gradient = show->by_weight + skipped;
    show->block.slope = show->slope + skipped;
    show->block.row = width;
    show->by_key = parts->by_key[n % 2];
}

static void show_panels(struct attn_backward_group *group,
                        const struct attn_part_keys *keys, struct attn_key_range run)
{
    const struct attn_backward_parts *const parts = &group->parts;
    struct attn_part_show *list[ATTN_BACKWARD_PANELS + 4] = {NULL};
    size_t count = 2; /* two that are none */
    if (group->walk.forgotten.high)
        memset(parts->gate_sums, 0, GATE_SUMS * sizeof(float));
    for (size_t p = 0; p < group->count; p++)
        if (begin_show(group, p, run, keys->first)) {
            list[count] = &group->parts.shows[p];
            take_buffers(group, list[count], count);
            count++;
        }
    for (size_t n = 2; count > 2 && n < count + 2; n++) {
        struct attn_part_show *const now = list[n - 1];
        group->backward->parts->step(keys, list[n], now, list[n - 2]);
        if (now && group->backward->bias.data)
            attn_backward_add_to_bias(group, now->panel, &now->block);
        if (now && group->forget_sums && !now->plain)
            attn_backward_add_to_forget(group, now->panel, &now->block);
    }
    if (group->forget_sums)
        attn_backward_add_gate_sums(group, keys->first, run.end, parts->gate_sums);
}

static bool touches(const struct attn_part_show *show, size_t step)
{
    return step >= show->first_step && step < show->end_step;
}

/* From the first panel that has something of a step of the run's keys to the last; 0 for
 * those between that have nothing. */
static struct attn_key_range panels_of_step(const struct attn_backward_group *group,
                                            size_t step)
{
    const struct attn_backward_parts *const parts = &group->parts;
    struct attn_key_range range = {0, 0};
    for (size_t p = 0; p < group->count; p++)
        if (touches(&parts->shows[p], step)) {
            range.first = range.end == 0 ? (int64_t)p : range.first;
            range.end = (int64_t)p + 1;
        }
    for (int64_t p = range.first; p < range.end; p++)
        for (size_t tile = 2 * step;
             tile < 2 * step + 2 && !touches(&parts->shows[p], step); tile++) {
            const size_t at = (tile * group->count + (size_t)p) * ATTN_PART_FLOATS;
            memset(parts->weight + at, 0, ATTN_PART_FLOATS * sizeof(float));
            memset(parts->gradient + at, 0, ATTN_PART_FLOATS * sizeof(float));
        }
    return range;
}

/* Adds to the sums of some keys, whose first begins that step of the run, left · right of
 * those panels, from the last one back: see backward.h. */
static void gather(const struct attn_backward_group *group, float *sums, size_t whole,
                   const float *left, const float *right, size_t step, size_t keys,
                   struct attn_key_range panels)
{
    const size_t columns = whole / ATTN_TILE_EDGE, last = (size_t)panels.end - 1;
    const size_t left_tile = group->count * ATTN_PART_FLOATS;
    struct attn_part_product product = {
        .left = left + 2 * step * left_tile + last * ATTN_PART_FLOATS,
        .right = right + last * columns * ATTN_PART_FLOATS,
        .left_step = -ATTN_PART_FLOATS,
        .right_step = -(ptrdiff_t)(columns * ATTN_PART_FLOATS),
        .left_tile = left_tile,
        .steps = (size_t)(panels.end - panels.first),
        .out = sums,
        .out_row = whole,
        .rows = keys,
        .adds = true,
    };
    for (size_t column = 0; column < columns; column += product.columns) {
        product.columns = column + 2 <= columns ? 2 : 1;
        group->backward->parts->multiply(&product);
        product.right += product.columns * ATTN_PART_FLOATS;
        product.out += product.columns * ATTN_TILE_EDGE;
    }
}

static void gather_keys(const struct attn_backward_group *group, int64_t first_key,
                        size_t step, size_t end_step, struct attn_key_range panels)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_backward_parts *const parts = &group->parts;
    const int64_t first = first_key + (int64_t)(step * ATTN_TILE_STEP);
    const int64_t end = attn_least(first_key + (int64_t)(end_step * ATTN_TILE_STEP),
                                   group->walk.sequence.Lk);
    const size_t keys = (size_t)(end - first);
    if (backward->gradients->value.data)
        gather(group, group->sums.value + first * (int64_t)backward->Dv_whole,
               backward->Dv_whole, parts->weight, parts->gradient_rows, step, keys,
               panels);
    if (backward->gradients->key.data)
        gather(group, group->sums.key + first * (int64_t)backward->D_whole,
               backward->D_whole, parts->gradient, parts->query_rows, step, keys, panels);
}

void attn_backward_parts_show(struct attn_backward_group *group,
                              struct attn_key_range run)
{
    const struct attn_part_keys keys = attn_part_keys_take(group, run);
    const size_t steps = attn_tile_steps((size_t)(run.end - keys.first));
    assert(run.end - keys.first <= ATTN_BLOCK_KEYS);
    show_panels(group, &keys, run);
    for (size_t step = 0, end; step < steps; step = end) {
        const struct attn_key_range panels = panels_of_step(group, step);
        for (end = step + 1; end < steps; end++) {
            const struct attn_key_range next = panels_of_step(group, end);
            if (next.first != panels.first || next.end != panels.end)
                break;
        }
        if (panels.end > 0)
            gather_keys(group, keys.first, step, end, panels);
    }
}
