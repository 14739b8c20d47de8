/* The search alone, over made-up logits: enough beams find what enumeration finds, what
 * is kept falls, and ties are settled. */
#include "model/beam.h"
#include "text/tokenizer.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TOY_VOCABULARY = 7, TOY_LENGTH = 5, TOY_BEAMS = 250 };

/* A function of all that was written. */
static void toy_logits(const int32_t *ids, int64_t length, float *logits)
{
    uint64_t state = 99;
    for (int64_t i = 0; i < length; i++)
        state = (state + (uint64_t)ids[i]) * 6364136223846793005u + 1442695040888963407u;
    for (int i = 0; i < TOY_VOCABULARY; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(state >> 40) * 0x1p-22f;
    }
}

static double toy_log_probability(const int32_t *ids, int64_t length, int32_t id)
{
    float logits[TOY_VOCABULARY];
    double sum = 0.0;
    toy_logits(ids, length, logits);
    for (int i = 0; i < TOY_VOCABULARY; i++)
        sum += exp((double)logits[i]);
    return (double)logits[id] - log(sum);
}

/* The best score of everything that can follow. */
static double enumerate(int32_t *ids, int64_t length, double sum, double power)
{
    double best = -HUGE_VAL;
    for (int32_t id = ATTN_TOKEN_EOS; id < TOY_VOCABULARY; id++) {
        if (id == ATTN_TOKEN_UNK)
            continue;
        const double now = sum + toy_log_probability(ids, length, id);
        ids[length] = id;
        const bool ends = id == ATTN_TOKEN_EOS || length + 1 == TOY_LENGTH;
        const double score = ends ? now / pow((double)(length + 1), power)
                                  : enumerate(ids, length + 1, now, power);
        best = score > best ? score : best;
    }
    return best;
}

static attn_hypothesis toy_search(attn_beam_search *search, int64_t beams, double power)
{
    int64_t *const parents = calloc((size_t)beams, sizeof *parents);
    float *const logits = calloc((size_t)beams * TOY_VOCABULARY, sizeof *logits);
    assert_int_equal(attn_beam_search_init(search, beams, TOY_LENGTH, power), ATTN_OK);
    while (!search->done) {
        for (int64_t i = 0; i < search->live_count; i++)
            toy_logits(search->live[i].ids, search->length, logits + i * TOY_VOCABULARY);
        assert_true(attn_beam_search_advance(search, logits, TOY_VOCABULARY,
                                             TOY_VOCABULARY, parents));
    }
    free(parents);
    free(logits);
    return search->finished[0];
}

static void enough_beams_find_what_enumeration_finds(void **state)
{
    (void)state;
    const double powers[] = {0.0, 0.5, 1.0};
    for (size_t p = 0; p < 3; p++) {
        attn_beam_search search;
        int32_t ids[TOY_LENGTH];
        const attn_hypothesis best = toy_search(&search, TOY_BEAMS, powers[p]);
        assert_true(fabs(best.score - enumerate(ids, 0, 0.0, powers[p])) < 1e-6);
        attn_beam_search_free(&search);
    }
}

static void finished_hypotheses_fall_and_never_hold_a_special(void **state)
{
    (void)state;
    for (int64_t beams = 1; beams <= 8; beams++) {
        attn_beam_search search;
        toy_search(&search, beams, 1.0);
        for (int64_t i = 0; i < search.finished_count; i++) {
            const attn_hypothesis *const hypothesis = &search.finished[i];
            assert_true(i == 0 || hypothesis->score <= hypothesis[-1].score);
            for (int64_t j = 0; j < hypothesis->length; j++)
                assert_true(hypothesis->ids[j] > ATTN_TOKEN_UNK ||
                            (hypothesis->ids[j] == ATTN_TOKEN_EOS &&
                             j + 1 == hypothesis->length));
        }
        attn_beam_search_free(&search);
    }
}

static void a_tie_goes_to_the_lower_id(void **state)
{
    (void)state;
    const float logits[TOY_VOCABULARY] = {9.0f, 9.0f, 0.0f, 9.0f, 1.0f, 1.0f, 1.0f};
    attn_beam_search search;
    int64_t parents[2];
    assert_int_equal(attn_beam_search_init(&search, 2, 3, 1.0), ATTN_OK);
    assert_true(attn_beam_search_advance(&search, logits, TOY_VOCABULARY, TOY_VOCABULARY,
                                         parents));
    assert_int_equal(search.live_count, 2);
    assert_int_equal(search.live[0].ids[0], 4);
    assert_int_equal(search.live[1].ids[0], 5);
    attn_beam_search_free(&search);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enough_beams_find_what_enumeration_finds),
        cmocka_unit_test(finished_hypotheses_fall_and_never_hold_a_special),
        cmocka_unit_test(a_tie_goes_to_the_lower_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
