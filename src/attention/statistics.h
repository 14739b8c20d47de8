/* The statistics of attn_forward, from the sums that a panel keeps. */
#ifndef ATTN_ATTENTION_STATISTICS_H
#define ATTN_ATTENTION_STATISTICS_H

#include "attention/panel.h"
#include <math.h>

/* Pointers, classes and top; the problem was checked before. */
ATTN_CHECKED attn_status attn_check_statistics(attn_context *context,
                                               const char *function,
                                               const struct attn_problem *problem);

/* Whether panels have anything to keep or to store: all but visible_keys and received. */
bool attn_statistics_any(const attn_statistics *wanted);

/* What softmax must keep for them; key_class is set for each sequence. */
struct attn_sweep attn_statistics_sweep(const attn_statistics *wanted);

/* Which NaN a row's sums have is up to the compiler: what is stored has one of them. */
static inline float attn_one_nan(float x)
{
    return isnan(x) ? NAN : x;
}

/* How one row ended: weight = e^(score − lse) = e^(score − reference) · inverse. */
struct attn_row_end {
    double lse;    /* with the sink; −∞ if there is neither key nor sink */
    double above;  /* lse − reference, exact where lse is too large to hold it */
    float inverse; /* 0 for an empty row */
};

/* Σ e^score is e^reference · sum, and the sink, −∞ for none, adds e^sink. */
struct attn_row_end attn_end_of_row(float reference, float sum, double sink);

/* Its inverse alone, without a logarithm. */
float attn_inverse_with_sink(float reference, float sum, double sink);
static inline float attn_inverse_of_row(float reference, float sum, double sink)
{
    if (sum == 0.0f)
        return 0.0f;
    return sink == -HUGE_VAL ? 1.0f / sum : attn_inverse_with_sink(reference, sum, sink);
}

/* row is where the query stands in [B][H][Lq]. */
void attn_statistics_store(const attn_statistics *to, int64_t row,
                           const struct attn_panel *panel, size_t lane, size_t width,
                           struct attn_row_end end);

/* Of a query that is padding. */
void attn_statistics_store_nothing(const attn_statistics *to, int64_t row);

#endif
