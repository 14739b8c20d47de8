/* Which token follows: the most likely one, or one drawn from what is left of the
 * distribution after the usual cuts. */
#ifndef ATTN_MODEL_SAMPLING_H
#define ATTN_MODEL_SAMPLING_H

#include "base/error.h"

/** Applied in this order, that of Hugging Face's `generate`. */
typedef struct attn_sampling_options {
    const int32_t *never; /* ids that are not written, [never_count] */
    size_t never_count;
    double repetition_penalty; /* r > 0: logits of ids that were read or written are
                                * divided by r where they are positive, else multiplied
                                * (Keskar et al. 2019, section 4.1); 1: none */
    double temperature; /* logits are divided by it; 0: the largest, with no draw */
    int64_t top_k;      /* the k largest only, ties by the lower id; 0: all */
    double
        top_p;    /* of those, falling, the fewest that sum to p (Holtzman et al. 2020,
                   * section 3.1): the one that reaches p included, one at least; 1: all */
    double min_p; /* of those, the ones of at least this part of the largest's probability
                   * (Nguyen et al. 2024); 0: all */
    uint64_t seed;
} attn_sampling_options;

/** Greedy: temperature 0, and what is without effect for the rest. */
void attn_sampling_options_init(attn_sampling_options *options);

/** ATTN_OK, or ATTN_EINVAL with what was got and expected. */
ATTN_CHECKED attn_status attn_sampling_check(const attn_sampling_options *options,
                                             attn_error *error);

/** A token that may follow. */
typedef struct attn_candidate {
    int32_t id;
    double logit; /* after the penalty */
    double probability;
} attn_candidate;

/**
 * The candidates that are left, by falling probability, ties by rising id, down to the
 * first with which their probabilities sum to more than `point`, which is the one that is
 * drawn there.  All their probabilities sum to 1.  With temperature 0 it is the largest
 * alone.
 *
 * @param before      [before_count], the ids that were read or written.
 * @param point       0 to below 1, see attn_sampling_point; INFINITY: all candidates.
 * @param candidates  room for one a token of the vocabulary; what those beyond *count
 *                    hold is not defined.
 * @return ATTN_OK; ATTN_EINVAL (options), or ATTN_ENOTFINITE: a logit is NaN or +∞, or
 *         none is above −∞.
 */
ATTN_CHECKED attn_status attn_sampling_candidates(const attn_sampling_options *options,
                                                  const float *logits, int64_t vocabulary,
                                                  const int32_t *before,
                                                  size_t before_count, double point,
                                                  attn_candidate *candidates,
                                                  size_t *count, attn_error *error);

/** Uniform in [0, 1): a function of the seed and the number of the draw, so that a text
 * is repeated by its seed. */
double attn_sampling_point(uint64_t seed, uint64_t draw);

#endif
