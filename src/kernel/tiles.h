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

/* Elements n and following of the group's rows from `row` on, in pairs of rows, turned;
 * whole if all are there, side by side.  Returns `zero`, which becomes NaN where one is
 * not finite. */
INLINE vf turn_square(float *to, const struct attn_matrix *from, size_t row, size_t n,
                      vf zero, const bool whole)
{
    const uint16_t *const x0 = (const uint16_t *)from->x + n;
    vf x[TILE_EDGE];
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_EDGE; i++) {
        vf half[2] = {{0}, {0}};
        for (size_t k = 0; k < 2; k++) {
            const size_t at = row + 2 * i + k;
            if (whole)
                half[k] = vf_load_bf16(x0 + (ptrdiff_t)at * from->row_stride);
            else if (at < from->rows)
                half[k] = load_elements(from, at, n, ATTN_BF16);
        }
        zero = vf_fma(half[0], zero, zero); /* but for what is special */
        zero = vf_fma(half[1], zero, zero);
        x[i] = (vf)((vu)half[0] >> 16 | (vu)half[1]);
    }
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_EDGE; i++)
        vf_store(to + i * TILE_EDGE, x[i]);
    return zero;
}

static bool turn_values(float *to, float *special, const struct attn_matrix *from)
{
    const struct attn_matrix rows = *from;
    float *at = to;
    vf zero = {0};
    for (size_t row = 0; row < rows.rows; row += TILE_STEP)
        for (size_t n = 0; n < rows.size; n += VF_LANES) {
            const bool whole = rows.element_stride == 1 && row + TILE_STEP <= rows.rows &&
                               n + VF_LANES <= rows.size;
            zero = whole ? turn_square(at, &rows, row, n, zero, true)
                         : turn_square(at, &rows, row, n, zero, false);
            at += TILE_EDGE * TILE_EDGE;
        }
    if (!vi_any(zero != zero))
        return false;
    sort_out_special(to, special, from, place_in_tiles);
    return true;
}

/* ---- Products -------------------------------------------------------------------------
 */

enum { TILES_KEPT = 4 };

/* Tiles of the left operand, which follow each other in memory, by one of the right,
 * summed over steps; all distances in floats.  Tiles of the right operand are loaded
 * once for TILES_KEPT steps. */
struct tile_product {
    const float *left, *right;
    float *out;
    size_t left_row, left_step, next_left; /* next: from one tile to the next */
    size_t right_row, right_step;
    size_t out_row, next_out;
    size_t steps, tiles;
};

/* For 1 to TILES_KEPT steps; out = the sums, or out += the sums. */
INLINE void multiply_steps(const struct tile_product *p, const size_t steps,
                           const bool adds)
{
    const size_t left_row = p->left_row * sizeof *p->left, left_step = p->left_step;
    const size_t right_row = p->right_row * sizeof *p->right;
    const size_t out_row = p->out_row * sizeof *p->out;
    const float *left = p->left;
    float *out = p->out;
    tile_load(4, p->right, right_row);
    if (steps > 1)
        tile_load(5, p->right + p->right_step, right_row);
    if (steps > 2)
        tile_load(6, p->right + 2 * p->right_step, right_row);
    if (steps > 3)
        tile_load(7, p->right + 3 * p->right_step, right_row);
    for (size_t tile = 0; tile < p->tiles; tile++) {
        if (adds)
            tile_load(0, out, out_row);
        else
            tile_clear(0);
        tile_load(1, left, left_row);
        tile_add_product(0, 1, 4);
        if (steps > 1) {
            tile_load(2, left + left_step, left_row);
            tile_add_product(0, 2, 5);
        }
        if (steps > 2) {
            tile_load(1, left + 2 * left_step, left_row);
            tile_add_product(0, 1, 6);
        }
        if (steps > 3) {
            tile_load(2, left + 3 * left_step, left_row);
            tile_add_product(0, 2, 7);
        }
        tile_store(0, out, out_row);
        left += p->next_left;
        out += p->next_out;
    }
}

static void multiply_tiles(const struct tile_product *given, bool adds)
{
    struct tile_product p = *given;
    for (; p.steps > 0; adds = true) {
        if (p.steps == 1)
            multiply_steps(&p, 1, adds);
        else if (p.steps == 2)
            multiply_steps(&p, 2, adds);
        else if (p.steps == 3)
            multiply_steps(&p, 3, adds);
        else
            multiply_steps(&p, 4, adds);
        if (p.steps <= TILES_KEPT)
            return;
        p.steps -= TILES_KEPT;
        p.left += TILES_KEPT * p.left_step;
        p.right += TILES_KEPT * p.right_step;
    }
}

/* ---- Scores ---------------------------------------------------------------------------
 */

/* Plain scores of the vector of lanes from `lane` on with so many tiles of keys, a row to
 * a key, out_row floats apart. */
static void score_keys(float *out, size_t out_row, const struct attn_panel *panel,
                       const struct attn_block *block, size_t lane, size_t key,
                       size_t tiles)
{
    const size_t width = panel->vectors * VF_LANES;
    const size_t key_stride = (size_t)block->key_stride;
    const struct tile_product p = {
        .left = block->key + key * key_stride,
        .right = panel->query + lane,
        .out = out,
        .left_row = key_stride,
        .left_step = VF_LANES,
        .next_left = TILE_EDGE * key_stride,
        .right_row = width,
        .right_step = TILE_EDGE * width,
        .out_row = out_row,
        .next_out = TILE_EDGE * out_row,
        .steps = (panel->D + TILE_STEP - 1) / TILE_STEP,
        .tiles = tiles,
    };
    multiply_tiles(&p, false);
}

/* The same of the keys that any of the lanes sees, and no row more. */
static void score_column(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, const struct segment *seen)
{
    const size_t width = panel->vectors * VF_LANES, lane = seen->first_vector * VF_LANES;
    const size_t whole = (seen->end - seen->begin) / TILE_EDGE;
    const size_t last = seen->begin + whole * TILE_EDGE, left = seen->end - last;
    float rows[TILE_EDGE * VF_LANES] __attribute__((aligned(TILE_BYTES)));
    score_keys(scores + seen->begin * width, width, panel, block, lane, seen->begin,
               whole);
    if (left > 0)
        score_keys(rows, VF_LANES, panel, block, lane, last, 1);
    for (size_t i = 0; i < left; i++)
        vf_store(scores + (last + i) * width, vf_load(rows + i * VF_LANES));
}

/* Running maxima that do not wait for each other. */
enum { MOST_CHAINS = 4 };

INLINE void clear_most(vf most[MOST_CHAINS])
{
    for (size_t i = 0; i < MOST_CHAINS; i++)
        most[i] = vf_set1(-INFINITY);
}

INLINE vf most_of_all(const vf most[MOST_CHAINS])
{
    return vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3]));
}

/* Scales the scores of a vector of lanes, [key][width]; returns the largest of each.
 * Between vf_flush_begin and vf_flush_end, as who scales them for tile_pipeline.h. */
static vf scale_column(float *scores, size_t width, size_t keys, float factor)
{
    vf most[MOST_CHAINS];
    clear_most(most);
    for (size_t key = 0; key < keys; key += MOST_CHAINS)
        for (size_t i = 0; i < MOST_CHAINS && key + i < keys; i++) {
            const vf score = vf_load(scores) * factor;
            if (factor != 1.0f)
                vf_store(scores, score);
            most[i] = vf_max(most[i], score);
            scores += width;
        }
    return most_of_all(most);
}

static void plain_by_tiles(float *scores, const struct attn_panel *panel,
                           const struct attn_block *block, float *largest)
{
    const size_t width = panel->vectors * VF_LANES;
    const float factor = goes_with_queries(block->scale) ? 1.0f : block->scale;
    const bool adds = adds_bias_at_once(panel, block);
    float *const of_products = adds ? NULL : largest;
    const unsigned before = vf_flush_begin();
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        const size_t lane = v * VF_LANES;
        if (seen.begin >= seen.end)
            continue;
        score_column(scores + lane, panel, block, &seen);
        if (factor == 1.0f && !of_products)
            continue;
        const vf most = scale_column(scores + seen.begin * width + lane, width,
                                     seen.end - seen.begin, factor);
        if (of_products)
            vf_store(of_products + lane, vf_max(vf_load(of_products + lane), most));
    }
    vf_flush_end(before);
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

/* A row of them. */
static const uint32_t pairs_of_ones[TILE_EDGE] __attribute__((aligned(TILE_BYTES))) = {
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};

/* Adds to the output of the vector of lanes from `lane` on, and to its sums of rounded
 * weights.  pairs: [pair][row] of the weights, from the first of so many groups on. */
static void add_values(struct attn_panel *panel, size_t lane,
                       const struct attn_block *block, size_t group, size_t groups,
                       const float *pairs, size_t row)
{
    const size_t width = panel->vectors * VF_LANES;
    const size_t group_floats = TILE_EDGE * (size_t)block->value_stride;
    struct tile_product p = {
        .left = block->value + group * group_floats,
        .right = pairs,
        .out = panel->output + lane,
        .left_row = TILE_EDGE,
        .left_step = group_floats,
        .next_left = TILE_EDGE * TILE_EDGE,
        .right_row = row,
        .right_step = TILE_EDGE * row,
        .out_row = width,
        .next_out = TILE_EDGE * width,
        .steps = groups,
        .tiles = (panel->Dv + TILE_EDGE - 1) / TILE_EDGE,
    };
    multiply_tiles(&p, true);
    /* As if one more row of values were ones: all rows of its tile are the same. */
    p.left = (const float *)(const void *)pairs_of_ones;
    p.left_row = p.left_step = 0;
    p.out = panel->rounded_sum + lane;
    p.out_row = 0;
    p.tiles = 1;
    multiply_tiles(&p, true);
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
        float *const pairs = block->weight_pairs + lane;
        round_weights(pairs, weights + lane, width, block->keys, skip, begin * TILE_EDGE,
                      end * TILE_EDGE);
        add_values(panel, lane, block, begin, end - begin,
                   pairs + begin * TILE_EDGE * width, width);
    }
    if (block->special)
        add_special(panel, weights, block);
}

#endif
