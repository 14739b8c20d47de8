/* Walks the panels of a group over a run of keys in parts; see backward_parts.h. */
#include "attention/backward_parts.h"
#include "attention/backward_bias.h"
#include "attention/backward_forget.h"
#include "attention/rows.h"
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
    return backward->parts && attn_pairs_pay(backward->kernels->parts, sequence);
}

/* ---- Scratch ------------------------------------------------------------------------
 */

/* Floats of parts of a matrix; either side is filled up to whole steps. */
static size_t part_floats(size_t rows, size_t columns)
{
    return attn_tile_steps(rows) * attn_tile_steps(columns) * 2 * ATTN_PART_FLOATS;
}

static size_t lay_out(struct attn_backward_parts *parts,
                      const struct attn_backward *backward, float *scratch)
{
    const size_t D = backward->D_whole, Dv = backward->Dv_whole, lanes = backward->lanes;
    const size_t pairs = ATTN_BLOCK_KEYS * ATTN_TILE_STEP;
    size_t floats = 0;
    parts->key = attn_take_floats(&scratch, &floats, part_floats(ATTN_BLOCK_KEYS, D));
    parts->value = attn_take_floats(&scratch, &floats, part_floats(ATTN_BLOCK_KEYS, Dv));
    parts->turned_key =
        attn_take_floats(&scratch, &floats, part_floats(D, ATTN_BLOCK_KEYS));
    parts->query = attn_take_floats(&scratch, &floats, part_floats(D, lanes));
    parts->output_gradient = attn_take_floats(&scratch, &floats, part_floats(Dv, lanes));
    parts->query_rows = attn_take_floats(&scratch, &floats, part_floats(lanes, D));
    parts->gradient_rows = attn_take_floats(&scratch, &floats, part_floats(lanes, Dv));
    parts->weight =
        attn_take_floats(&scratch, &floats, part_floats(ATTN_BLOCK_KEYS, lanes));
    parts->gradient =
        attn_take_floats(&scratch, &floats, part_floats(ATTN_BLOCK_KEYS, lanes));
    parts->slope = attn_take_floats(&scratch, &floats, pairs);
    for (size_t n = 0; n < 2; n++) {
        parts->score[n] = attn_take_floats(&scratch, &floats, pairs);
        parts->by_weight[n] = attn_take_floats(&scratch, &floats, pairs);
        parts->by_key[n] = attn_take_floats(&scratch, &floats,
                                            part_floats(ATTN_BLOCK_KEYS, ATTN_TILE_STEP));
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

/* ---- Loading ------------------------------------------------------------------------
 */

void attn_backward_look_at_keys(struct attn_backward_group *group, int64_t hk)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const attn_tensors *const tensors = backward->problem.tensors;
    const attn_shape *const shape = backward->problem.shape;
    group->keys_finite = true;
    group->keys_fit = false;
    if (sequence->Lk == 0)
        return;
    const void *const first_key =
        attn_input_row(&tensors->key, sequence->b, hk, sequence->first_key);
    const void *const first_value =
        attn_input_row(&tensors->value, sequence->b, hk, sequence->first_key);
    const struct attn_matrix key =
        attn_rows_of(&tensors->key, first_key, 0, sequence->Lk, shape->D);
    const struct attn_matrix value =
        attn_rows_of(&tensors->value, first_value, 0, sequence->Lk, shape->Dv);
    group->keys_fit = attn_backward_takes_parts(backward, sequence) &&
                      backward->parts->fits(&key) && backward->parts->fits(&value);
    group->keys_finite = group->keys_fit || backward->kernels->backward->is_finite(&key);
}

static struct attn_matrix rows_of_floats(const float *x, size_t rows, size_t size)
{
    return (struct attn_matrix){
        .x = x,
        .row_stride = (ptrdiff_t)size,
        .element_stride = 1,
        .rows = rows,
        .size = size,
        .type = ATTN_F32,
    };
}

/* Where queries, or output gradients, of panel p lie in the lanes. */
static size_t lanes_at(size_t p, size_t size)
{
    return p * part_floats(size, ATTN_TILE_STEP);
}

/* Rows of any type as the right operand, by way of rows of floats of whole vectors. */
static void split_rows(const struct attn_backward_group *group, float *to,
                       const struct attn_matrix *from, float *floats, size_t whole)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_matrix rows = rows_of_floats(floats, from->rows, whole);
    if (from->type == ATTN_F32 && from->element_stride == 1) {
        backward->parts->split_right(to, from);
        return;
    }
    backward->kernels->widen(floats, from);
    backward->parts->split_right(to, &rows);
}

/* Replaces the panel's g·o by the numbers that tiles make of them: those of g·v, where a
 * query's output is a value, so that its gradients are exactly 0. */
static void multiply_outputs(struct attn_backward_group *group, size_t p,
                             const struct attn_matrix *output)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_backward_parts *const parts = &group->parts;
    struct attn_backward_panel *const panel = &group->panels[p];
    const size_t first = p * ATTN_TILE_STEP, vectors = panel->forward.vectors;
    struct attn_matrix rows = *output;
    rows.x = attn_element(output->x, output->type, (int64_t)first * output->row_stride);
    rows.rows = (size_t)panel->forward.queries;
    backward->kernels->widen(group->gradient_pack, &rows);
    rows = rows_of_floats(group->gradient_pack, rows.rows, backward->Dv_whole);
    backward->parts->split_left(parts->value, &rows);
    for (size_t v = 0; v < vectors; v++) {
        float square[ATTN_TILE_FLOATS];
        const size_t steps = attn_tile_steps(panel->forward.Dv);
        const struct attn_part_product product = {
            .left = parts->value + v * steps * ATTN_PART_FLOATS,
            .right = parts->output_gradient + lanes_at(p, panel->forward.Dv) +
                     v * ATTN_PART_FLOATS,
            .left_step = ATTN_PART_FLOATS,
            .right_step = (ptrdiff_t)(vectors * ATTN_PART_FLOATS),
            .steps = steps,
            .out = square,
            .out_row = ATTN_TILE_EDGE,
            .rows = ATTN_TILE_EDGE,
            .columns = 1,
        };
        backward->parts->multiply(&product);
        for (size_t i = 0; i < ATTN_TILE_EDGE; i++)
            panel->delta[v * ATTN_TILE_EDGE + i] = square[i * ATTN_TILE_EDGE + i];
    }
}

bool attn_backward_parts_load(struct attn_backward_group *group,
                              const struct attn_matrix *query,
                              const struct attn_matrix *output,
                              const struct attn_matrix *output_gradient)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_part_kernels *const kernels = backward->parts;
    const struct attn_backward_parts *const parts = &group->parts;
    const bool serves = group->keys_fit && group->lse_serves && kernels->fits(query) &&
                        kernels->fits(output) && kernels->fits(output_gradient);
    if (!serves)
        return false;
    for (size_t p = 0; p < group->count; p++) {
        struct attn_backward_panel *const panel = &group->panels[p];
        const size_t D = panel->forward.D, Dv = panel->forward.Dv;
        panel->column = 0; /* its matrices are its own */
        const size_t width = panel->forward.vectors * backward->kernels->lanes;
        const struct attn_matrix of_query =
            rows_of_floats(panel->forward.query, D, width);
        const struct attn_matrix of_gradient =
            rows_of_floats(panel->output_gradient, Dv, width);
        kernels->split_right(parts->query + lanes_at(p, D), &of_query);
        kernels->split_right(parts->output_gradient + lanes_at(p, Dv), &of_gradient);
        multiply_outputs(group, p, output);
    }
    split_rows(group, parts->query_rows, query, group->query_pack, backward->D_whole);
    split_rows(group, parts->gradient_rows, output_gradient, group->gradient_pack,
               backward->Dv_whole);
    return true;
}

/* ---- A run of keys ------------------------------------------------------------------
 */

static struct attn_part_keys split_keys(const struct attn_backward_group *group,
                                        struct attn_key_range keys)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_backward_parts *const parts = &group->parts;
    const size_t count = (size_t)(keys.end - keys.first);
    struct attn_block block = {.first_key = keys.first};
    attn_block_point(&block, &group->walk);
    const struct attn_matrix key = {block.key,
                                    block.key_stride,
                                    block.key_element_stride,
                                    count,
                                    (size_t)backward->problem.shape->D,
                                    ATTN_F32};
    const struct attn_matrix value = {block.value,
                                      block.value_stride,
                                      block.value_element_stride,
                                      count,
                                      (size_t)backward->problem.shape->Dv,
                                      ATTN_F32};
    backward->parts->split_left(parts->key, &key);
    backward->parts->split_left(parts->value, &value);
    if (backward->gradients->query.data)
        backward->parts->split_turned(parts->turned_key, &key);
    return (struct attn_part_keys){
        .key = parts->key,
        .value = parts->value,
        .turned_key = parts->turned_key,
        .key_tile = attn_tile_steps(key.size) * ATTN_PART_FLOATS,
        .value_tile = attn_tile_steps(value.size) * ATTN_PART_FLOATS,
        .turned_tile = attn_tile_steps(count) * ATTN_PART_FLOATS,
    };
}

static bool is_plain(const struct attn_part_show *show)
{
    const struct attn_block *const keys = &show->block.forward;
    const bool bends = keys->softcap != 0.0f || keys->alibi_slope != 0.0f ||
                       keys->forget_high || keys->keep || keys->bias.x;
    const bool all = keys->full_begin == 0 && keys->full_end == keys->keys;
    const bool whole =
        show->first_row % ATTN_TILE_STEP == 0 && keys->keys % ATTN_TILE_STEP == 0;
    return !bends && all && whole && !show->block.dropout && !show->keeps_gradient &&
           !show->block.rounded && show->panel->forward.vectors == 2;
}

/* What panel p sees of the keys; false if that is nothing. */
static bool begin_show(struct attn_backward_group *group, size_t p,
                       struct attn_key_range keys)
{
    struct attn_backward_parts *const parts = &group->parts;
    struct attn_part_show *const show = &parts->shows[p];
    struct attn_backward_panel *const panel = &group->panels[p];
    const size_t step = p * ATTN_PART_FLOATS;
    *show = (struct attn_part_show){.panel = panel, .block = group->block};
    struct attn_block *const block = &show->block.forward;
    if (!attn_block_show(block, &panel->forward, &group->walk, keys.first, keys.end))
        return false;
    show->query = parts->query + lanes_at(p, panel->forward.D);
    show->output_gradient = parts->output_gradient + lanes_at(p, panel->forward.Dv);
    show->first_row = (size_t)(block->first_key - keys.first);
    show->first_step = show->first_row / ATTN_TILE_STEP;
    show->end_step = attn_tile_steps(show->first_row + block->keys);
    show->keeps_gradient = group->backward->bias.data || group->forget_sums;
    show->plain = is_plain(show);
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
    struct attn_part_show *list[ATTN_BACKWARD_PANELS + 4] = {NULL};
    size_t count = 2; /* two that are none */
    for (size_t p = 0; p < group->count; p++)
        if (begin_show(group, p, run)) {
            list[count] = &group->parts.shows[p];
            take_buffers(group, list[count], count);
            count++;
        }
    for (size_t n = 2; count > 2 && n < count + 2; n++) {
        struct attn_part_show *const now = list[n - 1];
        group->backward->parts->step(keys, list[n], now, list[n - 2]);
        if (now && group->backward->bias.data)
            attn_backward_add_to_bias(group, now->panel, &now->block);
        if (now && group->forget_sums)
            attn_backward_add_to_forget(group, now->panel, &now->block);
    }
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

static void gather_keys(const struct attn_backward_group *group,
                        struct attn_key_range run, size_t step, size_t end_step,
                        struct attn_key_range panels)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_backward_parts *const parts = &group->parts;
    const int64_t first = run.first + (int64_t)(step * ATTN_TILE_STEP);
    const int64_t end =
        attn_least(run.first + (int64_t)(end_step * ATTN_TILE_STEP), run.end);
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
    const size_t steps = attn_tile_steps((size_t)(run.end - run.first));
    const struct attn_part_keys keys = split_keys(group, run);
    assert(run.end - run.first <= ATTN_BLOCK_KEYS);
    show_panels(group, &keys, run);
    for (size_t step = 0, end; step < steps; step = end) {
        const struct attn_key_range panels = panels_of_step(group, step);
        for (end = step + 1; end < steps; end++) {
            const struct attn_key_range next = panels_of_step(group, end);
            if (next.first != panels.first || next.end != panels.end)
                break;
        }
        if (panels.end > 0)
            gather_keys(group, run, step, end, panels);
    }
}
