/* Rows of a table, by number. */
#include "tensor/checks.h"
#include <string.h>

struct embedding {
    attn_tensor *table, *y;
    const int32_t *ids;
    float scale;
};

static void embedding_backward(attn_tape *tape, void *arguments)
{
    const struct embedding *const e = arguments;
    const size_t width = (size_t)e->table->extent[1];
    bool add;
    float *const gradient = attn_tape_gradient(tape, e->table, &add);
    if (!gradient)
        return;
    if (!add)
        memset(gradient, 0, attn_tensor_count(e->table) * sizeof(float));
    for (size_t n = 0; n < (size_t)e->y->extent[0]; n++)
        attn_tape_rows(tape)->scale(gradient + (size_t)e->ids[n] * width,
                                    e->y->gradient + n * width, e->scale, width, true);
}

attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const int32_t *ids,
                            int64_t count, float scale)
{
    const attn_named_tensor given[] = {{"table", table}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, "attn_embedding", given, 1) ||
        !attn_tensor_has_shape(tape, "attn_embedding", given[0], 2, any))
        return NULL;
    for (int64_t n = 0; n < count; n++) {
        if (ids[n] < 0 || ids[n] >= table->extent[0])
            return attn_tape_fail(tape, ATTN_EINVAL,
                                  "attn_embedding: id %ld at place %lld, expected 0 to "
                                  "%lld: the table has %lld rows",
                                  (long)ids[n], (long long)n,
                                  (long long)table->extent[0] - 1,
                                  (long long)table->extent[0]);
    }
    const int64_t extent[] = {count, table->extent[1]};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct embedding *const e = attn_tape_allocate(tape, sizeof *e);
    if (!y || !e)
        return NULL;
    const size_t width = (size_t)extent[1];
    for (size_t n = 0; n < (size_t)count; n++)
        attn_tape_rows(tape)->scale(y->data + n * width,
                                    table->data + (size_t)ids[n] * width, scale, width,
                                    false);
    *e = (struct embedding){table, y, ids, scale};
    attn_tape_record(tape, y, embedding_backward, e);
    return y;
}
