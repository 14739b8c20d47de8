/* The rules that go element by element, keep and bias, read in place: a row of either is
 * a query, and queries lie in the lanes, so squares of them are transposed in registers
 * on their way to the scores, four keys of keep to a 32-bit element.  Rows that all
 * queries share, and columns that already lie lane by lane, need no transposing. */
#ifndef ATTN_KERNEL_ELEMENT_H
#define ATTN_KERNEL_ELEMENT_H

#include "kernel/convert.h"
#include "kernel/transpose.h"
#include <math.h>

/* A product of so many keys goes on while a cache line of each row comes. */
enum { FETCH_KEYS = 16 };

enum { MOST_LANES = VF_BYTES / 4, KEEP_KEYS = VF_BYTES };

/* ---- Keep -----------------------------------------------------------------------------
 */

/* n bytes, and zeros after them. */
INLINE vb load_bytes(const uint8_t *from, size_t n)
{
    if (n >= VF_BYTES)
        return vb_load(from);
    uint8_t bytes[VF_BYTES] = {0};
    memcpy(bytes, from, n);
    return vb_load(bytes);
}

/* Where the rows of keep lie with their keys side by side: in place, or gathered. */
struct keep_rows {
    const uint8_t *row;
    ptrdiff_t stride;
    size_t count; /* 1 if all queries share it */
    uint8_t gathered[ATTN_PANEL_LANES * ATTN_BLOCK_KEYS];
};

static void find_keep_rows(struct keep_rows *rows, const struct attn_panel *panel,
                           const struct attn_block *block)
{
    rows->row = block->keep;
    rows->stride = block->keep_row_stride;
    rows->count = rows->stride == 0 ? 1 : (size_t)panel->queries;
    if (block->keep_key_stride == 1)
        return;
    uint8_t *to = rows->gathered;
    for (size_t i = 0; i < rows->count; i++) {
        const uint8_t *from = block->keep + (ptrdiff_t)i * block->keep_row_stride;
        for (size_t key = 0; key < block->keys; key++) {
            to[key] = *from;
            from += block->keep_key_stride;
        }
        to += ATTN_BLOCK_KEYS;
    }
    rows->row = rows->gathered;
    rows->stride = rows->count == 1 ? 0 : ATTN_BLOCK_KEYS;
}

/* Which keys some query keeps, and whether all keep those between the first and last. */
static struct attn_seen look_at_keep(const struct attn_panel *panel,
                                     const struct attn_block *block)
{
    uint8_t some[ATTN_BLOCK_KEYS], all[ATTN_BLOCK_KEYS];
    struct attn_seen seen = {0, block->keys, false};
    if (block->keep_row_stride == 1 && block->keep_key_stride != 1)
        return seen; /* keys would need one look each */
    struct keep_rows rows;
    find_keep_rows(&rows, panel, block);
    for (size_t key = 0; key < block->keys; key += KEEP_KEYS) {
        vb of_some = {0}, of_all = ~(vb){0};
        for (size_t i = 0; i < rows.count; i++) {
            const vb x = load_bytes(rows.row + (ptrdiff_t)i * rows.stride + key,
                                    block->keys - key);
            of_some |= x;
            of_all = vb_min(of_all, x);
        }
        memcpy(some + key, &of_some, sizeof of_some);
        memcpy(all + key, &of_all, sizeof of_all);
    }
    while (seen.begin < seen.end && !some[seen.begin])
        seen.begin++;
    while (seen.begin < seen.end && !some[seen.end - 1])
        seen.end--;
    seen.all = !memchr(all + seen.begin, 0, seen.end - seen.begin);
    return seen;
}

INLINE void hide_shared(float *scores, const struct attn_panel *panel,
                        const struct attn_block *block)
{
    const size_t width = panel->vectors * VF_LANES;
    for (size_t key = 0; key < block->keys; key++)
        if (!block->keep[(ptrdiff_t)key * block->keep_key_stride])
            for (size_t lane = 0; lane < width; lane += VF_LANES)
                vf_store(scores + key * width + lane, vf_set1(-INFINITY));
}

/* Lanes lie side by side: each key's bytes are widened. */
static void hide_by_lanes(float *scores, const struct attn_panel *panel,
                          const struct attn_block *block)
{
    const size_t width = panel->vectors * VF_LANES, queries = (size_t)panel->queries;
    for (size_t lane = 0; lane < queries; lane += VF_LANES) {
        const size_t left = queries - lane;
        const size_t bytes = left < VF_LANES ? left : VF_LANES;
        for (size_t key = 0; key < block->keys; key++) {
            uint8_t keep[VF_BYTES / 4] = {0};
            memcpy(keep, block->keep + (ptrdiff_t)key * block->keep_key_stride + lane,
                   bytes);
            float *const score = scores + key * width + lane;
            vf_store(score, vf_select_bits(vi_widen(keep), 0xff, vf_load(score),
                                           vf_set1(-INFINITY)));
        }
    }
}

/* At most KEEP_KEYS keys of one vector of lanes, turned. */
INLINE void hide_square(float *score, size_t width, const uint8_t *const rows[],
                        size_t key, const size_t keys)
{
    vf x[MOST_LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = (vf)load_bytes(rows[i] + key, keys);
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++) {
#pragma GCC unroll 4
        for (size_t byte = 0; byte < 4; byte++) {
            if (4 * i + byte < keys)
                vf_store(score, vf_select_bits((vi)x[i], vi_byte(byte), vf_load(score),
                                               vf_set1(-INFINITY)));
            score += width;
        }
    }
}

/* One vector of lanes.  Lanes beyond the queries look where the last one looks. */
static void hide_squares(float *score, size_t width, const struct keep_rows *keep,
                         size_t lane, size_t keys)
{
    const uint8_t *rows[MOST_LANES];
    for (size_t i = 0; i < VF_LANES; i++) {
        const size_t row = lane + i < keep->count ? lane + i : keep->count - 1;
        rows[i] = keep->row + (ptrdiff_t)row * keep->stride;
    }
    size_t key = 0;
    for (; key + KEEP_KEYS <= keys; key += KEEP_KEYS)
        hide_square(score + key * width, width, rows, key, KEEP_KEYS);
    if (key < keys)
        hide_square(score + key * width, width, rows, key, keys - key);
}

/* Writes −∞ where keep hides a key from a lane. */
static void hide_by_keep(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block)
{
    if (block->keep_row_stride == 0) {
        hide_shared(scores, panel, block);
        return;
    }
    if (block->keep_row_stride == 1 && block->keep_key_stride != 1) {
        hide_by_lanes(scores, panel, block);
        return;
    }
    const size_t width = panel->vectors * VF_LANES;
    struct keep_rows rows;
    find_keep_rows(&rows, panel, block);
    for (size_t lane = 0; lane < width; lane += VF_LANES)
        hide_squares(scores + lane, width, &rows, lane, block->keys);
}

/* ---- Bias -----------------------------------------------------------------------------
 */

/* A bias of −∞ hides even a score of NaN. */
INLINE void add_to_score(float *score, vf bias)
{
    vf_store(score,
             vf_select_equal(bias, vf_set1(-INFINITY), bias, vf_load(score) + bias));
}

/* A square of VF_LANES keys that lie side by side, turned. */
INLINE void add_square(float *score, size_t width, const char *const rows[],
                       ptrdiff_t bytes, const attn_type type)
{
    vf x[MOST_LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = vf_load_as(rows[i] + bytes, type);
    transpose_square(x);
#pragma GCC unroll 16
    for (size_t i = 0; i < VF_LANES; i++)
        add_to_score(score + i * width, x[i]);
}

/* One vector of lanes, as many squares as there are.  Lanes beyond the queries look where
 * the last one looks.  Returns the first key not taken. */
INLINE size_t add_squares(float *score, size_t width, const struct attn_matrix *bias,
                          size_t lane, const attn_type type)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const char *rows[MOST_LANES];
    for (size_t i = 0; i < VF_LANES; i++) {
        const size_t row = lane + i < bias->rows ? lane + i : bias->rows - 1;
        rows[i] = (const char *)bias->x + (ptrdiff_t)row * bias->row_stride * bytes;
    }
    size_t key = 0;
    for (; key + VF_LANES <= bias->size; key += VF_LANES)
        add_square(score + key * width, width, rows, (ptrdiff_t)key * bytes, type);
    return key;
}

static void add_shared(float *scores, size_t width, const struct attn_matrix *bias,
                       const attn_type type)
{
    float shared[ATTN_BLOCK_KEYS];
    for (size_t key = 0; key < bias->size; key += VF_LANES)
        vf_store(shared + key, load_elements(bias, 0, key, type));
    for (size_t key = 0; key < bias->size; key++)
        for (size_t lane = 0; lane < width; lane += VF_LANES)
            add_to_score(scores + key * width + lane, vf_set1(shared[key]));
}

INLINE void add_bias_of(float *scores, size_t width, const struct attn_matrix *bias,
                        const attn_type type)
{
    if (bias->row_stride == 0) {
        add_shared(scores, width, bias, type);
        return;
    }
    const struct attn_matrix turned = {
        .x = bias->x,
        .row_stride = bias->element_stride,
        .element_stride = bias->row_stride,
        .rows = bias->size,
        .size = bias->rows,
        .type = type,
    };
    for (size_t lane = 0; lane < width; lane += VF_LANES) {
        size_t key = 0;
        if (bias->element_stride == 1)
            key = add_squares(scores + lane, width, bias, lane, type);
        for (; key < bias->size; key++)
            add_to_score(scores + key * width + lane,
                         load_elements(&turned, key, lane, type));
    }
}

static void add_bias(float *scores, const struct attn_panel *panel,
                     const struct attn_block *block)
{
    const size_t width = panel->vectors * VF_LANES;
    if (block->bias.type == ATTN_F16)
        add_bias_of(scores, width, &block->bias, ATTN_F16);
    else if (block->bias.type == ATTN_BF16)
        add_bias_of(scores, width, &block->bias, ATTN_BF16);
    else
        add_bias_of(scores, width, &block->bias, ATTN_F32);
}

/* Leaves out the keys at the ends that a bias of −∞ hides from all queries.  Most biases
 * hide nothing, and the ends of the first row say so. */
INLINE struct attn_seen look_at_bias_of(const struct attn_matrix *bias,
                                        struct attn_seen seen, const attn_type type)
{
    const vi hidden = vf_bits(vf_set1(-INFINITY));
    const vf first = load_elements(bias, 0, 0, type);
    const vf last = load_elements(bias, 0, bias->size - 1, type);
    if (first[0] != -INFINITY && last[0] != -INFINITY)
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

/* ---- Both -----------------------------------------------------------------------------
 */

/* Calls the bias of some keys into the second cache while the product of these keys goes
 * on.  Inline, since gcc 12 deletes calls of a function that does nothing but prefetch.
 */
INLINE void fetch_bias(const struct attn_matrix *bias, size_t key)
{
    const ptrdiff_t bytes = bias->type == ATTN_F32 ? 4 : 2;
    if (bias->row_stride == 0 || bias->element_stride != 1)
        return;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)bias->rows; i++)
        __builtin_prefetch((const char *)bias->x +
                               (i * bias->row_stride + (ptrdiff_t)key) * bytes,
                           0, 2);
}

static struct attn_seen look_at_elements(const struct attn_panel *panel,
                                         const struct attn_block *block)
{
    struct attn_seen seen = {0, block->keys, true};
    if (block->keep)
        seen = look_at_keep(panel, block);
    if (block->bias.x)
        seen = look_at_bias(&block->bias, seen);
    return seen;
}

#endif
