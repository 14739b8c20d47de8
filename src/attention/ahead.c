/* Calls rows, line by line.  A file of its own: gcc 12 deletes calls of a function that
 * it sees do nothing but that. */
#include "attention/ahead.h"

/* Of rows that do not lie side by side so much is listed. */
enum { LINE_BYTES = 64, MOST_OF_ROW = 512 };

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

/* Of all heads, each with the same share of the key heads. */
static double bytes_of_tensors(const struct attn_problem *problem)
{
    const attn_shape *const s = problem->shape;
    const double rows = (double)s->H * (double)s->Lq + (double)s->Hk * (double)s->Lk;
    const double elements = (double)s->B * rows * (double)(s->D + s->Dv);
    return elements * (double)attn_type_bytes(problem->tensors->query.type);
}

/* What so few bytes of a head are spread over comes by itself, and takes no longer than
 * its calls. */
#define LEAST_OF_HEAD 12288.0

bool attn_forward_calls_ahead(const struct attn_problem *problem,
                              const struct attn_kernels *kernels)
{
    const double bytes = bytes_of_tensors(problem);
    return bytes > kernels->near_bytes &&
           bytes > LEAST_OF_HEAD * (double)(problem->shape->B * problem->shape->H);
}

static void list(struct attn_calls *calls, uintptr_t first, int64_t stride, int64_t count)
{
    if (count > 0 && calls->end < ATTN_CALL_RUNS)
        calls->runs[calls->end++] =
            (struct attn_lines){first, (ptrdiff_t)stride, (size_t)count};
}

/* Those of a tensor, where there is one with elements side by side, at most a block: from
 * first to last where rows are too, or the first line of every row, then the second … */
static void list_rows(struct attn_calls *calls, const void *data, attn_type type,
                      const int64_t stride[4], int64_t b, const struct span *span)
{
    if (!data || stride[3] != 1)
        return;
    const int64_t rows = attn_least(span->rows, ATTN_BLOCK_KEYS);
    const int64_t bytes = (int64_t)attn_type_bytes(type), row_bytes = span->size * bytes;
    const uintptr_t row = (uintptr_t)attn_element(
        data, type, attn_row_offset(stride, b, span->h, span->first));
    if (stride[2] == span->size) {
        list(calls, row, LINE_BYTES, (rows * row_bytes + LINE_BYTES - 1) / LINE_BYTES);
        return;
    }
    for (int64_t at = 0; at < attn_least(row_bytes, MOST_OF_ROW); at += LINE_BYTES)
        list(calls, row + (uintptr_t)at, stride[2] * bytes, rows);
}

void attn_forward_list_ahead(struct attn_calls *calls, const struct attn_walk *walk)
{
    const struct attn_problem *const problem = walk->problem;
    const attn_shape *const shape = problem->shape;
    const attn_tensors *const t = problem->tensors;
    struct attn_sequence s = walk->sequence;
    const int64_t h = (walk->head.h + 1) % shape->H, heads = shape->H / shape->Hk;
    calls->first = calls->end = 0;
    if (h == 0 && s.index + 1 == problem->sequences)
        return;
    if (h == 0)
        s = attn_problem_sequence(problem, s.index + 1);
    const struct span query = {h, s.first_query, s.Lq, shape->D};
    const struct span key = {h / heads, s.first_key, s.Lk, shape->D};
    const struct span value = {h / heads, s.first_key, s.Lk, shape->Dv};
    const struct span output = {h, s.first_query, s.Lq, shape->Dv};
    list_rows(calls, t->query.data, t->query.type, t->query.stride, s.b, &query);
    if (h % heads == 0) {
        list_rows(calls, t->key.data, t->key.type, t->key.stride, s.b, &key);
        list_rows(calls, t->value.data, t->value.type, t->value.stride, s.b, &value);
    }
    list_rows(calls, t->output.data, t->output.type, t->output.stride, s.b, &output);
}

void attn_call_part(struct attn_calls *calls, size_t parts)
{
    size_t left = 0;
    for (size_t n = calls->first; n < calls->end; n++)
        left += calls->runs[n].count;
    for (size_t most = (left + parts - 1) / parts;
         most > 0 && calls->first < calls->end;) {
        struct attn_lines *const run = &calls->runs[calls->first];
        const size_t count = most < run->count ? most : run->count;
        for (size_t n = 0; n < count; n++) {
            __builtin_prefetch((const void *)run->first, 0, 2);
            run->first += (uintptr_t)run->stride;
        }
        run->count -= count;
        most -= count;
        calls->first += run->count == 0;
    }
}

bool attn_backward_calls_ahead(const struct attn_backward *backward)
{
    return backward->longest_keys <= ATTN_BLOCK_KEYS &&
           2.0 * bytes_of_tensors(&backward->problem) > 0x1.8p23;
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
