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

/* Candidates by falling logit, sorted as far down as somebody looks: a draw seldom goes
 * far, and sorting a whole vocabulary takes as long as a small model's pass. */
struct ranking {
    attn_candidate *list;
    size_t count, sorted;
    double largest, depth; /* the next to be sorted lie up to depth below the largest */
};

static void sort_further(struct ranking *ranking)
{
    attn_candidate *const list = ranking->list;
    size_t end = ranking->sorted;
    for (size_t i = end; i < ranking->count; i++)
        if (list[i].logit >= ranking->largest - ranking->depth) {
            const attn_candidate found = list[i];
            list[i] = list[end];
            list[end++] = found;
        }
    qsort(list + ranking->sorted, end - ranking->sorted, sizeof *list, by_falling_logit);
    ranking->sorted = end;
    ranking->depth = end < ranking->count / 8 ? 2.0 * ranking->depth : (double)INFINITY;
}

static attn_candidate *ranked(struct ranking *ranking, size_t index)
{
    while (index >= ranking->sorted)
        sort_further(ranking);
    return &ranking->list[index];
}

/* How many the cuts leave; *total is the sum of their weights, exp(logit − largest). */
static size_t cut(const attn_sampling_options *options, struct ranking *ranking,
                  double *total)
{
    const attn_candidate *const list = ranking->list;
    size_t left = ranking->count, kept = 0;
    double sum = 0.0;
    if (options->top_k > 0 && (uint64_t)options->top_k < left) {
        left = (size_t)options->top_k;
        ranked(ranking, left - 1);
    }
    *total = 0.0;
    for (size_t i = 0; i < left; i++)
        *total += list[i].probability;
    if (options->top_p == 1.0 && options->min_p == 0.0)
        return left;
    while (kept < left && sum < options->top_p &&
           ranked(ranking, kept)->probability >= options->min_p)
        sum += list[kept++].probability / *total;
    *total = 0.0;
    for (size_t i = 0; i < kept; i++)
        *total += list[i].probability;
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
            candidates[options->never[i]].logit = -(double)INFINITY;
    return ATTN_OK;
}

attn_status attn_sampling_candidates(const attn_sampling_options *options,
                                     const float *logits, int64_t vocabulary,
                                     const int32_t *before, size_t before_count,
                                     double point, attn_candidate *candidates,
                                     size_t *count, attn_error *error)
{
    const double temperature = options->temperature;
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
    const attn_candidate best = *largest(candidates, left);
    if (temperature == 0.0) {
        candidates[0] = best;
        candidates[0].probability = 1.0;
        *count = 1;
        return ATTN_OK;
    }
    for (size_t i = 0; i < left; i++)
        candidates[i].probability =
            exp(candidates[i].logit / temperature - best.logit / temperature);
    struct ranking ranking = {candidates, left, 0, best.logit, temperature};
    double total, sum = 0.0;
    left = cut(options, &ranking, &total);
    for (*count = 0; *count < left && sum <= point; ++*count) {
        attn_candidate *const next = ranked(&ranking, *count);
        next->probability /= total;
        sum += next->probability;
    }
    return ATTN_OK;
}

double attn_sampling_point(uint64_t seed, uint64_t draw)
{
    return attn_mix_unit((seed + 1) * UINT64_C(0xd1342543de82ef95), draw);
}
