/* Parts of rows: columns taken out, and put side by side. */
#include "tensor/checks.h"
#include <string.h>

/* to[row] (+)= from[row], of rows with strides. */
static void move_columns(attn_tape *tape, float *to, int64_t to_stride, const float *from,
                         int64_t from_stride, int64_t rows, int64_t columns, bool add)
{
    for (int64_t row = 0; row < rows; row++)
        attn_tape_rows(tape)->scale(to + row * to_stride, from + row * from_stride, 1.0f,
                                    (size_t)columns, add);
}

struct columns {
    attn_tensor *x, *y;
    int64_t first;
};

/* The other columns of x get nothing from here. */
static void columns_backward(attn_tape *tape, void *arguments)
{
    const struct columns *const c = arguments;
    const int64_t rows = c->x->extent[0], width = c->x->extent[1];
    bool add;
    float *const dx = attn_tape_gradient(tape, c->x, &add);
    if (!dx)
        return;
    if (!add)
        memset(dx, 0, attn_tensor_count(c->x) * sizeof(float));
    move_columns(tape, dx + c->first, width, c->y->gradient, c->y->extent[1], rows,
                 c->y->extent[1], true);
}

attn_tensor *attn_columns(attn_tape *tape, attn_tensor *x, int64_t first, int64_t count)
{
    static const char operation[] = "attn_columns";
    const attn_named_tensor given = {"x", x};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, &given, 1) ||
        !attn_tensor_has_shape(tape, operation, given, 2, any))
        return NULL;
    if (first < 0 || count < 0 || first > x->extent[1] - count)
        return attn_tape_fail(
            tape, ATTN_EINVAL, "%s: %lld columns from %lld on, expected them within %lld",
            operation, (long long)count, (long long)first, (long long)x->extent[1]);
    const int64_t extent[] = {x->extent[0], count};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct columns *const c = attn_tape_allocate(tape, sizeof *c);
    if (!y || !c)
        return NULL;
    *c = (struct columns){x, y, first};
    move_columns(tape, y->data, count, x->data + first, x->extent[1], extent[0], count,
                 false);
    attn_tape_record(tape, y, columns_backward, c);
    return y;
}

struct join {
    attn_tensor *a, *b, *y;
};

static void join_backward(attn_tape *tape, void *arguments)
{
    const struct join *const j = arguments;
    attn_tensor *const part[] = {j->a, j->b};
    int64_t first = 0;
    for (int n = 0; n < 2; n++) {
        const int64_t columns = part[n]->extent[1];
        bool add;
        float *const to = attn_tape_gradient(tape, part[n], &add);
        if (to)
            move_columns(tape, to, columns, j->y->gradient + first, j->y->extent[1],
                         j->y->extent[0], columns, add);
        first += columns;
    }
}

attn_tensor *attn_join(attn_tape *tape, attn_tensor *a, attn_tensor *b)
{
    static const char operation[] = "attn_join";
    const attn_named_tensor given[] = {{"a", a}, {"b", b}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, given, 2) ||
        !attn_tensor_has_shape(tape, operation, given[0], 2, any))
        return NULL;
    const int64_t same_rows[] = {a->extent[0], -1};
    if (!attn_tensor_has_shape(tape, operation, given[1], 2, same_rows))
        return NULL;
    const int64_t rows = a->extent[0], left = a->extent[1], right = b->extent[1];
    const int64_t extent[] = {rows, left + right};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct join *const j = attn_tape_allocate(tape, sizeof *j);
    if (!y || !j)
        return NULL;
    *j = (struct join){a, b, y};
    move_columns(tape, y->data, extent[1], a->data, left, rows, left, false);
    move_columns(tape, y->data + left, extent[1], b->data, right, rows, right, false);
    attn_tape_record(tape, y, join_backward, j);
    return y;
}
