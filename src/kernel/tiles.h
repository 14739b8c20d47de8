/* Scores and outputs by products of tiles of bfloat16 (simd_tiles.h), for processors that
 * have them: 14 times the work of a multiply-add.  Numbers either are of one part,
 * rounded as pairs.h says, or of three, which is fp32 (bf16x3.h) and takes six products
 * in place of one.  What is hidden or not finite is kept out as in pairs.h.
 *
 *     scores[key][lane] = scale · Σ_d key[key][d] · query[d][lane]
 *
 *     output[d][lane] += Σ_key value[d][key] · weight[key][lane]
 *
 * Either is a sum of tiles, of 16 keys or elements of the output, by 16 lanes, over 32
 * elements or keys at a time.  Keys are taken as the rows they are; values are turned
 * once a block, in groups of 32 keys that begin at multiples of 32 of the sequence,
 * whatever a block shows of them, so that each element is one sum in an order of its own.
 * Weights of one part, which are rounded, are summed as one more row of values, of ones.
 *
 * The parts of a number lie in tiles of their own, side by side:
 *
 *     keys      [key][step of 32 elements][part][pair]
 *     queries   [step][part][pair][lane]
 *     values    [group of 32 keys][16 elements][part][element][pair of keys]
 *     weights   [group][part][pair][lane] */
#ifndef ATTN_KERNEL_TILES_H
#define ATTN_KERNEL_TILES_H

#include "kernel/tile_rows.h"

/* ---- Scores ---------------------------------------------------------------------------
 */

/* Plain scores of the vector of lanes from `lane` on with tiles of keys, a row to a key,
 * out_row floats apart. */
INLINE struct tile_product scores_of(const struct attn_panel *panel,
                                     const struct attn_block *block, size_t lane,
                                     float *out, size_t out_row, const size_t parts)
{
    const size_t width = panel->vectors * VF_LANES;
    const size_t key_stride = (size_t)block->key_stride;
    return (struct tile_product){
        .left = block->key,
        .right = panel->query + lane,
        .out = out,
        .left_row = key_stride,
        .left_part = VF_LANES,
        .left_step = parts * VF_LANES,
        .next_left = TILE_EDGE * key_stride,
        .right_row = width,
        .right_part = TILE_EDGE * width,
        .right_step = parts * TILE_EDGE * width,
        .out_row = out_row,
        .next_out = TILE_EDGE * out_row,
        .steps = (panel->D + TILE_STEP - 1) / TILE_STEP,
    };
}

INLINE void score_keys(struct tile_product *p, const struct attn_block *block, size_t key,
                       size_t tiles, const size_t parts)
{
    p->left = block->key + key * (size_t)block->key_stride;
    p->tiles = tiles;
    if (parts == 1)
        multiply_tiles(p, false);
    else
        multiply_parts(p, false);
}

/* The same of the keys that any of the lanes sees, and no row more. */
INLINE void score_column(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, const struct segment *seen,
                         const size_t parts)
{
    const size_t width = panel->vectors * VF_LANES, lane = seen->first_vector * VF_LANES;
    const size_t whole = (seen->end - seen->begin) / TILE_EDGE;
    const size_t last = seen->begin + whole * TILE_EDGE, left = seen->end - last;
    float rows[TILE_FLOATS] __attribute__((aligned(TILE_BYTES)));
    struct tile_product p =
        scores_of(panel, block, lane, scores + seen->begin * width, width, parts);
    score_keys(&p, block, seen->begin, whole, parts);
    if (left > 0) {
        p.out = rows;
        p.out_row = VF_LANES;
        score_keys(&p, block, last, 1, parts);
    }
    for (size_t i = 0; i < left; i++)
        vf_store(scores + (last + i) * width, vf_load(rows + i * VF_LANES));
}

INLINE vf note_score(struct noted *noted, const size_t chain, float *at, float factor)
{
    const vf score = vf_load(at) * factor;
    if (factor != 1.0f)
        vf_store(at, score);
    noted->most[chain] = vf_max(noted->most[chain], score);
    return score;
}

/* Scales the scores of a vector of lanes, [key][width], and notes.  Sums of products of
 * two show if any is not finite, and may if some are beyond 2⁶⁰. */
INLINE void note_scores(struct noted *noted, float *scores, size_t width, size_t keys,
                        float factor, const size_t parts)
{
    vf products[2] = {vf_set1(0.0f), vf_set1(0.0f)};
    size_t key = 0;
#pragma GCC unroll 4
    for (; key + MOST_CHAINS <= keys; key += MOST_CHAINS)
#pragma GCC unroll 2
        for (size_t i = 0; i < MOST_CHAINS; i += 2) {
            float *const at = scores + (key + i) * width;
            const vf score = note_score(noted, i, at, factor);
            const vf next = note_score(noted, i + 1, at + width, factor);
            if (parts > 1)
                products[i / 2] = vf_fma(score, next, products[i / 2]);
        }
    for (; key < keys; key++) {
        const vf score = note_score(noted, 0, scores + key * width, factor);
        if (parts > 1)
            products[0] = vf_fma(score, score, products[0]);
    }
    if (parts > 1)
        noted->zero = vf_fma(products[0] + products[1], vf_set1(0.0f), noted->zero);
}

/* At most so many rows and elements of a matrix from there on. */
INLINE struct attn_matrix part_of(const struct attn_matrix *m, size_t row, size_t n,
                                  size_t rows, size_t size)
{
    const ptrdiff_t bytes = m->type == ATTN_F32 ? 4 : 2;
    const ptrdiff_t at =
        (ptrdiff_t)row * m->row_stride + (ptrdiff_t)n * m->element_stride;
    struct attn_matrix part = *m;
    part.x = (const char *)m->x + at * bytes;
    part.rows = m->rows <= row ? 0 : m->rows - row < rows ? m->rows - row : rows;
    part.size = size;
    return part;
}

/* Scores [key][row] of a vector of lanes again, from the numbers as they are, where they
 * are not finite: a chain of multiply-adds each, and with `gated` what gates take, or
 * with `biased` a bias of fp32.  The smallest query times an infinite key is no NaN, so
 * nothing is flushed. */
static __attribute__((noinline)) void mend_scores(float *scores, size_t row,
                                                  const struct attn_panel *panel,
                                                  const struct attn_block *block,
                                                  size_t lane, const struct segment *seen,
                                                  bool gated, bool biased)
{
    float queries[TILE_FLOATS], sums[ATTN_BLOCK_KEYS * VF_BYTES / 4];
    const struct attn_matrix *const rows = &panel->rows;
    const struct attn_matrix bias = turned_matrix(&block->bias);
    const unsigned flushing = vf_flush_pause();
    memset(sums, 0, sizeof sums);
    for (size_t n = 0; n < panel->D; n += VF_LANES) {
        const size_t size = panel->D - n < VF_LANES ? panel->D - n : VF_LANES;
        const struct attn_matrix square = part_of(rows, lane, n, VF_LANES, size);
        load_transposed(queries, VF_LANES, &square, panel->scale);
        for (size_t key = seen->begin; key < seen->end; key++) {
            const vf of_key = load_any(&block->key_rows, key, n);
            vf sum = vf_load(sums + key * VF_LANES);
            for (size_t i = 0; i < size; i++)
                sum = vf_fma(vf_set1(of_key[i]), vf_load(queries + i * VF_LANES), sum);
            vf_store(sums + key * VF_LANES, sum);
        }
    }
    for (size_t key = seen->begin; key < seen->end; key++) {
        float *const at = scores + (key - seen->begin) * row;
        const vf score = vf_load(at), zero = score * 0.0f;
        vf sum = vf_load(sums + key * VF_LANES);
        if (gated)
            sum += gates_of_key(key, panel, block, lane / VF_LANES);
        if (biased)
            sum = with_bias(sum, load_elements(&bias, key, lane, ATTN_F32));
        vf_store(at, vf_select(zero == 0.0f, score, sum));
    }
    vf_flush_end(flushing);
}

/* Scales the scores that a vector's lanes see, and mends them; notes. */
INLINE vf finish_scores(float *scores, size_t row, const struct attn_panel *panel,
                        const struct attn_block *block, const struct segment *seen,
                        float factor, const size_t parts)
{
    struct noted noted;
    clear_noted(&noted);
    note_scores(&noted, scores, row, seen->end - seen->begin, factor, parts);
    if (parts > 1 && vi_any(noted.zero != 0.0f)) {
        mend_scores(scores, row, panel, block, seen->first_vector * VF_LANES, seen, false,
                    false);
        clear_noted(&noted);
        note_scores(&noted, scores, row, seen->end - seen->begin, 1.0f, parts);
    }
    return most_of_all(&noted);
}

/* Queries of three parts have taken the scale. */
INLINE float factor_of_scores(const struct attn_block *block, const size_t parts)
{
    return parts > 1 || goes_with_queries(block->scale) ? 1.0f : block->scale;
}

INLINE void plain_by_tiles_of(float *scores, const struct attn_panel *panel,
                              const struct attn_block *block, float *largest,
                              const size_t parts)
{
    const size_t width = panel->vectors * VF_LANES;
    const float factor = factor_of_scores(block, parts);
    const bool adds = adds_bias_at_once(panel, block);
    float *const of_products = adds ? NULL : largest;
    const unsigned before = vf_flush_begin();
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        const size_t lane = v * VF_LANES;
        if (seen.begin >= seen.end)
            continue;
        score_column(scores + lane, panel, block, &seen, parts);
        if (parts == 1 && factor == 1.0f && !of_products)
            continue;
        const vf most = finish_scores(scores + seen.begin * width + lane, width, panel,
                                      block, &seen, factor, parts);
        if (of_products)
            vf_store(of_products + lane, vf_max(vf_load(of_products + lane), most));
    }
    vf_flush_end(before);
    if (adds)
        add_bias(scores, panel, block, 0, block->keys, largest);
}

static void plain_by_tiles(float *scores, const struct attn_panel *panel,
                           const struct attn_block *block, float *largest)
{
    plain_by_tiles_of(scores, panel, block, largest, 1);
}

static void plain_by_parts(float *scores, const struct attn_panel *panel,
                           const struct attn_block *block, float *largest)
{
    plain_by_tiles_of(scores, panel, block, largest, BF16_PARTS);
}

static void score_by_tiles(float *scores, struct attn_panel *panel,
                           const struct attn_block *block)
{
    score_by(scores, panel, block, plain_by_tiles, false);
}

static void score_by_parts(float *scores, struct attn_panel *panel,
                           const struct attn_block *block)
{
    score_by(scores, panel, block, plain_by_parts, false);
}

/* ---- Values ---------------------------------------------------------------------------
 */

/* Where a pair of the weights lies, [group][part][pair][row]: part 0. */
INLINE size_t place_of_pair(size_t pair, size_t row, const size_t parts)
{
    return (pair / TILE_EDGE * parts * TILE_EDGE + pair % TILE_EDGE) * row;
}

INLINE void store_weights(float *to, size_t row, vf first, vf second, const size_t parts)
{
    if (parts == 1)
        vf_store(to, vf_pair(first, second));
    else
        store_parts(to, TILE_EDGE * row, first, second);
}

/* Weights of one vector of lanes, of pairs begin ≤ pair < end.  Pair 0 begins at key
 * −skip; keys that the block does not show weigh 0. */
INLINE void pair_weights(float *to, const float *weights, size_t width, size_t keys,
                         size_t skip, size_t begin, size_t end, const size_t parts)
{
    for (size_t pair = begin; pair < end; pair++) {
        const size_t first = 2 * pair - skip, second = first + 1; /* may wrap around */
        vf x = {0}, y = {0};
        if (first < keys)
            x = vf_load(weights + first * width);
        if (second < keys)
            y = vf_load(weights + second * width);
        store_weights(to + place_of_pair(pair, width, parts), width, x, y, parts);
    }
}

/* A row of them. */
static const uint32_t pairs_of_ones[TILE_EDGE] __attribute__((aligned(TILE_BYTES))) = {
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};

/* What the block adds to the output of the vector of lanes from `lane` on, of some groups
 * of keys, whose weights lie one after the other, `row` floats from pair to pair. */
INLINE struct tile_product values_of(const struct attn_panel *panel,
                                     const struct attn_block *block, size_t lane,
                                     const float *weights, size_t row, const size_t parts)
{
    const size_t width = panel->vectors * VF_LANES;
    return (struct tile_product){
        .left = block->value,
        .right = weights,
        .out = panel->output + lane,
        .left_row = TILE_EDGE,
        .left_part = TILE_FLOATS,
        .left_step = parts * TILE_EDGE * (size_t)block->value_stride,
        .next_left = parts * TILE_FLOATS,
        .right_row = row,
        .right_part = TILE_EDGE * row,
        .right_step = parts * TILE_EDGE * row,
        .out_row = width,
        .next_out = TILE_EDGE * width,
        .tiles = (panel->Dv + TILE_EDGE - 1) / TILE_EDGE,
    };
}

/* Adds rounded weights of some groups to their sums, as if one more row of values were
 * ones: all rows of its tile are the same. */
static void add_rounded(struct attn_panel *panel, size_t lane, struct tile_product p)
{
    p.left = (const float *)(const void *)pairs_of_ones;
    p.left_row = p.left_step = 0;
    p.out = panel->rounded_sum + lane;
    p.out_row = 0;
    p.tiles = 1;
    multiply_tiles(&p, true);
}

/* Adds groups begin ≤ group < end to the output. */
INLINE void add_values(struct attn_panel *panel, size_t lane,
                       const struct attn_block *block, size_t begin, size_t end,
                       const float *weights, size_t row, const size_t parts)
{
    struct tile_product p = values_of(panel, block, lane, weights, row, parts);
    p.left += begin * p.left_step;
    p.right += begin * p.right_step;
    p.steps = end - begin;
    if (parts == 1) {
        multiply_tiles(&p, true);
        add_rounded(panel, lane, p);
    } else {
        multiply_parts(&p, true);
    }
}

INLINE void value_by_tiles_of(struct attn_panel *panel, const float *weights,
                              const struct attn_block *block, const size_t parts)
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
        pair_weights(pairs, weights + lane, width, block->keys, skip, begin * TILE_EDGE,
                     end * TILE_EDGE, parts);
        add_values(panel, lane, block, begin, end, pairs, width, parts);
    }
    if (block->special)
        add_special(panel, weights, block);
}

static void value_by_tiles(struct attn_panel *panel, const float *weights,
                           const struct attn_block *block)
{
    value_by_tiles_of(panel, weights, block, 1);
}

static void value_by_parts(struct attn_panel *panel, const float *weights,
                           const struct attn_block *block)
{
    value_by_tiles_of(panel, weights, block, BF16_PARTS);
}

#endif
