/* Fills panels and blocks. */
#include "attention/panel.h"
#include <assert.h>
#include <math.h>
#include <string.h>

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
    const attn_input *const query = &walk->problem->tensors->query;
    const int64_t *const stride = query->stride;
    const int64_t lanes = (int64_t)walk->kernels->lanes;
    panel->first_query = first_query;
    panel->queries = queries;
    panel->vectors = (size_t)((queries + lanes - 1) / lanes);
    panel->position = first_query + walk->sequence.offset;
    const struct attn_matrix rows = {
        .x = attn_element(walk->head.query, query->type, first_query * stride[2]),
        .row_stride = stride[2],
        .element_stride = stride[3],
        .rows = (size_t)queries,
        .size = panel->D,
        .type = query->type,
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
        block->first[lane] = (int32_t)attn_clamp(seen.first - block->first_key, 0, keys);
        block->end[lane] = (int32_t)attn_clamp(seen.end - block->first_key, 0, keys);
    }
}

/* Writes −∞ where keep hides a key from a lane.  False when it hides nothing. */
static bool hide_by_keep(const struct attn_block *block, const struct attn_panel *panel,
                         const struct attn_walk *walk)
{
    const int64_t *const stride = walk->problem->options->keep.stride;
    const size_t width = panel->vectors * walk->kernels->lanes;
    const uint8_t *const origin =
        walk->head.keep + panel->first_query * stride[2] + block->first_key * stride[3];
    const bool same_for_all = stride[2] == 0; /* a padding mask, say */
    bool hides = false;
    for (int64_t i = 0; i < (same_for_all ? 1 : panel->queries); i++) {
        const uint8_t *const keep = origin + i * stride[2];
        if (stride[3] == 1 && !memchr(keep, 0, block->keys))
            continue;
        for (size_t key = 0; key < block->keys; key++) {
            if (keep[(int64_t)key * stride[3]])
                continue;
            float *const added = block->added + key * width;
            hides = true;
            added[i] = -INFINITY;
            for (size_t lane = 1; same_for_all && lane < width; lane++)
                added[lane] = -INFINITY;
        }
    }
    return hides;
}

static void fill_added(struct attn_block *block, const struct attn_panel *panel,
                       const struct attn_walk *walk)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    const attn_type type = walk->problem->options->bias.type;
    const int64_t *const stride = walk->problem->options->bias.stride;
    block->added = walk->added;
    if (walk->head.bias) {
        const struct attn_matrix bias = {
            .x = attn_element(walk->head.bias, type,
                              panel->first_query * stride[2] +
                                  block->first_key * stride[3]),
            .row_stride = stride[2],
            .element_stride = stride[3],
            .rows = (size_t)panel->queries,
            .size = block->keys,
            .type = type,
        };
        walk->kernels->load(block->added, width, &bias, 1.0f);
    } else {
        memset(block->added, 0, block->keys * width * sizeof *block->added);
    }
    const bool hides = walk->head.keep && hide_by_keep(block, panel, walk);
    if (!walk->head.bias && !hides)
        block->added = NULL;
}

/* Takes what keep and bias hide of the block from the counts of visible keys. */
static void uncount_hidden(const struct attn_block *block, const struct attn_panel *panel,
                           const struct attn_walk *walk)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    for (int64_t i = 0; i < panel->queries; i++)
        for (int64_t key = block->first[i]; key < block->end[i]; key++)
            walk->visible_keys[panel->first_query + i] -=
                block->added[(size_t)key * width + (size_t)i] == -INFINITY;
}

/* Where the block's keys and values lie: in the tensors, or widened. */
static void point_to_keys(struct attn_block *block, const struct attn_walk *walk)
{
    const struct attn_wide *const wide = &walk->wide;
    const attn_input *const key = &walk->problem->tensors->key;
    const attn_input *const value = &walk->problem->tensors->value;
    if (wide->key) {
        block->key =
            wide->key + (size_t)(block->first_key - wide->first) * wide->key_stride;
        block->key_stride = (ptrdiff_t)wide->key_stride;
        block->key_element_stride = 1;
    } else {
        block->key = (const float *)walk->head.key + block->first_key * key->stride[2];
        block->key_stride = key->stride[2];
        block->key_element_stride = key->stride[3];
    }
    block->value = NULL;
    if (wide->value) {
        block->value =
            wide->value + (size_t)(block->first_key - wide->first) * wide->value_stride;
        block->value_stride = (ptrdiff_t)wide->value_stride;
        block->value_element_stride = 1;
    } else if (walk->head.value && value->type == ATTN_F32) {
        block->value =
            (const float *)walk->head.value + block->first_key * value->stride[2];
        block->value_stride = value->stride[2];
        block->value_element_stride = value->stride[3];
    }
}

bool attn_block_show(struct attn_block *block, const struct attn_panel *panel,
                     const struct attn_walk *walk, int64_t first, int64_t end)
{
    const struct attn_problem *const problem = walk->problem;
    const struct attn_key_range of_panel = attn_panel_keys(panel, walk);
    first = of_panel.first > first ? of_panel.first : first;
    end = attn_least(of_panel.end, end);
    if (first >= end)
        return false;

    const int64_t keys = end - first;
    assert(keys <= ATTN_BLOCK_KEYS);
    block->first_key = first;
    block->keys = (size_t)keys;
    point_to_keys(block, walk);
    block->softcap = problem->options->softcap;
    block->alibi_slope = walk->head.alibi_slope;
    block->added = NULL;

    const int64_t last_query = panel->first_query + panel->queries - 1;
    const struct attn_key_range of_first =
        attn_visible_keys(problem, &walk->sequence, panel->first_query);
    const struct attn_key_range of_last =
        attn_visible_keys(problem, &walk->sequence, last_query);
    block->full_begin = (size_t)attn_clamp(of_last.first - first, 0, keys);
    block->full_end =
        (size_t)attn_clamp(of_first.end - first, (int64_t)block->full_begin, keys);
    const bool elements = walk->added;
    if (elements || block->full_begin > 0 || block->full_end < block->keys)
        fill_intervals(block, panel, walk);
    if (elements)
        fill_added(block, panel, walk);
    if (block->added && walk->visible_keys)
        uncount_hidden(block, panel, walk);
    return true;
}
