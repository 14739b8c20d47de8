/* Decoding: a unit of work, which is one group of heads over a run of splits of the keys.
 * How the work falls into units is in decode_layout.c, what splits leave behind and how
 * it is merged in decode_merge.c. */
#include "attention/decode.h"
#include "attention/cache.h"
#include "attention/decode_additive.h"
#include "attention/decode_layout.h"
#include "attention/decode_merge.h"
#include "attention/received.h"
#include <math.h>
#include <string.h>

static void fill(float *x, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        x[i] = value;
}

static void begin_lanes(struct attn_decoder *decoder)
{
    struct attn_panel *const lanes = &decoder->panel.lanes;
    const struct attn_sweep *const sweep = &decoder->sweep;
    const size_t width = decoder->forward->kernels->lanes;
    fill(lanes->reference, width, -INFINITY);
    fill(lanes->sum, width, 0.0f);
    fill(lanes->rounded_sum, width, 0.0f);
    fill(lanes->entropy_sum, width, 0.0f);
    fill(lanes->distance_sum, width, 0.0f);
    fill(lanes->signed_sum, width, 0.0f);
    fill(lanes->largest_score, width, -INFINITY);
    fill(lanes->class_sum, sweep->classes * width, 0.0f);
    fill(lanes->top_score, sweep->top * width, -INFINITY);
    for (size_t i = 0; i < width; i++)
        lanes->largest_key[i] = -1;
    memset(lanes->top_key, 0, width * sweep->top * sizeof *lanes->top_key);
}

/* Numbers that were bfloat16. */
static void keep_upper_halves(uint16_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (uint16_t)(bits >> 16);
    }
}

static void load_queries(struct attn_decoder *decoder)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const attn_input *const query = &problem->tensors->query;
    struct attn_decode_panel *const panel = &decoder->panel;
    if (panel->additive) {
        attn_decode_additive_load(panel, problem, decoder->forward->kernels,
                                  decoder->heads, (size_t)decoder->count);
        return;
    }
    fill(panel->query, panel->heads * panel->query_stride, 0.0f);
    if (panel->query_pairs)
        memset(panel->query_pairs, 0,
               panel->heads * panel->query_stride * sizeof *panel->query_pairs);
    for (int64_t h = 0; h < decoder->count; h++) {
        float *const to = panel->query + (size_t)h * panel->query_stride;
        const struct attn_matrix row = {
            .x = decoder->heads[h].query,
            .element_stride = query->stride[3],
            .rows = 1,
            .size = panel->D,
            .type = query->type,
        };
        decoder->forward->kernels->widen(to, &row);
        if (panel->query_pairs)
            keep_upper_halves(panel->query_pairs + (size_t)h * panel->query_stride, to,
                              panel->D);
        for (size_t d = 0; d < panel->D; d++)
            to[d] *= problem->options->scale;
    }
    if (attn_decode_stores_bytes(decoder->forward))
        decoder->forward->kernels->decode->round_query(panel);
}

/* The group's heads: first ≤ h < first + count, all of key head hk. */
static void take_heads(struct attn_decoder *decoder, int64_t group)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const int64_t of_key_head = attn_decode_groups(decoder->forward);
    const int64_t shared = problem->shape->H / problem->shape->Hk;
    const int64_t most = attn_decode_heads(decoder->forward);
    const int64_t first = group % of_key_head * most;
    decoder->count = attn_least(most, shared - first);
    fill(decoder->slopes, ATTN_PANEL_LANES, 0.0f);
    for (int64_t n = 0; n < decoder->count; n++)
        decoder->heads[n] = attn_problem_head(problem, &decoder->sequence,
                                              group / of_key_head * shared + first + n);
    for (size_t i = 0; i < decoder->forward->kernels->lanes; i++)
        if ((int64_t)(i % decoder->panel.heads) < decoder->count)
            decoder->slopes[i] = decoder->heads[i % decoder->panel.heads].alibi_slope;
}

/* bias and keep of the block's keys, [key][heads]; what they hide is taken from the
 * counts. */
static void fill_added(struct attn_decoder *decoder, int64_t first, int64_t keys,
                       int64_t *visible)
{
    const attn_options *const options = decoder->forward->problem->options;
    const size_t heads = decoder->panel.heads;
    fill(decoder->added, attn_decode_row(decoder->forward, keys * (int64_t)heads), 0.0f);
    for (int64_t n = 0; n < decoder->count; n++) {
        const struct attn_head *const head = &decoder->heads[n];
        float row[ATTN_DECODE_KEYS] = {0.0f};
        const struct attn_matrix bias = {
            .x = head->bias ? attn_element(head->bias, options->bias.type,
                                           first * options->bias.stride[3])
                            : NULL,
            .element_stride = options->bias.stride[3],
            .rows = 1,
            .size = (size_t)keys,
            .type = options->bias.type,
        };
        if (head->bias)
            decoder->forward->kernels->widen(row, &bias);
        for (int64_t key = 0; key < keys; key++) {
            const bool keeps =
                !head->keep || head->keep[(first + key) * options->keep.stride[3]];
            const float added = keeps ? row[key] : -INFINITY;
            decoder->added[(size_t)key * heads + (size_t)n] = added;
            visible[n] -= added == -INFINITY;
        }
    }
}

/* Scores at the places that statistics ask for. */
static void note_places(const struct attn_decoder *decoder, int64_t first, int64_t keys,
                        float places[ATTN_DECODE_HEADS][4])
{
    const int64_t position = decoder->sequence.offset;
    const int64_t at[4] = {0, position - 1, position, position + 1};
    for (size_t p = 0; p < 4; p++)
        for (int64_t n = 0; n < decoder->count; n++)
            if (at[p] >= first && at[p] < first + keys)
                places[n][p] =
                    decoder->scores[(size_t)(at[p] - first) * decoder->panel.heads +
                                    (size_t)n];
}

/* Where the group's keys and values lie from one key on, and for how many keys. */
static struct attn_cached_rows find_rows(const struct attn_decoder *decoder,
                                         int64_t first)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const struct attn_head *const head = &decoder->heads[0];
    const attn_input *const key = &problem->tensors->key;
    const attn_input *const value = &problem->tensors->value;
    if (problem->cached) {
        const struct attn_cached *const cached = problem->cached;
        const int64_t name = cached->batch->sequences[decoder->sequence.index];
        return attn_cache_rows(cached->cache, attn_cache_find(cached->cache, name),
                               head->hk, first);
    }
    return (struct attn_cached_rows){
        .key = attn_element(head->key, key->type, first * key->stride[2]),
        .value = attn_element(head->value, value->type, first * value->stride[2]),
        .keys = decoder->seen.end - first,
    };
}

/* How the rows follow each other. */
static void describe_rows(struct attn_decode_block *block,
                          const struct attn_problem *problem)
{
    const attn_input *const key = &problem->tensors->key;
    const attn_input *const value = &problem->tensors->value;
    if (problem->cached) {
        const attn_cache *const cache = problem->cached->cache;
        const size_t bytes = attn_cache_element_bytes(cache);
        block->key_type = block->value_type = (enum attn_stored)cache->options.type;
        block->key_stride = (ptrdiff_t)((size_t)cache->options.D * bytes);
        block->value_stride = (ptrdiff_t)((size_t)cache->options.Dv * bytes);
        return;
    }
    block->key_type = (enum attn_stored)key->type;
    block->value_type = (enum attn_stored)value->type;
    block->key_stride = (ptrdiff_t)((size_t)key->stride[2] * attn_type_bytes(key->type));
    block->value_stride =
        (ptrdiff_t)((size_t)value->stride[2] * attn_type_bytes(value->type));
}

/* Where the mass that keys received will be: a key has it of one query alone. */
static void leave_scores(const struct attn_decoder *decoder, int64_t first, int64_t keys)
{
    for (int64_t n = 0; n < decoder->count; n++) {
        float *const to = attn_received_row(decoder->forward, &decoder->sequence,
                                            decoder->heads[n].h, 0) +
                          first;
        for (int64_t key = 0; key < keys; key++)
            to[key] = decoder->scores[(size_t)key * decoder->panel.heads + (size_t)n];
    }
}

/* Keys [first, end); those to be fetched for what comes after end at `after`. */
static void attend_block(struct attn_decoder *decoder, int64_t first, int64_t end,
                         int64_t after, float places[ATTN_DECODE_HEADS][4],
                         int64_t *visible)
{
    const struct attn_forward *const forward = decoder->forward;
    const attn_options *const options = forward->problem->options;
    const struct attn_decode_kernels *const kernels = forward->kernels->decode;
    const struct attn_cached_rows rows = find_rows(decoder, first);
    struct attn_decode_block block = {
        .first_key = first,
        .keys = (size_t)(end - first),
        .key = rows.key,
        .value = rows.value,
        .row = rows.row,
        .key_scales = rows.key_scale,
        .value_scales = rows.value_scale,
        .softcap = options->softcap,
        .distance = (float)(decoder->sequence.offset - first),
        .slopes = options->alibi_slopes ? decoder->slopes : NULL,
    };
    describe_rows(&block, forward->problem);
    if (after > end) {
        const struct attn_cached_rows next = find_rows(decoder, end);
        const bool bytes = block.key_type == ATTN_STORED_I8;
        block.next_key = (const char *)next.key +
                         (bytes ? attn_byte_of_key(decoder->panel.D, next.row, 0) : 0);
        block.next_value =
            (const char *)next.value +
            (bytes ? attn_byte_of_value(decoder->panel.Dv, next.row, 0) : 0);
        block.next_keys = (size_t)attn_least(after - end, next.keys);
    }
    if (options->keep.data || options->bias.data) {
        fill_added(decoder, first, end - first, visible);
        block.added = decoder->added;
    }
    kernels->score(decoder->scores, &decoder->panel, &block);
    if (forward->statistics)
        note_places(decoder, first, end - first, places);
    if (forward->problem->tensors->statistics.received)
        leave_scores(decoder, first, end - first);
    kernels->softmax(&decoder->panel, decoder->scores, &block, &decoder->sweep);
    kernels->value(&decoder->panel, decoder->scores, &block);
}

/* Split number `split` of those that are seen, in a run that ends with key run_end. */
static void attend_split(struct attn_decoder *decoder, int64_t split, int64_t run_end,
                         int64_t slot)
{
    const int64_t from =
        (decoder->seen.first / ATTN_SPLIT_KEYS + split) * ATTN_SPLIT_KEYS;
    const int64_t first = attn_clamp(from, decoder->seen.first, decoder->seen.end);
    const int64_t end = attn_least(from + ATTN_SPLIT_KEYS, decoder->seen.end);
    float places[ATTN_DECODE_HEADS][4];
    int64_t visible[ATTN_DECODE_HEADS];
    for (size_t n = 0; n < ATTN_DECODE_HEADS; n++) {
        fill(places[n], 4, -INFINITY);
        visible[n] = end > first ? end - first : 0;
    }
    begin_lanes(decoder);
    fill(decoder->panel.output, decoder->panel.heads * decoder->panel.output_stride,
         0.0f);
    for (int64_t key = first; key < end;) {
        const int64_t next = key - key % ATTN_DECODE_KEYS + ATTN_DECODE_KEYS;
        const int64_t rows = find_rows(decoder, key).keys;
        const int64_t stop = attn_least(key + rows, attn_least(end, next));
        attend_block(decoder, key, stop, attn_least(run_end, stop + ATTN_DECODE_KEYS),
                     places, visible);
        key = stop;
    }
    for (int64_t n = 0; n < decoder->count; n++)
        attn_partial_store(decoder, slot, (size_t)n, places[n], visible[n]);
}

void attn_decode_work(const struct attn_forward *forward, void *memory,
                      const struct attn_sequence *sequence,
                      struct attn_decode_counts before, int64_t nth)
{
    const int64_t splits = attn_decode_splits(forward, sequence);
    const int64_t units = attn_decode_units(forward, sequence), run = forward->splits.run;
    const int64_t group = nth / units, first = nth % units * run;
    const int64_t end = attn_least(first + run, splits);
    const int64_t first_slot = before.slots + group * splits;
    struct attn_decoder *const decoder = attn_decode_place(forward, memory);
    decoder->sequence = *sequence;
    decoder->seen = attn_visible_keys(forward->problem, sequence, 0);
    if (decoder->sweep.classes > 0) {
        const attn_statistics *const wanted = &forward->problem->tensors->statistics;
        decoder->sweep.key_class = wanted->key_class +
                                   sequence->b * wanted->key_class_stride +
                                   sequence->first_key;
    }
    take_heads(decoder, group);
    load_queries(decoder);
    const int64_t run_end =
        (decoder->seen.first / ATTN_SPLIT_KEYS + end) * ATTN_SPLIT_KEYS;
    for (int64_t split = first; split < end; split++)
        attend_split(decoder, split, attn_least(run_end, decoder->seen.end),
                     first_slot + split);
    if (atomic_fetch_sub(&forward->splits.left[before.groups + group], 1) == 1)
        attn_partial_finish(decoder, first_slot, splits);
}
