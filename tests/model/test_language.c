/* The language model: what it may be made of, that a token sees no other text and nothing
 * that follows it, its gradients, that it learns, and that `transformers` computes the
 * same from the same parameters (test_language.py, the only argument). */
#include "../python.h"
#include "file/safetensors.h"
#include "model/language.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "small_language.h"

enum { VOCABULARY = 23, TEXTS = 4, TOKENS = 19 };
static const int64_t STARTS[TEXTS + 1] = {0, 7, 8, 8, TOKENS};
static const attn_packing PACKING = {TEXTS, STARTS};

static const char *script;

static attn_language_config config(void)
{
    return (attn_language_config){.vocabulary = VOCABULARY,
                                  .width = 24,
                                  .layers = 2,
                                  .heads = 4,
                                  .key_heads = 2,
                                  .inner = 40,
                                  .max_positions = 16,
                                  .rotary_base = 500.0,
                                  .epsilon = 1e-5f};
}

static const float *logits_of(attn_language *language, attn_tape *tape,
                              const int32_t *ids, attn_packing packing)
{
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_language_parameters(language)};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_language_logits(language, &pass, ids, packing);
    if (!logits)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    return logits->data;
}

static void a_text_alone_has_the_bits_it_has_among_others(void **state)
{
    (void)state;
    const attn_language_config of = config();
    attn_language *const language = small_language(&of);
    attn_tape *const tape = small_tape(), *const alone = small_tape();
    int32_t ids[TOKENS];
    small_language_ids(ids, TOKENS, VOCABULARY);
    const float *const together = logits_of(language, tape, ids, PACKING);
    for (size_t text = 0; text < TEXTS; text++) {
        const int64_t length = STARTS[text + 1] - STARTS[text];
        const attn_packing packing = {1, (const int64_t[]){0, length}};
        const float *const logits =
            logits_of(language, alone, ids + STARTS[text], packing);
        assert_memory_equal(logits, together + STARTS[text] * VOCABULARY,
                            (size_t)length * VOCABULARY * sizeof(float));
    }
    small_tape_destroy(tape), small_tape_destroy(alone);
    attn_language_destroy(language);
}

static void what_follows_changes_no_bit_before_it(void **state)
{
    (void)state;
    const attn_language_config of = config();
    attn_language *const language = small_language(&of);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    int32_t ids[TOKENS];
    small_language_ids(ids, TOKENS, VOCABULARY);
    const float *const first = logits_of(language, tape, ids, PACKING);
    ids[4] = (ids[4] + 1) % VOCABULARY;
    const float *const second = logits_of(language, other, ids, PACKING);
    assert_memory_equal(first, second, 4 * VOCABULARY * sizeof(float));
    assert_memory_not_equal(first + 4 * VOCABULARY, second + 4 * VOCABULARY,
                            VOCABULARY * sizeof(float));
    assert_memory_not_equal(first + 6 * VOCABULARY, second + 6 * VOCABULARY,
                            VOCABULARY * sizeof(float));
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_language_destroy(language);
}

struct learner {
    attn_language *language;
    attn_tape *tape;
};

/* In training, where dropout of probability 0 drops nothing. */
static double loss_of(void *user, float *gradients)
{
    const struct learner *const learner = user;
    attn_language *const language = learner->language;
    attn_tape *const tape = learner->tape;
    double plain = 0.0;
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_language_parameters(language),
                            .gradients = gradients};
    int32_t ids[TOKENS], targets[TOKENS];
    small_language_ids(ids, TOKENS, VOCABULARY);
    for (size_t n = 0; n < TOKENS; n++)
        targets[n] = n % 5 == 4 ? -1 : (ids[n] + 1) % VOCABULARY;
    attn_tape_begin(tape, true, 0);
    attn_tensor *const loss =
        attn_language_loss(language, &pass, ids, targets, PACKING, 0.0f, 10.0, &plain);
    if (!loss)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    assert_true(fabs(plain / 10.0 - (double)loss->data[0]) < 1e-5);
    if (gradients)
        assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
    return plain / 10.0;
}

static void check_gradients(const attn_language_config *of)
{
    struct learner language = {small_language(of), small_tape()};
    const struct small_learner learner = {attn_language_parameters(language.language),
                                          loss_of, &language};
    assert_gradients(&learner, "language", 2e-2f, 4, 2e-3);
    small_tape_destroy(language.tape);
    attn_language_destroy(language.language);
}

static void every_parameter_has_the_gradient_of_differences(void **state)
{
    (void)state;
    attn_language_config of = config();
    check_gradients(&of);
    of.untied = true;
    of.key_heads = 1;
    check_gradients(&of);
    of.alibi = of.sink_logits = true;
    check_gradients(&of);
    of.forgets = of.no_positions = true;
    check_gradients(&of);
    of.body = ATTN_LANGUAGE_LSTM;
    check_gradients(&of);
    of = config();
    of.linear_attention = true;
    check_gradients(&of);
}

static void learn_a_short_text(const attn_language_config *of, float rate)
{
    struct learner language = {small_language(of), small_tape()};
    const struct small_learner learner = {attn_language_parameters(language.language),
                                          loss_of, &language};
    assert_true(small_learn(&learner, 300, rate) < 0.1); /* from about 5, or 3 */
    small_tape_destroy(language.tape);
    attn_language_destroy(language.language);
}

static void a_few_hundred_steps_learn_a_short_text(void **state)
{
    (void)state;
    const attn_language_config of = config();
    learn_a_short_text(&of, 0.1f);
}

static void refuses(attn_language_config of, const char *fragment)
{
    attn_language *language;
    attn_error error;
    assert_fails(attn_language_create(&language, &of, 1, &error), &error, ATTN_EINVAL,
                 fragment);
    assert_null(language);
}

static void sizes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    attn_language_config of = config();
    of.layers = 0;
    refuses(of, "layers is 0, expected 1 to 256");
    of = config();
    of.heads = 24;
    of.key_heads = 24;
    refuses(of, "heads of an even width");
    of = config();
    of.key_heads = 3;
    refuses(of, "4 heads and 3 key heads");
    of = config();
    of.max_positions = 1 << 22;
    refuses(of, "4194304 positions");
    of = config();
    of.dropout = 1.0f;
    refuses(of, "a dropout is 1");
    of = config();
    of.rotary_base = 0.0;
    refuses(of, "rotary_base is 0");
    of = config();
    of.linear_attention = of.alibi = true;
    refuses(of, "alibi 1, sink_logits 0, forgets 0, attention_dropout 0 and linear");
    of.alibi = false;
    of.attention_dropout = 0.5f;
    refuses(of, "attention_dropout 0.5 and linear attention");
}

/* The weights of every head are a distribution, of the entropy that is told. */
static attn_status look_at_linear(void *user, const attn_observation *seen)
{
    static float weights[TOKENS * TOKENS];
    int64_t *const heads = user;
    assert_int_equal(seen->options->score, ATTN_SCORE_LINEAR);
    for (int64_t h = 0; h < seen->shape->H; h++, ++*heads) {
        const attn_rectangle all = {.h = h, .queries = TOKENS, .keys = TOKENS};
        const attn_status status = attn_weights(seen->context, seen->shape, seen->tensors,
                                                seen->options, &all, weights, TOKENS);
        if (status != ATTN_OK)
            return status;
        for (int64_t i = 0; i < TOKENS; i++) {
            double sum = 0.0, entropy = 0.0;
            for (int64_t j = 0; j < TOKENS; j++) {
                const double w = (double)weights[i * TOKENS + j];
                assert_true(w >= 0.0);
                sum += w;
                entropy -= w > 0.0 ? w * log(w) : 0.0;
            }
            const float told = seen->tensors->statistics.entropy[h * TOKENS + i];
            assert_true(fabs(sum - 1.0) < 1e-5);
            assert_true(fabs(entropy - (double)told) < 2e-5);
        }
    }
    return ATTN_OK;
}

static void linear_attention_is_looked_at_like_any_other(void **state)
{
    (void)state;
    attn_language_config of = config();
    of.linear_attention = true;
    attn_language *const language = small_language(&of);
    attn_tape *const tape = small_tape();
    int32_t ids[TOKENS];
    float alone[TOKENS * VOCABULARY];
    small_language_ids(ids, TOKENS, VOCABULARY);
    memcpy(alone, logits_of(language, tape, ids, PACKING), sizeof alone);
    int64_t heads = 0;
    const attn_observer observer = {&heads, look_at_linear};
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_language_parameters(language),
                            .observer = &observer};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_language_logits(language, &pass, ids, PACKING);
    assert_non_null(logits);
    assert_int_equal(heads, of.layers * of.heads);
    assert_memory_equal(alone, logits->data, sizeof alone);
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

static void an_lstm_learns_it_too(void **state)
{
    (void)state;
    attn_language_config of = config();
    of.body = ATTN_LANGUAGE_LSTM;
    learn_a_short_text(&of, 1.0f);
}

static void a_text_longer_than_the_positions_fails_the_tape(void **state)
{
    (void)state;
    const attn_language_config of = config();
    attn_language *const language = small_language(&of);
    attn_tape *const tape = small_tape();
    int32_t ids[17];
    small_language_ids(ids, 17, VOCABULARY);
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_language_parameters(language)};
    attn_tape_begin(tape, false, 0);
    assert_null(attn_language_logits(language, &pass, ids,
                                     (attn_packing){1, (const int64_t[]){0, 17}}));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(
        strstr(attn_context_message(attn_tape_context(tape)), "has 17 tokens"));
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

/* ---- transformers ---- */

enum { MOST_ENTRIES = 64 };

/* The parameters as model.safetensors has them, beside "ids", "starts" and "logits"; the
 * configuration in the words of LlamaConfig. */
static void write_case(const attn_language_config *of, const char *folder)
{
    attn_language *const language = small_language(of);
    attn_tape *const tape = small_tape();
    attn_error error;
    int32_t ids[TOKENS];
    char path[1024], text[512];
    small_language_ids(ids, TOKENS, VOCABULARY);
    const attn_parameters *const parameters = attn_language_parameters(language);
    attn_safetensors_entry entries[MOST_ENTRIES] = {
        {.name = "ids",
         .dtype = ATTN_DTYPE_I32,
         .rank = 1,
         .extent = {TOKENS},
         .data = ids},
        {.name = "starts",
         .dtype = ATTN_DTYPE_I64,
         .rank = 1,
         .extent = {TEXTS + 1},
         .data = STARTS},
        {.name = "logits",
         .dtype = ATTN_DTYPE_F32,
         .rank = 2,
         .extent = {TOKENS, VOCABULARY},
         .data = logits_of(language, tape, ids, PACKING)},
    };
    size_t count = 3;
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        assert_true(count < MOST_ENTRIES);
        entries[count] = (attn_safetensors_entry){.name = p->name,
                                                  .dtype = ATTN_DTYPE_F32,
                                                  .rank = p->rank,
                                                  .data = parameters->values + p->offset};
        memcpy(entries[count++].extent, p->extent, (size_t)p->rank * sizeof p->extent[0]);
    }
    snprintf(text, sizeof text,
             "{\"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %lld, "
             "\"num_attention_heads\": %lld, \"num_key_value_heads\": %lld, "
             "\"intermediate_size\": %lld, \"max_position_embeddings\": %lld, "
             "\"rope_theta\": %g, \"rms_norm_eps\": %g, \"tie_word_embeddings\": %s}",
             (long long)of->vocabulary, (long long)of->width, (long long)of->layers,
             (long long)of->heads, (long long)of->key_heads, (long long)of->inner,
             (long long)of->max_positions, of->rotary_base, (double)of->epsilon,
             of->untied ? "false" : "true");
    const attn_safetensors_note note = {"config", text};
    path_join(path, sizeof path, folder, "case.safetensors");
    if (attn_safetensors_write(path, entries, count, &note, 1, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

static void transformers_computes_the_same_logits(void **state)
{
    (void)state;
    if (!python_has("torch, transformers, safetensors"))
        skip();
    attn_language_config of = config();
    for (int i = 0; i < 3; i++) {
        char folder[512];
        of.untied = i == 1;
        of.key_heads = i == 2 ? 4 : 2;
        of.rotary_base = i == 0 ? 500.0 : 10000.0;
        folder_make(folder, sizeof folder);
        write_case(&of, folder);
        assert_int_equal(python_run_file(script, folder), 0);
        folder_remove(folder);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_alone_has_the_bits_it_has_among_others),
        cmocka_unit_test(what_follows_changes_no_bit_before_it),
        cmocka_unit_test(every_parameter_has_the_gradient_of_differences),
        cmocka_unit_test(a_few_hundred_steps_learn_a_short_text),
        cmocka_unit_test(linear_attention_is_looked_at_like_any_other),
        cmocka_unit_test(an_lstm_learns_it_too),
        cmocka_unit_test(sizes_that_do_not_fit_are_named),
        cmocka_unit_test(a_text_longer_than_the_positions_fails_the_tape),
        cmocka_unit_test(transformers_computes_the_same_logits),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_language SCRIPT\n");
        return 2;
    }
    script = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
