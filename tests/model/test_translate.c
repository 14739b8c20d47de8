/* The search: one token at a time equals the full pass, one beam is greedy, many beams
 * find what enumeration finds, and a sentence is translated as if it were alone. */
#include "model/decoding.h"
#include "model/translate.h"
#include "small.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t SOURCE_LENGTHS[] = {5, 0, 9, 1, 14, 3, 7, 2};
static const int64_t TARGET_LENGTHS[] = {8, 8, 8, 8, 8, 8, 8, 8};
enum { SENTENCES = 8, STEPS = 9 };

struct fixture {
    attn_context *context;
    attn_tape *tape;
    attn_translator *translator;
    struct small_batch batch;
};

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    fixture->context = small_context();
    assert_int_equal(attn_tape_create(&fixture->tape, fixture->context), ATTN_OK);
    fixture->translator = small_translator(7);
    small_batch_fill(&fixture->batch, SENTENCES, SOURCE_LENGTHS, TARGET_LENGTHS, 3);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const fixture = *state;
    attn_translator_destroy(fixture->translator);
    attn_tape_destroy(fixture->tape);
    attn_context_destroy(fixture->context);
    free(fixture);
    return 0;
}

static attn_packing sources_of(const struct small_batch *batch)
{
    return (attn_packing){batch->pairs.sentences, batch->source_starts};
}

/* Logits of a full pass over the batch's targets; memory of the caller. */
static float *full_logits(const struct fixture *fixture, const struct small_batch *batch)
{
    attn_tape_begin(fixture->tape, false, 0);
    const attn_pass pass = {.tape = fixture->tape,
                            .parameters =
                                attn_translator_parameters(fixture->translator)};
    const attn_tensor *const logits =
        attn_translator_logits(fixture->translator, &pass, &batch->pairs);
    if (!logits)
        fail_msg("%s", attn_context_message(fixture->context));
    const size_t bytes = (size_t)(logits->extent[0] * logits->extent[1]) * sizeof(float);
    float *const copy = malloc(bytes);
    memcpy(copy, logits->data, bytes);
    return copy;
}

static void assert_rows_close(const float *a, const float *b)
{
    for (int64_t i = 0; i < SMALL_VOCABULARY; i++)
        assert_float_equal(a[i], b[i], 1e-4f);
}

/* All sentences at once, one row each. */
static void check_steps(struct fixture *fixture)
{
    const struct small_batch *const batch = &fixture->batch;
    float *const full = full_logits(fixture, batch);
    attn_decoder decoder;
    attn_error error;
    int64_t row_starts[SENTENCES + 1], parents[SENTENCES];
    for (int64_t s = 0; s <= SENTENCES; s++)
        row_starts[s] = s;
    assert_int_equal(attn_decoding_start(&decoder, fixture->translator, fixture->tape,
                                         batch->source, sources_of(batch), SENTENCES,
                                         &error),
                     ATTN_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        int32_t ids[SENTENCES];
        const float *logits;
        for (int64_t s = 0; s < SENTENCES; s++) {
            ids[s] = batch->target_in[batch->target_starts[s] + step];
            parents[s] = s;
        }
        assert_int_equal(
            decoder.step(decoder.state, row_starts, parents, ids, &logits, &error),
            ATTN_OK);
        for (int64_t s = 0; s < SENTENCES; s++)
            assert_rows_close(logits + s * SMALL_VOCABULARY,
                              full + (batch->target_starts[s] + step) * SMALL_VOCABULARY);
    }
    decoder.destroy(decoder.state);
    free(full);
}

static void every_step_equals_the_full_pass(void **state)
{
    check_steps(*state);
}

static void every_step_equals_the_full_pass_where_normalising_comes_last(void **state)
{
    struct fixture *const fixture = *state;
    for (int learned = 0; learned < 2; learned++) {
        const attn_translator_config config = small_config_last(learned);
        attn_translator_destroy(fixture->translator);
        fixture->translator = small_translator_like(&config, 7);
        check_steps(fixture);
    }
}

/* Rows of sentence 0 come and go: each time the row's past must be its parent's. */
static void rows_that_split_and_end_keep_their_own_past(void **state)
{
    struct fixture *const fixture = *state;
    enum { ROWS = 4, TURNS = 6 };
    static const int64_t row_counts[TURNS] = {1, 4, 3, 4, 1, 2};
    static const int64_t parents_of[TURNS][ROWS] = {{0},          {0, 0, 0, 0}, {2, 2, 1},
                                                    {2, 0, 1, 0}, {3},          {0, 0}};
    attn_decoder decoder;
    attn_error error;
    int32_t written[ROWS][TURNS] = {{0}};
    struct small_batch one;
    small_batch_alone(&one, &fixture->batch, 4);
    assert_int_equal(attn_decoding_start(&decoder, fixture->translator, fixture->tape,
                                         one.source, sources_of(&one), ROWS, &error),
                     ATTN_OK);
    for (int64_t turn = 0; turn < TURNS; turn++) {
        const int64_t row_starts[] = {0, row_counts[turn]};
        int32_t ids[ROWS], next[ROWS][TURNS] = {{0}};
        const float *logits;
        for (int64_t row = 0; row < row_counts[turn]; row++) {
            memcpy(next[row], written[parents_of[turn][row]], sizeof next[row]);
            ids[row] = turn == 0 ? ATTN_TOKEN_EOS : (int32_t)(4 + 5 * turn + row);
            next[row][turn] = ids[row];
        }
        memcpy(written, next, sizeof written);
        assert_int_equal(decoder.step(decoder.state, row_starts, parents_of[turn], ids,
                                      &logits, &error),
                         ATTN_OK);
        float kept[ROWS][SMALL_VOCABULARY];
        memcpy(kept, logits,
               (size_t)(row_counts[turn] * SMALL_VOCABULARY) * sizeof(float));
        for (int64_t row = 0; row < row_counts[turn]; row++) {
            one.target_starts[1] = turn + 1;
            memcpy(one.target_in, written[row], sizeof written[row]);
            float *const full = full_logits(fixture, &one);
            assert_rows_close(kept[row], full + turn * SMALL_VOCABULARY);
            free(full);
        }
    }
    decoder.destroy(decoder.state);
}

static void translate(struct fixture *fixture, const struct small_batch *batch,
                      const attn_search_options *options, attn_translation *out)
{
    attn_error error;
    if (attn_translate(fixture->translator, fixture->context, batch->source,
                       sources_of(batch), options, out, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static void translations_free(attn_translation *translations, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(translations[i].ids);
}

static int32_t best_id(const float *logits)
{
    int32_t best = ATTN_TOKEN_EOS;
    for (int32_t id = ATTN_TOKEN_UNK + 1; id < SMALL_VOCABULARY; id++)
        best = logits[id] > logits[best] ? id : best;
    return best;
}

/* By full passes, which know nothing of caches and beams. */
static void one_beam_is_greedy_search(void **state)
{
    struct fixture *const fixture = *state;
    attn_search_options options;
    attn_translation translations[SENTENCES];
    attn_search_options_init(&options);
    options.beams = 1;
    translate(fixture, &fixture->batch, &options, translations);
    for (int64_t s = 0; s < SENTENCES; s++) {
        struct small_batch one;
        small_batch_alone(&one, &fixture->batch, s);
        const int64_t usual = 2 * one.source_starts[1] + 10;
        const int64_t limit = usual < SMALL_POSITIONS ? usual : SMALL_POSITIONS;
        int64_t length = 0;
        bool ended = false;
        for (; length < limit && !ended; length++) {
            one.target_starts[1] = length + 1;
            float *const full = full_logits(fixture, &one);
            const int32_t id = best_id(full + length * SMALL_VOCABULARY);
            free(full);
            one.target_in[length + 1] = id;
            ended = id == ATTN_TOKEN_EOS;
        }
        assert_int_equal(translations[s].finished, ended);
        assert_int_equal(translations[s].count, length - (ended ? 1 : 0));
        assert_memory_equal(translations[s].ids, one.target_in + 1,
                            translations[s].count * sizeof(int32_t));
    }
    translations_free(translations, SENTENCES);
}

static void assert_same_translation(const attn_translation *a, const attn_translation *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof(int32_t));
    assert_int_equal(a->finished, b->finished);
    assert_memory_equal(&a->score, &b->score, sizeof a->score);
}

static void a_sentence_is_translated_as_if_alone_to_the_bit(void **state)
{
    struct fixture *const fixture = *state;
    for (int64_t beams = 1; beams <= 5; beams += 2) {
        attn_search_options options;
        attn_translation together[SENTENCES], alone;
        attn_search_options_init(&options);
        options.beams = beams;
        translate(fixture, &fixture->batch, &options, together);
        for (int64_t s = 0; s < SENTENCES; s++) {
            struct small_batch one;
            small_batch_alone(&one, &fixture->batch, s);
            translate(fixture, &one, &options, &alone);
            assert_same_translation(&alone, &together[s]);
            free(alone.ids);
        }
        translations_free(together, SENTENCES);
    }
}

/* More sentences than go at once, and many beams. */
static void groups_of_sentences_change_nothing(void **state)
{
    struct fixture *const fixture = *state;
    attn_search_options options;
    attn_translation many[SENTENCES], few[SENTENCES];
    attn_search_options_init(&options);
    options.beams = 100;
    options.max_length = 4;
    translate(fixture, &fixture->batch, &options, many);
    for (int64_t s = 0; s < SENTENCES; s++) {
        struct small_batch one;
        small_batch_alone(&one, &fixture->batch, s);
        translate(fixture, &one, &options, &few[s]);
        assert_same_translation(&few[s], &many[s]);
    }
    translations_free(many, SENTENCES);
    translations_free(few, SENTENCES);
}

/* Σ log p / length^power of a translation, by a full pass. */
static double score_of(const struct fixture *fixture, const struct small_batch *source,
                       const attn_translation *translation, double power)
{
    struct small_batch one = *source;
    const int64_t length = (int64_t)translation->count + (translation->finished ? 1 : 0);
    one.pairs.source = one.source;
    one.pairs.source_starts = one.source_starts;
    one.pairs.target_in = one.target_in;
    one.pairs.target_starts = one.target_starts;
    one.target_starts[1] = length;
    memcpy(one.target_in + 1, translation->ids, translation->count * sizeof(int32_t));
    float *const full = full_logits(fixture, &one);
    double score = 0.0;
    for (int64_t i = 0; i < length; i++) {
        const float *const row = full + i * SMALL_VOCABULARY;
        const int32_t id =
            i < (int64_t)translation->count ? translation->ids[i] : ATTN_TOKEN_EOS;
        double sum = 0.0;
        for (int64_t j = 0; j < SMALL_VOCABULARY; j++)
            sum += exp((double)row[j]);
        score += (double)row[id] - log(sum);
    }
    free(full);
    return score / pow((double)length, power);
}

static void the_score_is_the_log_probability_by_length(void **state)
{
    struct fixture *const fixture = *state;
    const double powers[] = {0.0, 0.6, 1.0, 2.0};
    for (size_t p = 0; p < 4; p++) {
        attn_search_options options;
        attn_translation translations[SENTENCES];
        attn_search_options_init(&options);
        options.length_power = powers[p];
        translate(fixture, &fixture->batch, &options, translations);
        for (int64_t s = 0; s < SENTENCES; s++) {
            struct small_batch one;
            small_batch_alone(&one, &fixture->batch, s);
            const double score = score_of(fixture, &one, &translations[s], powers[p]);
            assert_true(fabs(score - translations[s].score) < 1e-4 * fmax(1.0, -score));
        }
        translations_free(translations, SENTENCES);
    }
}

static void lengths_are_respected(void **state)
{
    struct fixture *const fixture = *state;
    const int64_t lengths[] = {1, 2, SMALL_POSITIONS};
    for (size_t i = 0; i < 3; i++) {
        attn_search_options options;
        attn_translation translations[SENTENCES];
        attn_search_options_init(&options);
        options.max_length = lengths[i];
        translate(fixture, &fixture->batch, &options, translations);
        for (int64_t s = 0; s < SENTENCES; s++)
            assert_true(translations[s].count + (translations[s].finished ? 1 : 0) <=
                        (size_t)lengths[i]);
        translations_free(translations, SENTENCES);
    }
}

static void the_longest_source_is_translated(void **state)
{
    struct fixture *const fixture = *state;
    const int64_t longest[] = {SMALL_POSITIONS - 1}, none[] = {0};
    attn_search_options options;
    attn_translation translation;
    attn_search_options_init(&options);
    small_batch_fill(&fixture->batch, 1, longest, none, 9);
    translate(fixture, &fixture->batch, &options, &translation);
    free(translation.ids);
}

static void no_sentence_is_no_work(void **state)
{
    struct fixture *const fixture = *state;
    attn_search_options options;
    attn_search_options_init(&options);
    fixture->batch.pairs.sentences = 0;
    translate(fixture, &fixture->batch, &options, NULL);
}

static void expect_failure(struct fixture *fixture, attn_search_options options,
                           attn_status expected, const char *fragment)
{
    attn_translation untouched[SENTENCES];
    attn_error error = {0};
    memset(untouched, 0x5a, sizeof untouched);
    const attn_status status =
        attn_translate(fixture->translator, fixture->context, fixture->batch.source,
                       sources_of(&fixture->batch), &options, untouched, &error);
    assert_fails(status, &error, expected, fragment);
    for (size_t i = 0; i < sizeof untouched; i++)
        assert_int_equal(((const char *)untouched)[i], 0x5a);
}

static void expect_error(struct fixture *fixture, attn_search_options options,
                         const char *fragment)
{
    expect_failure(fixture, options, ATTN_EINVAL, fragment);
}

static void bad_sources_and_options_are_named(void **state)
{
    struct fixture *const fixture = *state;
    const int64_t longer[] = {SMALL_POSITIONS}, none[] = {0};
    attn_search_options usual, options;
    attn_search_options_init(&usual);
    options = usual;
    options.beams = 0;
    expect_error(fixture, options, "0 beams, expected 1 to 256");
    options.beams = 257;
    expect_error(fixture, options, "257 beams");
    options = usual;
    options.length_power = (double)NAN;
    expect_error(fixture, options, "length_power is nan");
    options = usual;
    options.max_length = SMALL_POSITIONS + 1;
    expect_error(fixture, options, "max_length is 25, expected at most the model's 24");
    options.max_length = -1;
    expect_error(fixture, options, "max_length is -1");

    fixture->batch.source[8] = SMALL_VOCABULARY;
    expect_error(fixture, usual, "token 1 of sentence 2 is 40, expected 0 to 39");
    fixture->batch.source[8] = -7;
    expect_error(fixture, usual, "token 1 of sentence 2 is -7");
    fixture->batch.source[8] = 5;
    fixture->batch.source_starts[2] = fixture->batch.source_starts[1];
    expect_error(fixture, usual, "sentence 1 has 0 tokens");
    small_batch_fill(&fixture->batch, 1, longer, none, 9);
    expect_error(fixture, usual, "sentence 0 has 25 tokens with </s>, expected at most");
}

static void a_model_with_nan_is_an_error(void **state)
{
    struct fixture *const fixture = *state;
    attn_search_options options;
    attn_search_options_init(&options);
    const attn_parameters *const parameters =
        attn_translator_parameters(fixture->translator);
    const attn_parameter *const norm =
        attn_parameters_find(parameters, "model.decoder.layer_norm.bias");
    parameters->values[norm->offset + 3] = NAN;
    expect_failure(fixture, options, ATTN_ENOTFINITE,
                   "sentence 0 after 0 tokens are not finite");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_step_equals_the_full_pass),
        TEST(every_step_equals_the_full_pass_where_normalising_comes_last),
        TEST(rows_that_split_and_end_keep_their_own_past),
        TEST(one_beam_is_greedy_search),
        TEST(a_sentence_is_translated_as_if_alone_to_the_bit),
        TEST(groups_of_sentences_change_nothing),
        TEST(the_score_is_the_log_probability_by_length),
        TEST(lengths_are_respected),
        TEST(the_longest_source_is_translated),
        TEST(no_sentence_is_no_work),
        TEST(bad_sources_and_options_are_named),
        TEST(a_model_with_nan_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
