/* Rows of a matrix by number, alone as in an embedding or side by side as a convolution
 * reads them; and rows of a sequence made one, as a classifier does. */
#include "tensor/checks.h"
#include <string.h>

/* ---- Rows by number -------------------------------------------------------------------
 */

struct gather {
    attn_tensor *x, *y;
    const int32_t *rows;
    size_t count; /* of rows */
    float scale;
};

static void gather_backward(attn_tape *tape, void *arguments)
{
    const struct gather *const g = arguments;
    const size_t width = (size_t)g->x->extent[1];
    bool add;
    float *const dx = attn_tape_gradient(tape, g->x, &add);
    if (!dx)
        return;
    if (!add)
        memset(dx, 0, attn_tensor_count(g->x) * sizeof(float));
    for (size_t i = 0; i < g->count; i++)
        if (g->rows[i] >= 0)
            attn_tape_rows(tape)->scale(dx + (size_t)g->rows[i] * width,
                                        g->y->gradient + i * width, g->scale, width,
                                        true);
}

/* Row −1, where least allows it, is zeros. */
static attn_tensor *gather(attn_tape *tape, const struct gather *given, int64_t each)
{
    const size_t width = (size_t)given->x->extent[1];
    const int64_t extent[] = {(int64_t)given->count / each, each * given->x->extent[1]};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct gather *const g = attn_tape_allocate(tape, sizeof *g);
    if (!y || !g)
        return NULL;
    *g = *given;
    g->y = y;
    for (size_t i = 0; i < g->count; i++) {
        float *const to = y->data + i * width;
        if (g->rows[i] < 0)
            memset(to, 0, width * sizeof *to);
        else
            attn_tape_rows(tape)->scale(to, g->x->data + (size_t)g->rows[i] * width,
                                        g->scale, width, false);
    }
    attn_tape_record(tape, y, gather_backward, g);
    return y;
}

static bool rows_fit(attn_tape *tape, const char *operation, attn_named_tensor x,
                     const int32_t *rows, int64_t count, int32_t least)
{
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, &x, 1) ||
        !attn_tensor_has_shape(tape, operation, x, 2, any))
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (rows[i] >= least && rows[i] < x.tensor->extent[0])
            continue;
        attn_tape_fail(tape, ATTN_EINVAL,
                       "%s: id %ld at place %lld, expected %ld to %lld: %s has %lld rows",
                       operation, (long)rows[i], (long long)i, (long)least,
                       (long long)x.tensor->extent[0] - 1, x.name,
                       (long long)x.tensor->extent[0]);
        return false;
    }
    return true;
}

attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const int32_t *ids,
                            int64_t count, float scale)
{
    if (!rows_fit(tape, "attn_embedding", (attn_named_tensor){"the table", table}, ids,
                  count, 0))
        return NULL;
    const struct gather g = {table, NULL, ids, (size_t)count, scale};
    return gather(tape, &g, 1);
}

attn_tensor *attn_gather(attn_tape *tape, attn_tensor *x, const int32_t *rows,
                         int64_t count, int64_t each)
{
    if (!rows_fit(tape, "attn_gather", (attn_named_tensor){"x", x}, rows, count * each,
                  -1))
        return NULL;
    const struct gather g = {x, NULL, rows, (size_t)(count * each), 1.0f};
    return gather(tape, &g, each);
}

/* ---- Pool -----------------------------------------------------------------------------
 */

struct pool {
    attn_tensor *x, *y;
    const int64_t *starts;
    int32_t *largest; /* MAX: [sequences][width], the row; −1 of an empty sequence */
};

static void pool_backward(attn_tape *tape, void *arguments)
{
    const struct pool *const p = arguments;
    const int64_t width = p->x->extent[1];
    bool add;
    float *const dx = attn_tape_gradient(tape, p->x, &add);
    if (!dx)
        return;
    if (!add)
        memset(dx, 0, attn_tensor_count(p->x) * sizeof(float));
    for (int64_t s = 0; s < p->y->extent[0]; s++) {
        const float *const dy = p->y->gradient + s * width;
        const int64_t first = p->starts[s], end = p->starts[s + 1];
        for (int64_t row = first; row < end && !p->largest; row++)
            attn_tape_rows(tape)->scale(dx + row * width, dy, 1.0f / (float)(end - first),
                                        (size_t)width, true);
        for (int64_t i = 0; i < width && p->largest && first < end; i++)
            dx[p->largest[s * width + i] * width + i] += dy[i];
    }
}

/* NaN is larger than any number, so that it is seen. */
static void pool_largest(const struct pool *p, int64_t s)
{
    const int64_t width = p->x->extent[1];
    float *const y = p->y->data + s * width;
    int32_t *const largest = p->largest + s * width;
    for (int64_t row = p->starts[s]; row < p->starts[s + 1]; row++) {
        const float *const x = p->x->data + row * width;
        for (int64_t i = 0; i < width; i++) {
            const bool grows = row == p->starts[s] || (!(x[i] <= y[i]) && y[i] == y[i]);
            y[i] = grows ? x[i] : y[i];
            largest[i] = grows ? (int32_t)row : largest[i];
        }
    }
}

static void pool_mean(attn_tape *tape, const struct pool *p, int64_t s)
{
    const int64_t width = p->x->extent[1], count = p->starts[s + 1] - p->starts[s];
    float *const y = p->y->data + s * width;
    if (count == 0)
        return;
    attn_tape_rows(tape)->sum(y, p->x->data + p->starts[s] * width, (size_t)count,
                              (size_t)width);
    attn_tape_rows(tape)->scale(y, y, 1.0f / (float)count, (size_t)width, false);
}

attn_tensor *attn_pool(attn_tape *tape, attn_tensor *x, attn_pooling pooling,
                       int64_t sequences, const int64_t *starts)
{
    static const char operation[] = "attn_pool";
    const attn_named_tensor given = {"x", x};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, &given, 1) ||
        !attn_tensor_has_shape(tape, operation, given, 2, any) ||
        !attn_starts_fit(tape, operation, starts, sequences, x->extent[0]))
        return NULL;
    const int64_t extent[] = {sequences, x->extent[1]};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct pool *const p = attn_tape_allocate(tape, sizeof *p);
    if (!y || !p)
        return NULL;
    *p = (struct pool){x, y, starts, NULL};
    const size_t count = attn_tensor_count(y);
    if (pooling == ATTN_POOL_MAX &&
        !(p->largest = attn_tape_allocate(tape, count * sizeof *p->largest)))
        return NULL;
    memset(y->data, 0, count * sizeof *y->data);
    for (int64_t s = 0; s < sequences; s++) {
        if (p->largest)
            pool_largest(p, s);
        else
            pool_mean(tape, p, s);
    }
    attn_tape_record(tape, y, pool_backward, p);
    return y;
}
