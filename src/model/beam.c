/* Beam search, step by step, as `generate` of Hugging Face does it with early_stopping
 * false: of all continuations of the live beams the 2·beams best are looked at; those
 * that end and are among the best `beams` are kept as finished, with
 *
 *     score = Σ log p / length^power,
 *
 * and the best `beams` of those that do not end live on.  A sentence is done when `beams`
 * hypotheses are finished and the best live beam, divided by its present length, is no
 * better than the worst of them.  With one beam this is greedy search, which stops at the
 * first
 * </s>.
 *
 * Ties go to the earlier beam, then to the lower id.  Sums are in double precision, in
 * the order of the vocabulary, so that the result is a function of the logits' bits. */
#include "model/beam.h"
#include "text/tokenizer.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

attn_status attn_beam_search_init(attn_beam_search *search, int64_t beams,
                                  int64_t max_length, double length_power)
{
    assert(beams >= 1 && max_length >= 1);
    const size_t count = (size_t)beams, length = (size_t)max_length;
    *search = (attn_beam_search){
        .beams = beams, .max_length = max_length, .length_power = length_power};
    search->hypotheses = calloc(3 * count, sizeof *search->hypotheses);
    search->candidates = calloc(2 * count, sizeof *search->candidates);
    search->ids = calloc(3 * count * length, sizeof *search->ids);
    if (!search->hypotheses || !search->candidates || !search->ids) {
        attn_beam_search_free(search);
        return ATTN_ENOMEM;
    }
    for (size_t i = 0; i < 3 * count; i++)
        search->hypotheses[i].ids = search->ids + i * length;
    search->live = search->hypotheses;
    search->next = search->live + count;
    search->finished = search->next + count;
    search->live_count = 1;
    return ATTN_OK;
}

void attn_beam_search_free(attn_beam_search *search)
{
    free(search->hypotheses);
    free(search->candidates);
    free(search->ids);
    *search = (attn_beam_search){0};
}

/* ln Σ exp(logit) */
static double log_sum_exp(const float *logits, int64_t count)
{
    float largest = logits[0];
    for (int64_t i = 1; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)expf(logits[i] - largest);
    return (double)largest + log(sum);
}

/* What a translation never contains: start, padding, unknown. */
static bool may_be_written(int64_t id)
{
    return id != ATTN_TOKEN_BOS && id != ATTN_TOKEN_PAD && id != ATTN_TOKEN_UNK;
}

/* Into the list, which falls; the last falls out where it is full. */
static void insert(attn_beam_candidate *list, int64_t *count, int64_t limit,
                   attn_beam_candidate candidate)
{
    int64_t place = *count < limit ? (*count)++ : limit - 1;
    for (; place > 0 && list[place - 1].score < candidate.score; place--)
        list[place] = list[place - 1];
    list[place] = candidate;
}

/* The best continuations of all live beams; −1 where a row of logits is broken. */
static int64_t choose_candidates(attn_beam_search *search, const float *logits,
                                 int64_t row_stride, int64_t vocabulary)
{
    /* Greedy search looks at one: an end that is best is the end. */
    const int64_t limit = search->beams == 1 ? 1 : 2 * search->beams;
    int64_t count = 0;
    for (int64_t beam = 0; beam < search->live_count; beam++) {
        const float *const row = logits + beam * row_stride;
        const double base = search->live[beam].score - log_sum_exp(row, vocabulary);
        if (!isfinite(base))
            return -1;
        double worst = count < limit ? -HUGE_VAL : search->candidates[limit - 1].score;
        for (int64_t id = 0; id < vocabulary; id++) {
            const double score = base + (double)row[id];
            if (!(score > worst) || !may_be_written(id))
                continue;
            insert(
                search->candidates, &count, limit,
                (attn_beam_candidate){.score = score, .beam = beam, .id = (int32_t)id});
            if (count == limit)
                worst = search->candidates[limit - 1].score;
        }
    }
    return count;
}

/* What the candidate has written, as out, whose ids are kept in their place. */
static void write_hypothesis(const attn_beam_search *search,
                             const attn_beam_candidate *candidate, double score,
                             attn_hypothesis *out)
{
    const attn_hypothesis *const parent = &search->live[candidate->beam];
    memcpy(out->ids, parent->ids, (size_t)parent->length * sizeof *out->ids);
    out->ids[parent->length] = candidate->id;
    out->length = parent->length + 1;
    out->score = score;
    out->ended = candidate->id == ATTN_TOKEN_EOS;
}

static void finish(attn_beam_search *search, const attn_beam_candidate *candidate)
{
    const double score =
        candidate->score / pow((double)(search->length + 1), search->length_power);
    attn_hypothesis *const finished = search->finished;
    const int64_t last = search->beams - 1;
    if (search->finished_count > last && !(score > finished[last].score))
        return;
    int64_t place = search->finished_count <= last ? search->finished_count++ : last;
    const attn_hypothesis spare = finished[place];
    for (; place > 0 && finished[place - 1].score < score; place--)
        finished[place] = finished[place - 1];
    finished[place] = spare;
    write_hypothesis(search, candidate, score, &finished[place]);
}

static bool is_done(const attn_beam_search *search)
{
    if (search->live_count == 0 || search->length == search->max_length)
        return true;
    if (search->finished_count < search->beams)
        return false;
    const double best =
        search->live[0].score / pow((double)search->length, search->length_power);
    return !(best > search->finished[search->beams - 1].score);
}

bool attn_beam_search_advance(attn_beam_search *search, const float *logits,
                              int64_t row_stride, int64_t vocabulary, int64_t *parents)
{
    assert(!search->done);
    const int64_t count = choose_candidates(search, logits, row_stride, vocabulary);
    if (count < 0)
        return false;
    const bool is_last = search->length + 1 == search->max_length;
    int64_t going_on = 0;
    for (int64_t i = 0; i < count; i++) {
        const attn_beam_candidate *const candidate = &search->candidates[i];
        if (is_last || candidate->id == ATTN_TOKEN_EOS) {
            if (i < search->beams)
                finish(search, candidate);
        } else if (going_on < search->beams) {
            write_hypothesis(search, candidate, candidate->score,
                             &search->next[going_on]);
            parents[going_on++] = candidate->beam;
        }
    }
    attn_hypothesis *const spare = search->live;
    search->live = search->next;
    search->next = spare;
    search->live_count = going_on;
    search->length++;
    search->done = is_done(search);
    return true;
}
