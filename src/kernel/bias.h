/* The bias of a panel's queries, read in place: squares of it are transposed on their way
 * to the scores.  Where nothing else bends scores first, it is added to a few keys while
 * those after them are multiplied: then it has come from memory, and the scores have not
 * left the nearest cache. */
#ifndef ATTN_KERNEL_BIAS_H
#define ATTN_KERNEL_BIAS_H

#include "kernel/convert.h"
#include "kernel/product.h"
#include "kernel/segment.h"
#include "kernel/transpose.h"
#include <math.h>

/* Keys of a product between two calls of memory: 48 lines of bias then, one to a step. Of
 * 8 keys, one tile, half as many lines are called, and a pass takes half a percent
 * longer. */
enum { FETCH_KEYS = 16 };

/* Keys whose bias is added at once: a cache line of fp32. */
enum { ADD_KEYS = 16 };

enum { MOST_LANES = VF_BYTES / 4 };

/* A bias of −∞ hides even a score of NaN. */
INLINE vf with_bias(vf score, vf bias)
{
    return vf_select_equal(bias, vf_set1(-INFINITY), bias, score + bias);
}

INLINE void add_to_score(float *score, vf bias, vf *largest)
{
    const vf sum = with_bias(vf_load(score), bias);
    vf_store(score, sum);
    *largest = vf_max(*largest, sum);
}

/* A square of VF_LANES keys that lie side by side, turned.  Lanes beyond the last look
 * where that one looks. */
INLINE void add_square(float *score, size_t width, const char *row, ptrdiff_t stride,
                       const size_t last, const attn_type type, vf *largest)
{
    vf x[MOST_LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = vf_load_as(row + (ptrdiff_t)(i < last ? i : last) * stride, type);
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        add_to_score(score + i * width, x[i], largest);
}

/* Squares from key begin on, as many as fit before end, of one vector of lanes.  Returns
 * the first key not taken. */
INLINE size_t add_squares(float *scores, size_t width, const struct attn_matrix *bias,
                          size_t lane, size_t begin, size_t end, const bool whole,
                          const attn_type type, vf *largest)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2, stride = bias->row_stride * bytes;
    const char *const row = (const char *)bias->x + (ptrdiff_t)lane * stride;
    const size_t last = whole ? VF_LANES - 1 : bias->rows - lane - 1;
    size_t key = begin;
    for (; key + VF_LANES <= end; key += VF_LANES)
        add_square(scores + key * width, width, row + (ptrdiff_t)key * bytes, stride,
                   last, type, largest);
    return key;
}

/* The same where all lanes are there.  Of a width that is not a constant gcc 12
 * multiplies out the places of all rows of a square, before a loop that mostly takes one
 * turn. */
INLINE size_t add_whole_squares(float *scores, size_t width,
                                const struct attn_matrix *bias, size_t lane, size_t begin,
                                size_t end, const attn_type type, vf *largest)
{
    vf most = *largest; /* in a register */
    size_t key;
    if (width == 3 * VF_LANES)
        key =
            add_squares(scores, 3 * VF_LANES, bias, lane, begin, end, true, type, &most);
    else if (width == 2 * VF_LANES)
        key =
            add_squares(scores, 2 * VF_LANES, bias, lane, begin, end, true, type, &most);
    else
        key = add_squares(scores, VF_LANES, bias, lane, begin, end, true, type, &most);
    *largest = most;
    return key;
}

/* Not inlined: gcc 12 would find the places of these lanes for whole squares too. */
static __attribute__((noinline)) size_t
add_part_of_squares(float *scores, size_t width, const struct attn_matrix *bias,
                    size_t lane, size_t begin, size_t end, vf *largest)
{
    if (bias->type == ATTN_F16)
        return add_squares(scores, width, bias, lane, begin, end, false, ATTN_F16,
                           largest);
    if (bias->type == ATTN_BF16)
        return add_squares(scores, width, bias, lane, begin, end, false, ATTN_BF16,
                           largest);
    return add_squares(scores, width, bias, lane, begin, end, false, ATTN_F32, largest);
}

/* Keys begin ≤ key < end of one vector of lanes. */
INLINE void add_column(float *scores, size_t width, const struct attn_matrix *bias,
                       size_t lane, size_t begin, size_t end, const attn_type type,
                       vf *largest)
{
    size_t key = begin;
    if (bias->element_stride == 1 && lane + VF_LANES <= bias->rows)
        key = add_whole_squares(scores, width, bias, lane, begin, end, type, largest);
    else if (bias->element_stride == 1)
        key = add_part_of_squares(scores, width, bias, lane, begin, end, largest);
    const struct attn_matrix turned = turned_matrix(bias);
    for (; key < end; key++)
        add_to_score(scores + key * width, load_elements(&turned, key, lane, type),
                     largest);
}

/* The same where all queries share a row. */
INLINE void add_shared(float *scores, size_t width, const struct attn_matrix *bias,
                       size_t begin, size_t end, const attn_type type, vf *largest)
{
    for (size_t first = begin; first < end; first += VF_LANES) {
        const vf shared = load_elements(bias, 0, first, type);
        for (size_t i = 0; i < VF_LANES && first + i < end; i++)
            add_to_score(scores + (first + i) * width, vf_set1(shared[i]), largest);
    }
}

/* Adds to a strip where its lanes see any of its keys, and returns the largest sums. */
INLINE vf add_bias_to(const struct strip *strip, const struct attn_block *block,
                      const attn_type type)
{
    const size_t lane = strip->v * VF_LANES, begin = strip->begin, end = strip->end;
    vf largest = vf_set1(-INFINITY);
    if (block->bias.row_stride == 0)
        add_shared(strip->scores, strip->row, &block->bias, begin, end, type, &largest);
    else
        add_column(strip->scores, strip->row, &block->bias, lane, begin, end, type,
                   &largest);
    return largest;
}

static vf add_bias_to_strip(const struct strip *strip, const struct attn_block *block)
{
    if (block->bias.type == ATTN_F16)
        return add_bias_to(strip, block, ATTN_F16);
    if (block->bias.type == ATTN_BF16)
        return add_bias_to(strip, block, ATTN_BF16);
    return add_bias_to(strip, block, ATTN_F32);
}

/* Adds to the scores of keys begin ≤ key < end where a vector of lanes sees any of them.
 * largest, [width], grows to the largest sums of each lane; or NULL. */
static void add_bias(float *scores, const struct attn_panel *panel,
                     const struct attn_block *block, size_t begin, size_t end,
                     float *largest)
{
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        if (seen.begin >= end || seen.end <= begin)
            continue;
        const struct strip strip = strip_of(scores, panel, v, begin, end);
        const vf sums = add_bias_to_strip(&strip, block);
        float *const to = largest + v * VF_LANES;
        if (largest)
            vf_store(to, vf_max(sums, vf_load(to)));
    }
}

/* Whether products are the first thing that it is added to. */
INLINE bool adds_bias_at_once(const struct attn_panel *panel,
                              const struct attn_block *block)
{
    return block->bias.x && !panel->additive.vector && !panel->takes_logarithm &&
           block->softcap == 0.0f && block->alibi_slope == 0.0f && !block->forget_high;
}

/* A line of each row, in turns, a product's worth each.  Where rows begin within a line,
 * the first keys came with those before. */
INLINE void fetch_rows(struct product *p, const struct attn_matrix *bias, size_t begin,
                       const size_t in_line)
{
    const size_t bytes = ATTN_LINE_BYTES / in_line, turns = in_line / FETCH_KEYS;
    const uintptr_t x = (uintptr_t)bias->x, row = (uintptr_t)bias->row_stride * bytes;
    const uintptr_t lines = x + begin / in_line * ATTN_LINE_BYTES;
    const size_t turn = begin / FETCH_KEYS % turns;
    const size_t first = turn * bias->rows / turns;
    const size_t end = (turn + 1) * bias->rows / turns;
    for (size_t i = first; begin < in_line && i < end && (x | row) % ATTN_LINE_BYTES; i++)
        call_line(lines + i * row);
    p->line = lines + first * row + ATTN_LINE_BYTES - bytes;
    p->line_stride = row;
    p->lines = end - first;
}

/* Calls the bias of keys from begin on, or asks the product of these keys to, and at the
 * block's first what look_at_bias reads of the next one.  Inline, since gcc 12 deletes
 * calls of a function that does nothing but prefetch. */
INLINE void fetch_bias(struct product *p, const struct attn_matrix *bias, size_t begin)
{
    const uintptr_t bytes = bias->type == ATTN_F32 ? 4 : 2, x = (uintptr_t)bias->x;
    const uintptr_t element = (uintptr_t)bias->element_stride * bytes;
    if (begin == 0) {
        call_line(x + ATTN_BLOCK_KEYS * element);
        call_line(x + (2 * ATTN_BLOCK_KEYS - 1) * element);
    }
    if (bias->row_stride == 0)
        return;
    if (bias->row_stride == 1 && bias->element_stride != 1) {
        for (size_t key = begin; key < begin + FETCH_KEYS; key++) {
            for (size_t i = 0; i < bias->rows; i += ATTN_LINE_BYTES / bytes)
                call_line(x + key * element + i * bytes);
            call_line(x + key * element + (bias->rows - 1) * bytes);
        }
    } else if (bias->element_stride == 1) {
        if (bytes == 4) /* constants, or each step would divide */
            fetch_rows(p, bias, begin, ATTN_LINE_BYTES / 4);
        else
            fetch_rows(p, bias, begin, ATTN_LINE_BYTES / 2);
    }
}

/* Leaves out the keys at the ends that a bias of −∞ hides from all queries.  Most biases
 * hide nothing, and the ends of the first row say so. */
INLINE struct attn_seen look_at_bias_of(const struct attn_matrix *bias,
                                        struct attn_seen seen, const attn_type type)
{
    const vi hidden = vf_bits(vf_set1(-INFINITY));
    struct attn_matrix first = *bias;
    first.size = 1; /* one element, however far the next one is */
    if (load_elements(&first, 0, 0, type)[0] != -INFINITY &&
        load_elements(bias, 0, bias->size - 1, type)[0] != -INFINITY)
        return seen;
    int32_t some[ATTN_BLOCK_KEYS] = {0}; /* not 0 for a key that some query sees */
    for (size_t row = 0; row < (bias->row_stride == 0 ? 1 : bias->rows); row++)
        for (size_t key = 0; key < bias->size; key += VF_LANES) {
            const vi x = vf_bits(load_elements(bias, row, key, type)) ^ hidden;
            vi_store(some + key, vi_load(some + key) | x);
        }
    while (seen.begin < seen.end && some[seen.begin] == 0)
        seen.begin++;
    while (seen.begin < seen.end && some[seen.end - 1] == 0)
        seen.end--;
    return seen;
}

static struct attn_seen look_at_bias(const struct attn_matrix *bias,
                                     struct attn_seen seen)
{
    if (bias->type == ATTN_F16)
        return look_at_bias_of(bias, seen, ATTN_F16);
    if (bias->type == ATTN_BF16)
        return look_at_bias_of(bias, seen, ATTN_BF16);
    return look_at_bias_of(bias, seen, ATTN_F32);
}

#endif
