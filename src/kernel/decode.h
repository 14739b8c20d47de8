/* Decoding: one query of a sequence, a group of heads at a time, over blocks of keys
 * (decode_score.h, decode_softmax.h, decode_value.h); and the merge of two outputs. */
#ifndef ATTN_KERNEL_DECODE_H
#define ATTN_KERNEL_DECODE_H

#include "kernel/decode_score.h"
#include "kernel/decode_softmax.h"
#include "kernel/decode_value.h"
#if VF_FAST_PAIRS
#    include "kernel/decode_pairs.h"
#endif

static void decode_value(struct attn_decode_panel *panel, float *weights,
                         const struct attn_decode_block *block)
{
    for (size_t h = 0; h < panel->heads && panel->grew; h++)
        for (size_t d = 0; d < panel->Dv; d += LANES)
            scale_in_place(panel->output + h * panel->output_stride + d,
                           vf_set1(panel->growth[h]));
#if VF_FAST_PAIRS
    if (panel->query_pairs) {
        decode_value_pairs(panel, weights, block);
        return;
    }
#endif
    if (block->value_type == ATTN_STORED_F16)
        value_block(panel, weights, block, ATTN_STORED_F16);
    else if (block->value_type == ATTN_STORED_BF16)
        value_block(panel, weights, block, ATTN_STORED_BF16);
    else if (block->value_type == ATTN_STORED_I8)
        value_bytes(panel, weights, block);
    else
        value_block(panel, weights, block, ATTN_STORED_F32);
}

static void decode_merge(float *to, float to_factor, const float *from, float from_factor,
                         size_t size)
{
    const vf a = vf_set1(to_factor), b = vf_set1(from_factor);
    for (size_t n = 0; n < size; n += LANES)
        vf_store(to + n, vf_fma(vf_load(to + n), a, vf_load(from + n) * b));
}

static const struct attn_decode_kernels decode_kernels = {
    .load_additive = load_additive_row,
    .score = decode_score,
    .softmax = decode_softmax,
    .value = decode_value,
    .bytes_path =
        "single queries, splits of keys, 8 bits by " DOT_NAME ", " ATTN_ISA_NAME,
#if VF_FAST_PAIRS
    .pairs_path = "single queries, splits of keys, bf16 products, " ATTN_ISA_NAME,
    .order_output = order_output,
#endif
    .round_query = round_query,
    .quantise = quantise,
    .merge = decode_merge,
};

#endif
