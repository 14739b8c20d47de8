/* Adds up the gradient of forget gates. */
#include "attention/backward_forget.h"

/* Of some keys from first on, [keys][row] of which so many lanes count. */
static void add_gradients(struct attn_backward_group *group, int64_t first, size_t keys,
                          const float *gradients, size_t row, size_t lanes)
{
    float sums[ATTN_BLOCK_KEYS] = {0.0f};
    const struct attn_target to = {
        .x = sums,
        .row_stride = 0,
        .element_stride = 1,
        .rows = lanes,
        .size = keys,
    };
    group->backward->kernels->backward->add_pairs(&to, gradients, row);
    double *const of_keys = group->forget_sums + first;
    for (size_t key = 0; key < keys; key++)
        of_keys[key] -= (double)sums[key];
}

void attn_backward_add_to_forget(struct attn_backward_group *group,
                                 const struct attn_backward_panel *panel,
                                 const struct attn_backward_block *block)
{
    add_gradients(group, block->forward.first_key, block->forward.keys,
                  block->gradient + panel->column, block->row,
                  (size_t)panel->forward.queries);
}

void attn_backward_add_gate_sums(struct attn_backward_group *group, int64_t first,
                                 int64_t end, const float *sums)
{
    const size_t lanes = group->backward->kernels->lanes;
    add_gradients(group, first, (size_t)(end - first), sums, lanes, lanes);
}

static void store_head(const struct attn_backward *backward,
                       const struct attn_sequence *sequence, int64_t h,
                       const double *sums)
{
    const attn_output *const to = &backward->gradients->log_forget;
    const int64_t *const stride = to->stride;
    float *const x = (float *)to->data + sequence->b * stride[0] + h * stride[1] +
                     sequence->first_key * stride[2];
    double sum = 0.0;
    for (int64_t key = sequence->Lk; key-- > 0;) {
        sum += sums[key];
        x[key * stride[2]] = key > 0 ? (float)sum : 0.0f; /* nothing is before it */
    }
}

void attn_backward_store_forget(const struct attn_backward *backward, double *sums,
                                const double *rows)
{
    const struct attn_problem *const problem = &backward->problem;
    const attn_shape *const shape = problem->shape;
    for (int64_t s = 0; s < problem->sequences; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        for (int64_t h = 0; h < shape->H; h++) {
            const int64_t head = sequence.b * shape->H + h;
            double *const of_keys = sums + head * shape->Lk + sequence.first_key;
            for (int64_t i = 0; i < sequence.Lq; i++) {
                const int64_t key = attn_forget_place(&sequence, i);
                if (key >= 0)
                    of_keys[key] += rows[head * shape->Lq + sequence.first_query + i];
            }
            store_head(backward, &sequence, h, of_keys);
        }
        if (problem->packed)
            continue;
        for (int64_t h = 0; h < shape->H; h++)
            attn_clear_rows(&backward->gradients->log_forget, sequence.b, h, sequence.Lk,
                            shape->Lk, 1);
    }
}
