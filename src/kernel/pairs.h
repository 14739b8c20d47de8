/* Scores and outputs by dot products of pairs of bfloat16, for processors that have such
 * an instruction, which does twice the work of a multiply-add:
 *
 *     scores[key][lane] = scale · Σ_p key[key][p] · query[p][lane]     p: d = 2p, 2p + 1
 *
 *     output[d][lane] += Σ_p value[p][d] · weight[p][lane]       p: keys 2p, 2p + 1
 *
 * Keys and queries are taken as they are, so scores are as exact as those of widened
 * keys.  Weights are rounded to bfloat16, each by 2⁻⁹ of itself at most; the output is
 * divided by the sum of the rounded ones, so that they still sum to 1, and its error is
 * at most 2⁻⁸ of the largest |value|.  Log-sum-exp and statistics are of the weights as
 * they were.
 *
 * A hidden key weighs 0, which takes what is finite out of the product; of what is not,
 * the pairs hold 0, and an ordinary product with who sees what adds it.  Pairs of keys
 * begin at even keys of the sequence, whatever a block shows of them. */
#ifndef ATTN_KERNEL_PAIRS_H
#define ATTN_KERNEL_PAIRS_H

#include "kernel/pair_rows.h"

static void clear_in_pairs(float *to, size_t row, size_t n, size_t stride)
{
    ((uint16_t *)(void *)to)[2 * (row / 2 * stride + n) + row % 2] = 0;
}

static bool pair_values(float *to, float *special, const struct attn_matrix *from)
{
    const struct attn_matrix rows = *from;
    vi any_special = {0};
    float *at = to;
    for (size_t row = 0; row < rows.rows; row += 2)
        for (size_t n = 0; n < rows.size; n += VF_LANES) {
            const vf first = load_elements(&rows, row, n, ATTN_BF16);
            const vf second = row + 1 < rows.rows
                                  ? load_elements(&rows, row + 1, n, ATTN_BF16)
                                  : vf_set1(0.0f);
            any_special |= is_special(first) | is_special(second);
            vf_store(at, (vf)((vu)first >> 16 | (vu)second));
            at += VF_LANES;
        }
    if (!vi_any(any_special))
        return false;
    sort_out_special(to, special, from, is_special, clear_in_pairs);
    return true;
}

OWN_FUNCTION pairs_set_1(const struct product *p)
{
    product_rows(p, SUM_SET, MASK_PAIRS, 1, false);
}

OWN_FUNCTION pairs_set_2(const struct product *p)
{
    product_rows(p, SUM_SET, MASK_PAIRS, 2, false);
}

OWN_FUNCTION pairs_set_3(const struct product *p)
{
    product_rows(p, SUM_SET, MASK_PAIRS, 3, false);
}

OWN_FUNCTION pairs_add_1(const struct product *p)
{
    product_rows(p, SUM_GO_ON, MASK_PAIRS, 1, false);
}

OWN_FUNCTION pairs_add_2(const struct product *p)
{
    product_rows(p, SUM_GO_ON, MASK_PAIRS, 2, false);
}

OWN_FUNCTION pairs_add_3(const struct product *p)
{
    product_rows(p, SUM_GO_ON, MASK_PAIRS, 3, false);
}

/* As product_set and product_add. */
static void pairs_set(const struct product *p, size_t vectors)
{
    static void (*const of[])(const struct product *) = {NULL, pairs_set_1, pairs_set_2,
                                                         pairs_set_3};
    if (p->begin >= p->end || vectors == 0)
        return;
    call_lines(p);
    of[vectors](p);
}

static void pairs_add(const struct product *p, size_t vectors)
{
    static void (*const of[])(const struct product *) = {NULL, pairs_add_1, pairs_add_2,
                                                         pairs_add_3};
    if (p->begin < p->end && vectors > 0)
        of[vectors](p);
}

static void plain_pairs(float *scores, const struct attn_panel *panel,
                        const struct attn_block *block, float *largest)
{
    struct product p = {
        .row_stride = block->key_stride,
        .step_stride = 1,
        .right = panel->query,
        .width = panel->vectors * VF_LANES,
        .end = (panel->D + 1) / 2,
        .factor = goes_with_queries(block->scale) ? 1.0f : block->scale,
        .largest = largest,
    };
    multiply_keys(scores, &p, panel, block, pairs_set);
}

static void score_pairs(float *scores, struct attn_panel *panel,
                        const struct attn_block *block)
{
    score_by(scores, panel, block, plain_pairs, true);
}

/* Weights of one vector of lanes: to[pair][lane], and their sum.  Pair 0 begins at key
 * −skip. */
INLINE vf round_weights(float *to, const float *weights, size_t width, size_t keys,
                        size_t skip)
{
    const vf ones = (vf)vi_set1(0x3f803f80);
    vf sum = {0};
    size_t key = 0;
    if (skip == 1) {
        const vf pair = vf_pair(vf_set1(0.0f), vf_load(weights));
        vf_store(to, pair);
        sum = vf_dot(pair, ones, sum);
        to += width;
        key = 1;
    }
    for (; key + 2 <= keys; key += 2) {
        const float *const at = weights + key * width;
        const vf pair = vf_pair(vf_load(at), vf_load(at + width));
        vf_store(to, pair);
        sum = vf_dot(pair, ones, sum);
        to += width;
    }
    if (key < keys) {
        const vf pair = vf_pair(vf_load(weights + key * width), vf_set1(0.0f));
        vf_store(to, pair);
        sum = vf_dot(pair, ones, sum);
    }
    return sum;
}

/* The vectors that look at any key of the pair, and the pairs after it of which the same
 * is true. */
INLINE void pairs_seen(struct product *p, size_t *vectors, const struct attn_block *block,
                       size_t most_vectors, size_t pairs, size_t skip)
{
    const size_t key = p->begin == 0 ? 0 : 2 * p->begin - skip;
    struct segment seen = segment_from(block, most_vectors, key);
    p->end = seen.end == block->keys ? pairs : (seen.end + skip) / 2;
    if (p->end <= p->begin) {
        const struct segment next = segment_from(block, most_vectors, seen.end);
        const size_t end = next.first_vector + next.vectors;
        if (seen.vectors == 0)
            seen = next;
        else if (next.vectors > 0 && end > seen.first_vector + seen.vectors)
            seen.vectors = end - seen.first_vector;
        p->end = p->begin + 1;
    }
    p->first_vector = seen.first_vector;
    *vectors = seen.vectors;
}

static void value_pairs(struct attn_panel *panel, const float *weights,
                        const struct attn_block *block)
{
    const size_t width = panel->vectors * VF_LANES;
    const size_t skip = (size_t)(block->first_key & 1);
    const size_t pairs = (block->keys + skip + 1) / 2;
    for (size_t lane = 0; lane < width; lane += VF_LANES)
        add_in_place(panel->rounded_sum + lane,
                     round_weights(block->weight_pairs + lane, weights + lane, width,
                                   block->keys, skip));
    struct product p = {
        .out = panel->output,
        .left = block->value,
        .row_stride = 1,
        .step_stride = block->value_stride,
        .right = block->weight_pairs,
        .width = width,
        .rows = panel->Dv,
    };
    for (p.begin = 0; p.begin < pairs; p.begin = p.end) {
        size_t vectors = 0;
        pairs_seen(&p, &vectors, block, panel->vectors, pairs, skip);
        pairs_add(&p, vectors);
    }
    if (block->special)
        add_special(panel, weights, block);
}

static const struct attn_pair_kernels pair_kernels = {
    .one_pass = "panels of queries, bf16 products, " ATTN_ISA_NAME,
    .weights_kept = "panels of queries, bf16 products, weights kept for received "
                    "mass, " ATTN_ISA_NAME,
    .decoding_too =
        "panels of queries, bf16 products, single ones in splits of keys, " ATTN_ISA_NAME,
    .parts = 1,
    .scratch = PAIR_SCRATCH,
    .keys_together = 2,
    .load = load_query_pairs,
    .copy_keys = copy_key_pairs,
    .pair_values = pair_values,
    .score = score_pairs,
    .value = value_pairs,
};

#endif
