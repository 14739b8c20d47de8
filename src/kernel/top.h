/* The largest scores of each lane, kept sorted.  A score that does not exceed the last
 * one kept costs a comparison; the others, about top · ln(keys / top) a lane, are
 * inserted one by one.  Keys come in rising order, so a tie leaves the lower key first.
 */
#ifndef ATTN_KERNEL_TOP_H
#define ATTN_KERNEL_TOP_H

#include "kernel/simd.h"
#include "kernel/table.h"

static void insert_top(struct attn_panel *panel, size_t lane, size_t top, float score,
                       int64_t key)
{
    float *const scores = panel->top_score + lane * top;
    int64_t *const keys = panel->top_key + lane * top;
    size_t place = top - 1;
    for (; place > 0 && score > scores[place - 1]; place--) {
        scores[place] = scores[place - 1];
        keys[place] = keys[place - 1];
    }
    scores[place] = score;
    keys[place] = key;
    panel->top_least[lane] = scores[top - 1];
}

static void keep_top(struct attn_panel *panel, const float *scores,
                     const struct attn_block *block, size_t top)
{
    const size_t width = panel->vectors * VF_LANES;
    for (size_t key = 0; key < block->keys; key++) {
        for (size_t lane = 0; lane < width; lane += VF_LANES) {
            const vf score = vf_load(scores + key * width + lane);
            const vi larger = score > vf_load(panel->top_least + lane);
            if (!vi_any(larger))
                continue;
            for (size_t i = 0; i < VF_LANES; i++)
                if (larger[i])
                    insert_top(panel, lane + i, top, score[i],
                               block->first_key + (int64_t)key);
        }
    }
}

#endif
