/* Fills panels and blocks. */
#include "attention/panel.h"
#include <assert.h>
#include <math.h>

int64_t attn_panel_queries(const struct attn_kernels *kernels)
{
    return (int64_t)(kernels->panel_vectors * kernels->lanes);
}

/* A panel of a single vector runs slower than its share, so 3 + 1 vectors are served as
 * 2 + 2. */
int64_t attn_next_panel(const struct attn_kernels *kernels, int64_t queries_left)
{
    const int64_t full = attn_panel_queries(kernels), lanes = (int64_t)kernels->lanes;
    const bool one_vector_would_remain =
        kernels->panel_vectors > 2 && queries_left > full && queries_left <= full + lanes;
    return attn_least(queries_left, one_vector_would_remain ? full - lanes : full);
}

void attn_panel_load(struct attn_panel *panel, const struct attn_walk *walk,
                     int64_t first_query, int64_t queries)
{
    const int64_t *const stride = walk->problem->tensors->query.stride;
    const int64_t lanes = (int64_t)walk->kernels->lanes;
    panel->first_query = first_query;
    panel->queries = queries;
    panel->vectors = (size_t)((queries + lanes - 1) / lanes);
    panel->position = first_query + walk->sequence.offset;
    const struct attn_matrix rows = {
        .x = walk->head.query + first_query * stride[2],
        .row_stride = stride[2],
        .element_stride = stride[3],
        .rows = (size_t)queries,
        .size = panel->D,
    };
    walk->kernels->load(panel->query, panel->vectors * walk->kernels->lanes, &rows,
                        walk->problem->options->scale);
}

struct attn_key_range attn_panel_keys(const struct attn_panel *panel,
                                      const struct attn_walk *walk)
{
    const int64_t first = panel->first_query, last = first + panel->queries - 1;
    return (struct attn_key_range){
        attn_visible_keys(walk->problem, &walk->sequence, first).first,
        attn_visible_keys(walk->problem, &walk->sequence, last).end,
    };
}

size_t attn_added_floats(const struct attn_problem *problem,
                         const struct attn_kernels *kernels)
{
    if (!problem->options->keep.data && !problem->options->bias.data)
        return 0;
    return ATTN_BLOCK_KEYS * kernels->panel_vectors * kernels->lanes;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Which keys of the block each lane sees by its position. */
static void fill_intervals(struct attn_block *block, const struct attn_panel *panel,
                           const struct attn_walk *walk)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    const int64_t keys = (int64_t)block->keys;
    for (size_t lane = 0; lane < width; lane++) {
        /* Lanes beyond the last query look where it looks. */
        const int64_t i = attn_least((int64_t)lane, panel->queries - 1);
        const struct attn_key_range seen =
            attn_visible_keys(walk->problem, &walk->sequence, panel->first_query + i);
        block->first[lane] = (int32_t)clamp(seen.first - block->first_key, 0, keys);
        block->end[lane] = (int32_t)clamp(seen.end - block->first_key, 0, keys);
    }
}

/* What keep and bias add to the scores of one lane.  Returns how many they hide of those
 * that the lane sees by its position. */
static int64_t add_to_lane(const struct attn_block *block, const struct attn_walk *walk,
                           int64_t query, size_t lane, size_t width)
{
    const attn_options *const options = walk->problem->options;
    const int64_t keep_step = options->keep.stride[3],
                  bias_step = options->bias.stride[3];
    const uint8_t *keep = walk->head.keep;
    const float *bias = walk->head.bias;
    if (keep)
        keep += query * options->keep.stride[2] + block->first_key * keep_step;
    if (bias)
        bias += query * options->bias.stride[2] + block->first_key * bias_step;

    int64_t hidden = 0;
    for (int64_t key = 0; key < (int64_t)block->keys; key++) {
        /* What the position hides is not read. */
        const bool sees = key >= block->first[lane] && key < block->end[lane];
        float x = 0.0f;
        if (sees && bias)
            x = bias[key * bias_step];
        if (sees && keep && !keep[key * keep_step])
            x = -INFINITY;
        hidden += x == -INFINITY;
        block->added[(size_t)key * width + lane] = x;
    }
    return hidden;
}

static void fill_added(struct attn_block *block, const struct attn_panel *panel,
                       const struct attn_walk *walk)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    block->added = walk->added;
    for (size_t lane = 0; lane < width; lane++) {
        const int64_t i = attn_least((int64_t)lane, panel->queries - 1);
        const int64_t query = panel->first_query + i;
        const int64_t hidden = add_to_lane(block, walk, query, lane, width);
        block->hides = block->hides || hidden > 0;
        if (walk->visible_keys && (int64_t)lane < panel->queries)
            walk->visible_keys[query] -= hidden;
    }
    if (!walk->head.bias && !block->hides)
        block->added = NULL;
}

bool attn_block_show(struct attn_block *block, const struct attn_panel *panel,
                     const struct attn_walk *walk, int64_t first, int64_t end)
{
    const struct attn_problem *const problem = walk->problem;
    const int64_t *const key_stride = problem->tensors->key.stride;
    const int64_t *const value_stride = problem->tensors->value.stride;
    const struct attn_key_range of_panel = attn_panel_keys(panel, walk);
    first = of_panel.first > first ? of_panel.first : first;
    end = attn_least(of_panel.end, end);
    if (first >= end)
        return false;

    const int64_t keys = end - first;
    assert(keys <= ATTN_BLOCK_KEYS);
    block->first_key = first;
    block->keys = (size_t)keys;
    block->key = walk->head.key + first * key_stride[2];
    block->key_stride = key_stride[2];
    block->key_element_stride = key_stride[3];
    block->value = walk->head.value ? walk->head.value + first * value_stride[2] : NULL;
    block->value_stride = value_stride[2];
    block->value_element_stride = value_stride[3];
    block->softcap = problem->options->softcap;
    block->alibi_slope = walk->head.alibi_slope;
    block->added = NULL;
    block->hides = false;

    const int64_t last_query = panel->first_query + panel->queries - 1;
    const struct attn_key_range of_first =
        attn_visible_keys(problem, &walk->sequence, panel->first_query);
    const struct attn_key_range of_last =
        attn_visible_keys(problem, &walk->sequence, last_query);
    block->full_begin = (size_t)clamp(of_last.first - first, 0, keys);
    block->full_end =
        (size_t)clamp(of_first.end - first, (int64_t)block->full_begin, keys);
    const bool elements = walk->added;
    if (elements || block->full_begin > 0 || block->full_end < block->keys)
        fill_intervals(block, panel, walk);
    if (elements)
        fill_added(block, panel, walk);
    return true;
}
