/* The scores of one panel over one block of keys:
 *
 *     score = softcap(key · query) + bias − slope·|position − key| + F(position) − F(key)
 *
 * and −∞ where hidden, F being the running sum of the forget gates' logarithms; or the
 * same of ln(key · query), or of an additive score (additive.h).  The rules after it are
 * sweeps over scores that lie in cache, each taken only where asked for. */
#ifndef ATTN_KERNEL_SCORE_H
#define ATTN_KERNEL_SCORE_H

#include "kernel/additive_row.h"
#include "kernel/element.h"
#include "kernel/gates.h"
#include "kernel/log.h"
#include "kernel/product.h"
#include "kernel/tanh.h"

static void cap_scores(float *scores, size_t floats, float softcap)
{
    const vf cap = vf_set1(softcap), inverse = vf_set1(1.0f / softcap);
    for (size_t n = 0; n < floats; n += VF_LANES)
        vf_store(scores + n, cap * vf_tanh(vf_load(scores + n) * inverse));
}

/* 1 − tanh²: what a softcap does to a gradient. */
static void cap_slopes(float *slope, const float *score, size_t floats, float softcap)
{
    const vf inverse = vf_set1(1.0f / softcap);
    for (size_t n = 0; n < floats; n += VF_LANES) {
        const vf tangent = vf_tanh(vf_load(score + n) * inverse);
        vf_store(slope + n, vf_set1(1.0f) - tangent * tangent);
    }
}

static void lean_strip(const struct strip *strip, const struct attn_panel *panel,
                       const struct attn_block *block)
{
    const vf slope = vf_set1(-block->alibi_slope);
    const int64_t first = block->first_key + (int64_t)strip->begin;
    float *score = strip->scores + strip->begin * strip->row;
    vf distance = distance_to(first, panel, strip->v);
    for (size_t key = strip->begin; key < strip->end; key++) {
        vf_store(score, vf_fma(slope, vf_abs(distance), vf_load(score)));
        distance -= 1.0f;
        score += strip->row;
    }
}

/* Whole tiles of keys that all lanes see, and what products note of each lane's largest
 * before they leave the registers. */
INLINE struct segment noted_keys(const struct attn_block *block)
{
    const size_t tile = TILE_ROWS_3, keys = block->keys;
    const size_t begin = (block->full_begin + tile - 1) / tile * tile;
    const size_t end = block->full_end < keys ? block->full_end / tile * tile : keys;
    return (struct segment){.begin = begin < end ? begin : end, .end = end};
}

/* −∞ where lanes do not see the strip's keys.  Returns the largest of what they see and
 * before. */
INLINE vf hide_strip(const struct strip *strip, const struct attn_block *block,
                     vf largest)
{
    const struct segment seen = seen_by_vector(block, strip->v);
    const struct segment whole = seen_by_all_lanes(block, strip->v);
    const vf hidden = vf_set1(-INFINITY);
    for (size_t key = strip->begin; key < strip->end; key++) {
        float *const score = strip->scores + key * strip->row;
        if (key < seen.begin || key >= seen.end) {
            vf_store(score, hidden);
            continue;
        }
        vf left = vf_load(score);
        if (key < whole.begin || key >= whole.end) {
            left = vf_select(seen_by_lanes(block, key, strip->v), left, hidden);
            vf_store(score, left);
        }
        largest = vf_max(largest, left);
    }
    return largest;
}

/* The same of keys before `begin` and from `end` on, of all vectors; largest, [width],
 * grows, or is NULL. */
static void hide_outside(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, size_t begin, size_t end,
                         float *largest)
{
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct strip before = strip_of(scores, panel, v, 0, begin);
        const struct strip after = strip_of(scores, panel, v, end, block->keys);
        float *const to = largest + v * VF_LANES;
        vf most = largest ? vf_load(to) : vf_set1(-INFINITY);
        most = hide_strip(&before, block, most);
        most = hide_strip(&after, block, most);
        if (largest)
            vf_store(to, most);
    }
}

/* Softcap and what comes after it; scores are plain, and anything where no lane of a
 * vector looks.  largest, [width], becomes the largest that keep leaves of each lane; or
 * NULL. */
static void bend_scores(float *scores, const struct attn_panel *panel,
                        const struct attn_block *block, float *largest)
{
    const size_t floats = block->keys * panel->vectors * VF_LANES;
    if (block->softcap > 0.0f)
        cap_scores(scores, floats, block->softcap);
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct strip strip = strip_of(scores, panel, v, 0, block->keys);
        if (block->alibi_slope != 0.0f)
            lean_strip(&strip, panel, block);
        if (block->forget_high)
            forget_strip(&strip, panel, block);
    }
    if (block->bias.x && !adds_bias_at_once(panel, block))
        add_bias(scores, panel, block, 0, block->keys, NULL);
    if (block->keep)
        hide_by_keep(scores, panel, block, largest);
    hide_outside(scores, panel, block, block->full_begin, block->full_end, NULL);
}

/* Products of all keys of the block with those vectors of queries that see them, and with
 * the bias if that is added at once; p lacks what depends on the keys.  p->largest grows
 * to the largest of these, of noted_keys alone. */
INLINE void multiply_keys(float *scores, struct product *p,
                          const struct attn_panel *panel, const struct attn_block *block,
                          void (*const multiply)(const struct product *p, size_t vectors))
{
    const bool fetches = block->keep || block->bias.x;
    const bool adds = adds_bias_at_once(panel, block);
    float *const largest = p->largest;
    const struct segment noted = largest ? noted_keys(block) : (struct segment){0};
    struct segment segment = {.end = 0};
    size_t added = 0;
    for (size_t key = 0; key < block->keys; key += p->rows) {
        if (key == segment.end)
            segment = segment_from(block, panel->vectors, key);
        p->out = scores + key * p->width;
        p->left = block->key + (ptrdiff_t)key * block->key_stride;
        p->first_vector = segment.first_vector;
        p->largest = !adds && key >= noted.begin && key < noted.end ? largest : NULL;
        p->rows = segment.end - key;
        if (key < noted.begin && segment.end > noted.begin)
            p->rows = noted.begin - key;
        else if (key < noted.end && segment.end > noted.end)
            p->rows = noted.end - key;
        if (fetches && p->rows > FETCH_KEYS - key % FETCH_KEYS)
            p->rows = FETCH_KEYS - key % FETCH_KEYS;
        p->lines = 0;
        if (block->bias.x && key % FETCH_KEYS == 0)
            fetch_bias(p, &block->bias, key);
        if (block->keep && key % FETCH_KEYS == 0)
            fetch_keep(panel, block, key);
        multiply(p, segment.vectors);
        for (; adds && added + ADD_KEYS + FETCH_KEYS <= key + p->rows; added += ADD_KEYS)
            add_bias(scores, panel, block, added, added + ADD_KEYS, largest);
    }
    if (adds)
        add_bias(scores, panel, block, added, block->keys, largest);
}

/* largest, [width], grows to the largest products of each lane with noted_keys on the
 * way; or NULL. */
static void multiply_scores(float *scores, const struct attn_panel *panel,
                            const struct attn_block *block, float *largest)
{
    struct product p = {
        .row_stride = block->key_stride,
        .step_stride = block->key_element_stride,
        .right = panel->query,
        .width = panel->vectors * VF_LANES,
        .end = panel->D,
        .largest = largest,
        .calls = block->keep || block->bias.x ? NULL : block->calls,
    };
    multiply_keys(scores, &p, panel, block, product_set);
}

static void take_logarithms(float *scores, size_t floats)
{
    for (size_t n = 0; n < floats; n += VF_LANES)
        vf_store(scores + n, vf_log(vf_load(scores + n)));
}

/* Before softcap and all that follows.  largest as in multiply_scores, and consulted only
 * where those are the scores. */
static void plain_scores(float *scores, const struct attn_panel *panel,
                         const struct attn_block *block, float *largest)
{
    if (panel->additive.vector)
        additive_scores(scores, panel, block);
    else
        multiply_scores(scores, panel, block, largest);
    if (panel->takes_logarithm)
        take_logarithms(scores, block->keys * panel->vectors * VF_LANES);
}

static void note_largest(struct attn_panel *panel, const float *scores,
                         const struct attn_block *block)
{
    for (size_t v = 0; v < panel->vectors; v++) {
        const struct segment seen = seen_by_vector(block, v);
        const size_t width = panel->vectors * VF_LANES, lane = v * VF_LANES;
        vf largest = vf_load(panel->block_largest + lane);
        for (size_t key = seen.begin; key < seen.end; key++)
            largest = vf_max(largest, vf_load(scores + key * width + lane));
        vf_store(panel->block_largest + lane, largest);
    }
}

/* Scores as `plain` gives them, which is plain_scores or does the same, and bent.  It is
 * asked for the largest only where all lanes see all keys, unless notes_in_part: that it
 * leaves out what are not noted_keys. */
INLINE void score_by(float *scores, struct attn_panel *panel,
                     const struct attn_block *block,
                     void (*const plain)(float *, const struct attn_panel *,
                                         const struct attn_block *, float *),
                     const bool notes_in_part)
{
    /* Whoever touches all scores last notes the largest on the way. */
    const bool all_see = sees_all(block, 0, block->keys);
    const bool bends = panel->additive.vector || panel->takes_logarithm ||
                       block->softcap != 0.0f || block->alibi_slope != 0.0f ||
                       block->keep || (block->bias.x && !adds_bias_at_once(panel, block));
    const bool products_stay =
        !bends && !block->forget_high && (all_see || (notes_in_part && !block->bias.x));
    for (size_t lane = 0; lane < panel->vectors * VF_LANES; lane += VF_LANES)
        vf_store(panel->block_largest + lane, vf_set1(-INFINITY));
    plain(scores, panel, block, products_stay ? panel->block_largest : NULL);
    if (products_stay && !all_see) {
        const struct segment noted = noted_keys(block);
        hide_outside(scores, panel, block, noted.begin, noted.end, panel->block_largest);
    }
    if (products_stay)
        return;
    if (!bends && all_see) { /* then there are gates: one sweep */
        for (size_t v = 0; v < panel->vectors; v++) {
            const struct strip strip = strip_of(scores, panel, v, 0, block->keys);
            vf_store(panel->block_largest + v * VF_LANES,
                     forget_strip(&strip, panel, block));
        }
        return;
    }
    const bool keep_notes = all_see && block->keep;
    bend_scores(scores, panel, block, keep_notes ? panel->block_largest : NULL);
    if (!keep_notes)
        note_largest(panel, scores, block);
}

static void score(float *scores, struct attn_panel *panel, const struct attn_block *block)
{
    score_by(scores, panel, block, plain_scores, true);
}

#endif
