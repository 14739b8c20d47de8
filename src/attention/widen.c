/* Widens blocks of keys and values. */
#include "attention/widen.h"
#include <assert.h>

static size_t row_floats(int64_t size, const struct attn_kernels *kernels)
{
    return ((size_t)size + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
}

static size_t block_floats(const attn_input *tensor, int64_t size,
                           const struct attn_kernels *kernels)
{
    return tensor->type == ATTN_F32 ? 0 : ATTN_BLOCK_KEYS * row_floats(size, kernels);
}

static size_t key_floats(const struct attn_problem *problem,
                         const struct attn_kernels *kernels)
{
    return block_floats(&problem->tensors->key, problem->shape->D, kernels);
}

static size_t value_floats(const struct attn_problem *problem,
                           const struct attn_kernels *kernels)
{
    return block_floats(&problem->tensors->value, problem->shape->Dv, kernels);
}

size_t attn_wide_floats(const struct attn_problem *problem,
                        const struct attn_kernels *kernels, bool values)
{
    return key_floats(problem, kernels) + (values ? value_floats(problem, kernels) : 0);
}

void attn_wide_init(struct attn_walk *walk, float *scratch, bool values)
{
    const size_t of_keys = key_floats(walk->problem, walk->kernels);
    const size_t of_values = values ? value_floats(walk->problem, walk->kernels) : 0;
    walk->wide = (struct attn_wide){
        .key = of_keys > 0 ? scratch : NULL,
        .value = of_values > 0 ? scratch + of_keys : NULL,
        .key_stride = row_floats(walk->problem->shape->D, walk->kernels),
        .value_stride = row_floats(walk->problem->shape->Dv, walk->kernels),
    };
}

static void widen(const struct attn_walk *walk, float *to, const attn_input *tensor,
                  const void *head, int64_t first, int64_t end, int64_t size)
{
    const struct attn_matrix rows = {
        .x = attn_element(head, tensor->type, first * tensor->stride[2]),
        .row_stride = tensor->stride[2],
        .element_stride = tensor->stride[3],
        .rows = (size_t)(end - first),
        .size = (size_t)size,
        .type = tensor->type,
    };
    walk->kernels->widen(to, &rows);
}

void attn_widen(struct attn_walk *walk, int64_t first, int64_t end)
{
    const attn_tensors *const tensors = walk->problem->tensors;
    const attn_shape *const shape = walk->problem->shape;
    assert(end - first <= ATTN_BLOCK_KEYS);
    walk->wide.first = first;
    if (walk->wide.key && first < end)
        widen(walk, walk->wide.key, &tensors->key, walk->head.key, first, end, shape->D);
    if (walk->wide.value && first < end)
        widen(walk, walk->wide.value, &tensors->value, walk->head.value, first, end,
              shape->Dv);
}
