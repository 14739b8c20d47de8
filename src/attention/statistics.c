/* Statistics of a row.  The sums that a panel kept are relative to its reference, so a
 * share is sum · inverse. */
#include "attention/statistics.h"
#include <math.h>

static attn_status check_classes(attn_context *context, const char *function,
                                 const struct attn_problem *problem)
{
    const attn_statistics *const wanted = &problem->tensors->statistics;
    if (!wanted->class_mass)
        return ATTN_OK;
    if (wanted->classes < 1 || wanted->classes > 64)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: statistics.classes is %lld, expected 1 to 64",
                                 function, (long long)wanted->classes);
    if (!wanted->key_class && problem->shape->Lk > 0)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: statistics.key_class is NULL, expected a class for "
                                 "each key",
                                 function);
    const int64_t stride[4] = {wanted->key_class_stride, 0, 0, 1};
    const int64_t extent[4] = {problem->shape->B, 1, 1, problem->shape->Lk};
    ATTN_TRY(
        attn_check_strides(context, function, "statistics.key_class", stride, extent));
    for (int64_t s = 0; s < problem->sequences; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        const int64_t begin = sequence.b * wanted->key_class_stride + sequence.first_key;
        for (int64_t j = begin; j < begin + sequence.Lk; j++)
            if (wanted->key_class[j] >= wanted->classes)
                return attn_context_fail(context, ATTN_EINVAL,
                                         "%s: statistics.key_class[%lld] is %d, expected "
                                         "less than classes, %lld",
                                         function, (long long)j, wanted->key_class[j],
                                         (long long)wanted->classes);
    }
    return ATTN_OK;
}

attn_status attn_check_statistics(attn_context *context, const char *function,
                                  const struct attn_problem *problem)
{
    const attn_statistics *const wanted = &problem->tensors->statistics;
    if ((wanted->top_weight || wanted->top_key) && (wanted->top < 1 || wanted->top > 64))
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: statistics.top is %lld, expected 1 to 64", function,
                                 (long long)wanted->top);
    /* Panels keep 32 bits of a key. */
    if ((wanted->top_weight || wanted->top_key) && problem->shape->Lk > (int64_t)1 << 32)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: shape.Lk is %lld, expected at most 2^32 where "
                                 "statistics.top is wanted",
                                 function, (long long)problem->shape->Lk);
    return check_classes(context, function, problem);
}

struct attn_sweep attn_statistics_sweep(const attn_statistics *wanted)
{
    const bool top = wanted->top_weight || wanted->top_key;
    return (struct attn_sweep){
        .entropy = wanted->entropy,
        .distance = wanted->distance || wanted->signed_distance,
        .largest = !top && (wanted->largest_weight || wanted->largest_key),
        .places = wanted->first_key_mass || wanted->own_mass || wanted->previous_mass ||
                  wanted->next_mass,
        .classes = wanted->class_mass ? (size_t)wanted->classes : 0,
        .top = top ? (size_t)wanted->top : 0,
    };
}

bool attn_statistics_any(const attn_statistics *wanted)
{
    const struct attn_sweep sweep = attn_statistics_sweep(wanted);
    return sweep.entropy || sweep.distance || sweep.largest || sweep.classes > 0 ||
           sweep.top > 0 || sweep.places;
}

/* The sum of a row with a sink, relative to the larger of both. */
struct row_total {
    double larger, share, total; /* share of e^reference */
};

static struct row_total total_of_row(float reference, float sum, double sink)
{
    const double larger = (double)reference > sink ? (double)reference : sink;
    const double share = exp((double)reference - larger);
    return (struct row_total){larger, share, (double)sum * share + exp(sink - larger)};
}

float attn_inverse_with_sink(float reference, float sum, double sink)
{
    const struct row_total row = total_of_row(reference, sum, sink);
    return (float)(row.share / row.total);
}

struct attn_row_end attn_end_of_row(float reference, float sum, double sink)
{
    struct attn_row_end end = {.inverse = attn_inverse_of_row(reference, sum, sink)};
    if (sink == -HUGE_VAL) {
        end.above = (double)logf(sum);
        end.lse = (double)reference + end.above;
        return end;
    }
    const struct row_total row = total_of_row(reference, sum, sink);
    end.lse = row.larger + log(row.total);
    end.above = row.larger - (double)reference + log(row.total);
    return end;
}

/* −Σ w ln w = Σ w (lse − score) = Σ w · (lse − reference) − Σ w (score − reference). */
static float entropy_of(const struct attn_panel *panel, size_t lane,
                        struct attn_row_end end)
{
    const double entropy = (double)end.inverse * ((double)panel->sum[lane] * end.above -
                                                  (double)panel->entropy_sum[lane]);
    return entropy < 0.0 ? 0.0f : attn_one_nan((float)entropy);
}

static void store(float *to, int64_t index, float x)
{
    if (to)
        to[index] = attn_one_nan(x);
}

/* The weight of one score, which may be −∞. */
static void store_weight(float *to, int64_t index, const struct attn_panel *panel,
                         size_t lane, float score, struct attn_row_end end)
{
    if (to)
        to[index] = attn_one_nan(expf(score - panel->reference[lane]) * end.inverse);
}

static int64_t top_key_of(const struct attn_panel *panel, size_t index)
{
    return panel->top_score[index] == -INFINITY
               ? -1
               : (int64_t)(uint32_t)panel->top_key[index];
}

static void store_largest(const attn_statistics *to, int64_t row,
                          const struct attn_panel *panel, size_t lane,
                          struct attn_row_end end)
{
    const bool top = to->top_weight || to->top_key;
    store_weight(to->largest_weight, row, panel, lane,
                 top ? panel->top_score[lane] : panel->largest_score[lane], end);
    if (to->largest_key)
        to->largest_key[row] = top ? top_key_of(panel, lane) : panel->largest_key[lane];
}

static void store_top(const attn_statistics *to, int64_t row,
                      const struct attn_panel *panel, size_t lane, size_t width,
                      struct attn_row_end end)
{
    const size_t top = (size_t)to->top;
    for (size_t n = 0; n < top; n++) {
        const int64_t index = row * to->top + (int64_t)n;
        store_weight(to->top_weight, index, panel, lane,
                     panel->top_score[n * width + lane], end);
        if (to->top_key)
            to->top_key[index] = top_key_of(panel, n * width + lane);
    }
}

static void store_zeros(const attn_statistics *to, int64_t row)
{
    float *const floats[] = {to->entropy,         to->largest_weight, to->distance,
                             to->signed_distance, to->first_key_mass, to->own_mass,
                             to->previous_mass,   to->next_mass};
    for (size_t n = 0; n < sizeof floats / sizeof *floats; n++)
        store(floats[n], row, 0.0f);
    if (to->largest_key)
        to->largest_key[row] = -1;
    for (int64_t c = 0; to->class_mass && c < to->classes; c++)
        to->class_mass[row * to->classes + c] = 0.0f;
    const bool top = to->top_weight || to->top_key;
    for (int64_t n = 0; top && n < to->top; n++) {
        store(to->top_weight, row * to->top + n, 0.0f);
        if (to->top_key)
            to->top_key[row * to->top + n] = -1;
    }
}

void attn_statistics_store(const attn_statistics *to, int64_t row,
                           const struct attn_panel *panel, size_t lane, size_t width,
                           struct attn_row_end end)
{
    if (panel->sum[lane] == 0.0f) { /* visible_keys is another's business */
        store_zeros(to, row);
        return;
    }
    store_largest(to, row, panel, lane, end);
    float *const places[ATTN_PLACES] = {to->first_key_mass, to->previous_mass,
                                        to->own_mass, to->next_mass};
    for (size_t n = 0; n < ATTN_PLACES; n++)
        store_weight(places[n], row, panel, lane, panel->place_score[n][lane], end);
    store(to->distance, row, panel->distance_sum[lane] * end.inverse);
    store(to->signed_distance, row, panel->signed_sum[lane] * end.inverse);
    if (to->entropy)
        to->entropy[row] = entropy_of(panel, lane, end);
    for (int64_t c = 0; to->class_mass && c < to->classes; c++)
        to->class_mass[row * to->classes + c] =
            attn_one_nan(panel->class_sum[(size_t)c * width + lane] * end.inverse);
    if (to->top_weight || to->top_key)
        store_top(to, row, panel, lane, width, end);
}

void attn_statistics_store_nothing(const attn_statistics *to, int64_t row)
{
    store_zeros(to, row);
    if (to->visible_keys)
        to->visible_keys[row] = 0;
}
