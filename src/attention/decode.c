/* One query of a sequence over its keys, a group of heads and a split of the keys at a
 * time; and the merge of the splits. */
#include "attention/decode.h"
#include "attention/cache.h"
#include "attention/decode_additive.h"
#include "attention/forward.h"
#include "attention/received.h"
#include "kernel/backward_table.h"
#include "kernel/decode_table.h"
#include <math.h>
#include <string.h>

enum {
    MOST_HEADS = 16, /* lanes of the widest vectors */
    MOST_CLASSES = 64,
    MOST_TOP = 64,
};

/* One head over one split.  In memory follow top_score, top_key, class_sum, output. */
struct partial {
    float reference, sum, entropy_sum, distance_sum, signed_sum, largest_score;
    float places[4]; /* scores of key 0, of the key before the own position, there, after;
                      * −∞ where not seen */
    int64_t largest_key, visible_keys;
};

/* What a worker keeps; query, output, class sums, top, scores and `added` follow it in
 * memory. */
struct decoder {
    struct attn_decode_panel panel;
    struct attn_panel row; /* of one lane: what the statistics are stored from */
    struct attn_places places;
    const struct attn_forward *forward;
    struct attn_sweep sweep;
    struct attn_sequence sequence;
    struct attn_key_range seen;
    struct attn_head heads[MOST_HEADS];
    int64_t count; /* of heads */
    float slopes[ATTN_PANEL_LANES];
    float *scores, *added;
};

/* ---- Groups and splits ----------------------------------------------------------------
 */

bool attn_decode_takes(const struct attn_problem *problem,
                       const struct attn_sequence *sequence)
{
    const attn_shape *const shape = problem->shape;
    if (problem->cached)
        return true;
    return sequence->Lq == 1 && problem->options->dropout == 0.0 &&
           (shape->D == 1 || problem->tensors->key.stride[3] == 1) &&
           (shape->Dv == 1 || problem->tensors->value.stride[3] == 1);
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Groups of one key head: as few as the lanes allow. */
static int64_t groups_of_key_head(const struct attn_forward *forward)
{
    const attn_shape *const shape = forward->problem->shape;
    return ceil_div(shape->H / shape->Hk, (int64_t)forward->kernels->lanes);
}

static int64_t heads_of_group(const struct attn_forward *forward)
{
    const attn_shape *const shape = forward->problem->shape;
    return ceil_div(shape->H / shape->Hk, groups_of_key_head(forward));
}

static size_t power_of_two(int64_t least)
{
    size_t power = 1;
    while ((int64_t)power < least)
        power *= 2;
    return power;
}

/* One where no key is seen: somebody has to store the row. */
static int64_t splits_of(const struct attn_forward *forward,
                         const struct attn_sequence *sequence)
{
    const struct attn_key_range seen = attn_visible_keys(forward->problem, sequence, 0);
    if (seen.first == seen.end)
        return 1;
    return ceil_div(seen.end, ATTN_SPLIT_KEYS) - seen.first / ATTN_SPLIT_KEYS;
}

static int64_t units_of_group(const struct attn_forward *forward,
                              const struct attn_sequence *sequence)
{
    return ceil_div(splits_of(forward, sequence), forward->splits.run);
}

struct attn_decode_counts attn_decode_count(const struct attn_forward *forward,
                                            const struct attn_sequence *sequence)
{
    if (!attn_decode_takes(forward->problem, sequence))
        return (struct attn_decode_counts){0};
    const int64_t groups = forward->problem->shape->Hk * groups_of_key_head(forward);
    return (struct attn_decode_counts){
        .groups = groups,
        .slots = groups * splits_of(forward, sequence),
        .units = groups * units_of_group(forward, sequence),
    };
}

/* A run's first block is not fetched ahead, so runs are long; and yet there should be
 * enough of them to go round. */
enum { RUNS_OF_A_WORKER = 8 };

static bool stores_bytes(const struct attn_forward *forward)
{
    const struct attn_cached *const cached = forward->problem->cached;
    return cached && cached->cache->options.type == ATTN_CACHE_I8;
}

/* Floats of a row, filled up to pairs of vectors. */
static size_t whole_pairs(const struct attn_forward *forward, int64_t floats)
{
    const size_t pair = 2 * forward->kernels->lanes;
    return ((size_t)floats + pair - 1) / pair * pair;
}

void attn_decode_layout(struct attn_forward *forward, size_t threads)
{
    const struct attn_problem *const problem = forward->problem;
    struct attn_splits *const splits = &forward->splits;
    const attn_shape *const shape = problem->shape;
    const size_t lanes = forward->kernels->lanes;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    splits->run = 1;
    for (int64_t s = 0; s < problem->sequences && !problem->empty; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        const struct attn_decode_counts counts = attn_decode_count(forward, &sequence);
        splits->groups += counts.groups;
        splits->slots += counts.slots;
    }
    if (splits->slots == 0)
        return;
    const int64_t run = splits->slots / (int64_t)(threads * RUNS_OF_A_WORKER);
    splits->run = run > 1 ? run : 1;

    const size_t D = whole_pairs(forward, shape->D);
    const size_t Dv = whole_pairs(forward, shape->Dv);
    const size_t heads = power_of_two(heads_of_group(forward));
    const size_t block = whole_pairs(forward, (int64_t)(ATTN_DECODE_KEYS * heads));
    const size_t whole = stores_bytes(forward) ? D / 2 : 0;
    const size_t per_top = sizeof(float) + sizeof(int32_t);
    splits->head_bytes =
        attn_round_up(sizeof(struct partial) + top * per_top + classes * sizeof(float)) +
        attn_round_up(Dv * sizeof(float));
    splits->worker_bytes =
        attn_round_up(sizeof(struct decoder)) +
        attn_decode_additive_bytes(problem, heads) +
        attn_round_up((heads * (D + whole + Dv) + lanes * classes + 2 * block) *
                          sizeof(float) +
                      lanes * top * per_top);
    splits->left_offset =
        (size_t)(splits->slots * heads_of_group(forward)) * splits->head_bytes;
    splits->bytes = splits->left_offset +
                    attn_round_up((size_t)splits->groups * sizeof *splits->left);
}

void attn_decode_begin(struct attn_forward *forward, void *memory)
{
    struct attn_splits *const splits = &forward->splits;
    int64_t group = 0;
    splits->partials = memory;
    splits->left = (_Atomic int64_t *)(splits->partials + splits->left_offset);
    for (int64_t s = 0; group < splits->groups; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(forward->problem, s);
        const int64_t end = group + attn_decode_count(forward, &sequence).groups;
        for (; group < end; group++)
            atomic_init(&splits->left[group], units_of_group(forward, &sequence));
    }
}

/* ---- Partial results ------------------------------------------------------------------
 */

struct partial_parts {
    struct partial *sums;
    float *top_score;
    int32_t *top_key;
    float *class_sum, *output;
};

static struct partial_parts parts_of(const struct attn_forward *forward, int64_t slot,
                                     int64_t head)
{
    const struct attn_splits *const splits = &forward->splits;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    char *const memory =
        splits->partials +
        (size_t)(slot * heads_of_group(forward) + head) * splits->head_bytes;
    struct partial_parts parts = {.sums = (struct partial *)memory};
    parts.top_score = (float *)(parts.sums + 1);
    parts.top_key = (int32_t *)(parts.top_score + top);
    parts.class_sum = (float *)(parts.top_key + top);
    parts.output =
        (float *)(memory +
                  attn_round_up((size_t)((char *)(parts.class_sum + classes) - memory)));
    return parts;
}

static bool outranks(float score, int64_t key, float other, int64_t other_key)
{
    return score > other || (score == other && score != -INFINITY && key < other_key);
}

static void insert_top(const struct partial_parts *into, size_t top, float score,
                       int64_t key)
{
    size_t place = top;
    for (; place > 0 &&
           outranks(score, key, into->top_score[place - 1], into->top_key[place - 1]);
         place--) {
        if (place == top)
            continue;
        into->top_score[place] = into->top_score[place - 1];
        into->top_key[place] = into->top_key[place - 1];
    }
    if (place < top) {
        into->top_score[place] = score;
        into->top_key[place] = key;
    }
}

/* Sums relative to one reference become relative to a larger one. */
static void rebase(struct partial *p, float reference, float factor)
{
    /* Without a key there is nothing to move, and −∞ · 0 would be NaN. */
    if (p->reference != -INFINITY)
        p->entropy_sum += (p->reference - reference) * p->sum;
    p->entropy_sum *= factor;
    p->sum *= factor;
    p->distance_sum *= factor;
    p->signed_sum *= factor;
    p->reference = reference;
}

/* The same, of one row over more keys; output is not touched.  Sets what either's output
 * has to be multiplied by. */
static void merge_sums(const struct attn_forward *forward, struct partial_parts *into,
                       const struct partial_parts *from, float factors[2])
{
    struct partial *const a = into->sums;
    struct partial b = *from->sums;
    const float larger = a->reference > b.reference ? a->reference : b.reference;
    factors[0] = a->reference == larger ? 1.0f : expf(a->reference - larger);
    factors[1] = b.reference == larger ? 1.0f : expf(b.reference - larger);
    rebase(a, larger, factors[0]);
    rebase(&b, larger, factors[1]);
    a->sum += b.sum;
    a->entropy_sum += b.entropy_sum;
    a->distance_sum += b.distance_sum;
    a->signed_sum += b.signed_sum;
    a->visible_keys += b.visible_keys;
    if (outranks(b.largest_score, b.largest_key, a->largest_score, a->largest_key)) {
        a->largest_score = b.largest_score;
        a->largest_key = b.largest_key;
    }
    for (size_t n = 0; n < 4; n++)
        if (b.places[n] != -INFINITY)
            a->places[n] = b.places[n];
    for (size_t n = 0; n < forward->sweep.classes; n++)
        into->class_sum[n] =
            into->class_sum[n] * factors[0] + from->class_sum[n] * factors[1];
    for (size_t n = 0; n < forward->sweep.top; n++)
        insert_top(into, forward->sweep.top, from->top_score[n], from->top_key[n]);
}

/* ---- One split ------------------------------------------------------------------------
 */

/* The worker's memory, laid out as attn_decode_layout counted it. */
static struct decoder *place_decoder(const struct attn_forward *forward, void *memory)
{
    const attn_shape *const shape = forward->problem->shape;
    const size_t lanes = forward->kernels->lanes;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    struct decoder *const decoder = memory;
    struct attn_decode_panel *const panel = &decoder->panel;
    decoder->forward = forward;
    decoder->sweep = forward->sweep;
    panel->heads = power_of_two(heads_of_group(forward));
    panel->D = (size_t)shape->D;
    panel->Dv = (size_t)shape->Dv;
    panel->query_stride = whole_pairs(forward, shape->D);
    panel->output_stride = whole_pairs(forward, shape->Dv);
    panel->lanes.vectors = 1;
    panel->lanes.Dv = 0;
    char *const additive = (char *)memory + attn_round_up(sizeof *decoder);
    attn_decode_additive_place(panel, forward->problem, additive);
    panel->query =
        (float *)(additive + attn_decode_additive_bytes(forward->problem, panel->heads));
    float *next = panel->query + panel->heads * panel->query_stride;
    if (stores_bytes(forward)) {
        panel->whole = (int16_t *)next;
        next += panel->heads * panel->query_stride / 2;
    }
    panel->output = next;
    panel->lanes.class_sum = panel->output + panel->heads * panel->output_stride;
    panel->lanes.top_score = panel->lanes.class_sum + classes * lanes;
    panel->lanes.top_key = (int32_t *)(panel->lanes.top_score + lanes * top);
    decoder->scores = (float *)(panel->lanes.top_key + lanes * top);
    decoder->added = decoder->scores +
                     whole_pairs(forward, (int64_t)(ATTN_DECODE_KEYS * panel->heads));
    return decoder;
}

static void fill(float *x, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        x[i] = value;
}

static void begin_lanes(struct decoder *decoder)
{
    struct attn_panel *const lanes = &decoder->panel.lanes;
    const struct attn_sweep *const sweep = &decoder->sweep;
    const size_t width = decoder->forward->kernels->lanes;
    fill(lanes->reference, width, -INFINITY);
    fill(lanes->sum, width, 0.0f);
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

static void load_queries(struct decoder *decoder)
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
        for (size_t d = 0; d < panel->D; d++)
            to[d] *= problem->options->scale;
    }
    if (stores_bytes(decoder->forward))
        decoder->forward->kernels->decode->round_query(panel);
}

/* The group's heads: first ≤ h < first + count, all of key head hk. */
static void take_heads(struct decoder *decoder, int64_t group)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const int64_t of_key_head = groups_of_key_head(decoder->forward);
    const int64_t shared = problem->shape->H / problem->shape->Hk;
    const int64_t most = heads_of_group(decoder->forward);
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
static void fill_added(struct decoder *decoder, int64_t first, int64_t keys,
                       int64_t *visible)
{
    const attn_options *const options = decoder->forward->problem->options;
    const size_t heads = decoder->panel.heads;
    fill(decoder->added, whole_pairs(decoder->forward, keys * (int64_t)heads), 0.0f);
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
static void note_places(const struct decoder *decoder, int64_t first, int64_t keys,
                        float places[MOST_HEADS][4])
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
static struct attn_cached_rows find_rows(const struct decoder *decoder, int64_t first)
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
    block->key_stride = key->stride[2] * (ptrdiff_t)attn_type_bytes(key->type);
    block->value_stride = value->stride[2] * (ptrdiff_t)attn_type_bytes(value->type);
}

/* Where the mass that keys received will be: a key has it of one query alone. */
static void leave_scores(const struct decoder *decoder, int64_t first, int64_t keys)
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
static void attend_block(struct decoder *decoder, int64_t first, int64_t end,
                         int64_t after, float places[MOST_HEADS][4], int64_t *visible)
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
        .key_scales = rows.key_scale,
        .value_scales = rows.value_scale,
        .softcap = options->softcap,
        .distance = (float)(decoder->sequence.offset - first),
        .slopes = options->alibi_slopes ? decoder->slopes : NULL,
    };
    describe_rows(&block, forward->problem);
    if (after > end) {
        const struct attn_cached_rows next = find_rows(decoder, end);
        block.next_key = next.key;
        block.next_value = next.value;
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

static struct partial partial_of_lane(const struct attn_panel *lanes, size_t lane)
{
    return (struct partial){
        .reference = lanes->reference[lane],
        .sum = lanes->sum[lane],
        .entropy_sum = lanes->entropy_sum[lane],
        .distance_sum = lanes->distance_sum[lane],
        .signed_sum = lanes->signed_sum[lane],
        .largest_score = lanes->largest_score[lane],
        .largest_key = lanes->largest_key[lane],
        .places = {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
    };
}

/* One lane's share of class sums and top. */
static void take_lane(const struct attn_forward *forward, const struct attn_panel *lanes,
                      size_t lane, const struct partial_parts *to)
{
    const size_t width = forward->kernels->lanes;
    *to->sums = partial_of_lane(lanes, lane);
    for (size_t c = 0; c < forward->sweep.classes; c++)
        to->class_sum[c] = lanes->class_sum[c * width + lane];
    for (size_t n = 0; n < forward->sweep.top; n++) {
        to->top_score[n] = lanes->top_score[n * width + lane];
        to->top_key[n] = lanes->top_key[n * width + lane];
    }
}

/* Head n of the group from its lanes, one for each phase, in rising order. */
static void store_partial(const struct decoder *decoder, struct partial_parts to,
                          size_t n, const float places[4], int64_t visible)
{
    const struct attn_forward *const forward = decoder->forward;
    const struct attn_decode_panel *const panel = &decoder->panel;
    struct partial sums;
    float class_sum[MOST_CLASSES], top_score[MOST_TOP], factors[2];
    int32_t top_key[MOST_TOP];
    const struct partial_parts from = {&sums, top_score, top_key, class_sum, NULL};
    take_lane(forward, &panel->lanes, n, &to);
    for (size_t i = n + panel->heads; i < forward->kernels->lanes; i += panel->heads) {
        take_lane(forward, &panel->lanes, i, &from);
        merge_sums(forward, &to, &from, factors);
    }
    memcpy(to.sums->places, places, sizeof to.sums->places);
    to.sums->visible_keys = visible;
    memcpy(to.output, panel->output + n * panel->output_stride,
           panel->output_stride * sizeof *to.output);
}

/* Split number `split` of those that are seen, in a run that ends with key run_end. */
static void attend_split(struct decoder *decoder, int64_t split, int64_t run_end,
                         int64_t slot)
{
    const int64_t from =
        (decoder->seen.first / ATTN_SPLIT_KEYS + split) * ATTN_SPLIT_KEYS;
    const int64_t first = attn_clamp(from, decoder->seen.first, decoder->seen.end);
    const int64_t end = attn_least(from + ATTN_SPLIT_KEYS, decoder->seen.end);
    float places[MOST_HEADS][4];
    int64_t visible[MOST_HEADS];
    for (size_t n = 0; n < MOST_HEADS; n++) {
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
        store_partial(decoder, parts_of(decoder->forward, slot, n), (size_t)n, places[n],
                      visible[n]);
}

/* ---- A whole row ----------------------------------------------------------------------
 */

/* Shows the statistics a panel of this one row. */
static void show_row(struct decoder *decoder, const struct partial_parts *parts)
{
    struct attn_panel *const row = &decoder->row;
    const struct partial *const sums = parts->sums;
    row->reference[0] = sums->reference;
    row->sum[0] = sums->sum;
    row->entropy_sum[0] = sums->entropy_sum;
    row->distance_sum[0] = sums->distance_sum;
    row->signed_sum[0] = sums->signed_sum;
    row->largest_score[0] = sums->largest_score;
    row->largest_key[0] = sums->largest_key;
    row->class_sum = parts->class_sum;
    row->top_score = parts->top_score;
    row->top_key = parts->top_key;
    decoder->places.first[0] = sums->places[0];
    for (size_t p = 0; p < 3; p++)
        decoder->places.near_by[p][0] = sums->places[p + 1];
}

static void store_row(struct decoder *decoder, const struct attn_head *head,
                      const struct partial_parts *parts)
{
    const struct attn_forward *const forward = decoder->forward;
    const attn_tensors *const tensors = forward->problem->tensors;
    const struct attn_row_end end =
        attn_end_of_row(parts->sums->reference, parts->sums->sum, (double)head->sink);
    const struct attn_target output = {
        .x = head->output,
        .element_stride = tensors->output.stride[3],
        .rows = 1,
        .size = decoder->panel.Dv,
        .type = tensors->output.type,
    };
    forward->kernels->backward->put(&output, parts->output, 0, end.inverse);
    if (tensors->lse)
        tensors->lse[head->row] = (float)end.lse;
    if (tensors->statistics.visible_keys)
        tensors->statistics.visible_keys[head->row] = parts->sums->visible_keys;
    if (forward->statistics) {
        show_row(decoder, parts);
        attn_statistics_store(&tensors->statistics, head->row, &decoder->row,
                              &decoder->places, 0, 1, end);
    }
    if (tensors->statistics.received)
        attn_received_weigh(attn_received_row(forward, &decoder->sequence, head->h, 0) +
                                decoder->seen.first,
                            decoder->seen.end - decoder->seen.first, forward->kernels,
                            parts->sums->reference, end.inverse);
}

static void finish_group(struct decoder *decoder, int64_t first_slot, int64_t splits)
{
    const struct attn_forward *const forward = decoder->forward;
    for (int64_t n = 0; n < decoder->count; n++) {
        struct partial_parts total = parts_of(forward, first_slot, n);
        for (int64_t split = 1; split < splits; split++) {
            const struct partial_parts next = parts_of(forward, first_slot + split, n);
            float factors[2];
            merge_sums(forward, &total, &next, factors);
            forward->kernels->decode->merge(total.output, factors[0], next.output,
                                            factors[1], decoder->panel.output_stride);
        }
        store_row(decoder, &decoder->heads[n], &total);
        const struct attn_walk walk = {.problem = forward->problem,
                                       .sequence = decoder->sequence,
                                       .head = decoder->heads[n]};
        if (!forward->problem->packed)
            attn_store_padding(&walk);
    }
}

void attn_decode_work(const struct attn_forward *forward, void *memory,
                      const struct attn_sequence *sequence,
                      struct attn_decode_counts before, int64_t nth)
{
    const int64_t splits = splits_of(forward, sequence);
    const int64_t units = units_of_group(forward, sequence), run = forward->splits.run;
    const int64_t group = nth / units, first = nth % units * run;
    const int64_t end = attn_least(first + run, splits);
    const int64_t first_slot = before.slots + group * splits;
    struct decoder *const decoder = place_decoder(forward, memory);
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
        finish_group(decoder, first_slot, splits);
}
