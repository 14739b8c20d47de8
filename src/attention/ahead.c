/* Lists what to call ahead.  A file of its own: gcc 12 deletes calls of a function that
 * it sees do nothing but call memory. */
#include "attention/ahead.h"

/* Of rows that do not lie side by side so much is listed. */
enum { MOST_OF_ROW = 512 };

/* Rows of one head. */
struct span {
    int64_t h, first, rows, size;
};

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

static bool pays(const struct attn_problem *problem, double near_bytes)
{
    const double bytes = bytes_of_tensors(problem);
    return bytes > near_bytes &&
           bytes > LEAST_OF_HEAD * (double)(problem->shape->B * problem->shape->H);
}

bool attn_forward_calls_ahead(const struct attn_problem *problem,
                              const struct attn_kernels *kernels)
{
    return pays(problem, kernels->near_bytes);
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
        list(calls, row, ATTN_LINE_BYTES,
             (rows * row_bytes + ATTN_LINE_BYTES - 1) / ATTN_LINE_BYTES);
        return;
    }
    for (int64_t at = 0; at < attn_least(row_bytes, MOST_OF_ROW); at += ATTN_LINE_BYTES)
        list(calls, row + (uintptr_t)at, stride[2] * bytes, rows);
}

static void list_input(struct attn_calls *calls, const attn_input *x, int64_t b,
                       const struct span *span)
{
    list_rows(calls, x->data, x->type, x->stride, b, span);
}

static void list_output(struct attn_calls *calls, const attn_output *x, int64_t b,
                        const struct span *span)
{
    list_rows(calls, x->data, x->type, x->stride, b, span);
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
    list_input(calls, &t->query, s.b, &query);
    if (h % heads == 0) {
        list_input(calls, &t->key, s.b, &key);
        list_input(calls, &t->value, s.b, &value);
    }
    list_output(calls, &t->output, s.b, &output);
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

/* Of half of what the pass reads and writes. */
#define BACKWARD_NEAR_BYTES 0x1.8p22

bool attn_backward_calls_ahead(const struct attn_backward *backward)
{
    return backward->longest_keys <= ATTN_BLOCK_KEYS &&
           pays(&backward->problem, BACKWARD_NEAR_BYTES);
}

void attn_backward_list_ahead(struct attn_calls *calls,
                              const struct attn_backward *backward, int64_t unit)
{
    const struct attn_problem *const problem = &backward->problem;
    const attn_shape *const shape = problem->shape;
    const attn_tensors *const t = problem->tensors;
    const attn_gradients *const g = backward->gradients;
    const int64_t hk = unit % shape->Hk, heads = shape->H / shape->Hk;
    const struct attn_sequence s = attn_problem_sequence(problem, unit / shape->Hk);
    const struct span key = {hk, s.first_key, s.Lk, shape->D};
    const struct span value = {hk, s.first_key, s.Lk, shape->Dv};
    calls->first = calls->end = 0;
    list_input(calls, &t->key, s.b, &key);
    list_input(calls, &t->value, s.b, &value);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++) {
        const struct span query = {h, s.first_query, s.Lq, shape->D};
        const struct span output = {h, s.first_query, s.Lq, shape->Dv};
        list_input(calls, &t->query, s.b, &query);
        list_input(calls, &g->output, s.b, &output);
        list_output(calls, &t->output, s.b, &output);
        list_output(calls, &g->query, s.b, &query);
    }
    list_output(calls, &g->value, s.b, &value);
    list_output(calls, &g->key, s.b, &key);
}
