/* Readers of texts, one of each body, pooling and attention: that a text sees no other,
 * how long ones are cut, their gradients, that they learn, what the observer is told, and
 * what is refused.  Their files, and PyTorch's twins, are in test_reader_file.c. */
#include "model/bert.h"
#include "small_reader.h"
#include "text/tokenizer.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_text_alone_has_the_bits_it_has_among_others(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++) {
        const attn_reader_config config = small_reader_config(kind);
        const attn_reader_text *const texts = small_reader_texts(config.tags);
        attn_reader *const reader = small_reader_create(&config);
        attn_tape *const tape = small_tape(), *const other = small_tape();
        const float *together = small_reader_logits(reader, tape, texts, READER_TEXTS);
        for (int64_t n = 0; n < READER_TEXTS; n++) {
            const size_t count =
                (size_t)(small_reader_rows(config.tags, n) * READER_LABELS);
            const float *const alone = small_reader_logits(reader, other, texts + n, 1);
            if (memcmp(alone, together, count * sizeof *alone) != 0)
                fail_msg("%s: text %lld differs alone", small_reader_name(kind),
                         (long long)n);
            together += count;
        }
        small_tape_destroy(tape), small_tape_destroy(other);
        attn_reader_destroy(reader);
    }
}

static void logits_of_a_long_text_are_the_mean_of_its_chunks(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++) {
        attn_reader_config config = small_reader_config(kind);
        if (config.tags)
            continue;
        const attn_reader_text whole = small_reader_texts(false)[2];
        config.max_positions = 5 + (config.body == ATTN_BODY_TRANSFORMER);
        attn_reader *const reader = small_reader_create(&config);
        attn_tape *const tape = small_tape(), *const other = small_tape();
        assert_int_equal(attn_reader_chunks(reader, &whole), 3);
        const float *const logits = small_reader_logits(reader, tape, &whole, 1);
        double mean[READER_LABELS] = {0.0};
        for (int chunk = 0; chunk < 3; chunk++) {
            const attn_reader_text part = {whole.ids + 4 * chunk, 4, NULL, 0};
            const float *const of_part = small_reader_logits(reader, other, &part, 1);
            for (int i = 0; i < READER_LABELS; i++)
                mean[i] += (double)of_part[i] / 3.0;
        }
        for (int i = 0; i < READER_LABELS; i++)
            if (!(fabs((double)logits[i] - mean[i]) < 1e-6))
                fail_msg("%s: %g, expected %g", small_reader_name(kind),
                         (double)logits[i], mean[i]);
        small_tape_destroy(tape), small_tape_destroy(other);
        attn_reader_destroy(reader);
    }
}

static void a_long_sentence_is_cut_between_words(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++) {
        attn_reader_config config = small_reader_config(kind);
        if (!config.tags)
            continue;
        const attn_reader_text whole = small_reader_texts(true)[2];
        static const int64_t starts[2][4] = {{0, 2, 3, 6}, {0, 3, 4, 6}};
        config.max_positions = 7 + 2 * (config.body == ATTN_BODY_TRANSFORMER);
        attn_reader *const reader = small_reader_create(&config);
        attn_tape *const tape = small_tape(), *const other = small_tape();
        assert_int_equal(attn_reader_chunks(reader, &whole), 2);
        const float *const logits = small_reader_logits(reader, tape, &whole, 1);
        for (int chunk = 0; chunk < 2; chunk++) {
            const attn_reader_text part = {whole.ids + 6 * chunk, 6, starts[chunk], 3};
            const float *const of_part = small_reader_logits(reader, other, &part, 1);
            assert_memory_equal(of_part, logits + chunk * 3 * READER_LABELS,
                                3 * READER_LABELS * sizeof(float));
        }
        small_tape_destroy(tape), small_tape_destroy(other);
        attn_reader_destroy(reader);
    }
}

static void a_word_longer_than_the_positions_fails_the_tape(void **state)
{
    (void)state;
    attn_reader_config config = small_reader_config(11);
    const attn_reader_text text = {(const int32_t[]){5, 6, 7, 8, 9}, 5,
                                   (const int64_t[]){0, 1, 5}, 2};
    config.max_positions = 3;
    attn_reader *const reader = small_reader_create(&config);
    attn_tape *const tape = small_tape();
    const attn_pass pass = {.tape = tape, .parameters = attn_reader_parameters(reader)};
    assert_int_equal(attn_reader_chunks(reader, &text), 0);
    attn_tape_begin(tape, false, 0);
    assert_null(attn_reader_logits(reader, &pass, &text, 1));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(strstr(attn_context_message(attn_tape_context(tape)),
                           "text 0 has a word of more tokens than"));
    small_tape_destroy(tape);
    attn_reader_destroy(reader);
}

static void nothing_to_read_has_no_logits(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++) {
        const attn_reader_config config = small_reader_config(kind);
        attn_reader *const reader = small_reader_create(&config);
        attn_tape *const tape = small_tape();
        const attn_pass pass = {.tape = tape,
                                .parameters = attn_reader_parameters(reader)};
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const logits =
            attn_reader_logits(reader, &pass, small_reader_texts(config.tags), 0);
        assert_true(!logits || logits->extent[0] == 0);
        small_tape_destroy(tape);
        attn_reader_destroy(reader);
    }
}

/* ---- Training -------------------------------------------------------------------- */

static const int32_t TARGETS[] = {2, 0, 1, 2, 0, 1, 1, 0, 2, 2, 1, 0, 0};

struct learner {
    attn_reader *reader;
    attn_tape *tape;
    int64_t correct; /* at the last loss */
};

static double loss_of(void *user, float *gradients)
{
    struct learner *const learner = user;
    attn_reader *const reader = learner->reader;
    attn_tape *const tape = learner->tape;
    const bool tags = attn_reader_config_of(reader)->tags;
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_reader_parameters(reader),
                            .gradients = gradients};
    double plain = 0.0;
    attn_tape_begin(tape, true, 0);
    attn_tensor *const logits =
        attn_reader_logits(reader, &pass, small_reader_texts(tags), READER_TEXTS);
    attn_tensor *const loss =
        attn_reader_loss(reader, &pass, logits, TARGETS, 0.0f,
                         (double)small_reader_all_rows(tags), &plain, &learner->correct);
    if (!loss)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    if (gradients)
        assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
    return plain / (double)small_reader_all_rows(tags);
}

static void check_gradients(int kind)
{
    attn_reader_config config = small_reader_config(kind);
    config.max_positions = 9; /* the third text is cut */
    struct learner reader = {small_reader_create(&config), small_tape(), 0};
    const struct small_learner learner = {attn_reader_parameters(reader.reader), loss_of,
                                          &reader};
    /* A step with which few cross a kink of a ReLU or of a maximum. */
    assert_gradients(&learner, small_reader_name(kind), 1e-3f, 7, 1e-3);
    small_tape_destroy(reader.tape);
    attn_reader_destroy(reader.reader);
}

static void every_parameter_has_the_gradient_of_differences(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++)
        check_gradients(kind);
}

static void a_few_hundred_steps_learn_the_labels(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++) {
        const attn_reader_config config = small_reader_config(kind);
        struct learner reader = {small_reader_create(&config), small_tape(), -1};
        const double loss =
            small_learn(&(struct small_learner){attn_reader_parameters(reader.reader),
                                                loss_of, &reader},
                        600, 0.15f);
        if (!(loss < 0.2) || reader.correct != small_reader_all_rows(config.tags))
            fail_msg("%s: loss %g, %lld correct", small_reader_name(kind), loss,
                     (long long)reader.correct);
        small_tape_destroy(reader.tape);
        attn_reader_destroy(reader.reader);
    }
}

static void tokens_are_dropped_in_training_only(void **state)
{
    (void)state;
    attn_reader_config config = small_reader_config(0);
    attn_reader *const whole = small_reader_create(&config);
    config.token_dropout = 0.9f;
    attn_reader *const dropping = small_reader_create(&config);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    const attn_reader_text *const texts = small_reader_texts(false);
    const size_t bytes = READER_TEXTS * READER_LABELS * sizeof(float);
    const float *const expected = small_reader_logits(whole, tape, texts, READER_TEXTS);
    assert_memory_equal(small_reader_logits(dropping, other, texts, READER_TEXTS),
                        expected, bytes);
    const attn_pass pass = {.tape = other,
                            .parameters = attn_reader_parameters(dropping)};
    attn_tape_begin(other, true, 1);
    const attn_tensor *const dropped =
        attn_reader_logits(dropping, &pass, texts, READER_TEXTS);
    assert_non_null(dropped);
    assert_memory_not_equal(dropped->data, expected, bytes);
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_reader_destroy(whole), attn_reader_destroy(dropping);
}

/* ---- The observer ---------------------------------------------------------------- */

struct seen {
    int calls;
    attn_part part;
    attn_shape shape;
    double worst_sum; /* of a row's weights, its distance from 1 */
};

static attn_status see(void *user, const attn_observation *observation)
{
    struct seen *const seen = user;
    const attn_shape *const shape = observation->shape;
    float weights[16 * 64];
    seen->calls++;
    seen->part = observation->part;
    seen->shape = *shape;
    assert_true(shape->Lq * shape->Lk <= 16 * 64);
    const attn_status status = attn_weights(
        observation->context, shape, observation->tensors, observation->options,
        &(attn_rectangle){.queries = shape->Lq, .keys = shape->Lk}, weights, shape->Lk);
    for (int64_t row = 0; status == ATTN_OK && row < shape->Lq; row++) {
        double sum = 0.0;
        for (int64_t key = 0; key < shape->Lk; key++)
            sum += (double)weights[row * shape->Lk + key];
        seen->worst_sum = fmax(seen->worst_sum, fabs(sum - 1.0));
    }
    return status;
}

static struct seen observe(int kind)
{
    struct seen seen = {0};
    const attn_observer observer = {&seen, see};
    const attn_reader_config config = small_reader_config(kind);
    attn_reader *const reader = small_reader_create(&config);
    attn_tape *const tape = small_tape();
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_reader_parameters(reader),
                            .observer = &observer};
    attn_tape_begin(tape, false, 0);
    assert_non_null(
        attn_reader_logits(reader, &pass, small_reader_texts(config.tags), READER_TEXTS));
    small_tape_destroy(tape);
    attn_reader_destroy(reader);
    return seen;
}

static void the_observer_sees_where_a_text_was_read(void **state)
{
    (void)state;
    const struct seen seen = observe(5);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.part, ATTN_PART_POOL);
    assert_int_equal(seen.shape.Lq, READER_TEXTS);
    assert_int_equal(seen.shape.Lk, 7 + 0 + 12 + 4 + READER_TEXTS); /* </s> too */
    assert_true(seen.worst_sum < 1e-6);
}

static void the_observer_sees_where_words_looked(void **state)
{
    (void)state;
    for (int kind = 12; kind < 14; kind++) {
        const struct seen seen = observe(kind);
        assert_int_equal(seen.calls, 1);
        assert_int_equal(seen.part, ATTN_PART_ENCODER);
        assert_int_equal(seen.shape.Lq, small_reader_all_rows(true));
        assert_int_equal(seen.shape.Lk, small_reader_all_rows(true));
        assert_true(seen.worst_sum < 1e-6);
    }
}

/* ---- Predicting, and what is refused --------------------------------------------- */

/* More texts than are computed on together. */
static void probabilities_are_the_softmax_of_the_logits(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static attn_reader_text texts[MANY];
    static float probabilities[MANY * 4 * READER_LABELS];
    attn_error error;
    for (int kind = 3; kind < READER_KINDS; kind += 8) {
        const attn_reader_config config = small_reader_config(kind);
        attn_reader *const reader = small_reader_create(&config);
        attn_tape *const tape = small_tape();
        attn_context *const context = small_context();
        for (int64_t n = 0; n < MANY; n++)
            texts[n] = small_reader_texts(config.tags)[n % READER_TEXTS];
        const float *const logits = small_reader_logits(
            reader, tape, small_reader_texts(config.tags), READER_TEXTS);
        assert_int_equal(
            attn_reader_predict(reader, context, texts, MANY, probabilities, &error),
            ATTN_OK);
        const int64_t rows = small_reader_all_rows(config.tags);
        for (int64_t n = 0; n < rows * (MANY / READER_TEXTS); n++) {
            const float *const row = logits + n % rows * READER_LABELS;
            const float *const p = probabilities + n * READER_LABELS;
            const double sum =
                exp((double)row[0]) + exp((double)row[1]) + exp((double)row[2]);
            for (int i = 0; i < READER_LABELS; i++)
                assert_true(fabs((double)p[i] - exp((double)row[i]) / sum) < 1e-6);
        }
        attn_context_destroy(context);
        small_tape_destroy(tape);
        attn_reader_destroy(reader);
    }
}

static void a_broken_model_gives_no_probabilities(void **state)
{
    (void)state;
    const attn_reader_config config = small_reader_config(0);
    attn_reader *const reader = small_reader_create(&config);
    attn_parameters *const parameters = attn_reader_parameters(reader);
    attn_context *const context = small_context();
    float probabilities[READER_TEXTS * READER_LABELS];
    attn_error error;
    parameters->values[attn_parameters_find(parameters, "classifier.bias")->offset] = NAN;
    assert_int_equal(attn_reader_predict(reader, context, small_reader_texts(false),
                                         READER_TEXTS, probabilities, &error),
                     ATTN_ENOTFINITE);
    attn_context_destroy(context);
    attn_reader_destroy(reader);
}

static void ties_go_to_the_first(void **state)
{
    (void)state;
    assert_int_equal(attn_reader_choose((const float[]){0.2f, 0.4f, 0.4f}, 3), 1);
}

static void refuses(attn_reader_config config, const char *fragment)
{
    attn_reader *reader = (attn_reader *)&config;
    attn_error error;
    assert_fails(attn_reader_create(&reader, &config, 1, &error), &error, ATTN_EINVAL,
                 fragment);
    assert_null(reader);
}

static void what_does_not_go_together_is_named(void **state)
{
    (void)state;
    attn_reader_config config = small_reader_config(0);
    config.labels = 1;
    refuses(config, "labels is 1, expected 2 to 4096");
    config = small_reader_config(0);
    config.pooling = ATTN_READER_LAST;
    refuses(config, "the last state is read where the body is not recurrent");
    config.pooling = ATTN_READER_MEAN;
    config.width = 8;
    refuses(config, "width is 8, expected 0 to 0");
    config = small_reader_config(0);
    config.dropout = 1.0f;
    refuses(config, "a dropout is 1");
    config = small_reader_config(5);
    config.attention_width = 0;
    refuses(config, "attention_width is 0, expected 1 to");
    config.attention_width = 6;
    config.buckets = 5;
    refuses(config, "buckets is 5, expected 0 to 0");
    config = small_reader_config(3);
    config.filters[1] = 0;
    refuses(config, "filter 1 has 0 tokens");
    config = small_reader_config(11);
    config.pooling = ATTN_READER_MAX;
    refuses(config, "words are labelled and pooling is not the mean");
    config = small_reader_config(6);
    config.attention = ATTN_READER_PRODUCT;
    config.attention_width = 4;
    refuses(config, "texts are labelled and words attend");
    config.tags = false;
    config.attention = ATTN_READER_ALONE;
    config.attention_width = 0;
    config.pooling = ATTN_READER_FIRST;
    refuses(config, "the first token's state is read where the body is no Transformer");
    config = small_reader_config(8);
    config.pooling = ATTN_READER_MAX;
    refuses(config, "a Transformer's pooling is neither");
    config = small_reader_config(8);
    config.heads = 5;
    refuses(config, "heads");
}

static void labels_have_names_and_names_differ(void **state)
{
    (void)state;
    attn_error error;
    for (int kind = 0; kind < READER_KINDS; kind += READER_KINDS - 1) {
        const attn_reader_config config = small_reader_config(kind);
        attn_reader *const reader = small_reader_create(&config);
        assert_string_equal(attn_reader_label(reader, 2), "LABEL_2");
        assert_null(attn_reader_label(reader, 3));
        assert_null(attn_reader_label(reader, -1));
        static const char *const names[] = {"good", "bad", "neither"};
        static const char *const equal[] = {"good", "bad", "good"};
        assert_int_equal(attn_reader_name_labels(reader, names, &error), ATTN_OK);
        assert_int_equal(attn_reader_name_labels(reader, equal, &error), ATTN_EINVAL);
        assert_non_null(strstr(error.message, "labels 0 and 2 are both \"good\""));
        assert_string_equal(attn_reader_label(reader, 2), "neither");
        attn_reader_destroy(reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_alone_has_the_bits_it_has_among_others),
        cmocka_unit_test(logits_of_a_long_text_are_the_mean_of_its_chunks),
        cmocka_unit_test(a_long_sentence_is_cut_between_words),
        cmocka_unit_test(a_word_longer_than_the_positions_fails_the_tape),
        cmocka_unit_test(nothing_to_read_has_no_logits),
        cmocka_unit_test(every_parameter_has_the_gradient_of_differences),
        cmocka_unit_test(a_few_hundred_steps_learn_the_labels),
        cmocka_unit_test(tokens_are_dropped_in_training_only),
        cmocka_unit_test(the_observer_sees_where_a_text_was_read),
        cmocka_unit_test(the_observer_sees_where_words_looked),
        cmocka_unit_test(probabilities_are_the_softmax_of_the_logits),
        cmocka_unit_test(a_broken_model_gives_no_probabilities),
        cmocka_unit_test(ties_go_to_the_first),
        cmocka_unit_test(what_does_not_go_together_is_named),
        cmocka_unit_test(labels_have_names_and_names_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
