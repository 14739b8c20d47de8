/* Adds up the gradient of the bias. */
#include "attention/backward_bias.h"

bool attn_bias_is_of_head(const attn_output *bias)
{
    return bias->data && bias->stride[2] == 0 && bias->stride[3] == 0;
}

static float *element_of(const attn_output *bias, const struct attn_sequence *sequence,
                         int64_t h, int64_t query, int64_t key)
{
    return (float *)bias->data + sequence->b * bias->stride[0] + h * bias->stride[1] +
           (sequence->first_query + query) * bias->stride[2] +
           (sequence->first_key + key) * bias->stride[3];
}

void attn_backward_add_to_bias(struct attn_backward_group *group,
                               const struct attn_backward_panel *panel,
                               const struct attn_backward_block *block)
{
    const attn_output *const bias = &group->backward->bias;
    float sums[ATTN_PANEL_LANES] = {0.0f};
    const bool is_of_head = attn_bias_is_of_head(bias);
    const struct attn_target to = {
        .x = is_of_head
                 ? sums
                 : element_of(bias, &group->walk.sequence, group->walk.head.h,
                              panel->forward.first_query, block->forward.first_key),
        .row_stride = is_of_head ? 1 : bias->stride[2],
        .element_stride = bias->stride[3],
        .rows = (size_t)panel->forward.queries,
        .size = block->forward.keys,
    };
    group->backward->kernels->backward->add_pairs(&to, block->gradient + panel->column,
                                                  block->row);
    for (int64_t i = 0; i < panel->forward.queries && is_of_head; i++)
        group->bias_sum += (double)sums[i];
}

void attn_backward_store_bias(const struct attn_backward *backward, const double *sums)
{
    const int64_t H = backward->problem.shape->H;
    for (int64_t s = 0; s < backward->problem.sequences; s++) {
        const struct attn_sequence sequence =
            attn_problem_sequence(&backward->problem, s);
        for (int64_t h = 0; h < H; h++)
            *element_of(&backward->bias, &sequence, h, 0, 0) += (float)sums[s * H + h];
    }
}

/* Along which axes units add to the same elements. */
static void find_shared(const struct attn_backward *backward, bool *by_sequences,
                        bool *by_heads)
{
    const attn_shape *const shape = backward->problem.shape;
    const attn_output *const bias = &backward->gradients->bias;
    const bool meet = bias->data && !attn_bias_is_of_head(bias);
    *by_sequences = meet && shape->B > 1 && bias->stride[0] == 0;
    *by_heads = meet && shape->H > 1 && bias->stride[1] == 0;
}

int64_t attn_chain_count(const struct attn_backward *backward)
{
    bool by_sequences, by_heads;
    find_shared(backward, &by_sequences, &by_heads);
    return (by_sequences ? 1 : backward->problem.sequences) *
           (by_heads ? 1 : backward->problem.shape->Hk);
}

struct attn_chain attn_chain_of(const struct attn_backward *backward, int64_t index)
{
    const int64_t Hk = backward->problem.shape->Hk;
    const int64_t sequences = backward->problem.sequences;
    bool by_sequences, by_heads;
    find_shared(backward, &by_sequences, &by_heads);
    if (by_sequences && by_heads)
        return (struct attn_chain){0, 1, sequences * Hk};
    if (by_sequences)
        return (struct attn_chain){index, Hk, sequences};
    if (by_heads)
        return (struct attn_chain){index * Hk, 1, Hk};
    return (struct attn_chain){index, 1, 1};
}
