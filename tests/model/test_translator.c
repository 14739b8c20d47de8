/* What the translator computes: a sentence is computed as if it were alone, every
 * parameter learns, gradients are those of the loss, and what does not fit is an error
 * that says so. */
#include "small.h"
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
    attn_translator *translator;
    struct small_batch batch;
    float *gradients;
};

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    fixture->context = small_context();
    assert_int_equal(attn_tape_create(&fixture->tape, fixture->context), ATTN_OK);
    fixture->translator = small_translator(7);
    fixture->gradients =
        calloc(attn_translator_parameters(fixture->translator)->floats, sizeof(float));
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
    free(fixture->gradients);
    free(fixture);
    return 0;
}

static attn_pass pass_of(struct fixture *fixture, bool training)
{
    attn_tape_begin(fixture->tape, training, 11);
    return (attn_pass){
        .tape = fixture->tape,
        .parameters = attn_translator_parameters(fixture->translator),
        .gradients = training ? fixture->gradients : NULL,
    };
}

static void assert_tape_ok(const struct fixture *fixture)
{
    if (attn_tape_status(fixture->tape) != ATTN_OK)
        fail_msg("%s", attn_context_message(fixture->context));
}

/* Memory of the caller. */
static float *logits_of(struct fixture *fixture, const struct small_batch *batch,
                        bool training)
{
    const attn_pass pass = pass_of(fixture, training);
    const attn_tensor *const logits =
        attn_translator_logits(fixture->translator, &pass, &batch->pairs);
    assert_tape_ok(fixture);
    const int64_t rows = batch->target_starts[batch->pairs.sentences];
    assert_int_equal(logits->extent[0], rows);
    assert_int_equal(logits->extent[1], SMALL_VOCABULARY);
    const size_t bytes = (size_t)(rows * SMALL_VOCABULARY) * sizeof(float);
    float *const copy = malloc(bytes);
    memcpy(copy, logits->data, bytes);
    return copy;
}

static double loss_of(struct fixture *fixture, bool training, float smoothing,
                      double *plain)
{
    const attn_pass pass = pass_of(fixture, training);
    const attn_tensor *const loss = attn_translator_loss(
        fixture->translator, &pass, &fixture->batch.pairs, smoothing, 10.0, plain);
    assert_tape_ok(fixture);
    return (double)loss->data[0];
}

/* Dropout off, so that training and inference compute the same. */
static void forget_dropout(struct fixture *fixture)
{
    attn_translator_config *const config =
        (attn_translator_config *)attn_translator_config_of(fixture->translator);
    config->dropout = config->attention_dropout = 0.0f;
}

static void a_sentence_in_a_batch_has_the_bits_it_has_alone(void **state)
{
    struct fixture *const fixture = *state;
    float *const together = logits_of(fixture, &fixture->batch, false);
    for (int64_t s = 0; s < SENTENCES; s++) {
        struct small_batch one;
        small_batch_alone(&one, &fixture->batch, s);
        float *const alone = logits_of(fixture, &one, false);
        const int64_t first = fixture->batch.target_starts[s] * SMALL_VOCABULARY;
        assert_memory_equal(alone, together + first,
                            (size_t)(one.target_starts[1] * SMALL_VOCABULARY) *
                                sizeof(float));
        free(alone);
    }
    free(together);
}

static void a_sentence_in_a_training_batch_has_the_logits_it_has_alone(void **state)
{
    struct fixture *const fixture = *state;
    forget_dropout(fixture);
    float *const together = logits_of(fixture, &fixture->batch, true);
    for (int64_t s = 0; s < SENTENCES; s++) {
        struct small_batch one;
        small_batch_alone(&one, &fixture->batch, s);
        float *const alone = logits_of(fixture, &one, false);
        const int64_t first = fixture->batch.target_starts[s] * SMALL_VOCABULARY;
        for (int64_t i = 0; i < one.target_starts[1] * SMALL_VOCABULARY; i++)
            assert_float_equal(alone[i], together[first + i], 1e-5f);
        free(alone);
    }
    free(together);
}

static void a_target_token_changes_no_logits_before_it(void **state)
{
    struct fixture *const fixture = *state;
    float *const before = logits_of(fixture, &fixture->batch, false);
    const int64_t changed = fixture->batch.target_starts[0] + 4;
    fixture->batch.target_in[changed] ^= 1;
    float *const after = logits_of(fixture, &fixture->batch, false);
    assert_memory_equal(before, after,
                        (size_t)(changed * SMALL_VOCABULARY) * sizeof(float));
    assert_memory_not_equal(before + changed * SMALL_VOCABULARY,
                            after + changed * SMALL_VOCABULARY,
                            SMALL_VOCABULARY * sizeof(float));
    free(before);
    free(after);
}

static void the_loss_is_the_smoothed_cross_entropy_of_the_logits(void **state)
{
    struct fixture *const fixture = *state;
    const double smoothing = 0.1;
    double plain_sum = 0.0, smoothed_sum = 0.0, plain;
    float *const logits = logits_of(fixture, &fixture->batch, false);
    for (int64_t row = 0; row < fixture->batch.target_starts[SENTENCES]; row++) {
        const float *const x = logits + row * SMALL_VOCABULARY;
        double sum = 0.0, mean = 0.0;
        for (int64_t i = 0; i < SMALL_VOCABULARY; i++) {
            sum += exp((double)x[i]);
            mean += (double)x[i] / SMALL_VOCABULARY;
        }
        const double own = log(sum) - (double)x[fixture->batch.target_out[row]];
        plain_sum += own;
        smoothed_sum += (1.0 - smoothing) * own + smoothing * (log(sum) - mean);
    }
    const double loss = loss_of(fixture, false, (float)smoothing, &plain);
    assert_true(fabs(loss - smoothed_sum / 10.0) < 1e-4);
    assert_true(fabs(plain - plain_sum) < 1e-3);
    free(logits);
}

static void take_gradients(struct fixture *fixture)
{
    const attn_parameters *const parameters =
        attn_translator_parameters(fixture->translator);
    memset(fixture->gradients, 0, parameters->floats * sizeof(float));
    const attn_pass pass = pass_of(fixture, true);
    attn_tensor *const loss = attn_translator_loss(
        fixture->translator, &pass, &fixture->batch.pairs, 0.1f, 10.0, NULL);
    assert_tape_ok(fixture);
    const attn_status status = attn_tape_backward(fixture->tape, loss, 1.0f);
    assert_tape_ok(fixture);
    assert_int_equal(status, ATTN_OK);
}

static void every_parameter_gets_a_gradient(void **state)
{
    struct fixture *const fixture = *state;
    const attn_parameters *const parameters =
        attn_translator_parameters(fixture->translator);
    take_gradients(fixture);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        float largest = 0.0f;
        for (size_t j = 0; j < parameter->count; j++)
            largest = fmaxf(largest, fabsf(fixture->gradients[parameter->offset + j]));
        /* What is added to every key changes no weight: the exact gradient is 0. */
        if (strstr(parameter->name, "k_proj.bias"))
            assert_true(largest < 1e-5f);
        else if (!(largest > 1e-4f && largest < 1e3f))
            fail_msg("%s: largest gradient %g", parameter->name, (double)largest);
    }
}

/* d loss / d ε of parameters + ε·direction, for each parameter by itself.  With GELU: a
 * ReLU has no slope where it bends. */
static void check_slopes(struct fixture *fixture, attn_translator_config config)
{
    config.activation = ATTN_GELU;
    config.dropout = config.attention_dropout = 0.0f;
    attn_translator_destroy(fixture->translator);
    fixture->translator = small_translator_like(&config, 7);
    attn_parameters *const parameters = attn_translator_parameters(fixture->translator);
    free(fixture->gradients);
    fixture->gradients = calloc(parameters->floats, sizeof(float));
    const float step = 1e-3f;
    take_gradients(fixture);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        float *const values = parameters->values + parameter->offset;
        const float *const gradient = fixture->gradients + parameter->offset;
        float *const kept = malloc(parameter->count * sizeof *kept);
        double slope = 0.0, loss[2];
        memcpy(kept, values, parameter->count * sizeof *kept);
        for (size_t j = 0; j < parameter->count; j++)
            slope += (double)gradient[j] * (j % 3 == 1 ? -1.0 : 1.0);
        for (int side = 0; side < 2; side++) {
            for (size_t j = 0; j < parameter->count; j++)
                values[j] = kept[j] + (side ? step : -step) * (j % 3 == 1 ? -1.0f : 1.0f);
            loss[side] = loss_of(fixture, false, 0.1f, NULL);
        }
        memcpy(values, kept, parameter->count * sizeof *kept);
        free(kept);
        const double measured = (loss[1] - loss[0]) / (2.0 * (double)step);
        if (!(fabs(measured - slope) < 5e-3 + 0.03 * fabs(slope)))
            fail_msg("%s: slope %g, measured %g", parameter->name, slope, measured);
    }
}

static void gradients_are_slopes_of_the_loss(void **state)
{
    check_slopes(*state, small_config());
}

static void gradients_are_slopes_where_normalising_comes_last(void **state)
{
    struct fixture *const fixture = *state;
    check_slopes(fixture, small_config_last(true));
    const char *const learned[] = {"model.encoder.embed_positions.weight",
                                   "model.decoder.embed_positions.weight",
                                   "final_logits_bias"};
    for (size_t i = 0; i < 3; i++) {
        const attn_parameter *const parameter = attn_parameters_find(
            attn_translator_parameters(fixture->translator), learned[i]);
        assert_true(fabsf(fixture->gradients[parameter->offset]) > 1e-4f);
    }
}

static void dropout_follows_the_seed(void **state)
{
    struct fixture *const fixture = *state;
    const double first = loss_of(fixture, true, 0.0f, NULL);
    const double again = loss_of(fixture, true, 0.0f, NULL);
    const double inference = loss_of(fixture, false, 0.0f, NULL);
    assert_true(first == again);
    assert_true(first != inference);
}

static void expect_failure(struct fixture *fixture, const char *fragment)
{
    const attn_pass pass = pass_of(fixture, true);
    assert_null(attn_translator_loss(fixture->translator, &pass, &fixture->batch.pairs,
                                     0.1f, 1.0, NULL));
    assert_int_equal(attn_tape_status(fixture->tape), ATTN_EINVAL);
    if (!strstr(attn_context_message(fixture->context), fragment))
        fail_msg("got \"%s\", expected \"%s\" in it",
                 attn_context_message(fixture->context), fragment);
}

static void an_id_outside_the_vocabulary_is_named(void **state)
{
    struct fixture *const fixture = *state;
    const int32_t kept = fixture->batch.source[3];
    fixture->batch.source[3] = SMALL_VOCABULARY;
    expect_failure(fixture, "40");
    fixture->batch.source[3] = -1;
    expect_failure(fixture, "-1");
    fixture->batch.source[3] = kept;
    fixture->batch.target_in[2] = SMALL_VOCABULARY + 5;
    expect_failure(fixture, "45");
}

static void a_sequence_beyond_the_positions_is_named(void **state)
{
    struct fixture *const fixture = *state;
    const int64_t longest[] = {SMALL_POSITIONS - 1}, longer[] = {SMALL_POSITIONS};
    const int64_t some[] = {4};
    small_batch_fill(&fixture->batch, 1, longest, longest, 5);
    assert_true(isfinite(loss_of(fixture, false, 0.1f, NULL)));
    small_batch_fill(&fixture->batch, 1, longer, some, 5);
    expect_failure(fixture, "25 tokens");
    small_batch_fill(&fixture->batch, 1, some, longer, 5);
    expect_failure(fixture, "25 tokens");
}

static void the_same_seed_gives_the_same_parameters(void **state)
{
    (void)state;
    attn_translator *const a = small_translator(1), *const b = small_translator(1);
    attn_translator *const c = small_translator(2);
    const size_t bytes = attn_translator_parameters(a)->floats * sizeof(float);
    assert_memory_equal(attn_translator_parameters(a)->values,
                        attn_translator_parameters(b)->values, bytes);
    assert_memory_not_equal(attn_translator_parameters(a)->values,
                            attn_translator_parameters(c)->values, bytes);
    attn_translator_destroy(a);
    attn_translator_destroy(b);
    attn_translator_destroy(c);
}

static void a_configuration_out_of_range_is_named(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        int64_t value;
        const char *fragment;
    } cases[] = {
        {offsetof(attn_translator_config, vocabulary), 3, "vocabulary is 3"},
        {offsetof(attn_translator_config, vocabulary), INT64_MAX, "vocabulary is 9223"},
        {offsetof(attn_translator_config, width), 2, "width is 2"},
        {offsetof(attn_translator_config, width), 34, "width 34 is not a multiple of 4"},
        {offsetof(attn_translator_config, heads), 0, "heads is 0"},
        {offsetof(attn_translator_config, heads), 33, "heads is 33"},
        {offsetof(attn_translator_config, encoder_layers), 0, "encoder_layers is 0"},
        {offsetof(attn_translator_config, decoder_layers), -1, "decoder_layers is -1"},
        {offsetof(attn_translator_config, decoder_layers), 1000,
         "decoder_layers is 1000"},
        {offsetof(attn_translator_config, inner), 0, "inner is 0"},
        {offsetof(attn_translator_config, max_positions), 0, "max_positions is 0"},
        {offsetof(attn_translator_config, max_positions), 1 << 20, "1048576 positions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_translator_config config = small_config();
        attn_translator *translator = (attn_translator *)&config;
        attn_error error = {0};
        memcpy((char *)&config + cases[i].offset, &cases[i].value, sizeof(int64_t));
        assert_fails(attn_translator_create(&translator, &config, 1, &error), &error,
                     ATTN_EINVAL, cases[i].fragment);
        assert_null(translator);
    }
    const float dropouts[] = {-0.1f, 1.0f, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        attn_translator_config config = small_config();
        attn_translator *translator;
        attn_error error;
        config.attention_dropout = dropouts[i];
        assert_int_equal(attn_translator_create(&translator, &config, 1, &error),
                         ATTN_EINVAL);
        assert_non_null(strstr(error.message, "dropout"));
    }
    attn_translator_config config = small_config_last(true);
    attn_translator *translator;
    attn_error error;
    config.normalise_first = true;
    assert_int_equal(attn_translator_create(&translator, &config, 1, &error),
                     ATTN_EINVAL);
    assert_non_null(strstr(error.message, "learned_positions with normalise_first"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sentence_in_a_batch_has_the_bits_it_has_alone),
        TEST(a_sentence_in_a_training_batch_has_the_logits_it_has_alone),
        TEST(a_target_token_changes_no_logits_before_it),
        TEST(the_loss_is_the_smoothed_cross_entropy_of_the_logits),
        TEST(every_parameter_gets_a_gradient),
        TEST(gradients_are_slopes_of_the_loss),
        TEST(gradients_are_slopes_where_normalising_comes_last),
        TEST(dropout_follows_the_seed),
        TEST(an_id_outside_the_vocabulary_is_named),
        TEST(a_sequence_beyond_the_positions_is_named),
        TEST(the_same_seed_gives_the_same_parameters),
        TEST(a_configuration_out_of_range_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
