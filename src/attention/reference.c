/* Attention as one would write it on a blackboard, in double precision: no blocks, no
 * vectors, one query at a time.  This file defines what is right; forward.c is only
 * faster.  Hidden keys are skipped rather than multiplied by 0, because 0 · NaN is NaN.
 */
#include "attention/reference.h"
#include "kernel/dropout.h"
#include <math.h>
#include <stdlib.h>

/* ---- Where a query stands ------------------------------------------------------------
 */

/* A query's sequence is all of batch b, or its first so many rows, or a piece of a pack.
 */
struct sequence {
    int64_t index; /* b, or the number of the piece */
    int64_t first_query, queries;
    int64_t first_key, keys;
};

static struct sequence sequence_of(const attn_shape *shape, const attn_options *options,
                                   int64_t b, int64_t i)
{
    if (!options->query_starts)
        return (struct sequence){
            .index = b,
            .queries = options->query_lengths ? options->query_lengths[b] : shape->Lq,
            .keys = options->key_lengths ? options->key_lengths[b] : shape->Lk,
        };
    int64_t s = 0;
    while (options->query_starts[s + 1] <= i)
        s++;
    return (struct sequence){
        .index = s,
        .first_query = options->query_starts[s],
        .queries = options->query_starts[s + 1] - options->query_starts[s],
        .first_key = options->key_starts[s],
        .keys = options->key_starts[s + 1] - options->key_starts[s],
    };
}

static int64_t offset_of(const attn_options *options, const struct sequence *sequence)
{
    switch (options->alignment) {
    case ATTN_ALIGN_TOP_LEFT:
        return 0;
    case ATTN_ALIGN_OFFSET:
        return options->query_offset;
    case ATTN_ALIGN_BOTTOM_RIGHT:
        break;
    }
    return sequence->keys - sequence->queries;
}

/* ---- What it sees --------------------------------------------------------------------
 */

static int64_t offset_in(const int64_t stride[4], int64_t b, int64_t h, int64_t l,
                         int64_t d)
{
    return b * stride[0] + h * stride[1] + l * stride[2] + d * stride[3];
}

static double element(const attn_input *x, int64_t b, int64_t h, int64_t l, int64_t d)
{
    return attn_reference_load(x->data, x->type, offset_in(x->stride, b, h, l, d));
}

/* Row l as doubles. */
static void load_row(double *to, const attn_input *x, int64_t b, int64_t h, int64_t l,
                     int64_t size)
{
    const int64_t first = offset_in(x->stride, b, h, l, 0), step = x->stride[3];
    for (int64_t d = 0; d < size; d++)
        to[d] = attn_reference_load(x->data, x->type, first + d * step);
}

/* By the rules of position: query and key count within their sequence. */
static bool is_in_reach(const attn_options *options, int64_t position, int64_t key)
{
    if (options->causal && key > position)
        return false;
    if (key < options->sink_keys)
        return true; /* whatever the window says */
    if (options->window_left >= 0 && key < position - options->window_left)
        return false;
    if (options->window_right >= 0 && key > position + options->window_right)
        return false;
    return true;
}

/* By the layout of blocks: query and key count within their sequence. */
static bool is_in_block(const attn_options *options, int64_t b, int64_t h, int64_t query,
                        int64_t key)
{
    const int64_t size = options->block_size;
    return !options->blocks.data ||
           options->blocks
               .data[offset_in(options->blocks.stride, b, h, query / size, key / size)];
}

/* By the rules given as data: query and key count in the tensors. */
static bool is_kept(const attn_options *options, int64_t b, int64_t h, int64_t i,
                    int64_t j)
{
    if (options->keep.data &&
        !options->keep.data[offset_in(options->keep.stride, b, h, i, j)])
        return false;
    return !options->bias.data || element(&options->bias, b, h, i, j) != -HUGE_VAL;
}

/* ---- One query -----------------------------------------------------------------------
 */

/* F of each key: the sum of ln f up to it.  Below −10000 nothing is left of a weight, and
 * sums stay finite. */
static void sum_gates(struct attn_reference_row *row, const attn_options *options,
                      int64_t b, int64_t h)
{
    double sum = 0.0;
    for (int64_t j = 0; j < row->keys; j++) {
        if (options->log_forget.data) {
            const double x = element(&options->log_forget, b, h, row->first_key + j, 0);
            sum += x < -10000.0 ? -10000.0 : x;
        }
        row->forgotten[j] = sum;
    }
}

/* F(position) − F(key): positions without a key forget nothing. */
static double gates_between(const struct attn_reference_row *row, int64_t key)
{
    const int64_t last = row->position < row->keys ? row->position : row->keys - 1;
    return row->forgotten[last] - row->forgotten[key];
}

/* What one element of query and key adds to a product; place is in [H][D]. */
static double term_of(const attn_options *options, int64_t place, double q, double k)
{
    switch (options->score) {
    case ATTN_SCORE_ADDITIVE:
        return (double)options->additive[place] * tanh(q + k);
    case ATTN_SCORE_LINEAR:
        return attn_reference_feature(q, options->feature) *
               attn_reference_feature(k, options->feature);
    case ATTN_SCORE_DOT:
        break;
    }
    return q * k;
}

/* s = softcap(scale · q·k) + bias − slope · |position − key| + F(position) − F(key), for
 * each visible key; with additive scores v·tanh(q + k) instead of q·k, with linear ones
 * ln φ(q)·φ(k) instead of scale · q·k. */
static void score_keys(struct attn_reference_row *row, const attn_shape *shape,
                       const attn_tensors *t, const attn_options *options, int64_t b,
                       int64_t h, int64_t i)
{
    const int64_t hk = h / (shape->H / shape->Hk);
    row->visible_keys = 0;
    load_row(row->query_row, &t->query, b, h, i, shape->D);
    sum_gates(row, options, b, h);
    for (int64_t j = 0; j < row->keys; j++) {
        const int64_t key = row->first_key + j;
        row->visible[j] = !row->padding && is_in_reach(options, row->position, j) &&
                          is_in_block(options, b, h, row->query, j) &&
                          is_kept(options, b, h, i, key);
        row->score[j] = -HUGE_VAL;
        row->slope[j] = 1.0;
        if (!row->visible[j])
            continue;
        row->visible_keys++;

        double score = 0.0;
        load_row(row->key_row, &t->key, b, hk, key, shape->D);
        for (int64_t d = 0; d < shape->D; d++)
            score +=
                term_of(options, h * shape->D + d, row->query_row[d], row->key_row[d]);
        score = options->score == ATTN_SCORE_LINEAR ? log(score)
                                                    : score * (double)options->scale;
        if (options->softcap > 0.0f) {
            const double tangent = tanh(score / (double)options->softcap);
            score = (double)options->softcap * tangent;
            row->slope[j] = 1.0 - tangent * tangent;
        }
        if (options->bias.data)
            score += element(&options->bias, b, h, i, key);
        if (options->alibi_slopes)
            score -= (double)options->alibi_slopes[h] * fabs((double)(row->position - j));
        if (options->log_forget.data)
            score += gates_between(row, j);
        row->score[j] = score;
    }
}

/* w = exp(s) / Σ exp(s), the sink being one more term of the sum.  The largest score is
 * taken out so that exp cannot overflow.  When nothing is visible the sum is 0, and so is
 * every weight. */
static void weigh_keys(struct attn_reference_row *row, double sink)
{
    double largest = sink;
    for (int64_t j = 0; j < row->keys; j++)
        if (row->visible[j] && row->score[j] > largest)
            largest = row->score[j];
    if (largest == -HUGE_VAL)
        largest = 0.0;

    double sum = exp(sink - largest);
    row->sink_weight = sum;
    for (int64_t j = 0; j < row->keys; j++) {
        row->weight[j] = row->visible[j] ? exp(row->score[j] - largest) : 0.0;
        sum += row->weight[j];
    }
    row->lse = largest + log(sum);
    if (sum == 0.0)
        return;
    if (sink != -HUGE_VAL) /* none: it has no weight even where the sum is NaN */
        row->sink_weight /= sum;
    for (int64_t j = 0; j < row->keys; j++)
        if (row->score[j] != -HUGE_VAL) /* whose weight is 0 even in a row of NaN */
            row->weight[j] /= sum;
}

static void drop_keys(struct attn_reference_row *row, const attn_options *options,
                      const struct sequence *sequence, int64_t h, int64_t i)
{
    const int32_t threshold = attn_dropout_threshold(options->dropout);
    const struct attn_dropout_row draws = attn_dropout_row(
        options->dropout_seed, sequence->index, h, i - sequence->first_query);
    for (int64_t j = 0; j < row->keys; j++) {
        row->kept[j] = 1.0;
        if (options->dropout > 0.0)
            row->kept[j] = attn_dropout_keeps(draws, (uint32_t)j, threshold)
                               ? attn_dropout_factor(options->dropout)
                               : 0.0;
    }
}

void attn_reference_attend(struct attn_reference_row *row, const attn_shape *shape,
                           const attn_tensors *tensors, const attn_options *options,
                           int64_t b, int64_t h, int64_t i)
{
    const struct sequence sequence = sequence_of(shape, options, b, i);
    row->padding = i - sequence.first_query >= sequence.queries;
    row->query = i - sequence.first_query;
    row->position = row->query + offset_of(options, &sequence);
    row->first_key = sequence.first_key;
    row->keys = sequence.keys;

    score_keys(row, shape, tensors, options, b, h, i);
    const bool has_sink = options->sinks && !row->padding;
    weigh_keys(row, has_sink ? (double)options->sinks[h] : -HUGE_VAL);
    drop_keys(row, options, &sequence, h, i);

    const int64_t hk = h / (shape->H / shape->Hk);
    for (int64_t d = 0; d < shape->Dv; d++)
        row->output[d] = 0.0;
    for (int64_t j = 0; j < row->keys; j++) {
        if (!row->visible[j])
            continue;
        load_row(row->value_row, &tensors->value, b, hk, row->first_key + j, shape->Dv);
        for (int64_t d = 0; d < shape->Dv; d++)
            row->output[d] += row->weight[j] * row->kept[j] * row->value_row[d];
    }
}

/* ---- What one can say about it --------------------------------------------------------
 */

static double weight_of(const struct attn_reference_row *row, int64_t key)
{
    return key >= 0 && key < row->keys ? row->weight[key] : 0.0;
}

static double entropy_of(const struct attn_reference_row *row)
{
    double entropy = 0.0;
    for (int64_t j = 0; j < row->keys; j++)
        if (row->weight[j] != 0.0) /* 0 · ln 0 = 0 */
            entropy -= row->weight[j] * log(row->weight[j]);
    return entropy;
}

static double distance_of(const struct attn_reference_row *row, bool is_signed)
{
    double distance = 0.0;
    for (int64_t j = 0; j < row->keys; j++) {
        const double step = (double)(row->position - j);
        distance += row->weight[j] * (is_signed ? step : fabs(step));
    }
    return distance;
}

/* The keys with the largest weights, the lowest first on a tie; −1 where there are fewer.
 * Scores are compared: a weight may be too small for a double and be one all the same. */
static void largest_keys(const struct attn_reference_row *row, int64_t *keys,
                         int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        keys[n] = -1;
        for (int64_t j = 0; j < row->keys; j++) {
            bool candidate = row->visible[j] && row->score[j] > -HUGE_VAL;
            for (int64_t taken = 0; taken < n; taken++)
                candidate = candidate && keys[taken] != j;
            if (candidate && (keys[n] < 0 || row->score[j] > row->score[keys[n]]))
                keys[n] = j;
        }
    }
}

static void add_class_masses(float *mass, const attn_statistics *wanted,
                             const struct attn_reference_row *row, int64_t b)
{
    double sums[64] = {0.0};
    for (int64_t j = 0; j < row->keys; j++)
        sums[wanted->key_class[b * wanted->key_class_stride + row->first_key + j]] +=
            row->weight[j];
    for (int64_t c = 0; c < wanted->classes; c++)
        mass[c] = isnan(row->lse) ? NAN : (float)sums[c];
}

/* `index` is where the row stands in [B][H][Lq]. */
static void store_statistics(const attn_statistics *to, int64_t index,
                             const struct attn_reference_row *row, int64_t b)
{
    int64_t largest = -1;
    largest_keys(row, &largest, 1);
    const bool is_nan = isnan(row->lse);
    const struct {
        float *to;
        double value;
    } numbers[] = {
        {to->entropy, entropy_of(row)},
        {to->largest_weight, weight_of(row, largest)},
        {to->distance, distance_of(row, false)},
        {to->signed_distance, distance_of(row, true)},
        {to->first_key_mass, weight_of(row, 0)},
        {to->own_mass, weight_of(row, row->position)},
        {to->previous_mass, weight_of(row, row->position - 1)},
        {to->next_mass, weight_of(row, row->position + 1)},
    };
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        if (numbers[n].to)
            numbers[n].to[index] = is_nan ? NAN : (float)numbers[n].value;
    if (to->largest_key)
        to->largest_key[index] = largest;
    if (to->visible_keys)
        to->visible_keys[index] = row->visible_keys;
    if (to->class_mass)
        add_class_masses(to->class_mass + index * to->classes, to, row, b);
    if (to->top_weight || to->top_key) {
        int64_t keys[64];
        largest_keys(row, keys, to->top);
        for (int64_t n = 0; n < to->top; n++) {
            if (to->top_weight)
                to->top_weight[index * to->top + n] =
                    is_nan ? NAN : (float)weight_of(row, keys[n]);
            if (to->top_key)
                to->top_key[index * to->top + n] = keys[n];
        }
    }
}

/* ---- All of them ----------------------------------------------------------------------
 */

bool attn_reference_row_create(struct attn_reference_row *row, const attn_shape *shape)
{
    const size_t keys = (size_t)shape->Lk + 1; /* never nothing */
    *row = (struct attn_reference_row){
        .visible = calloc(keys, sizeof *row->visible),
        .score = calloc(keys, sizeof *row->score),
        .slope = calloc(keys, sizeof *row->slope),
        .forgotten = calloc(keys, sizeof *row->forgotten),
        .weight = calloc(keys, sizeof *row->weight),
        .kept = calloc(keys, sizeof *row->kept),
        .output = calloc((size_t)shape->Dv, sizeof *row->output),
        .query_row = calloc((size_t)shape->D, sizeof *row->query_row),
        .key_row = calloc((size_t)shape->D, sizeof *row->key_row),
        .value_row = calloc((size_t)shape->Dv, sizeof *row->value_row),
    };
    if (row->visible && row->score && row->slope && row->forgotten && row->weight &&
        row->kept && row->output && row->query_row && row->key_row && row->value_row)
        return true;
    attn_reference_row_destroy(row);
    return false;
}

void attn_reference_row_destroy(struct attn_reference_row *row)
{
    free(row->visible);
    free(row->score);
    free(row->slope);
    free(row->forgotten);
    free(row->weight);
    free(row->kept);
    free(row->output);
    free(row->query_row);
    free(row->key_row);
    free(row->value_row);
    *row = (struct attn_reference_row){0};
}

static void forward_of_head(struct attn_reference_row *row, double *received,
                            const attn_shape *shape, const attn_tensors *tensors,
                            const attn_options *options, int64_t b, int64_t h)
{
    const attn_statistics *const statistics = &tensors->statistics;
    for (int64_t j = 0; j < shape->Lk; j++)
        received[j] = 0.0;
    for (int64_t i = 0; i < shape->Lq; i++) {
        const int64_t index = (b * shape->H + h) * shape->Lq + i;
        attn_reference_attend(row, shape, tensors, options, b, h, i);
        for (int64_t d = 0; d < shape->Dv; d++)
            attn_reference_store(tensors->output.data, tensors->output.type,
                                 offset_in(tensors->output.stride, b, h, i, d),
                                 row->output[d]);
        if (tensors->lse)
            tensors->lse[index] = (float)row->lse;
        store_statistics(statistics, index, row, b);
        for (int64_t j = 0; j < row->keys; j++)
            received[row->first_key + j] += row->weight[j];
    }
    for (int64_t j = 0; j < shape->Lk && statistics->received; j++)
        statistics->received[(b * shape->H + h) * shape->Lk + j] = (float)received[j];
}

attn_status attn_forward_reference(const attn_shape *shape, const attn_tensors *tensors,
                                   const attn_options *options)
{
    struct attn_reference_row row;
    if (!attn_reference_row_create(&row, shape))
        return ATTN_ENOMEM;
    double *const received = calloc((size_t)shape->Lk + 1, sizeof *received);
    for (int64_t b = 0; b < shape->B && received; b++)
        for (int64_t h = 0; h < shape->H; h++)
            forward_of_head(&row, received, shape, tensors, options, b, h);
    attn_reference_row_destroy(&row);
    free(received);
    return received ? ATTN_OK : ATTN_ENOMEM;
}
