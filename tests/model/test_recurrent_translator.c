/* What the recurrent translator computes, for every cell, score and place of the context:
 * gradients are those of the loss, a sentence is computed as if it were alone, one token
 * at a time is the whole pass, and the observer sees the weights that made the context.
 */
#include "model/translate.h"
#include "small_recurrent.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t SOURCE_LENGTHS[] = {5, 0, 9, 1, 14};
static const int64_t TARGET_LENGTHS[] = {7, 3, 0, 11, 6};
enum { SENTENCES = 5 };

struct fixture {
    attn_context *context;
    attn_tape *tape;
    struct small_batch batch;
    attn_recurrent_translator *translator; /* of the number under test */
};

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    fixture->context = small_context();
    assert_int_equal(attn_tape_create(&fixture->tape, fixture->context), ATTN_OK);
    small_batch_fill(&fixture->batch, SENTENCES, SOURCE_LENGTHS, TARGET_LENGTHS, 3);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const fixture = *state;
    attn_recurrent_translator_destroy(fixture->translator);
    attn_tape_destroy(fixture->tape);
    attn_context_destroy(fixture->context);
    free(fixture);
    return 0;
}

static void choose(struct fixture *fixture,
                   const attn_recurrent_translator_config *config)
{
    attn_recurrent_translator_destroy(fixture->translator);
    fixture->translator = small_recurrent_like(config, 7);
}

/* The translator of that number, without dropout. */
static void choose_number(struct fixture *fixture, int number)
{
    attn_recurrent_translator_config config = small_recurrent_config(number);
    config.dropout = 0.0f;
    choose(fixture, &config);
}

static attn_pass pass_of(const struct fixture *fixture, bool training, float *gradients)
{
    attn_tape_begin(fixture->tape, training, 11);
    return (attn_pass){
        .tape = fixture->tape,
        .parameters = attn_recurrent_translator_parameters(fixture->translator),
        .gradients = gradients,
    };
}

static void assert_tape_ok(const struct fixture *fixture)
{
    if (attn_tape_status(fixture->tape) != ATTN_OK)
        fail_msg("%s", attn_context_message(fixture->context));
}

/* Memory of the caller. */
static float *logits_of(const struct fixture *fixture, const struct small_batch *batch,
                        bool training)
{
    const attn_pass pass = pass_of(fixture, training, NULL);
    const attn_tensor *const logits =
        attn_recurrent_translator_logits(fixture->translator, &pass, &batch->pairs);
    assert_tape_ok(fixture);
    assert_int_equal(logits->extent[0], batch->target_starts[batch->pairs.sentences]);
    assert_int_equal(logits->extent[1], SMALL_VOCABULARY);
    const size_t bytes =
        (size_t)(logits->extent[0] * SMALL_VOCABULARY) * sizeof *logits->data;
    float *const copy = malloc(bytes);
    memcpy(copy, logits->data, bytes);
    return copy;
}

static double loss_of(const struct fixture *fixture, bool training, uint64_t seed)
{
    attn_tape_begin(fixture->tape, training, seed);
    const attn_pass pass = {
        .tape = fixture->tape,
        .parameters = attn_recurrent_translator_parameters(fixture->translator)};
    const attn_tensor *const loss = attn_recurrent_translator_loss(
        fixture->translator, &pass, &fixture->batch.pairs, 0.1f, 10.0, NULL);
    assert_tape_ok(fixture);
    return (double)loss->data[0];
}

/* ---- Learning -------------------------------------------------------------------- */

static void check_slope(const struct fixture *fixture, const attn_parameter *parameter,
                        const float *gradients, int number)
{
    const float step = 2e-3f;
    float *const values =
        attn_recurrent_translator_parameters(fixture->translator)->values +
        parameter->offset;
    float *const kept = malloc(parameter->count * sizeof *kept);
    double slope = 0.0, loss[2];
    memcpy(kept, values, parameter->count * sizeof *kept);
    for (size_t j = 0; j < parameter->count; j++)
        slope += (double)gradients[parameter->offset + j] * (j % 3 == 1 ? -1.0 : 1.0);
    for (int side = 0; side < 2; side++) {
        for (size_t j = 0; j < parameter->count; j++)
            values[j] = kept[j] + (side ? step : -step) * (j % 3 == 1 ? -1.0f : 1.0f);
        loss[side] = loss_of(fixture, false, 0);
    }
    memcpy(values, kept, parameter->count * sizeof *kept);
    free(kept);
    const double measured = (loss[1] - loss[0]) / (2.0 * (double)step);
    if (!(fabs(measured - slope) < 1e-3 + 0.02 * fabs(slope)))
        fail_msg("%s: %s: slope %g, measured %g", small_recurrent_name(number),
                 parameter->name, slope, measured);
}

/* d loss / d ε of parameters + ε·direction, for each parameter by itself; and none has no
 * gradient. */
static void gradients_are_slopes_of_the_loss(void **state)
{
    struct fixture *const fixture = *state;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        choose_number(fixture, number);
        const attn_parameters *const parameters =
            attn_recurrent_translator_parameters(fixture->translator);
        float *const gradients = calloc(parameters->floats, sizeof *gradients);
        const attn_pass pass = pass_of(fixture, true, gradients);
        attn_tensor *const loss = attn_recurrent_translator_loss(
            fixture->translator, &pass, &fixture->batch.pairs, 0.1f, 10.0, NULL);
        assert_tape_ok(fixture);
        assert_int_equal(attn_tape_backward(fixture->tape, loss, 1.0f), ATTN_OK);
        for (size_t i = 0; i < parameters->length; i++) {
            const attn_parameter *const parameter = &parameters->list[i];
            float largest = 0.0f;
            for (size_t j = 0; j < parameter->count; j++)
                largest = fmaxf(largest, fabsf(gradients[parameter->offset + j]));
            if (!(largest > 1e-4f && largest < 1e3f))
                fail_msg("%s: %s: largest gradient %g", small_recurrent_name(number),
                         parameter->name, (double)largest);
            check_slope(fixture, parameter, gradients, number);
        }
        free(gradients);
    }
}

static void dropout_follows_the_seed(void **state)
{
    struct fixture *const fixture = *state;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        const attn_recurrent_translator_config config = small_recurrent_config(number);
        choose(fixture, &config);
        const double first = loss_of(fixture, true, 5), again = loss_of(fixture, true, 5);
        assert_true(first == again);
        assert_true(first != loss_of(fixture, true, 6));
        assert_true(first != loss_of(fixture, false, 5));
    }
}

/* ---- Packed batches -------------------------------------------------------------- */

static void a_sentence_in_a_batch_has_the_bits_it_has_alone(void **state)
{
    struct fixture *const fixture = *state;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        choose_number(fixture, number);
        float *const together = logits_of(fixture, &fixture->batch, false);
        float *const training = logits_of(fixture, &fixture->batch, true);
        for (int64_t s = 0; s < SENTENCES; s++) {
            struct small_batch one;
            small_batch_alone(&one, &fixture->batch, s);
            float *const alone = logits_of(fixture, &one, false);
            const int64_t first = fixture->batch.target_starts[s] * SMALL_VOCABULARY;
            const int64_t count = one.target_starts[1] * SMALL_VOCABULARY;
            assert_memory_equal(alone, together + first, (size_t)count * sizeof(float));
            for (int64_t i = 0; i < count; i++)
                assert_float_equal(alone[i], training[first + i], 1e-5f);
            free(alone);
        }
        free(together);
        free(training);
    }
}

static void a_target_token_changes_no_logits_before_it(void **state)
{
    struct fixture *const fixture = *state;
    const int64_t changed = fixture->batch.target_starts[0] + 4;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        choose_number(fixture, number);
        float *const before = logits_of(fixture, &fixture->batch, false);
        fixture->batch.target_in[changed] ^= 1;
        float *const after = logits_of(fixture, &fixture->batch, false);
        fixture->batch.target_in[changed] ^= 1;
        assert_memory_equal(before, after,
                            (size_t)(changed * SMALL_VOCABULARY) * sizeof(float));
        assert_memory_not_equal(before + changed * SMALL_VOCABULARY,
                                after + changed * SMALL_VOCABULARY,
                                SMALL_VOCABULARY * sizeof(float));
        free(before);
        free(after);
    }
}

/* ---- One token at a time --------------------------------------------------------- */

/* Attention of a single query sums in another order than that of many. */
static void assert_rows_close(const float *a, const float *b, int number)
{
    for (int64_t i = 0; i < SMALL_VOCABULARY; i++)
        if (!(fabsf(a[i] - b[i]) < 2e-5f))
            fail_msg("%s: logit %lld is %g, expected %g", small_recurrent_name(number),
                     (long long)i, (double)a[i], (double)b[i]);
}

static attn_decoder start(const struct fixture *fixture, const struct small_batch *batch,
                          int64_t max_rows)
{
    const attn_seq2seq model = attn_recurrent_translator_seq2seq(fixture->translator);
    const attn_packing packing = {batch->pairs.sentences, batch->source_starts};
    attn_decoder decoder;
    attn_error error;
    if (model.kind->start(&decoder, model.model, fixture->tape, batch->source, packing,
                          max_rows, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(decoder.vocabulary, SMALL_VOCABULARY);
    return decoder;
}

static void every_step_equals_the_whole_pass(void **state)
{
    struct fixture *const fixture = *state;
    const struct small_batch *const batch = &fixture->batch;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        choose_number(fixture, number);
        float *const full = logits_of(fixture, batch, false);
        attn_decoder decoder = start(fixture, batch, SENTENCES);
        int64_t rows_of[SENTENCES] = {0}; /* of each sentence, in the step before */
        for (int64_t step = 0; step < 12; step++) {
            int64_t row_starts[SENTENCES + 1], parents[SENTENCES], count = 0;
            int32_t ids[SENTENCES];
            const float *logits;
            attn_error error;
            for (int64_t s = 0; s < SENTENCES; s++) {
                row_starts[s] = count;
                if (step > TARGET_LENGTHS[s])
                    continue;
                ids[count] = batch->target_in[batch->target_starts[s] + step];
                parents[count] = rows_of[s];
                rows_of[s] = count++;
            }
            row_starts[SENTENCES] = count;
            assert_int_equal(
                decoder.step(decoder.state, row_starts, parents, ids, &logits, &error),
                ATTN_OK);
            for (int64_t s = 0; s < SENTENCES; s++)
                if (step <= TARGET_LENGTHS[s])
                    assert_rows_close(logits + row_starts[s] * SMALL_VOCABULARY,
                                      full + (batch->target_starts[s] + step) *
                                                 SMALL_VOCABULARY,
                                      number);
        }
        decoder.destroy(decoder.state);
        free(full);
    }
}

/* Rows of one sentence come and go: each time the row's past must be its parent's. */
static void rows_that_split_and_end_keep_their_own_past(void **state)
{
    struct fixture *const fixture = *state;
    enum { ROWS = 4, TURNS = 6 };
    static const int64_t row_counts[TURNS] = {1, 4, 3, 4, 1, 2};
    static const int64_t parents_of[TURNS][ROWS] = {{0},          {0, 0, 0, 0}, {2, 2, 1},
                                                    {2, 0, 1, 0}, {3},          {0, 0}};
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        int32_t written[ROWS][TURNS] = {{0}};
        struct small_batch one;
        choose_number(fixture, number);
        small_batch_alone(&one, &fixture->batch, 4);
        attn_decoder decoder = start(fixture, &one, ROWS);
        for (int64_t turn = 0; turn < TURNS; turn++) {
            const int64_t row_starts[] = {0, row_counts[turn]};
            int32_t ids[ROWS], next[ROWS][TURNS] = {{0}};
            const float *logits;
            attn_error error;
            for (int64_t row = 0; row < row_counts[turn]; row++) {
                memcpy(next[row], written[parents_of[turn][row]], sizeof next[row]);
                ids[row] = turn == 0 ? ATTN_TOKEN_EOS : (int32_t)(4 + 5 * turn + row);
                next[row][turn] = ids[row];
            }
            memcpy(written, next, sizeof written);
            assert_int_equal(decoder.step(decoder.state, row_starts, parents_of[turn],
                                          ids, &logits, &error),
                             ATTN_OK);
            float kept[ROWS][SMALL_VOCABULARY];
            memcpy(kept, logits,
                   (size_t)(row_counts[turn] * SMALL_VOCABULARY) * sizeof(float));
            for (int64_t row = 0; row < row_counts[turn]; row++) {
                one.target_starts[1] = turn + 1;
                memcpy(one.target_in, written[row], sizeof written[row]);
                float *const full = logits_of(fixture, &one, false);
                assert_rows_close(kept[row], full + turn * SMALL_VOCABULARY, number);
                free(full);
            }
        }
        decoder.destroy(decoder.state);
    }
}

static void translate(const struct fixture *fixture, const struct small_batch *batch,
                      int64_t beams, attn_translation *out)
{
    const attn_seq2seq model = attn_recurrent_translator_seq2seq(fixture->translator);
    attn_search_options options;
    attn_error error;
    attn_search_options_init(&options);
    options.beams = beams;
    if (attn_seq2seq_translate(
            &model, fixture->context, batch->source,
            (attn_packing){batch->pairs.sentences, batch->source_starts}, &options, out,
            &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static void a_sentence_is_translated_as_if_alone_to_the_bit(void **state)
{
    struct fixture *const fixture = *state;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        attn_translation together[SENTENCES], alone;
        choose_number(fixture, number);
        translate(fixture, &fixture->batch, 3, together);
        for (int64_t s = 0; s < SENTENCES; s++) {
            struct small_batch one;
            small_batch_alone(&one, &fixture->batch, s);
            translate(fixture, &one, 3, &alone);
            assert_int_equal(alone.count, together[s].count);
            assert_memory_equal(alone.ids, together[s].ids,
                                alone.count * sizeof(int32_t));
            assert_memory_equal(&alone.score, &together[s].score, sizeof alone.score);
            free(alone.ids);
            free(together[s].ids);
        }
    }
}

/* ---- What is seen ---------------------------------------------------------------- */

struct seen {
    int calls;
    int64_t queries, keys;
    float weights[SMALL_MOST_TOKENS];
};

static attn_status see(void *user, const attn_observation *observation)
{
    struct seen *const seen = user;
    assert_int_equal(observation->part, ATTN_PART_CROSS);
    assert_int_equal(observation->layer, 0);
    seen->calls++;
    seen->queries = observation->shape->Lq;
    seen->keys = observation->shape->Lk;
    for (int64_t n = 0; n < seen->queries; n++)
        assert_true(observation->tensors->statistics.visible_keys[n] >= 1);
    const attn_rectangle last = {
        .first_query = seen->queries - 1, .queries = 1, .keys = seen->keys};
    return attn_weights(observation->context, observation->shape, observation->tensors,
                        observation->options, &last, seen->weights, seen->keys);
}

static void the_observer_sees_one_attention_over_all_steps(void **state)
{
    struct fixture *const fixture = *state;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        struct seen seen = {0};
        const attn_observer observer = {&seen, see};
        choose_number(fixture, number);
        attn_pass pass = pass_of(fixture, false, NULL);
        pass.observer = &observer;
        const attn_tensor *const hidden = attn_recurrent_translator_hidden(
            fixture->translator, &pass, &fixture->batch.pairs);
        assert_tape_ok(fixture);
        assert_non_null(hidden);
        const bool attends = small_recurrent_config(number).attention != ATTN_CROSS_NONE;
        assert_int_equal(seen.calls, attends);
        if (!attends)
            continue;
        assert_int_equal(seen.queries, fixture->batch.target_starts[SENTENCES]);
        assert_int_equal(seen.keys, fixture->batch.source_starts[SENTENCES]);
        /* The last query is of the last sentence and sees its keys alone. */
        double sum = 0.0;
        const int64_t first = fixture->batch.source_starts[SENTENCES - 1];
        for (int64_t key = 0; key < seen.keys; key++) {
            sum += (double)seen.weights[key];
            assert_true((seen.weights[key] > 0.0f) == (key >= first));
        }
        assert_true(fabs(sum - 1.0) < 1e-6);
    }
}

/* ---- Refusals -------------------------------------------------------------------- */

static void refuses(const attn_recurrent_translator_config *config, const char *fragment)
{
    attn_recurrent_translator *translator = (attn_recurrent_translator *)&fragment;
    attn_error error = {0};
    assert_fails(attn_recurrent_translator_create(&translator, config, 1, &error), &error,
                 ATTN_EINVAL, fragment);
    assert_null(translator);
}

static void a_configuration_out_of_range_is_named(void **state)
{
    (void)state;
    const attn_recurrent_translator_config usual = small_recurrent_config(2);
    attn_recurrent_translator_config config = usual;
    config.vocabulary = 3;
    refuses(&config, "vocabulary is 3, expected 4");
    config = usual;
    config.encoder_layers = 9;
    refuses(&config, "encoder_layers is 9, expected 1 to 8");
    config = usual;
    config.attention_width = 0;
    refuses(&config, "attention_width is 0, expected 1 to 65536");
    config.attention = ATTN_CROSS_GENERAL;
    config.attention_width = 5;
    refuses(&config, "attention_width is 5, expected 0 to 0");
    config.attention_width = 0;
    config.attention = ATTN_CROSS_DOT;
    config.width = 11;
    refuses(&config, "attention dot between states of width 11 and 12 of the source");
    config = usual;
    config.dropout = 1.0f;
    refuses(&config, "dropout is 1");
    config = usual;
    config.cell = ATTN_CELL_TANH;
    refuses(&config, "cell is 0");
    config = usual;
    config.attention = (attn_cross_score)17;
    refuses(&config, "attention is 17");
}

static void an_empty_source_or_an_id_outside_the_vocabulary_is_named(void **state)
{
    struct fixture *const fixture = *state;
    static const char *const fragments[] = {"40", "sequence 1 is empty"};
    for (int defect = 0; defect < 2; defect++) {
        choose_number(fixture, 2);
        if (defect == 0)
            fixture->batch.source[3] = SMALL_VOCABULARY;
        else
            fixture->batch.source_starts[2] = fixture->batch.source_starts[1];
        const attn_pass pass = pass_of(fixture, true, NULL);
        assert_null(attn_recurrent_translator_loss(
            fixture->translator, &pass, &fixture->batch.pairs, 0.1f, 1.0, NULL));
        assert_int_equal(attn_tape_status(fixture->tape), ATTN_EINVAL);
        if (!strstr(attn_context_message(fixture->context), fragments[defect]))
            fail_msg("got \"%s\"", attn_context_message(fixture->context));
        fixture->batch.source[3] = 5;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gradients_are_slopes_of_the_loss),
        TEST(dropout_follows_the_seed),
        TEST(a_sentence_in_a_batch_has_the_bits_it_has_alone),
        TEST(a_target_token_changes_no_logits_before_it),
        TEST(every_step_equals_the_whole_pass),
        TEST(rows_that_split_and_end_keep_their_own_past),
        TEST(a_sentence_is_translated_as_if_alone_to_the_bit),
        TEST(the_observer_sees_one_attention_over_all_steps),
        TEST(a_configuration_out_of_range_is_named),
        TEST(an_empty_source_or_an_id_outside_the_vocabulary_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
