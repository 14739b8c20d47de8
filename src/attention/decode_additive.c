/* Lays out and loads the queries of additive scores for decoding. */
#include "attention/decode_additive.h"
#include <string.h>

/* Factors, the query itself, and the constants. */
static size_t floats_of_head(size_t D)
{
    return (2 + ATTN_ADDITIVE_CONSTANTS) * attn_additive_row(D);
}

static size_t structs_bytes(size_t heads)
{
    return attn_round_up(heads * sizeof(struct attn_additive));
}

size_t attn_decode_additive_bytes(const struct attn_problem *problem, size_t heads)
{
    if (!problem->options->additive)
        return 0;
    const size_t floats = floats_of_head((size_t)problem->shape->D);
    return structs_bytes(heads) + attn_round_up(heads * floats * sizeof(float));
}

void attn_decode_additive_place(struct attn_decode_panel *panel,
                                const struct attn_problem *problem, void *memory)
{
    panel->additive = NULL;
    if (!problem->options->additive)
        return;
    const size_t row = attn_additive_row(panel->D);
    float *floats = (float *)((char *)memory + structs_bytes(panel->heads));
    panel->additive = memory;
    for (size_t h = 0; h < panel->heads; h++) {
        panel->additive[h] = (struct attn_additive){
            .scale = problem->options->scale,
            .single = true,
            .factors = floats,
            .plain = floats + row,
            .constants = floats + 2 * row,
        };
        floats += floats_of_head(panel->D);
    }
}

void attn_decode_additive_load(struct attn_decode_panel *panel,
                               const struct attn_problem *problem,
                               const struct attn_kernels *kernels,
                               const struct attn_head *heads, size_t count)
{
    const attn_input *const query = &problem->tensors->query;
    for (size_t h = 0; h < panel->heads; h++) {
        const struct attn_head *const head = &heads[h < count ? h : count - 1];
        struct attn_additive *const additive = &panel->additive[h];
        const struct attn_matrix row = {
            .x = head->query,
            .element_stride = query->stride[3],
            .rows = 1,
            .size = panel->D,
            .type = query->type,
        };
        memset(additive->plain, 0, attn_additive_row(panel->D) * sizeof(float));
        kernels->widen(additive->plain, &row);
        additive->vector = head->additive;
        kernels->decode->load_additive(additive, panel->D);
    }
}
