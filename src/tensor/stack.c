/* The rows of several tensors below each other. */
#include "tensor/checks.h"
#include <string.h>

struct stack {
    attn_tensor **parts;
    size_t count;
    attn_tensor *y;
};

static void stack_backward(attn_tape *tape, void *arguments)
{
    const struct stack *const s = arguments;
    const float *gradient = s->y->gradient;
    for (size_t n = 0; n < s->count; n++) {
        const size_t count = attn_tensor_count(s->parts[n]);
        bool add;
        float *const to = attn_tape_gradient(tape, s->parts[n], &add);
        if (to)
            attn_tape_rows(tape)->scale(to, gradient, 1.0f, count, add);
        gradient += count;
    }
}

attn_tensor *attn_stack(attn_tape *tape, attn_tensor *const *parts, size_t count)
{
    static const char operation[] = "attn_stack";
    if (count < 1)
        return attn_tape_fail(tape, ATTN_EINVAL, "%s: no parts, expected at least one",
                              operation);
    int64_t rows = 0;
    for (size_t n = 0; n < count; n++) {
        const attn_named_tensor part = {"part", parts[n]};
        if (!attn_tensors_given(tape, operation, &part, 1))
            return NULL;
        const int64_t like[] = {-1, n > 0 ? parts[0]->extent[1] : -1};
        if (!attn_tensor_has_shape(tape, operation, part, 2, like))
            return NULL;
        rows += parts[n]->extent[0];
    }
    const int64_t extent[] = {rows, parts[0]->extent[1]};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct stack *const s = attn_tape_allocate(tape, sizeof *s);
    attn_tensor **const kept = attn_tape_allocate(tape, count * sizeof(attn_tensor *));
    if (!y || !s || !kept)
        return NULL;
    *s = (struct stack){kept, count, y};
    float *to = y->data;
    for (size_t n = 0; n < count; n++) {
        const size_t size = attn_tensor_count(parts[n]);
        kept[n] = parts[n];
        if (size > 0)
            memcpy(to, parts[n]->data, size * sizeof *to);
        to += size;
    }
    attn_tape_record(tape, y, stack_backward, s);
    return y;
}
