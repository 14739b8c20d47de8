/* Decoding: one query of a sequence, a group of heads at a time, over blocks of keys
 * (decode_score.h, decode_softmax.h, decode_value.h); and the merge of two outputs. */
#ifndef ATTN_KERNEL_DECODE_H
#define ATTN_KERNEL_DECODE_H

#include "kernel/decode_score.h"
#include "kernel/decode_softmax.h"
#include "kernel/decode_value.h"

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
    .round_query = round_query,
    .quantise = quantise,
    .merge = decode_merge,
};

#endif
