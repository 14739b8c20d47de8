/* Decoding: a unit of work, which is one group of heads over a run of splits of the keys.
 * How the work falls into units is in decode_layout.c, what splits leave behind and how
 * it is merged in decode_merge.c. */
#include "attention/decode.h"
#include "attention/decode_additive.h"
#include "attention/decode_gates.h"
#include "attention/decode_layout.h"
#include "attention/decode_merge.h"
#include "attention/decode_pieces.h"
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

/* A vector at a time. */
static void load_query(struct attn_decoder *decoder, size_t h)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const struct attn_kernels *const kernels = decoder->forward->kernels;
    const attn_input *const query = &problem->tensors->query;
    const struct attn_decode_panel *const panel = &decoder->panel;
    const size_t lanes = kernels->lanes;
    for (size_t n = 0; n < panel->D; n += lanes) {
        float *const to =
            panel->query + h * panel->query_stride + n / lanes * panel->query_step;
        const struct attn_matrix elements = {
            .x = attn_element(decoder->heads[h].query, query->type,
                              (int64_t)n * query->stride[3]),
            .element_stride = query->stride[3],
            .rows = 1,
            .size = panel->D - n < lanes ? panel->D - n : lanes,
            .type = query->type,
        };
        kernels->widen(to, &elements);
        if (panel->query_pairs)
            keep_upper_halves(panel->query_pairs +
                                  (n / lanes / 2 * panel->heads + h) * 2 * lanes +
                                  n % (2 * lanes),
                              to, elements.size);
        for (size_t i = 0; i < elements.size; i++)
            to[i] *= problem->options->scale;
    }
}

static void load_queries(struct attn_decoder *decoder)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    struct attn_decode_panel *const panel = &decoder->panel;
    const size_t numbers =
        panel->heads * attn_decode_row(decoder->forward, problem->shape->D);
    if (panel->additive) {
        attn_decode_additive_load(panel, problem, decoder->forward->kernels,
                                  decoder->heads, (size_t)decoder->count);
        return;
    }
    fill(panel->query, numbers, 0.0f);
    if (panel->query_pairs)
        memset(panel->query_pairs, 0, numbers * sizeof *panel->query_pairs);
    for (size_t h = 0; h < (size_t)decoder->count; h++)
        load_query(decoder, h);
    decoder->forward->kernels->decode->ready_query(panel);
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

/* Bias and keep of one head, for keys from `first` on. */
static void read_row(float *row, const struct attn_decoder *decoder,
                     const struct attn_head *head, int64_t first, int64_t keys)
{
    const attn_options *const options = decoder->forward->problem->options;
    const attn_input *const bias = &options->bias;
    const struct attn_matrix from = {
        .x = head->bias ? attn_element(head->bias, bias->type, first * bias->stride[3])
                        : NULL,
        .element_stride = bias->stride[3],
        .rows = 1,
        .size = (size_t)keys,
        .type = bias->type,
    };
    fill(row, (size_t)keys, 0.0f);
    if (head->bias)
        decoder->forward->kernels->widen(row, &from);
    for (int64_t key = 0; head->keep && key < keys; key++)
        if (!head->keep[(first + key) * options->keep.stride[3]])
            row[key] = -INFINITY;
}

/* Bias, keep, layout and gates of the piece, [key][heads].  Returns whether they hide any
 * key, which is taken from the counts. */
static bool fill_added(struct attn_decoder *decoder,
                       const struct attn_decode_piece *piece, int64_t *visible)
{
    const size_t heads = decoder->panel.heads;
    const int64_t keys = piece->end - piece->first;
    const float *const behind =
        decoder->behind
            ? decoder->behind + (size_t)(piece->first - decoder->split_key) * heads
            : NULL;
    int64_t hidden = 0;
    fill(decoder->added, attn_decode_row(decoder->forward, keys * (int64_t)heads), 0.0f);
    for (int64_t n = 0; n < decoder->count; n++) {
        float row[ATTN_DECODE_BYTE_KEYS];
        if (piece->hides && piece->hidden[n])
            fill(row, (size_t)keys, -INFINITY);
        else
            read_row(row, decoder, &decoder->heads[n], piece->first, keys);
        for (int64_t key = 0; key < keys; key++) {
            const size_t at = (size_t)key * heads + (size_t)n;
            const bool hides = row[key] == -INFINITY;
            decoder->added[at] = behind && !hides ? row[key] + behind[at] : row[key];
            visible[n] -= hides;
            hidden += hides;
        }
    }
    return hidden > 0;
}

/* Scores at the places that statistics ask for. */
static void note_places(const struct attn_decoder *decoder, int64_t first, int64_t keys,
                        float places[ATTN_DECODE_HEADS][ATTN_PLACES])
{
    const int64_t position = decoder->sequence.offset;
    const int64_t at[ATTN_PLACES] = {0, position - 1, position, position + 1};
    for (size_t p = 0; p < ATTN_PLACES; p++)
        for (int64_t n = 0; n < decoder->count; n++)
            if (at[p] >= first && at[p] < first + keys)
                places[n][p] =
                    decoder->scores[(size_t)(at[p] - first) * decoder->panel.heads +
                                    (size_t)n];
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

/* Of keys that no head of the group sees. */
static void leave_nothing(const struct attn_decoder *decoder, struct attn_key_range keys)
{
    for (int64_t n = 0; n < decoder->count; n++)
        fill(attn_received_row(decoder->forward, &decoder->sequence, decoder->heads[n].h,
                               0) +
                 keys.first,
             (size_t)(keys.end - keys.first), -INFINITY);
}

/* Of one group of heads over one split. */
struct split_sums {
    float places[ATTN_DECODE_HEADS][ATTN_PLACES];
    int64_t visible[ATTN_DECODE_HEADS];
};

static void attend_piece(struct attn_decoder *decoder,
                         const struct attn_decode_piece *piece,
                         const struct attn_decode_piece *next, struct split_sums *sums)
{
    const struct attn_forward *const forward = decoder->forward;
    const attn_options *const options = forward->problem->options;
    const struct attn_decode_kernels *const kernels = forward->kernels->decode;
    const int64_t keys = piece->end - piece->first;
    struct attn_decode_block block = {
        .softcap = options->softcap,
        .distance = (float)(decoder->sequence.offset - piece->first),
        .slopes = options->alibi_slopes ? decoder->slopes : NULL,
    };
    attn_decode_point(&block, decoder, piece, next);
    for (int64_t n = 0; n < decoder->count; n++)
        sums->visible[n] += keys;
    if (options->keep.data || options->bias.data || piece->hides) {
        block.hides = fill_added(decoder, piece, sums->visible);
        block.added = decoder->added;
    } else if (decoder->behind) {
        block.added = decoder->behind +
                      (size_t)(piece->first - decoder->split_key) * decoder->panel.heads;
    }
    kernels->score(decoder->scores, &decoder->panel, &block);
    if (forward->statistics)
        note_places(decoder, piece->first, keys, sums->places);
    if (forward->problem->tensors->statistics.received)
        leave_scores(decoder, piece->first, keys);
    kernels->softmax(&decoder->panel, decoder->scores, &block, &decoder->sweep);
    kernels->value(&decoder->panel, decoder->scores, &block);
}

/* In a run of splits that ends with key run_end; begins with pieces[first_piece], and
 * returns where the one after the split stands. */
static size_t attend_split(struct attn_decoder *decoder, struct attn_key_range keys,
                           int64_t run_end, size_t first_piece, int64_t slot)
{
    struct split_sums sums = {.visible = {0}};
    for (size_t n = 0; n < ATTN_DECODE_HEADS; n++)
        fill(sums.places[n], ATTN_PLACES, -INFINITY);
    begin_lanes(decoder);
    fill(decoder->panel.output, decoder->panel.heads * decoder->panel.output_stride,
         0.0f);
    if (decoder->behind)
        attn_decode_sum_gates(decoder, keys);
    if (decoder->forward->problem->tensors->statistics.received)
        leave_nothing(decoder, keys);
    struct attn_decode_piece *piece = &decoder->pieces[first_piece];
    struct attn_decode_piece *next = &decoder->pieces[1 - first_piece];
    while (piece->first < keys.end) {
        attn_decode_find_piece(next, decoder, piece->end, run_end);
        attend_piece(decoder, piece, next, &sums);
        struct attn_decode_piece *const read = piece;
        piece = next;
        next = read;
    }
    if (decoder->panel.query_pairs)
        decoder->forward->kernels->decode->order_output(&decoder->panel);
    for (int64_t n = 0; n < decoder->count; n++)
        attn_partial_store(decoder, slot, (size_t)n, sums.places[n], sums.visible[n]);
    return (size_t)(piece - decoder->pieces);
}

/* Splits first to end − 1. */
static void attend_run(struct attn_decoder *decoder, int64_t first, int64_t end,
                       int64_t first_slot)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const struct attn_sequence *const sequence = &decoder->sequence;
    struct attn_key_range split = {0, 0};
    for (int64_t n = 0; n <= first; n++)
        attn_decode_next_split(problem, sequence, &split);
    struct attn_key_range last = split;
    for (int64_t n = first + 1; n < end; n++)
        attn_decode_next_split(problem, sequence, &last);
    size_t piece = 0;
    attn_decode_find_piece(&decoder->pieces[piece], decoder, split.first, last.end);
    attn_decode_call_first(decoder, &decoder->pieces[piece]);
    load_queries(decoder);
    for (int64_t n = first; n < end; n++) {
        piece = attend_split(decoder, split, last.end, piece, first_slot + n);
        attn_decode_next_split(problem, sequence, &split);
    }
}

void attn_decode_work(const struct attn_forward *forward, void *memory,
                      const struct attn_sequence *sequence,
                      struct attn_decode_counts before, int64_t nth)
{
    const int64_t splits = attn_decode_splits(forward, sequence);
    const int64_t run = forward->splits.run, units = (splits + run - 1) / run;
    const int64_t group = nth / units, first = nth % units * run;
    const int64_t first_slot = before.slots + group * splits;
    const struct attn_decode_kernels *const kernels = forward->kernels->decode;
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
    if (kernels->open)
        kernels->open(&decoder->panel);
    attend_run(decoder, first, attn_least(first + run, splits), first_slot);
    if (kernels->close)
        kernels->close();
    if (atomic_fetch_sub(&forward->splits.left[before.groups + group], 1) == 1)
        attn_partial_finish(decoder, first_slot, splits);
}
