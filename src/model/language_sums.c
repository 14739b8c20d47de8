/* Linear attention from a state. */
#include "model/language_sums.h"
#include "attn/linear.h"

size_t attn_language_sums_floats(const attn_language_config *config)
{
    const int64_t width = config->width / config->heads;
    return (size_t)(config->heads * width * (width + 1));
}

/* [1][heads][rows][width of a head], of rows that lie as [rows][heads·width]. */
static attn_input rows_of(const attn_tensor *x, int64_t heads)
{
    const int64_t stride = x->extent[1];
    return (attn_input){.data = x->data, .stride = {0, stride / heads, stride, 1}};
}

attn_tensor *attn_language_sums_attend(float *sums, const attn_heads *heads,
                                       attn_tape *tape, const attn_tensor *query,
                                       const attn_memory *memory)
{
    attn_tensor *const output = attn_tape_tensor(tape, 2, query->extent);
    if (!output)
        return NULL;
    const int64_t rows = query->extent[0], width = query->extent[1] / heads->heads;
    const attn_shape shape = {1,     heads->heads, heads->key_heads, rows, rows,
                              width, width};
    attn_options options;
    attn_options_init_linear(&options, &shape, ATTN_FEATURE_ELU);
    options.causal = true;
    const attn_linear_options linear = {.feature = ATTN_FEATURE_ELU, .state = sums};
    const attn_tensors tensors = {
        .query = rows_of(query, heads->heads),
        .key = rows_of(memory->key, heads->key_heads),
        .value = rows_of(memory->value, heads->key_heads),
        .output = {.data = output->data, .stride = {0, width, query->extent[1], 1}},
    };
    const attn_status status =
        attn_linear_forward(attn_tape_context(tape), &shape, &tensors, &options, &linear);
    if (status == ATTN_OK)
        return output;
    attn_tape_fail_as_context(tape, status);
    return NULL;
}
