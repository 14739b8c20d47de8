/* Sums the logarithms of forget gates over one split. */
#include "attention/decode_gates.h"
#include "attention/decode_pieces.h"
#include "attention/forget.h"
#include <string.h>

/* So many heads are summed at once: one sum would wait for itself at every key, which
 * takes twice as long. */
enum { AT_ONCE = 4 };

/* [key][heads], to the end of a last vector, and the gates of a few heads. */
size_t attn_decode_gate_floats(const struct attn_problem *problem, size_t heads)
{
    if (!problem->options->log_forget.data)
        return 0;
    return (ATTN_SPLIT_KEYS + ATTN_PANEL_LANES) * heads + AT_ONCE * ATTN_SPLIT_KEYS;
}

/* behind[key][heads] = the sum of the gates of the keys after it, from the last one back,
 * and forgotten that of all; of `count` heads. */
static inline void sum_back(float *behind, size_t heads, double *forgotten,
                            const float *gates, int64_t keys, const size_t count)
{
    double sum[AT_ONCE] = {0.0};
    for (int64_t key = keys - 1; key >= 0; key--)
#pragma GCC unroll 4
        for (size_t n = 0; n < count; n++) {
            const float gate = gates[n * ATTN_SPLIT_KEYS + (size_t)key];
            behind[(size_t)key * heads + n] = (float)sum[n];
            sum[n] += attn_bounded_log_forget(gate);
        }
    for (size_t n = 0; n < count; n++)
        forgotten[n] = sum[n];
}

/* Gates of head n, of `keys`. */
static struct attn_matrix gates_of(const struct attn_decoder *decoder, int64_t n,
                                   struct attn_key_range keys)
{
    const attn_input *const gates = &decoder->forward->problem->options->log_forget;
    const struct attn_sequence *const sequence = &decoder->sequence;
    const int64_t first = sequence->b * gates->stride[0] +
                          decoder->heads[n].h * gates->stride[1] +
                          (sequence->first_key + keys.first) * gates->stride[2];
    return (struct attn_matrix){
        .x = attn_element(gates->data, gates->type, first),
        .element_stride = gates->stride[2],
        .rows = 1,
        .size = (size_t)(keys.end - keys.first),
        .type = gates->type,
    };
}

/* Where gates lie side by side: those of the next split are fetched while this one is
 * attended to, as a short row of each head is no stream to the processor. */
static void fetch(const struct attn_matrix *gates)
{
    if (gates->element_stride == 1)
        attn_decode_call_lines(gates->x, gates->size * attn_type_bytes(gates->type));
}

void attn_decode_sum_gates(struct attn_decoder *decoder, struct attn_key_range keys)
{
    const size_t heads = decoder->panel.heads;
    const int64_t own = attn_forget_place(&decoder->sequence, 0) + 1;
    const struct attn_key_range known = {keys.first, attn_least(keys.end, own)};
    const struct attn_key_range next = {keys.end,
                                        attn_least(keys.end + ATTN_SPLIT_KEYS, own)};
    float *const rows = decoder->behind + (ATTN_SPLIT_KEYS + ATTN_PANEL_LANES) * heads;
    decoder->split_key = keys.first;
    memset(decoder->behind, 0, (size_t)(rows - decoder->behind) * sizeof *rows);
    memset(decoder->forgotten, 0, sizeof decoder->forgotten);
    for (int64_t n = 0, count = 1; known.first < known.end && n < decoder->count;
         n += count) {
        count = decoder->count - n < AT_ONCE ? 1 : AT_ONCE;
        for (int64_t i = 0; i < count; i++) {
            const struct attn_matrix gates = gates_of(decoder, n + i, known);
            decoder->forward->kernels->widen(rows + i * ATTN_SPLIT_KEYS, &gates);
        }
        float *const behind = decoder->behind + n;
        double *const forgotten = &decoder->forgotten[n];
        if (count == AT_ONCE)
            sum_back(behind, heads, forgotten, rows, known.end - known.first, AT_ONCE);
        else
            sum_back(behind, heads, forgotten, rows, known.end - known.first, 1);
    }
    for (int64_t n = 0; next.first < next.end && n < decoder->count; n++) {
        const struct attn_matrix gates = gates_of(decoder, n, next);
        fetch(&gates);
    }
}
