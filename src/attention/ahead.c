/* Calls rows, line by line.  A file of its own: gcc 12 deletes calls of a function that
 * it sees do nothing but that. */
#include "attention/ahead.h"

enum { LINE_BYTES = 64 };

/* Rows of one head. */
struct span {
    int64_t h, first, rows, size;
};

/* Those of a tensor, where there is one with elements side by side; at most a block. */
static void call_rows(const void *data, attn_type type, const int64_t stride[4],
                      int64_t b, const struct span *span)
{
    if (!data || stride[3] != 1)
        return;
    const bool side_by_side = stride[2] == span->size;
    const int64_t most = attn_least(span->rows, ATTN_BLOCK_KEYS);
    const int64_t rows = side_by_side ? 1 : most;
    const int64_t size = side_by_side ? most * span->size : span->size;
    const uintptr_t bytes = attn_type_bytes(type), row_bytes = (uintptr_t)size * bytes;
    uintptr_t row = (uintptr_t)attn_element(
        data, type, attn_row_offset(stride, b, span->h, span->first));
    for (int64_t n = 0; n < rows; n++) {
#pragma GCC unroll 8
        for (uintptr_t at = 0; at < row_bytes; at += LINE_BYTES)
            __builtin_prefetch((const void *)(row + at), 0, 2);
        row += (uintptr_t)stride[2] * bytes;
    }
}

static void call_input(const attn_input *x, int64_t b, const struct span *span)
{
    call_rows(x->data, x->type, x->stride, b, span);
}

static void call_output(const attn_output *x, int64_t b, const struct span *span)
{
    call_rows(x->data, x->type, x->stride, b, span);
}

/* What of it all stays in the third-level cache comes soon enough by itself. */
#define NEAR_BYTES ((double)((int64_t)12 << 20))

static double bytes_of_tensors(const struct attn_problem *problem)
{
    const attn_shape *const s = problem->shape;
    const double rows = (double)s->H * (double)s->Lq + (double)s->Hk * (double)s->Lk;
    const double elements = (double)s->B * rows * (double)(s->D + s->Dv);
    return elements * (double)attn_type_bytes(problem->tensors->query.type);
}

bool attn_forward_calls_ahead(const struct attn_problem *problem)
{
    return bytes_of_tensors(problem) > NEAR_BYTES;
}

void attn_forward_call_ahead(const struct attn_walk *walk, size_t step, size_t steps)
{
    const struct attn_problem *const problem = walk->problem;
    const attn_shape *const shape = problem->shape;
    const attn_tensors *const t = problem->tensors;
    struct attn_sequence s = walk->sequence;
    const int64_t h = (walk->head.h + 1) % shape->H, hk = h / (shape->H / shape->Hk);
    if (h == 0 && s.index + 1 == problem->sequences)
        return;
    if (h == 0)
        s = attn_problem_sequence(problem, s.index + 1);
    const struct span spans[] = {
        {h, s.first_query, s.Lq, shape->D},
        {hk, s.first_key, s.Lk, shape->D},
        {hk, s.first_key, s.Lk, shape->Dv},
    };
    const attn_input *const inputs[] = {&t->query, &t->key, &t->value};
    for (size_t n = 0; n < 3; n++)
        if (n * steps / 4 == step)
            call_input(inputs[n], s.b, &spans[n]);
    const struct span output = {h, s.first_query, s.Lq, shape->Dv};
    if (3 * steps / 4 == step)
        call_output(&t->output, s.b, &output);
}

bool attn_backward_calls_ahead(const struct attn_backward *backward)
{
    return backward->longest_keys <= ATTN_BLOCK_KEYS &&
           2.0 * bytes_of_tensors(&backward->problem) > NEAR_BYTES;
}

void attn_backward_call_ahead(const struct attn_backward *backward, int64_t unit,
                              enum attn_unit_part part)
{
    const struct attn_problem *const problem = &backward->problem;
    const attn_shape *const shape = problem->shape;
    const attn_tensors *const t = problem->tensors;
    const attn_gradients *const g = backward->gradients;
    const int64_t hk = unit % shape->Hk, heads = shape->H / shape->Hk;
    const struct attn_sequence s = attn_problem_sequence(problem, unit / shape->Hk);
    const struct span key = {hk, s.first_key, s.Lk, shape->D};
    const struct span value = {hk, s.first_key, s.Lk, shape->Dv};
    if (part == ATTN_UNIT_KEYS) {
        call_input(&t->key, s.b, &key);
        call_input(&t->value, s.b, &value);
    }
    if (part == ATTN_UNIT_GRADIENTS) {
        call_output(&g->key, s.b, &key);
        call_output(&g->value, s.b, &value);
    }
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++) {
        const struct span query = {h, s.first_query, s.Lq, shape->D};
        const struct span output = {h, s.first_query, s.Lq, shape->Dv};
        if (part == ATTN_UNIT_QUERIES) {
            call_input(&t->query, s.b, &query);
            call_output(&t->output, s.b, &output);
            call_input(&g->output, s.b, &output);
        }
        if (part == ATTN_UNIT_GRADIENTS)
            call_output(&g->query, s.b, &query);
    }
}
