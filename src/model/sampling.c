/* Cutting a distribution and drawing from it, in double precision. */
#include "model/sampling.h"
#include "base/context.h"
#include "base/mix.h"
#include <math.h>
#include <stdlib.h>

void attn_sampling_options_init(attn_sampling_options *options)
{
    *options = (attn_sampling_options){.repetition_penalty = 1.0, .top_p = 1.0};
}

attn_status attn_sampling_check(const attn_sampling_options *options, attn_error *error)
{
    const struct {
        const char *name;
        double value, low, high;
        bool above_low; /* and not low itself */
    } bounds[] = {
        {"temperature", options->temperature, 0.0, 1e6, false},
        {"repetition_penalty", options->repetition_penalty, 0.0, 1e6, true},
        {"top_k", (double)options->top_k, 0.0, 0x1p53, false},
        {"top_p", options->top_p, 0.0, 1.0, true},
        {"min_p", options->min_p, 0.0, 1.0, false},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const double value = bounds[i].value;
        if (!(value >= bounds[i].low && value <= bounds[i].high) ||
            (bounds[i].above_low && value == bounds[i].low))
            return attn_error_set(
                error, ATTN_EINVAL, "sampling: %s is %g, expected %s%g to %g",
                bounds[i].name, value, bounds[i].above_low ? "more than " : "",
                bounds[i].low, bounds[i].high);
    }
    return ATTN_OK;
}

/* ---- Candidates ------------------------------------------------------------------ */

static int by_falling_logit(const void *a, const void *b)
{
    const attn_candidate *const left = a, *const right = b;
    if (left->logit != right->logit)
        return left->logit > right->logit ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

static const attn_candidate *largest(const attn_candidate *candidates, size_t count)
{
    const attn_candidate *best = candidates;
    for (size_t i = 1; i < count; i++)
        if (candidates[i].logit > best->logit)
            best = &candidates[i];
    return best;
}

/* candidates[id] has the logit of id; ids that came before are marked by a probability.
 */
static void punish(const attn_sampling_options *options, const int32_t *before,
                   size_t before_count, int64_t vocabulary, attn_candidate *candidates)
{
    for (size_t i = 0; i < before_count; i++) {
        if (before[i] < 0 || before[i] >= vocabulary)
            continue;
        attn_candidate *const seen = &candidates[before[i]];
        if (seen->probability > 0.0)
            continue;
        seen->probability = 1.0;
        if (seen->logit > 0.0)
            seen->logit /= options->repetition_penalty;
        else
            seen->logit *= options->repetition_penalty;
    }
}

/* Softmax over the first count, which fall. */
static void normalise(attn_candidate *candidates, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        candidates[i].probability = exp(candidates[i].logit - candidates[0].logit);
        sum += candidates[i].probability;
    }
    for (size_t i = 0; i < count; i++)
        candidates[i].probability /= sum;
}

static size_t cut_top_p(const attn_candidate *candidates, size_t count, double top_p)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += candidates[i].probability;
        if (sum >= top_p)
            return i + 1;
    }
    return count;
}

static size_t cut_min_p(const attn_candidate *candidates, size_t count, double min_p)
{
    const double least = min_p * candidates[0].probability;
    size_t kept = 1;
    while (kept < count && candidates[kept].probability >= least)
        kept++;
    return kept;
}

static attn_status take_logits(const attn_sampling_options *options, const float *logits,
                               int64_t vocabulary, attn_candidate *candidates,
                               attn_error *error)
{
    for (int64_t id = 0; id < vocabulary; id++) {
        const double logit = (double)logits[id];
        if (isnan(logit) || logit == (double)INFINITY)
            return attn_error_set(error, ATTN_ENOTFINITE,
                                  "sampling: the logit of token %lld is %g: the model is "
                                  "broken",
                                  (long long)id, logit);
        candidates[id] = (attn_candidate){.id = (int32_t)id, .logit = logit};
    }
    for (size_t i = 0; i < options->never_count; i++)
        if (options->never[i] >= 0 && options->never[i] < vocabulary)
            candidates[options->never[i]].logit = -INFINITY;
    return ATTN_OK;
}

attn_status attn_sampling_candidates(const attn_sampling_options *options,
                                     const float *logits, int64_t vocabulary,
                                     const int32_t *before, size_t before_count,
                                     attn_candidate *candidates, size_t *count,
                                     attn_error *error)
{
    ATTN_TRY(attn_sampling_check(options, error));
    ATTN_TRY(take_logits(options, logits, vocabulary, candidates, error));
    punish(options, before, before_count, vocabulary, candidates);
    size_t left = 0;
    for (int64_t id = 0; id < vocabulary; id++)
        if (candidates[id].logit > -(double)INFINITY)
            candidates[left++] = candidates[id];
    if (left == 0)
        return attn_error_set(error, ATTN_ENOTFINITE,
                              "sampling: no token may follow, of %lld",
                              (long long)vocabulary);
    if (options->temperature == 0.0) {
        candidates[0] = *largest(candidates, left);
        left = 1;
    } else {
        qsort(candidates, left, sizeof *candidates, by_falling_logit);
        for (size_t i = 0; i < left; i++)
            candidates[i].logit /= options->temperature;
        if (options->top_k > 0 && (uint64_t)options->top_k < left)
            left = (size_t)options->top_k;
        normalise(candidates, left);
        left = cut_top_p(candidates, left, options->top_p);
        left = cut_min_p(candidates, left, options->min_p);
    }
    normalise(candidates, left);
    *count = left;
    return ATTN_OK;
}

/* ---- Drawing --------------------------------------------------------------------- */

/* Uniform in [0, 1), of a stream for each seed. */
static double uniform(uint64_t seed, uint64_t draw)
{
    return attn_mix_unit((seed + 1) * UINT64_C(0xd1342543de82ef95), draw);
}

int32_t attn_sampling_draw(const attn_candidate *candidates, size_t count, uint64_t seed,
                           uint64_t draw)
{
    const double point = uniform(seed, draw);
    double sum = 0.0;
    for (size_t i = 0; i + 1 < count; i++) {
        sum += candidates[i].probability;
        if (point < sum)
            return candidates[i].id;
    }
    return candidates[count - 1].id;
}
