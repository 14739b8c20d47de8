/* Sums the logarithms of forget gates over one split. */
#include "attention/decode_gates.h"
#include "attention/forget.h"
#include <string.h>

/* [key][heads], to the end of a last vector, and the gates of one head. */
size_t attn_decode_gate_floats(const struct attn_problem *problem, size_t heads)
{
    if (!problem->options->log_forget.data)
        return 0;
    return (ATTN_SPLIT_KEYS + ATTN_PANEL_LANES) * heads + ATTN_SPLIT_KEYS;
}

/* behind[key][heads] = the sum of the gates of the keys after it, from the last one back.
 * Returns that of all. */
static double sum_back(float *behind, size_t heads, const float *gates, int64_t keys)
{
    double sum = 0.0;
    for (int64_t key = keys - 1; key >= 0; key--) {
        const double gate = (double)gates[key];
        behind[(size_t)key * heads] = (float)sum;
        sum += gate < ATTN_LEAST_LOG_FORGET ? ATTN_LEAST_LOG_FORGET : gate;
    }
    return sum;
}

void attn_decode_sum_gates(struct attn_decoder *decoder, struct attn_key_range keys)
{
    const attn_input *const gates = &decoder->forward->problem->options->log_forget;
    const struct attn_sequence *const sequence = &decoder->sequence;
    const size_t heads = decoder->panel.heads;
    const int64_t own = attn_forget_place(sequence, 0) + 1;
    const int64_t count = attn_least(keys.end, own) - keys.first;
    float *const row = decoder->behind + (ATTN_SPLIT_KEYS + ATTN_PANEL_LANES) * heads;
    decoder->split_key = keys.first;
    memset(decoder->behind, 0, (size_t)(row - decoder->behind) * sizeof *row);
    for (int64_t n = 0; n < decoder->count; n++) {
        decoder->forgotten[n] = 0.0;
        if (count <= 0)
            continue;
        const int64_t first = sequence->b * gates->stride[0] +
                              decoder->heads[n].h * gates->stride[1] +
                              (sequence->first_key + keys.first) * gates->stride[2];
        const struct attn_matrix from = {
            .x = attn_element(gates->data, gates->type, first),
            .element_stride = gates->stride[2],
            .rows = 1,
            .size = (size_t)count,
            .type = gates->type,
        };
        decoder->forward->kernels->widen(row, &from);
        decoder->forgotten[n] = sum_back(decoder->behind + n, heads, row, count);
    }
}
