/* Fills panels and blocks. */
#include "attention/panel.h"
#include "attention/forget.h"
#include "attention/rows.h"
#include "kernel/linear_table.h"
#include "kernel/pair_table.h"
#include <assert.h>
#include <math.h>

void attn_walk_take_head(struct attn_walk *walk, int64_t h)
{
    walk->head = attn_problem_head(walk->problem, &walk->sequence, h);
    attn_forget_take_head(walk);
}

int64_t attn_panel_queries(const struct attn_kernels *kernels)
{
    return (int64_t)(kernels->panel_vectors * kernels->lanes);
}

size_t attn_blocks_near(const struct attn_problem *problem, int64_t Lk, int64_t queries)
{
    const attn_options *const options = problem->options;
    const int64_t right = options->causal ? 0 : options->window_right;
    const int64_t all = (Lk + ATTN_BLOCK_KEYS - 1) / ATTN_BLOCK_KEYS;
    if (options->window_left < 0 || right < 0 || options->sink_keys > 0)
        return (size_t)all;
    const int64_t keys = options->window_left + right + queries;
    return (size_t)attn_least(all, keys / ATTN_BLOCK_KEYS + 2);
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

int64_t attn_group_queries(const struct attn_problem *problem,
                           const struct attn_kernels *kernels, int64_t panels)
{
    const int64_t full = attn_panel_queries(kernels), row = problem->options->block_size;
    if (!problem->options->blocks.data)
        return panels * full;
    const int64_t panels_of_row = (row + full - 1) / full;
    return panels_of_row <= panels ? panels / panels_of_row * row : (panels - 1) * full;
}

int64_t attn_panel_next(const struct attn_walk *walk, int64_t query, int64_t queries_left)
{
    return attn_next_panel(walk->kernels,
                           attn_queries_alike(walk->problem, query, queries_left));
}

int64_t attn_next_block(const struct attn_walk *walk, int64_t query, int64_t key)
{
    const int64_t sinks = walk->problem->options->sink_keys;
    key += ATTN_BLOCK_KEYS;
    if (sinks == 0 || key < sinks)
        return key;
    const int64_t first =
        attn_keys_near(walk->problem, &walk->sequence, query, sinks).first;
    const int64_t block = first - first % ATTN_BLOCK_KEYS;
    return block > key ? block : key;
}

size_t attn_query_floats(const struct attn_problem *problem,
                         const struct attn_kernels *kernels)
{
    const size_t width = kernels->panel_vectors * kernels->lanes;
    const size_t D = (size_t)problem->shape->D;
    return problem->options->additive ? attn_additive_floats(D, width) : D * width;
}

void attn_panel_place(struct attn_panel *panel, const struct attn_walk *walk,
                      int64_t first_query, int64_t queries)
{
    const attn_input *const query = &walk->problem->tensors->query;
    const int64_t lanes = (int64_t)walk->kernels->lanes;
    const bool linear = attn_problem_is_linear(walk->problem);
    panel->first_query = first_query;
    panel->queries = queries;
    panel->vectors = (size_t)((queries + lanes - 1) / lanes);
    panel->position = first_query + walk->sequence.offset;
    panel->rows =
        attn_rows_of(query, walk->head.query, first_query, queries, (int64_t)panel->D);
    panel->additive.vector = walk->head.additive;
    panel->additive.scale = walk->problem->options->scale;
    panel->additive.single = walk->sequence.Lq == 1;
    panel->scale = linear ? 1.0f : walk->problem->options->scale;
    panel->takes_logarithm = linear;
    attn_forget_load(panel, walk);
}

void attn_panel_load(struct attn_panel *panel, const struct attn_walk *walk,
                     int64_t first_query, int64_t queries)
{
    attn_panel_place(panel, walk, first_query, queries);
    const struct attn_matrix *const rows = &panel->rows;
    const size_t width = panel->vectors * walk->kernels->lanes;
    if (walk->head.additive)
        walk->kernels->load_additive(panel, rows);
    else if (walk->pairs)
        walk->pairs->load(panel->query, width, rows, panel->scale);
    else
        walk->kernels->load(panel->query, width, rows, panel->scale);
    if (panel->takes_logarithm)
        walk->kernels->linear->features(panel->query, panel->D, width, width,
                                        walk->problem->options->feature);
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

/* What query i of the panel sees near the key. */
static struct attn_key_range seen_near(const struct attn_panel *panel,
                                       const struct attn_walk *walk, int64_t i,
                                       int64_t key)
{
    return attn_keys_near(walk->problem, &walk->sequence, panel->first_query + i, key);
}

/* One end of what lanes see, which moves by a key a lane at most and never back, where it
 * stands still or moves with every lane; else says false.  Lanes beyond the last query
 * look where it looks. */
static bool fill_end(int32_t *ends, size_t width, int64_t of_first, int64_t of_last,
                     int64_t last, int64_t keys)
{
    const int64_t step = of_first == of_last ? 0 : 1;
    if (of_last - of_first != step * last)
        return false;
    for (size_t lane = 0; lane < width; lane++)
        ends[lane] = (int32_t)attn_clamp(
            of_first + step * attn_least((int64_t)lane, last), 0, keys);
    return true;
}

/* Which keys of the block each lane sees by its position. */
static void fill_intervals(struct attn_block *block, const struct attn_panel *panel,
                           const struct attn_walk *walk)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    const int64_t keys = (int64_t)block->keys;
    if (block->full_begin == 0 && block->full_end == block->keys) {
        for (size_t lane = 0; lane < ATTN_PANEL_LANES; lane++) /* a constant: vectors */
            block->first[lane] = 0, block->end[lane] = (int32_t)keys;
        return;
    }
    const int64_t key = block->first_key, last = panel->queries - 1;
    const struct attn_key_range of_first = seen_near(panel, walk, 0, key);
    const struct attn_key_range of_last = seen_near(panel, walk, last, key);
    if (fill_end(block->first, width, of_first.first - key, of_last.first - key, last,
                 keys) &&
        fill_end(block->end, width, of_first.end - key, of_last.end - key, last, keys))
        return;
    for (size_t lane = 0; lane < width; lane++) {
        const int64_t i = attn_least((int64_t)lane, last);
        const struct attn_key_range seen = seen_near(panel, walk, i, key);
        block->first[lane] = (int32_t)attn_clamp(seen.first - key, 0, keys);
        block->end[lane] = (int32_t)attn_clamp(seen.end - key, 0, keys);
    }
}

/* Shows the block what the panel's rows of keep and bias say of its keys. */
static void fill_elements(struct attn_block *block, const struct attn_panel *panel,
                          const struct attn_walk *walk)
{
    const attn_keep *const keep = &walk->problem->options->keep;
    const attn_input *const bias = &walk->problem->options->bias;
    const int64_t query = panel->first_query, key = block->first_key;
    if (walk->head.keep) {
        block->keep = walk->head.keep + query * keep->stride[2] + key * keep->stride[3];
        block->keep_row_stride = keep->stride[2];
        block->keep_key_stride = keep->stride[3];
    }
    if (walk->head.bias)
        block->bias = (struct attn_matrix){
            .x = attn_element(walk->head.bias, bias->type,
                              query * bias->stride[2] + key * bias->stride[3]),
            .row_stride = bias->stride[2],
            .element_stride = bias->stride[3],
            .rows = (size_t)panel->queries,
            .size = block->keys,
            .type = bias->type,
        };
    block->added = walk->added;
}

/* Takes what keep and bias hide of the block from the counts of visible keys. */
static void uncount_hidden(const struct attn_block *block, const struct attn_panel *panel,
                           const struct attn_walk *walk)
{
    const int64_t end_key = block->first_key + (int64_t)block->keys;
    for (int64_t i = panel->first_query; i < panel->first_query + panel->queries; i++) {
        const struct attn_key_range seen =
            attn_keys_near(walk->problem, &walk->sequence, i, block->first_key);
        const int64_t end = attn_least(seen.end, end_key);
        int64_t key = seen.first > block->first_key ? seen.first : block->first_key;
        for (; key < end; key++)
            walk->visible_keys[i] -=
                !attn_element_visible(walk->problem, &walk->head, i, key);
    }
}

/* Narrows the block to the keys that keep and bias let some query see. */
static void leave_out_hidden(struct attn_block *block, const struct attn_panel *panel,
                             const struct attn_walk *walk)
{
    fill_elements(block, panel, walk);
    if (walk->visible_keys)
        uncount_hidden(block, panel, walk);
    const struct attn_seen seen = walk->kernels->look(panel, block);
    block->first_key += (int64_t)seen.begin;
    block->keys = seen.end - seen.begin;
    fill_elements(block, panel, walk);
    if (seen.all)
        block->keep = NULL;
}

static void point_to_pairs(struct attn_block *block, const struct attn_walk *walk)
{
    const struct attn_wide *const wide = &walk->wide;
    const int64_t together = walk->pairs->keys_together;
    const int64_t group = block->first_key - block->first_key % together;
    block->key = wide->key + (size_t)(block->first_key - wide->first) * wide->key_stride;
    block->key_stride = (ptrdiff_t)wide->key_stride;
    block->key_element_stride = 1;
    block->key_rows =
        attn_rows_of(&walk->problem->tensors->key, walk->head.key, block->first_key,
                     (int64_t)block->keys, walk->problem->shape->D);
    block->scale = walk->problem->options->scale;
    block->value = NULL;
    if (!wide->value)
        return;
    block->value = wide->value + (size_t)((group - wide->first) / 2) *
                                     walk->pairs->parts * wide->value_stride;
    block->value_stride = (ptrdiff_t)wide->value_stride;
    block->special = NULL;
    if (wide->any_special)
        block->special =
            wide->special + (size_t)(block->first_key - wide->first) * wide->value_stride;
    block->weight_pairs = wide->weight_pairs;
}

void attn_block_point(struct attn_block *block, const struct attn_walk *walk)
{
    if (walk->pairs) {
        point_to_pairs(block, walk);
        return;
    }
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
    const struct attn_key_range of_first = seen_near(panel, walk, 0, first);
    const struct attn_key_range of_last =
        seen_near(panel, walk, panel->queries - 1, first);
    first = of_first.first > first ? of_first.first : first;
    end = attn_least(of_last.end, end);
    if (first >= end)
        return false;

    assert(end - first <= ATTN_BLOCK_KEYS);
    block->first_key = first;
    block->keys = (size_t)(end - first);
    block->keep = NULL;
    block->bias.x = NULL;
    if (walk->head.keep || walk->head.bias)
        leave_out_hidden(block, panel, walk);
    if (block->keys == 0)
        return false;

    first = block->first_key;
    const int64_t keys = (int64_t)block->keys;
    attn_block_point(block, walk);
    block->softcap = walk->problem->options->softcap;
    block->alibi_slope = walk->head.alibi_slope;
    block->calls = walk->calls;
    attn_forget_show(block, walk);

    block->full_begin = (size_t)attn_clamp(of_last.first - first, 0, keys);
    block->full_end =
        (size_t)attn_clamp(of_first.end - first, (int64_t)block->full_begin, keys);
    if (block->keep || block->bias.x || block->full_begin > 0 ||
        block->full_end < block->keys)
        fill_intervals(block, panel, walk);
    return true;
}
