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

/* Returns the largest left, as those below do. */
static vf hide_shared(const struct strip *strip, const struct attn_block *block)
{
    vf largest = vf_set1(-INFINITY);
    for (size_t key = strip->begin; key < strip->end; key++) {
        const uint8_t keep = block->keep[(ptrdiff_t)key * block->keep_key_stride];
        hide_lanes(strip->scores + key * strip->row, vi_set1(keep), 0xff, &largest);
    }
    return largest;
}

/* Lanes lie side by side, so many of them: each key's bytes are widened. */
static vf hide_by_lanes(const struct strip *strip, const struct attn_block *block,
                        size_t lanes)
{
    vf largest = vf_set1(-INFINITY);
    const uint8_t *const keep = block->keep + strip->v * VF_LANES;
    const ptrdiff_t stride = block->keep_key_stride;
    size_t key = strip->begin;
    for (; lanes == VF_LANES && key < strip->end; key++)
        hide_lanes(strip->scores + key * strip->row,
                   vi_widen(keep + (ptrdiff_t)key * stride), 0xff, &largest);
    for (; key < strip->end; key++) {
        uint8_t bytes[VF_BYTES / 4] = {0};
        memcpy(bytes, keep + (ptrdiff_t)key * stride, lanes);
        hide_lanes(strip->scores + key * strip->row, vi_widen(bytes), 0xff, &largest);
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
static vf hide_squares(const struct strip *strip, const struct keep_rows *keep)
{
    const size_t width = strip->row, lane = strip->v * VF_LANES;
    float *const score = strip->scores;
    vf largest = vf_set1(-INFINITY);
    const uint8_t *rows[MOST_LANES];
    for (size_t i = 0; i < VF_LANES; i++) {
        const size_t row = lane + i < keep->count ? lane + i : keep->count - 1;
        rows[i] = keep->row + (ptrdiff_t)row * keep->stride;
    }
    size_t key = strip->begin;
    for (; key + KEEP_KEYS <= strip->end; key += KEEP_KEYS)
        hide_square(score + key * width, width, rows, key, KEEP_KEYS, &largest);
    if (key < strip->end)
        hide_square(score + key * width, width, rows, key, strip->end - key, &largest);
    return largest;
}

/* How keep is read, and its rows if that is by them. */
struct keep_view {
    bool is_shared, in_lanes;
    struct keep_rows rows;
};

static void view_keep(struct keep_view *view, const struct attn_panel *panel,
                      const struct attn_block *block)
{
    view->is_shared = block->keep_row_stride == 0;
    view->in_lanes = block->keep_row_stride == 1 && block->keep_key_stride != 1;
    if (!view->is_shared && !view->in_lanes)
        find_keep_rows(&view->rows, panel, block);
}

/* Writes −∞ where keep hides a key of the strip from a lane. */
static vf hide_strip_by_keep(const struct strip *strip, const struct attn_panel *panel,
                             const struct attn_block *block, const struct keep_view *view)
{
    const size_t left = (size_t)panel->queries - strip->v * VF_LANES;
    if (view->is_shared)
        return hide_shared(strip, block);
    if (view->in_lanes)
        return hide_by_lanes(strip, block, left < VF_LANES ? left : VF_LANES);
    return hide_squares(strip, &view->rows);
}

/* The same of all keys and vectors.  largest, [width], becomes the largest of each lane;
 * or NULL. */
static void hide_by_keep(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, float *largest)
{
    struct keep_view view;
    view_keep(&view, panel, block);
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct strip strip = strip_of(scores, panel, v, 0, block->keys);
        const vf of_lanes = hide_strip_by_keep(&strip, panel, block, &view);
        if (largest)
            vf_store(largest + v * VF_LANES, of_lanes);
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
        call_line(next + ATTN_LINE_BYTES);
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
