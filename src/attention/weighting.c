/* The reference and the factor of each row: those of lse where it is given and exact
 * enough, or else those that a walk over all keys of the panel finds. */
#include "attention/weighting.h"
#include "attention/statistics.h"
#include "attention/widen.h"
#include <math.h>

/* Rounding lse costs a weight 4e-6 of itself here, twice that at 128, and everything at
 * −FLT_MAX, where a bias may put a whole row: there lse cannot hold ln of the sum. */
#define LARGEST_LSE 64.0f

static bool is_exact(float lse)
{
    return !(fabsf(lse) > LARGEST_LSE) || lse == -INFINITY;
}

bool attn_lse_serves(const float *lse, int64_t rows)
{
    bool serves = true;
    for (int64_t row = 0; row < rows && serves; row++)
        serves = is_exact(lse[row]);
    return serves;
}

static void walk_over_keys(struct attn_panel *panel, float *inverse,
                           struct attn_walk *walk, struct attn_block *block,
                           float *scores)
{
    const size_t width = panel->vectors * walk->kernels->lanes, Dv = panel->Dv;
    const struct attn_sweep plain = {.top = 0};
    for (size_t lane = 0; lane < width; lane++) {
        panel->reference[lane] = -INFINITY;
        panel->sum[lane] = 0.0f;
    }
    block->opens = false;
    panel->Dv = 0; /* there is no output to keep */
    const struct attn_key_range seen = attn_panel_keys(panel, walk);
    for (int64_t key = seen.first - seen.first % ATTN_BLOCK_KEYS; key < seen.end;
         key = attn_next_block(walk, panel->first_query, key)) {
        const int64_t end = attn_least(key + ATTN_BLOCK_KEYS, seen.end);
        struct attn_key_range run = {key, key};
        attn_widen(walk, key > seen.first ? key : seen.first, end);
        while (attn_panel_run(panel, walk, end, &run)) {
            if (!attn_block_show(block, panel, walk, run.first, run.end))
                continue;
            walk->kernels->score(scores, panel, block);
            walk->kernels->softmax(panel, scores, block, &plain);
        }
    }
    panel->Dv = Dv;
    const double sink = (double)walk->head.sink;
    for (size_t lane = 0; lane < width; lane++)
        inverse[lane] =
            attn_inverse_of_row(panel->reference[lane], panel->sum[lane], sink);
}

void attn_weighting_find(struct attn_panel *panel, float *inverse, struct attn_walk *walk,
                         const float *lse, struct attn_block *block, float *scores)
{
    const int64_t width = (int64_t)(panel->vectors * walk->kernels->lanes);
    if (!lse || !attn_lse_serves(lse, panel->queries))
        walk_over_keys(panel, inverse, walk, block, scores);
    /* A row's weights have the same bits whatever rows share its panel. */
    for (int64_t lane = 0; lane < width; lane++) {
        const bool is_query = lane < panel->queries;
        if (is_query && (!lse || !is_exact(lse[lane])))
            continue;
        const bool empty = !is_query || lse[lane] == -INFINITY;
        panel->reference[lane] = empty ? INFINITY : lse[lane];
        inverse[lane] = empty ? 0.0f : 1.0f;
    }
}
