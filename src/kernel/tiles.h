/* Scores and outputs by products of tiles of bfloat16 (simd_tiles.h), for processors that
 * have them: 14 times the work of a multiply-add.  Numbers are rounded as pairs.h says,
 * and what is hidden or not finite is kept out in the same way.
 *
 *     scores[key][lane] = scale · Σ_d key[key][d] · query[d][lane]
 *
 *     output[d][lane] += Σ_key value[d][key] · weight[key][lane]
 *
 * Either is a sum of tiles, of 16 keys or elements of the output, by 16 lanes, over 32
 * elements or keys at a time.  Keys are taken as the rows they are; values are turned
 * once a block, in groups of 32 keys that begin at multiples of 32 of the sequence,
 * whatever a block shows of them, so that each element is one sum in an order of its own.
 * The rounded weights are summed as one more row of values, of ones. */
#ifndef ATTN_KERNEL_TILES_H
#define ATTN_KERNEL_TILES_H

#include "kernel/pair_rows.h"
#include "kernel/simd_tiles.h"

enum { TILE_STEP = 32 }; /* elements or keys of one product of tiles */

/* ---- Values ---------------------------------------------------------------------------
 */

/* Of a group: [d][TILE_STEP keys]. */
static size_t place_in_tiles(size_t row, size_t n, size_t stride)
{
    return (row / TILE_STEP * stride + n) * TILE_STEP + row % TILE_STEP;
}

INLINE vf value_row(const struct attn_matrix *from, size_t row, size_t n)
{
    return row < from->rows ? load_elements(from, row, n, ATTN_BF16) : vf_set1(0.0f);
}

static bool turn_values(float *to, float *special, const struct attn_matrix *from)
{
    const struct attn_matrix rows = *from;
    vi any_special = {0};
    float *at = to;
    for (size_t row = 0; row < rows.rows; row += TILE_STEP)
        for (size_t n = 0; n < rows.size; n += VF_LANES) {
            vf x[VF_BYTES / 4];
#pragma GCC unroll 16
            for (size_t i = 0; i < TILE_EDGE; i++) {
                const vf first = value_row(&rows, row + 2 * i, n);
                const vf second = value_row(&rows, row + 2 * i + 1, n);
                any_special |= is_special(first) | is_special(second);
                x[i] = (vf)((vu)first >> 16 | (vu)second);
            }
            transpose_square(x);
#pragma GCC unroll 16
            for (size_t i = 0; i < TILE_EDGE; i++, at += VF_LANES)
                vf_store(at, x[i]);
        }
    if (!vi_any(any_special))
        return false;
    sort_out_special(to, special, from, place_in_tiles);
    return true;
}

/* ---- Products -------------------------------------------------------------------------
 */

/* A sum of tiles: from one step to the next, and from one row to the next, in floats. */
struct tile_sum {
    const float *left, *right;
    size_t left_step, right_step;
    size_t left_row, right_row;
    size_t steps;
};

/* Adds to tile 0. */
INLINE void add_products(const struct tile_sum *s)
{
    const float *left = s->left, *right = s->right;
    const size_t left_row = s->left_row * sizeof *left;
    const size_t right_row = s->right_row * sizeof *right;
    for (size_t step = 0; step < s->steps; step++) {
        tile_load(1, left, left_row);
        tile_load(2, right, right_row);
        tile_add_product(0, 1, 2);
        left += s->left_step;
        right += s->right_step;
    }
}

/* Scores of one vector of lanes with keys begin ≤ key < end of the block. */
static void score_column(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, const struct segment *seen)
{
    const size_t width = panel->vectors * VF_LANES, lane = seen->first_vector * VF_LANES;
    const size_t key_stride = (size_t)block->key_stride;
    struct tile_sum sum = {
        .right = panel->query + lane,
        .left_step = VF_LANES,
        .right_step = TILE_EDGE * width,
        .left_row = key_stride,
        .right_row = width,
        .steps = (panel->D + TILE_STEP - 1) / TILE_STEP,
    };
    for (size_t key = seen->begin; key < seen->end; key += TILE_EDGE) {
        float *const to = scores + key * width + lane;
        sum.left = block->key + key * key_stride;
        tile_clear(0);
        add_products(&sum);
        if (key + TILE_EDGE <= block->keys) {
            tile_store(0, to, width * sizeof *to);
            continue;
        }
        float rows[TILE_EDGE * VF_LANES] __attribute__((aligned(TILE_BYTES)));
        tile_store(0, rows, VF_LANES * sizeof *rows);
        for (size_t i = 0; i < block->keys - key; i++)
            vf_store(to + i * width, vf_load(rows + i * VF_LANES));
    }
}

/* Scales scores, and notes the largest unless that is NULL. */
static void scale_column(float *scores, size_t width, const struct segment *seen,
                         float factor, float *largest)
{
    vf most = vf_set1(-INFINITY);
    for (size_t key = seen->begin; key < seen->end; key++) {
        float *const at = scores + key * width;
        const vf score = vf_load(at) * factor;
        if (factor != 1.0f)
            vf_store(at, score);
        most = vf_max(most, score);
    }
    if (largest)
        vf_store(largest, vf_max(vf_load(largest), most));
}

static void plain_by_tiles(float *scores, const struct attn_panel *panel,
                           const struct attn_block *block, float *largest)
{
    const size_t width = panel->vectors * VF_LANES;
    const float factor = goes_with_queries(block->scale) ? 1.0f : block->scale;
    const bool adds = adds_bias_at_once(panel, block);
    float *const of_products = adds ? NULL : largest;
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        const size_t lane = v * VF_LANES;
        score_column(scores, panel, block, &seen);
        if (factor != 1.0f || of_products)
            scale_column(scores + lane, width, &seen, factor,
                         of_products ? of_products + lane : NULL);
    }
    if (adds)
        add_bias(scores, panel, block, 0, block->keys, largest);
}

static void score_by_tiles(float *scores, struct attn_panel *panel,
                           const struct attn_block *block)
{
    score_by(scores, panel, block, plain_by_tiles, false);
}

/* Weights of one vector of lanes, to[pair][lane], of pairs begin ≤ pair < end.  Pair 0
 * begins at key −skip; keys that the block does not show weigh 0. */
static void round_weights(float *to, const float *weights, size_t width, size_t keys,
                          size_t skip, size_t begin, size_t end)
{
    for (size_t pair = begin; pair < end; pair++) {
        const size_t first = 2 * pair - skip, second = first + 1; /* may wrap around */
        vf x = {0}, y = {0};
        if (first < keys)
            x = vf_load(weights + first * width);
        if (second < keys)
            y = vf_load(weights + second * width);
        vf_store(to + pair * width, vf_pair(x, y));
    }
}

/* Of one vector of lanes, over groups begin ≤ group < end. */
static void value_column(struct attn_panel *panel, const struct attn_block *block,
                         size_t lane, size_t begin, size_t end)
{
    static const uint32_t ones[TILE_EDGE] __attribute__((aligned(TILE_BYTES))) = {
        0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
        0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
        0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    const size_t width = panel->vectors * VF_LANES, row = width * sizeof(float);
    const size_t group_floats = TILE_EDGE * (size_t)block->value_stride;
    const float *const pairs = block->weight_pairs + lane;
    struct tile_sum sum = {
        .left = block->value + begin * group_floats,
        .right = pairs + begin * TILE_EDGE * width,
        .left_step = group_floats,
        .right_step = TILE_EDGE * width,
        .left_row = TILE_EDGE,
        .right_row = width,
        .steps = end - begin,
    };
    for (size_t d = 0; d < panel->Dv; d += TILE_EDGE) {
        float *const to = panel->output + d * width + lane;
        tile_load(0, to, row);
        add_products(&sum);
        tile_store(0, to, row);
        sum.left += TILE_EDGE * TILE_EDGE;
    }
    float *const rounded_sum = panel->rounded_sum + lane;
    tile_load(6, rounded_sum, row);
    tile_load(7, ones, row);
    for (size_t group = begin; group < end; group++) {
        tile_load(2, pairs + group * TILE_EDGE * width, row);
        tile_add_product(6, 7, 2);
    }
    tile_store(6, rounded_sum, row);
}

static void value_by_tiles(struct attn_panel *panel, const float *weights,
                           const struct attn_block *block)
{
    const size_t width = panel->vectors * VF_LANES;
    const size_t skip = (size_t)(block->first_key % TILE_STEP);
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        const size_t lane = v * VF_LANES;
        if (seen.begin >= seen.end)
            continue;
        const size_t begin = (seen.begin + skip) / TILE_STEP;
        const size_t end = (seen.end + skip + TILE_STEP - 1) / TILE_STEP;
        round_weights(block->weight_pairs + lane, weights + lane, width, block->keys,
                      skip, begin * TILE_EDGE, end * TILE_EDGE);
        value_column(panel, block, lane, begin, end);
    }
    if (block->special)
        add_special(panel, weights, block);
}

static const struct attn_pair_kernels pair_kernels = {
    .one_pass = "panels of queries, bf16 products of tiles, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, bf16 products of tiles, weights kept for "
                    "received mass, " ATTN_ISA_NAME,
    .decoding_too = "panels of queries, bf16 products of tiles, single ones in splits of "
                    "keys, " ATTN_ISA_NAME,
    .keys_together = TILE_STEP,
    .open = tiles_open,
    .close = tiles_close,
    .load = load_query_pairs,
    .copy_keys = copy_key_pairs,
    .pair_values = turn_values,
    .score = score_by_tiles,
    .value = value_by_tiles,
};

#endif
