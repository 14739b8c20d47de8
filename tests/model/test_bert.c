/* BERT: its logits against a reference in double precision, that a token sees the whole
 * of its text and nothing of another, its gradients, that it learns, what the observer is
 * told, and what is refused.  Its files are tested in test_bert_file.c. */
#include "small_bert.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 4, MOST_WIDTH = 40, MOST_TOKENS = 16 };

/* ---- Reference ------------------------------------------------------------------- */

/* A text in double precision, written from the paper and the names alone. */
struct reference {
    const attn_bert_config *config;
    const attn_parameters *parameters;
    int64_t tokens;
    double x[MOST_TOKENS][MOST_WIDTH];
};

static const float *named(const struct reference *r, const char *prefix, const char *rest)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", prefix, rest);
    const attn_parameter *const p = attn_parameters_find(r->parameters, name);
    if (!p)
        fail_msg("no parameter %s", name);
    return r->parameters->values + p->offset;
}

static void linear(const struct reference *r, const char *prefix, const double *x,
                   int64_t in, int64_t out, double *y)
{
    const float *const weight = named(r, prefix, ".weight");
    const float *const bias = named(r, prefix, ".bias");
    for (int64_t o = 0; o < out; o++) {
        y[o] = (double)bias[o];
        for (int64_t i = 0; i < in; i++)
            y[o] += x[i] * (double)weight[o * in + i];
    }
}

static void norm(const struct reference *r, const char *prefix, double *x)
{
    const int64_t width = r->config->width;
    const float *const gain = named(r, prefix, ".weight");
    const float *const bias = named(r, prefix, ".bias");
    double mean = 0.0, variance = 0.0;
    for (int64_t i = 0; i < width; i++)
        mean += x[i] / (double)width;
    for (int64_t i = 0; i < width; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)width;
    for (int64_t i = 0; i < width; i++)
        x[i] = (x[i] - mean) / sqrt(variance + (double)r->config->epsilon) *
                   (double)gain[i] +
               (double)bias[i];
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
}

static void reference_attention(struct reference *r, const char *prefix)
{
    static double q[MOST_TOKENS][MOST_WIDTH], k[MOST_TOKENS][MOST_WIDTH],
        v[MOST_TOKENS][MOST_WIDTH];
    const int64_t width = r->config->width, D = width / r->config->heads;
    char names[4][96];
    static const char *const parts[] = {"self.query", "self.key", "self.value",
                                        "output.dense"};
    for (int i = 0; i < 4; i++)
        snprintf(names[i], sizeof names[i], "%s.attention.%s", prefix, parts[i]);
    for (int64_t t = 0; t < r->tokens; t++) {
        linear(r, names[0], r->x[t], width, width, q[t]);
        linear(r, names[1], r->x[t], width, width, k[t]);
        linear(r, names[2], r->x[t], width, width, v[t]);
    }
    for (int64_t t = 0; t < r->tokens; t++) {
        double context[MOST_WIDTH] = {0}, out[MOST_WIDTH];
        for (int64_t head = 0; head < r->config->heads; head++) {
            double weight[MOST_TOKENS], sum = 0.0;
            for (int64_t s = 0; s < r->tokens; s++) {
                double score = 0.0;
                for (int64_t i = head * D; i < (head + 1) * D; i++)
                    score += q[t][i] * k[s][i];
                sum += weight[s] = exp(score / sqrt((double)D));
            }
            for (int64_t s = 0; s < r->tokens; s++)
                for (int64_t i = head * D; i < (head + 1) * D; i++)
                    context[i] += weight[s] / sum * v[s][i];
        }
        linear(r, names[3], context, width, width, out);
        for (int64_t i = 0; i < width; i++)
            r->x[t][i] += out[i];
    }
}

static void reference_layer(struct reference *r, int64_t index)
{
    const int64_t width = r->config->width, inner = r->config->inner;
    char prefix[64], name[96];
    snprintf(prefix, sizeof prefix, "bert.encoder.layer.%lld", (long long)index);
    reference_attention(r, prefix);
    for (int64_t t = 0; t < r->tokens; t++) {
        double hidden[MOST_WIDTH], out[MOST_WIDTH];
        snprintf(name, sizeof name, "%s.attention.output.LayerNorm", prefix);
        norm(r, name, r->x[t]);
        snprintf(name, sizeof name, "%s.intermediate.dense", prefix);
        linear(r, name, r->x[t], width, inner, hidden);
        for (int64_t i = 0; i < inner; i++)
            hidden[i] = gelu(hidden[i]);
        snprintf(name, sizeof name, "%s.output.dense", prefix);
        linear(r, name, hidden, inner, width, out);
        for (int64_t i = 0; i < width; i++)
            r->x[t][i] += out[i];
        snprintf(name, sizeof name, "%s.output.LayerNorm", prefix);
        norm(r, name, r->x[t]);
    }
}

static void reference_encode(struct reference *r, const int32_t *ids,
                             const int32_t *types)
{
    const int64_t width = r->config->width;
    const float *const words = named(r, "bert.embeddings.word_embeddings.weight", "");
    const float *const places =
        named(r, "bert.embeddings.position_embeddings.weight", "");
    const float *const kinds =
        named(r, "bert.embeddings.token_type_embeddings.weight", "");
    for (int64_t t = 0; t < r->tokens; t++) {
        for (int64_t i = 0; i < width; i++)
            r->x[t][i] = (double)words[ids[t] * width + i] +
                         (double)places[t * width + i] +
                         (double)kinds[types[t] * width + i];
        norm(r, "bert.embeddings.LayerNorm", r->x[t]);
    }
    for (int64_t i = 0; i < r->config->layers; i++)
        reference_layer(r, i);
}

/* The row of logits that token t has; for a label of the text, t is 0. */
static void reference_logits(struct reference *r, int64_t t, double *logits)
{
    const int64_t width = r->config->width;
    double y[MOST_WIDTH];
    if (r->config->head == ATTN_BERT_MEAN) {
        for (int64_t i = 0; i < width; i++) {
            y[i] = 0.0;
            for (int64_t token = 0; token < r->tokens; token++)
                y[i] += r->x[token][i] / (double)r->tokens;
        }
        linear(r, "classifier", y, width, r->config->labels, logits);
    } else if (r->config->head == ATTN_BERT_TOKENS) {
        linear(r, "classifier", r->x[t], width, r->config->labels, logits);
    } else if (r->config->head == ATTN_BERT_SEQUENCE) {
        linear(r, "bert.pooler.dense", r->x[t], width, width, y);
        for (int64_t i = 0; i < width; i++)
            y[i] = tanh(y[i]);
        linear(r, "classifier", y, width, r->config->labels, logits);
    } else {
        const bool untied = r->config->untied;
        const float *const table = named(
            r, untied ? "cls.predictions.decoder" : "bert.embeddings.word_embeddings",
            ".weight");
        const float *const bias =
            named(r, untied ? "cls.predictions.decoder" : "cls.predictions", ".bias");
        linear(r, "cls.predictions.transform.dense", r->x[t], width, width, y);
        for (int64_t i = 0; i < width; i++)
            y[i] = gelu(y[i]);
        norm(r, "cls.predictions.transform.LayerNorm", y);
        for (int64_t w = 0; w < r->config->vocabulary; w++) {
            logits[w] = (double)bias[w];
            for (int64_t i = 0; i < width; i++)
                logits[w] += y[i] * (double)table[w * width + i];
        }
    }
}

static void check_against_reference(const attn_bert_config *config)
{
    attn_bert *const bert = bert_create(config, 5);
    attn_tape *const tape = small_tape();
    const attn_bert_input input = bert_input();
    const float *got = bert_logits(bert, tape, &input);
    const int64_t columns = bert_columns(config);
    for (int64_t text = 0; text < BERT_TEXTS; text++) {
        const int64_t start = BERT_STARTS[text];
        struct reference r = {
            config, attn_bert_parameters(bert), BERT_STARTS[text + 1] - start, {{0}}};
        reference_encode(&r, BERT_IDS + start, BERT_TYPES + start);
        const int64_t rows = bert_rows_of(config->head, r.tokens);
        for (int64_t row = 0; row < rows; row++) {
            double expected[MOST_WIDTH];
            reference_logits(&r, row, expected);
            for (int64_t i = 0; i < columns; i++, got++)
                if (!(fabs((double)*got - expected[i]) <= 1e-5))
                    fail_msg("text %lld, row %lld, column %lld: %.9g, expected %.9g",
                             (long long)text, (long long)row, (long long)i, (double)*got,
                             expected[i]);
        }
    }
    small_tape_destroy(tape);
    attn_bert_destroy(bert);
}

static void logits_are_those_of_the_reference(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        attn_bert_config config = bert_config((attn_bert_head)head);
        check_against_reference(&config);
        config.epsilon = 0.05f; /* a norm that took another would be far off */
        config.heads = 1;
        config.layers = 1;
        config.inner = 7;
        check_against_reference(&config);
    }
    attn_bert_config config = bert_config(ATTN_BERT_MASKED);
    config.untied = true;
    check_against_reference(&config);
}

/* ---- What a token sees ----------------------------------------------------------- */

static void a_text_alone_has_the_bits_it_has_among_others(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = bert_config((attn_bert_head)head);
        attn_bert *const bert = bert_create(&config, 5);
        attn_tape *const tape = small_tape(), *const other = small_tape();
        const attn_bert_input input = bert_input();
        const float *together = bert_logits(bert, tape, &input);
        const int64_t columns = bert_columns(&config);
        for (int64_t text = 0; text < BERT_TEXTS; text++) {
            int64_t starts[2];
            const attn_bert_input alone = bert_input_alone(text, starts);
            const int64_t rows = bert_rows_of(config.head, starts[1]);
            assert_memory_equal(bert_logits(bert, other, &alone), together,
                                (size_t)(rows * columns) * sizeof(float));
            together += rows * columns;
        }
        small_tape_destroy(tape), small_tape_destroy(other);
        attn_bert_destroy(bert);
    }
}

static void a_token_sees_all_of_its_text_and_nothing_of_another(void **state)
{
    (void)state;
    const attn_bert_config config = bert_config(ATTN_BERT_MASKED);
    attn_bert *const bert = bert_create(&config, 5);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    attn_bert_input input = bert_input();
    const float *const first = bert_logits(bert, tape, &input);
    int32_t ids[BERT_TOKENS];
    memcpy(ids, BERT_IDS, sizeof ids);
    ids[10] = 16; /* of the text of tokens 8 to 11 */
    input.ids = ids;
    const float *const second = bert_logits(bert, other, &input);
    for (int64_t t = 0; t < BERT_TOKENS; t++)
        assert_int_equal(memcmp(first + t * BERT_VOCABULARY, second + t * BERT_VOCABULARY,
                                BERT_VOCABULARY * sizeof(float)) != 0,
                         t >= 8 && t < 12);
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_bert_destroy(bert);
}

static void types_that_are_not_given_are_0(void **state)
{
    (void)state;
    static const int32_t zeros[BERT_TOKENS];
    const attn_bert_config config = bert_config(ATTN_BERT_SEQUENCE);
    attn_bert *const bert = bert_create(&config, 5);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    attn_bert_input input = bert_input();
    input.types = NULL;
    const float *const without = bert_logits(bert, tape, &input);
    input.types = zeros;
    assert_memory_equal(bert_logits(bert, other, &input), without,
                        BERT_TEXTS * BERT_LABELS * sizeof(float));
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_bert_destroy(bert);
}

static void logits_at_some_tokens_are_those_among_all(void **state)
{
    (void)state;
    static const int32_t at[] = {19, 3, 3, 8};
    const attn_bert_config config = bert_config(ATTN_BERT_MASKED);
    attn_bert *const bert = bert_create(&config, 5);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    const attn_bert_input input = bert_input();
    const float *const all = bert_logits(bert, tape, &input);
    const attn_pass pass = {.tape = other, .parameters = attn_bert_parameters(bert)};
    attn_tape_begin(other, false, 0);
    const attn_tensor *const some = attn_bert_logits_at(bert, &pass, &input, at, 4);
    assert_non_null(some);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(some->data + i * BERT_VOCABULARY,
                            all + at[i] * BERT_VOCABULARY,
                            BERT_VOCABULARY * sizeof(float));
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_bert_destroy(bert);
}

/* ---- Training -------------------------------------------------------------------- */

static const int32_t TARGETS[BERT_TOKENS] = {-1, 3,  -1, 2, 0, -1, -1, 4, -1, -1,
                                             1,  -1, -1, 3, 3, -1, 2,  2, -1, -1};

struct learner {
    attn_bert *bert;
    attn_tape *tape;
};

/* In training, where dropout of probability 0 drops nothing. */
static double loss_of(void *user, float *gradients)
{
    const struct learner *const learner = user;
    attn_bert *const bert = learner->bert;
    attn_tape *const tape = learner->tape;
    double plain = 0.0;
    const attn_pass pass = {
        .tape = tape, .parameters = attn_bert_parameters(bert), .gradients = gradients};
    const attn_bert_input input = bert_input();
    attn_tape_begin(tape, true, 0);
    attn_tensor *const loss =
        attn_bert_loss(bert, &pass, &input, TARGETS, 0.0f, 5.0, &plain);
    if (!loss)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    assert_true(fabs(plain / 5.0 - (double)loss->data[0]) < 1e-5);
    if (gradients)
        assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
    return plain / 5.0;
}

static attn_bert_config without_dropout(attn_bert_head head)
{
    attn_bert_config config = bert_config(head);
    config.dropout = config.attention_dropout = config.classifier_dropout = 0.0f;
    return config;
}

static void the_loss_is_that_of_the_logits_with_a_target(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = without_dropout((attn_bert_head)head);
        attn_bert *const bert = bert_create(&config, 5);
        attn_tape *const tape = small_tape();
        const attn_bert_input input = bert_input();
        const float *const logits = bert_logits(bert, tape, &input);
        const int64_t columns = bert_columns(&config);
        double expected = 0.0;
        for (int64_t row = 0; row < bert_rows(&config); row++) {
            double sum = 0.0;
            for (int64_t i = 0; i < columns; i++)
                sum += exp((double)logits[row * columns + i]);
            if (TARGETS[row] >= 0)
                expected += log(sum) - (double)logits[row * columns + TARGETS[row]];
        }
        assert_true(fabs(loss_of(&(struct learner){bert, tape}, NULL) * 5.0 - expected) <
                    1e-4);
        small_tape_destroy(tape);
        attn_bert_destroy(bert);
    }
}

static void measuring_gives_the_loss_and_counts_what_is_right(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = without_dropout((attn_bert_head)head);
        attn_bert *const bert = bert_create(&config, 5);
        attn_tape *const tape = small_tape();
        const attn_bert_input input = bert_input();
        const attn_pass pass = {.tape = tape, .parameters = attn_bert_parameters(bert)};
        attn_bert_measures measures;
        int32_t best[BERT_TOKENS];
        const float *const logits = bert_logits(bert, tape, &input);
        const int64_t columns = bert_columns(&config), rows = bert_rows(&config);
        for (int64_t row = 0; row < rows; row++) {
            best[row] = 0;
            for (int32_t i = 1; i < columns; i++)
                if (logits[row * columns + i] > logits[row * columns + best[row]])
                    best[row] = i;
        }
        attn_tape_begin(tape, false, 0);
        assert_true(attn_bert_measure(bert, &pass, &input, best, &measures));
        assert_int_equal(measures.count, rows);
        assert_int_equal(measures.correct, rows);
        attn_tape_begin(tape, false, 0);
        assert_true(attn_bert_measure(bert, &pass, &input, TARGETS, &measures));
        assert_true(fabs(measures.plain -
                         loss_of(&(struct learner){bert, tape}, NULL) * 5.0) < 1e-4);
        assert_true(measures.correct < measures.count);
        assert_false(attn_bert_measure(bert, &pass, &input, TARGETS, &measures));
        small_tape_destroy(tape);
        attn_bert_destroy(bert);
    }
}

static void check_gradients(const attn_bert_config *config)
{
    struct learner bert = {bert_create(config, 5), small_tape()};
    const struct small_learner learner = {attn_bert_parameters(bert.bert), loss_of,
                                          &bert};
    assert_gradients(&learner, "BERT", 2e-2f, 4, 2e-3);
    small_tape_destroy(bert.tape);
    attn_bert_destroy(bert.bert);
}

static void every_parameter_has_the_gradient_of_differences(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        attn_bert_config config = without_dropout((attn_bert_head)head);
        check_gradients(&config);
        config.untied = true;
        if (head == ATTN_BERT_MASKED)
            check_gradients(&config);
    }
    attn_bert_config linear = without_dropout(ATTN_BERT_TOKENS);
    linear.linear_attention = true;
    check_gradients(&linear);
}

static void a_few_hundred_steps_learn_the_targets(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = without_dropout((attn_bert_head)head);
        struct learner bert = {bert_create(&config, 5), small_tape()};
        const double loss = small_learn(
            &(struct small_learner){attn_bert_parameters(bert.bert), loss_of, &bert}, 300,
            0.05f);
        if (!(loss < 0.1)) /* from 1 to 7 */
            fail_msg("head %d: the loss is %g after 300 steps", head, loss);
        small_tape_destroy(bert.tape);
        attn_bert_destroy(bert.bert);
    }
}

static void without_a_target_the_loss_and_all_gradients_are_0(void **state)
{
    (void)state;
    int32_t none[BERT_TOKENS];
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = bert_config((attn_bert_head)head);
        attn_bert *const bert = bert_create(&config, 5);
        attn_tape *const tape = small_tape();
        attn_parameters *const parameters = attn_bert_parameters(bert);
        float *const gradients = calloc(parameters->floats, sizeof *gradients);
        const attn_pass pass = {tape, parameters, gradients, NULL};
        const attn_bert_input input = bert_input();
        double plain = 1.0;
        memset(none, -1, sizeof none);
        attn_tape_begin(tape, true, 3);
        attn_tensor *const loss =
            attn_bert_loss(bert, &pass, &input, none, 0.0f, 1.0, &plain);
        assert_non_null(loss);
        assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
        assert_true(plain == 0.0 && loss->data[0] == 0.0f);
        for (size_t i = 0; i < parameters->floats; i++)
            assert_true(gradients[i] == 0.0f);
        free(gradients);
        small_tape_destroy(tape);
        attn_bert_destroy(bert);
    }
}

/* ---- Observer -------------------------------------------------------------------- */

struct seen {
    int64_t layers;
};

static attn_status see(void *user, const attn_observation *observation)
{
    struct seen *const seen = user;
    assert_int_equal(observation->part, ATTN_PART_ENCODER);
    assert_int_equal(observation->layer, seen->layers++);
    assert_int_equal(observation->shape->H, 4);
    assert_false(observation->options->causal);
    return ATTN_OK;
}

static void the_observer_sees_each_layer_and_changes_no_bit(void **state)
{
    (void)state;
    const attn_bert_config config = bert_config(ATTN_BERT_TOKENS);
    attn_bert *const bert = bert_create(&config, 5);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    const attn_bert_input input = bert_input();
    struct seen seen = {0};
    const attn_observer observer = {&seen, see};
    const attn_pass pass = {other, attn_bert_parameters(bert), NULL, &observer};
    attn_tape_begin(other, false, 0);
    const attn_tensor *const logits = attn_bert_logits(bert, &pass, &input);
    assert_non_null(logits);
    assert_int_equal(seen.layers, 2);
    assert_memory_equal(logits->data, bert_logits(bert, tape, &input),
                        BERT_TOKENS * BERT_LABELS * sizeof(float));
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_bert_destroy(bert);
}

/* ---- What is refused ------------------------------------------------------------- */

static void refuses(attn_bert_config config, const char *fragment)
{
    attn_bert *bert;
    attn_error error;
    assert_fails(attn_bert_create(&bert, &config, 1, &error), &error, ATTN_EINVAL,
                 fragment);
    assert_null(bert);
}

static void sizes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    attn_bert_config config = bert_config(ATTN_BERT_MASKED);
    config.layers = 0;
    refuses(config, "layers is 0, expected 1 to 256");
    config = bert_config(ATTN_BERT_MASKED);
    config.heads = 5;
    refuses(config, "width 24 is not a multiple of 5 heads");
    config = bert_config(ATTN_BERT_MASKED);
    config.labels = 2;
    refuses(config, "labels is 2, expected 0 to 0");
    config = bert_config(ATTN_BERT_SEQUENCE);
    config.labels = 1;
    refuses(config, "labels is 1, expected 2 to");
    config = bert_config(ATTN_BERT_TOKENS);
    config.untied = true;
    refuses(config, "untied with labels");
    config = bert_config(ATTN_BERT_TOKENS);
    config.classifier_dropout = 1.0f;
    refuses(config, "a dropout is 1");
    config.classifier_dropout = NAN;
    refuses(config, "a dropout is nan");
    config = bert_config(ATTN_BERT_TOKENS);
    config.epsilon = -1.0f;
    refuses(config, "epsilon is -1");
}

static void fails_the_tape(const attn_bert_config *config, const attn_bert_input *input,
                           const char *fragment)
{
    attn_bert *const bert = bert_create(config, 5);
    attn_tape *const tape = small_tape();
    const attn_pass pass = {.tape = tape, .parameters = attn_bert_parameters(bert)};
    attn_tape_begin(tape, false, 0);
    assert_null(attn_bert_logits(bert, &pass, input));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    const char *const message = attn_context_message(attn_tape_context(tape));
    if (!strstr(message, fragment))
        fail_msg("\"%s\" without \"%s\"", message, fragment);
    small_tape_destroy(tape);
    attn_bert_destroy(bert);
}

static void tokens_outside_the_tables_fail_the_tape(void **state)
{
    (void)state;
    static const int32_t ids[17];
    static const int32_t beyond[] = {0, BERT_VOCABULARY, 2}, below[] = {0, -1, 2};
    static const int32_t type[] = {0, 2, 0};
    static const int64_t one[] = {0, 17}, three[] = {0, 3};
    const attn_bert_config config = bert_config(ATTN_BERT_SEQUENCE);
    fails_the_tape(&config, &(attn_bert_input){ids, NULL, {1, one}}, "has 17 tokens");
    fails_the_tape(&config, &(attn_bert_input){beyond, NULL, {1, three}},
                   "id 23 at place 1, expected 0 to 22");
    fails_the_tape(&config, &(attn_bert_input){below, NULL, {1, three}},
                   "id -1 at place 1");
    fails_the_tape(&config, &(attn_bert_input){ids, type, {1, three}},
                   "id 2 at place 1, expected 0 to 1");
}

static void an_empty_text_has_no_label(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 3, 3};
    attn_bert_config config = bert_config(ATTN_BERT_SEQUENCE);
    const attn_bert_input input = {BERT_IDS, NULL, {2, starts}};
    fails_the_tape(&config, &input, "text 1 has no token");
    /* Of its tokens there are none, and those of the others are what they are. */
    config = bert_config(ATTN_BERT_TOKENS);
    attn_bert *const bert = bert_create(&config, 5);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    const attn_bert_input alone = {BERT_IDS, NULL, {1, starts}};
    assert_memory_equal(bert_logits(bert, tape, &input), bert_logits(bert, other, &alone),
                        3 * BERT_LABELS * sizeof(float));
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_bert_destroy(bert);
}

static void labels_have_names_that_differ(void **state)
{
    (void)state;
    const attn_bert_config config = bert_config(ATTN_BERT_TOKENS);
    attn_bert *const bert = bert_create(&config, 5);
    attn_error error;
    assert_string_equal(attn_bert_label(bert, 4), "LABEL_4");
    assert_null(attn_bert_label(bert, 5));
    assert_null(attn_bert_label(bert, -1));
    assert_int_equal(
        attn_bert_name_labels(
            bert, (const char *const[]){"noun", "verb", "x", "verb", "y"}, &error),
        ATTN_EINVAL);
    assert_non_null(strstr(error.message, "labels 1 and 3 are both \"verb\""));
    assert_string_equal(attn_bert_label(bert, 1), "LABEL_1");
    assert_int_equal(attn_bert_name_labels(
                         bert, (const char *const[]){"a", "b", "", "d", "e"}, &error),
                     ATTN_OK);
    assert_string_equal(attn_bert_label(bert, 3), "d");
    attn_bert_destroy(bert);
    attn_bert_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_reference),
        cmocka_unit_test(a_text_alone_has_the_bits_it_has_among_others),
        cmocka_unit_test(a_token_sees_all_of_its_text_and_nothing_of_another),
        cmocka_unit_test(types_that_are_not_given_are_0),
        cmocka_unit_test(logits_at_some_tokens_are_those_among_all),
        cmocka_unit_test(the_loss_is_that_of_the_logits_with_a_target),
        cmocka_unit_test(measuring_gives_the_loss_and_counts_what_is_right),
        cmocka_unit_test(every_parameter_has_the_gradient_of_differences),
        cmocka_unit_test(a_few_hundred_steps_learn_the_targets),
        cmocka_unit_test(without_a_target_the_loss_and_all_gradients_are_0),
        cmocka_unit_test(the_observer_sees_each_layer_and_changes_no_bit),
        cmocka_unit_test(sizes_that_do_not_fit_are_named),
        cmocka_unit_test(tokens_outside_the_tables_fail_the_tape),
        cmocka_unit_test(an_empty_text_has_no_label),
        cmocka_unit_test(labels_have_names_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
