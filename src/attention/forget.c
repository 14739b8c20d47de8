/* Sums the logarithms of forget gates. */
#include "attention/forget.h"
#include <math.h>

static size_t row_floats(const struct attn_problem *problem)
{
    const size_t keys = ATTN_GATE_KEYS;
    return ((size_t)problem->shape->Lk + keys - 1) / keys * keys;
}

size_t attn_forget_floats(const struct attn_problem *problem)
{
    return problem->options->log_forget.data ? 3 * row_floats(problem) : 0;
}

void attn_forget_init(struct attn_walk *walk, float *scratch)
{
    walk->forgotten = (struct attn_forgotten){.high = NULL, .sequence = -1};
    if (!walk->problem->options->log_forget.data)
        return;
    walk->forgotten.high = scratch;
    walk->forgotten.low = scratch + row_floats(walk->problem);
    walk->forgotten.rest = scratch + 2 * row_floats(walk->problem);
}

static double sum_at(const struct attn_forgotten *of, int64_t key)
{
    return (double)of->high[key] + (double)of->low[key];
}

/* What is left to the last key of each run of ATTN_GATE_KEYS; beyond the last key there
 * is, sums stand still. */
static void sum_to_last(const struct attn_forgotten *of, int64_t keys)
{
    for (int64_t first = 0; first < keys; first += ATTN_GATE_KEYS) {
        const int64_t last = first + ATTN_GATE_KEYS - 1;
        for (int64_t key = keys; key <= last; key++) {
            of->high[key] = of->high[keys - 1];
            of->low[key] = of->low[keys - 1];
        }
        for (int64_t key = first; key <= last; key++)
            of->rest[key] = (float)(sum_at(of, last) - sum_at(of, key));
    }
}

void attn_forget_take_head(struct attn_walk *walk)
{
    struct attn_forgotten *const of = &walk->forgotten;
    const struct attn_sequence *const sequence = &walk->sequence;
    if (!of->high || (of->sequence == sequence->index && of->h == walk->head.h))
        return;
    of->sequence = sequence->index;
    of->h = walk->head.h;
    const attn_input *const gates = &walk->problem->options->log_forget;
    const int64_t first = sequence->b * gates->stride[0] + of->h * gates->stride[1] +
                          sequence->first_key * gates->stride[2];
    const struct attn_matrix row = {
        .x = attn_element(gates->data, gates->type, first),
        .element_stride = gates->stride[2],
        .rows = 1,
        .size = (size_t)sequence->Lk,
        .type = gates->type,
    };
    if (sequence->Lk > 0)
        walk->kernels->widen(of->high, &row);
    double sum = 0.0;
    for (int64_t key = 0; key < sequence->Lk; key++) {
        sum += attn_bounded_log_forget(of->high[key]);
        of->high[key] = (float)sum;
        of->low[key] = (float)(sum - (double)of->high[key]);
    }
    sum_to_last(of, sequence->Lk);
}

int64_t attn_forget_place(const struct attn_sequence *sequence, int64_t query)
{
    return attn_clamp(query + sequence->offset, -1, sequence->Lk - 1);
}

void attn_forget_load(struct attn_panel *panel, const struct attn_walk *walk)
{
    const struct attn_forgotten *const of = &walk->forgotten;
    if (!of->high)
        return;
    for (int64_t lane = 0; lane < ATTN_PANEL_LANES; lane++) {
        /* Lanes beyond the last query stand where it stands. */
        const int64_t i = attn_least(lane, panel->queries - 1);
        const int64_t key = attn_forget_place(&walk->sequence, panel->first_query + i);
        panel->forget_high[lane] = key < 0 ? 0.0f : of->high[key];
        panel->forget_low[lane] = key < 0 ? 0.0f : of->low[key];
    }
}

void attn_forget_show(struct attn_block *block, const struct attn_walk *walk)
{
    const struct attn_forgotten *const of = &walk->forgotten;
    block->forget_high = of->high ? of->high + block->first_key : NULL;
    block->forget_low = of->high ? of->low + block->first_key : NULL;
    block->forget_rest = of->high ? of->rest + block->first_key : NULL;
}
