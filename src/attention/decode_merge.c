/* Decoding: what a split of the keys leaves behind for each head, how such partial
 * results become one, and how the row of the output and its statistics are stored from
 * it.  Sums are relative to a reference, the largest score so far: of two, the one with
 * the smaller reference r is multiplied by exp(r − the larger) first. */
#include "attention/decode_merge.h"
#include "attention/decode_layout.h"
#include "attention/received.h"
#include "kernel/backward_table.h"
#include <math.h>
#include <string.h>

enum {
    MOST_CLASSES = 64,
    MOST_TOP = 64,
};

/* One head over one split.  In memory follow top_score, top_key, class_sum, output. */
struct partial {
    float reference, sum, rounded_sum, entropy_sum, distance_sum, signed_sum,
        largest_score;
    float places[ATTN_PLACES]; /* scores of key 0, of the key before the own position,
                                * there, after; −∞ where not seen */
    int64_t largest_key, visible_keys;
    double forgotten; /* ln of what the split's gates leave; then, of what is left at the
                       * query of what was there at the split's end */
};

struct partial_parts {
    struct partial *sums;
    float *top_score;
    int32_t *top_key;
    float *class_sum, *output;
};

size_t attn_partial_bytes(const struct attn_forward *forward, size_t output_stride)
{
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    const size_t per_top = sizeof(float) + sizeof(int32_t);
    return attn_round_up(sizeof(struct partial) + top * per_top +
                         classes * sizeof(float)) +
           attn_round_up(output_stride * sizeof(float));
}

static struct partial_parts parts_of(const struct attn_forward *forward, int64_t slot,
                                     int64_t head)
{
    const struct attn_splits *const splits = &forward->splits;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    char *const memory =
        splits->partials +
        (size_t)(slot * attn_decode_heads(forward) + head) * splits->head_bytes;
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

/* Keys of a top are unsigned in their 32 bits. */
static int64_t top_key(const struct partial_parts *parts, size_t n)
{
    return (int64_t)(uint32_t)parts->top_key[n];
}

static void insert_top(const struct partial_parts *into, size_t top, float score,
                       int64_t key)
{
    size_t place = top;
    for (; place > 0 &&
           outranks(score, key, into->top_score[place - 1], top_key(into, place - 1));
         place--) {
        if (place == top)
            continue;
        into->top_score[place] = into->top_score[place - 1];
        into->top_key[place] = into->top_key[place - 1];
    }
    if (place < top) {
        into->top_score[place] = score;
        into->top_key[place] = (int32_t)(uint32_t)key;
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
    p->rounded_sum *= factor;
    p->distance_sum *= factor;
    p->signed_sum *= factor;
    p->reference = reference;
}

/* The same, of one row over more keys; outputs are not touched.  Sets what either's
 * output has to be multiplied by.  `from` is used up: it becomes relative to the same
 * reference. */
static void merge_sums(const struct attn_forward *forward, struct partial_parts *into,
                       const struct partial_parts *from, float factors[2])
{
    struct partial *const a = into->sums, *const b = from->sums;
    const float larger = a->reference > b->reference ? a->reference : b->reference;
    factors[0] = a->reference == larger ? 1.0f : expf(a->reference - larger);
    factors[1] = b->reference == larger ? 1.0f : expf(b->reference - larger);
    rebase(a, larger, factors[0]);
    rebase(b, larger, factors[1]);
    a->sum += b->sum;
    a->rounded_sum += b->rounded_sum;
    a->entropy_sum += b->entropy_sum;
    a->distance_sum += b->distance_sum;
    a->signed_sum += b->signed_sum;
    a->visible_keys += b->visible_keys;
    if (outranks(b->largest_score, b->largest_key, a->largest_score, a->largest_key)) {
        a->largest_score = b->largest_score;
        a->largest_key = b->largest_key;
    }
    for (size_t n = 0; n < ATTN_PLACES; n++)
        if (b->places[n] != -INFINITY)
            a->places[n] = b->places[n];
    for (size_t n = 0; n < forward->sweep.classes; n++)
        into->class_sum[n] =
            into->class_sum[n] * factors[0] + from->class_sum[n] * factors[1];
    for (size_t n = 0; n < forward->sweep.top; n++)
        insert_top(into, forward->sweep.top, from->top_score[n], top_key(from, n));
}

/* Field by field: gcc 12 makes a struct on the stack and copies it 16 bytes at a time,
 * which waits for what was stored 4 bytes at a time just before. */
static void sums_of_lane(struct partial *to, const struct attn_panel *lanes, size_t lane)
{
    to->reference = lanes->reference[lane];
    to->sum = lanes->sum[lane];
    to->rounded_sum = lanes->rounded_sum[lane];
    to->entropy_sum = lanes->entropy_sum[lane];
    to->distance_sum = lanes->distance_sum[lane];
    to->signed_sum = lanes->signed_sum[lane];
    to->largest_score = lanes->largest_score[lane];
    to->largest_key = lanes->largest_key[lane];
    to->visible_keys = 0;
    to->forgotten = 0.0;
    for (size_t n = 0; n < ATTN_PLACES; n++)
        to->places[n] = -INFINITY;
}

/* One lane's share of class sums and top. */
static void take_lane(const struct attn_forward *forward, const struct attn_panel *lanes,
                      size_t lane, const struct partial_parts *to)
{
    const size_t width = forward->kernels->lanes;
    sums_of_lane(to->sums, lanes, lane);
    for (size_t c = 0; c < forward->sweep.classes; c++)
        to->class_sum[c] = lanes->class_sum[c * width + lane];
    for (size_t n = 0; n < forward->sweep.top; n++) {
        to->top_score[n] = lanes->top_score[n * width + lane];
        to->top_key[n] = lanes->top_key[n * width + lane];
    }
}

void attn_partial_store(const struct attn_decoder *decoder, int64_t slot, size_t n,
                        const float places[ATTN_PLACES], int64_t visible)
{
    const struct attn_forward *const forward = decoder->forward;
    const struct attn_decode_panel *const panel = &decoder->panel;
    struct partial_parts to = parts_of(forward, slot, (int64_t)n);
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
    to.sums->forgotten = decoder->behind ? decoder->forgotten[n] : 0.0;
    memcpy(to.output, panel->output + n * panel->output_stride,
           panel->output_stride * sizeof *to.output);
}

/* What was forgotten after a split lowers all its scores alike, and all that is relative
 * to them stays. */
static void forget(struct partial_parts *parts, size_t top, float later)
{
    struct partial *const p = parts->sums;
    if (p->reference == -INFINITY) /* what saw no key knows no NaN */
        return;
    p->reference += later;
    p->largest_score += later;
    for (size_t n = 0; n < ATTN_PLACES; n++)
        p->places[n] += later;
    for (size_t n = 0; n < top; n++)
        parts->top_score[n] += later;
}

/* From the query back, so that nothing cancels. */
static void forget_after_splits(const struct attn_forward *forward, int64_t head,
                                int64_t first_slot, int64_t splits)
{
    double later = 0.0;
    for (int64_t split = splits - 1; split >= 0; split--) {
        struct partial_parts parts = parts_of(forward, first_slot + split, head);
        const double own = parts.sums->forgotten;
        forget(&parts, forward->sweep.top, (float)later);
        parts.sums->forgotten = later;
        later += own;
    }
}

/* Shows the statistics a panel of this one row. */
static void show_row(struct attn_decoder *decoder, const struct partial_parts *parts)
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
    for (size_t p = 0; p < ATTN_PLACES; p++)
        row->place_score[p][0] = sums->places[p];
}

static void store_row(struct attn_decoder *decoder, const struct attn_head *head,
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
    const float sum =
        decoder->panel.query_pairs ? parts->sums->rounded_sum : parts->sums->sum;
    const struct attn_row_end of_output =
        attn_end_of_row(parts->sums->reference, sum, (double)head->sink);
    forward->kernels->backward->put(&output, parts->output, 0, of_output.inverse);
    if (tensors->lse)
        tensors->lse[head->row] = (float)end.lse;
    if (tensors->statistics.visible_keys)
        tensors->statistics.visible_keys[head->row] = parts->sums->visible_keys;
    if (forward->statistics) {
        show_row(decoder, parts);
        attn_statistics_store(&tensors->statistics, head->row, &decoder->row, 0, 1, end);
    }
}

/* From the scores that splits left there. */
static void store_received(const struct attn_decoder *decoder, int64_t n,
                           int64_t first_slot, int64_t splits)
{
    const struct attn_forward *const forward = decoder->forward;
    const struct attn_head *const head = &decoder->heads[n];
    const struct partial *const total = parts_of(forward, first_slot, n).sums;
    const struct attn_row_end end =
        attn_end_of_row(total->reference, total->sum, (double)head->sink);
    float *const row = attn_received_row(forward, &decoder->sequence, head->h, 0);
    struct attn_key_range keys = {0, 0};
    for (int64_t i = 0; i < splits; i++) {
        attn_decode_next_split(forward->problem, &decoder->sequence, &keys);
        const float later = (float)parts_of(forward, first_slot + i, n).sums->forgotten;
        for (int64_t key = keys.first; decoder->behind && key < keys.end; key++)
            row[key] += later;
        attn_received_weigh(row + keys.first, keys.end - keys.first, forward->kernels,
                            total->reference, end.inverse);
    }
}

void attn_partial_finish(struct attn_decoder *decoder, int64_t first_slot, int64_t splits)
{
    const struct attn_forward *const forward = decoder->forward;
    for (int64_t n = 0; n < decoder->count; n++) {
        struct partial_parts total = parts_of(forward, first_slot, n);
        if (decoder->behind)
            forget_after_splits(forward, n, first_slot, splits);
        for (int64_t split = 1; split < splits; split++) {
            const struct partial_parts next = parts_of(forward, first_slot + split, n);
            float factors[2];
            merge_sums(forward, &total, &next, factors);
            forward->kernels->decode->merge(total.output, factors[0], next.output,
                                            factors[1], decoder->panel.output_stride);
        }
        store_row(decoder, &decoder->heads[n], &total);
        if (forward->problem->tensors->statistics.received)
            store_received(decoder, n, first_slot, splits);
        const struct attn_walk walk = {.problem = forward->problem,
                                       .sequence = decoder->sequence,
                                       .head = decoder->heads[n]};
        if (!forward->problem->packed)
            attn_store_padding(&walk);
    }
}
