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
#if VF_TILES
#    include "kernel/decode_byte_tiles.h"
#    include "kernel/decode_tiles.h"
#endif

/* Whether a faster way than that of all types has done it. */
INLINE bool scored_apart(float *scores, const struct attn_decode_panel *panel,
                         const struct attn_decode_block *block)
{
    if (panel->additive) {
        decode_additive(scores, panel, block);
        return true;
    }
#if VF_FAST_PAIRS
    if (panel->query_pairs) {
        score_block(scores, panel, block, STORED_PAIRS);
        return true;
    }
#endif
#if VF_TILES
    if (keys_fill_byte_tiles(panel, block)) {
        score_byte_tiles(scores, panel, block);
        return true;
    }
    if (keys_fill_tiles(panel, block)) {
        score_part_tiles(scores, panel, block);
        return true;
    }
#endif
    return false;
}

static void decode_score(float *scores, const struct attn_decode_panel *panel,
                         const struct attn_decode_block *block)
{
    if (!scored_apart(scores, panel, block))
        score_stored(scores, panel, block);
    decode_bend(scores, panel, block);
}

INLINE bool valued_apart(struct attn_decode_panel *panel, float *weights,
                         const struct attn_decode_block *block)
{
#if VF_FAST_PAIRS
    if (panel->query_pairs) {
        decode_value_pairs(panel, weights, block);
        return true;
    }
#endif
#if VF_TILES
    if (values_fill_byte_tiles(panel, block)) {
        value_byte_tiles(panel, weights, block);
        return true;
    }
    if (values_fill_tiles(panel, block)) {
        value_part_tiles(panel, weights, block);
        return true;
    }
#endif
    (void)panel, (void)weights, (void)block;
    return false;
}

static void decode_value(struct attn_decode_panel *panel, float *weights,
                         const struct attn_decode_block *block)
{
    for (size_t h = 0; h < panel->heads && panel->grew; h++)
        for (size_t d = 0; d < panel->Dv; d += LANES)
            scale_in_place(panel->output + h * panel->output_stride + d,
                           vf_set1(panel->growth[h]));
    if (valued_apart(panel, weights, block))
        return;
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

#if VF_TILES
static void open_tiles(struct attn_decode_panel *panel)
{
    panel->tile_steps = 0;
    if (panel->whole)
        shape_byte_tiles(panel);
    else if (panel->query_parts)
        shape_part_tiles(panel);
}
#endif

static void ready_query(struct attn_decode_panel *panel)
{
    if (panel->whole)
        round_query(panel);
#if VF_TILES
    if (panel->whole && panel->tile_steps > 0)
        turn_query(panel);
    if (panel->query_parts)
        part_query(panel);
#endif
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
#if VF_TILES
    .open = open_tiles,
    .close = tiles_close,
    .takes_parts = true,
#endif
    .long_blocks = CALLS_STREAMS,
    .ready_query = ready_query,
    .quantise = quantise,
    .merge = decode_merge,
};

#endif
