/* Clears the sums of a unit, and stores them. */
#include "attention/backward_sums.h"
#include "attention/rows.h"
#include <string.h>

void attn_backward_clear_sums(const struct attn_backward_group *group, int64_t first_key,
                              int64_t end_key)
{
    const size_t D = group->backward->D_whole, Dv = group->backward->Dv_whole;
    const size_t first = (size_t)first_key, keys = (size_t)(end_key - first_key);
    memset(group->sums.key + first * D, 0, keys * D * sizeof(float));
    memset(group->sums.value + first * Dv, 0, keys * Dv * sizeof(float));
}

static void store_rows(const struct attn_backward_group *group, const attn_output *x,
                       int64_t hk, struct attn_key_range keys, const float *from,
                       size_t whole_size, int64_t size, float scale)
{
    const struct attn_sequence *const sequence = &group->walk.sequence;
    if (!x->data)
        return;
    const struct attn_target to =
        attn_rows_to(x, attn_output_row(x, sequence->b, hk, 0),
                     sequence->first_key + keys.first, keys.end - keys.first, size);
    group->backward->kernels->backward->put(&to, from + (size_t)keys.first * whole_size,
                                            whole_size, scale);
}

void attn_backward_store_sums(const struct attn_backward_group *group, int64_t hk,
                              struct attn_key_range keys)
{
    const struct attn_backward *const backward = group->backward;
    const attn_gradients *const gradients = backward->gradients;
    const attn_shape *const shape = backward->problem.shape;
    store_rows(group, &gradients->key, hk, keys, group->sums.key, backward->D_whole,
               shape->D, backward->problem.options->scale);
    store_rows(group, &gradients->value, hk, keys, group->sums.value, backward->Dv_whole,
               shape->Dv, 1.0f);
}

/* 0 for what is padding. */
void attn_backward_clear_padding(const struct attn_backward_group *group, int64_t hk)
{
    const struct attn_problem *const problem = &group->backward->problem;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const attn_gradients *const gradients = group->backward->gradients;
    const attn_shape *const shape = problem->shape;
    const int64_t heads = shape->H / shape->Hk, b = sequence->b;
    if (problem->packed)
        return;
    attn_clear_rows(&gradients->key, b, hk, sequence->Lk, shape->Lk, shape->D);
    attn_clear_rows(&gradients->value, b, hk, sequence->Lk, shape->Lk, shape->Dv);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++)
        attn_clear_rows(&gradients->query, b, h, sequence->Lq, shape->Lq, shape->D);
}
