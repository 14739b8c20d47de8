/* The rules that go element by element, keep here and bias in bias.h, read in place: a
 * row of either is a query, and queries lie in the lanes, so squares of them are
 * transposed in registers on their way to the scores, four keys of keep to a 32-bit
 * element.  Rows that all queries share, and columns that already lie lane by lane, need
 * no transposing. */
#ifndef ATTN_KERNEL_ELEMENT_H
#define ATTN_KERNEL_ELEMENT_H

#include "kernel/bias.h"
#include <math.h>

enum { KEEP_KEYS = VF_BYTES };

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
        const uint8_t *const from = block->keep + (ptrdiff_t)i * block->keep_row_stride;
        for (size_t key = 0; key < block->keys; key++)
            to[key] = from[(ptrdiff_t)key * block->keep_key_stride];
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

/* −∞ where the element has none of the bits; grows largest to what is left. */
INLINE void hide_lanes(float *score, vi keep, int32_t bits, vf *largest)
{
    const vf left = vf_select_bits(keep, bits, vf_load(score), vf_set1(-INFINITY));
    vf_store(score, left);
    *largest = vf_max(*largest, left);
}

/* One vector of lanes, whose largest it returns, as those below do. */
static vf hide_shared(float *score, size_t width, const struct attn_block *block)
{
    vf largest = vf_set1(-INFINITY);
    for (size_t key = 0; key < block->keys; key++) {
        const uint8_t keep = block->keep[(ptrdiff_t)key * block->keep_key_stride];
        hide_lanes(score + key * width, vi_set1(keep), 0xff, &largest);
    }
    return largest;
}

/* Lanes lie side by side, so many of them: each key's bytes are widened. */
static vf hide_by_lanes(float *score, size_t width, const struct attn_block *block,
                        size_t lane, size_t lanes)
{
    vf largest = vf_set1(-INFINITY);
    const uint8_t *const keep = block->keep + lane;
    const ptrdiff_t stride = block->keep_key_stride;
    size_t key = 0;
    for (; lanes == VF_LANES && key < block->keys; key++)
        hide_lanes(score + key * width, vi_widen(keep + (ptrdiff_t)key * stride), 0xff,
                   &largest);
    for (; key < block->keys; key++) {
        uint8_t bytes[VF_BYTES / 4] = {0};
        memcpy(bytes, keep + (ptrdiff_t)key * stride, lanes);
        hide_lanes(score + key * width, vi_widen(bytes), 0xff, &largest);
    }
    return largest;
}

/* At most KEEP_KEYS keys of one vector of lanes, turned. */
INLINE void hide_square(float *score, size_t width, const uint8_t *const rows[],
                        size_t key, const size_t keys, vf *largest)
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
                hide_lanes(score, (vi)x[i], vi_byte(byte), largest);
            score += width;
        }
    }
}

/* Lanes beyond the queries look where the last one looks. */
static vf hide_squares(float *score, size_t width, const struct keep_rows *keep,
                       size_t lane, size_t keys)
{
    vf largest = vf_set1(-INFINITY);
    const uint8_t *rows[MOST_LANES];
    for (size_t i = 0; i < VF_LANES; i++) {
        const size_t row = lane + i < keep->count ? lane + i : keep->count - 1;
        rows[i] = keep->row + (ptrdiff_t)row * keep->stride;
    }
    size_t key = 0;
    for (; key + KEEP_KEYS <= keys; key += KEEP_KEYS)
        hide_square(score + key * width, width, rows, key, KEEP_KEYS, &largest);
    if (key < keys)
        hide_square(score + key * width, width, rows, key, keys - key, &largest);
    return largest;
}

/* Writes −∞ where keep hides a key from a lane.  largest, [width], becomes the largest of
 * each lane; or NULL. */
static void hide_by_keep(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, float *largest)
{
    const size_t width = panel->vectors * VF_LANES, queries = (size_t)panel->queries;
    const bool is_shared = block->keep_row_stride == 0;
    const bool in_lanes = block->keep_row_stride == 1 && block->keep_key_stride != 1;
    struct keep_rows rows;
    if (!is_shared && !in_lanes)
        find_keep_rows(&rows, panel, block);
    for (size_t lane = 0; lane < width; lane += VF_LANES) {
        const size_t left = queries - lane < VF_LANES ? queries - lane : VF_LANES;
        const vf of_lanes =
            is_shared  ? hide_shared(scores + lane, width, block)
            : in_lanes ? hide_by_lanes(scores + lane, width, block, lane, left)
                       : hide_squares(scores + lane, width, &rows, lane, block->keys);
        if (largest)
            vf_store(largest + lane, of_lanes);
    }
}

/* ---- Both -----------------------------------------------------------------------------
 */

/* Calls the keep that the product of keys from begin on gives time for.  Lanes side by
 * side are those of these keys; of keys side by side, which are looked at before any
 * product, those of the next block. */
INLINE void fetch_keep(const struct attn_panel *panel, const struct attn_block *block,
                       size_t begin)
{
    enum { STEPS = ATTN_BLOCK_KEYS / FETCH_KEYS };
    const size_t queries = (size_t)panel->queries;
    const uintptr_t x = (uintptr_t)block->keep;
    if (block->keep_row_stride == 1 && block->keep_key_stride != 1) {
        for (size_t key = begin; key < begin + FETCH_KEYS; key++) {
            const uintptr_t at = x + key * (uintptr_t)block->keep_key_stride;
            call_line(at);
            call_line(at + queries - 1);
        }
        return;
    }
    if (block->keep_row_stride == 0 || block->keep_key_stride != 1)
        return;
    const size_t step = begin / FETCH_KEYS;
    for (size_t i = step * queries / STEPS; i < (step + 1) * queries / STEPS; i++) {
        const uintptr_t next =
            x + i * (uintptr_t)block->keep_row_stride + ATTN_BLOCK_KEYS;
        call_line(next);
        call_line(next + LINE_BYTES);
        call_line(next + ATTN_BLOCK_KEYS - 1);
    }
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
