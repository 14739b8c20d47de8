/* The masked language model as a kind: which tokens are hidden and how, texts that are
 * too long or empty, and a whole training on texts whose words follow from each other. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/context.h"
#include "base/mix.h"
#include "file/file.h"
#include "tests/folder.h"
#include "train/masked.h"
#include "train/train.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static attn_error error;

/* ---- What is hidden -------------------------------------------------------------- */

enum { LENGTH = 42, MASK = 99, ROUNDS = 20000 };

static void fill(int32_t *ids)
{
    ids[0] = ATTN_TOKEN_BOS;
    for (int i = 1; i + 1 < LENGTH; i++)
        ids[i] = 10 + i;
    ids[LENGTH - 1] = ATTN_TOKEN_EOS;
}

/* Whether a count of n draws of probability p is within 5 standard deviations. */
static void assert_share(int64_t count, int64_t n, double p)
{
    const double expected = p * (double)n;
    if (!(fabs((double)count - expected) <= 5.0 * sqrt(expected * (1.0 - p))))
        fail_msg("%lld of %lld, expected about %.0f", (long long)count, (long long)n,
                 expected);
}

static void of_the_chosen_tokens_80_are_masks_10_others_and_10_themselves(void **state)
{
    (void)state;
    int64_t at[LENGTH] = {0}, masks = 0, same = 0, others = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int32_t ids[LENGTH], targets[LENGTH], was[LENGTH];
        size_t chosen = 0;
        fill(ids), fill(was);
        attn_masked_hide(ids, targets, LENGTH, 0.15, MASK, round);
        for (int i = 0; i < LENGTH; i++) {
            assert_int_equal(targets[i], targets[i] < 0 ? -1 : was[i]);
            if (targets[i] < 0) {
                assert_int_equal(ids[i], was[i]);
                continue;
            }
            chosen++;
            at[i]++;
            masks += ids[i] == MASK;
            same += ids[i] == was[i];
            others += ids[i] != MASK && ids[i] != was[i];
            assert_in_range(ids[i], 4, MASK);
        }
        assert_int_equal(chosen, 6); /* 15 % of 40 */
        assert_int_equal(chosen, attn_masked_targets(LENGTH, 0.15));
    }
    assert_int_equal(at[0] + at[LENGTH - 1], 0);
    for (int i = 1; i + 1 < LENGTH; i++)
        assert_share(at[i], ROUNDS, 0.15);
    assert_share(masks, 6 * ROUNDS, 0.8);
    assert_share(same, 6 * ROUNDS, 0.1 + 0.1 / 95);
    assert_share(others, 6 * ROUNDS, 0.1 * 94 / 95);
}

static void a_seed_decides_what_is_hidden(void **state)
{
    (void)state;
    int32_t ids[3][LENGTH], targets[3][LENGTH];
    for (int i = 0; i < 3; i++) {
        fill(ids[i]);
        attn_masked_hide(ids[i], targets[i], LENGTH, 0.15, MASK, i == 2 ? 8 : 7);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    assert_memory_not_equal(targets[0], targets[2], sizeof targets[0]);
}

static void of_any_text_one_token_at_least_is_hidden(void **state)
{
    (void)state;
    for (size_t count = 3; count < 12; count++) {
        assert_int_equal(attn_masked_targets(count, 0.01), 1);
        assert_int_equal(attn_masked_targets(count, 0.999), count - 2);
        int32_t ids[12] = {0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, targets[12];
        size_t chosen = 0;
        attn_masked_hide(ids, targets, count, 0.01, MASK, count);
        for (size_t i = 0; i < count; i++)
            chosen += targets[i] >= 0;
        assert_int_equal(chosen, 1);
    }
}

/* ---- Texts ----------------------------------------------------------------------- */

struct encoded {
    attn_tokenizer *tokenizer;
    attn_masked_texts texts;
};

/* The bytes of lines are their tokens. */
static attn_status encode(struct encoded *encoded, const char *lines,
                          int64_t max_positions, bool refuses_long)
{
    attn_corpus corpus;
    assert_int_equal(
        attn_file_write(in_folder("lines.txt"), lines, strlen(lines), &error), ATTN_OK);
    assert_int_equal(attn_corpus_load(&corpus, in_folder("lines.txt"), 1, &error),
                     ATTN_OK);
    assert_int_equal(attn_tokenizer_train(&encoded->tokenizer, NULL, 0, 260, &error),
                     ATTN_OK);
    assert_int_equal(attn_tokenizer_add_mask(encoded->tokenizer, &error), ATTN_OK);
    const attn_status status =
        attn_masked_encode(&encoded->texts, &corpus, encoded->tokenizer, max_positions,
                           refuses_long, &error);
    attn_corpus_free(&corpus);
    return status;
}

static void release(struct encoded *encoded)
{
    attn_masked_texts_free(&encoded->texts);
    attn_tokenizer_destroy(encoded->tokenizer);
}

static void a_long_line_is_cut_into_equal_texts_and_loses_nothing(void **state)
{
    (void)state;
    struct encoded encoded;
    assert_int_equal(
        encode(&encoded, "abcde\nabcdef\n\nabcdefghijklm\tnot read\n", 7, false),
        ATTN_OK);
    static const size_t lengths[] = {5, 3, 3, 4, 4, 5};
    const attn_masked_texts *const texts = &encoded.texts;
    assert_int_equal(texts->count, 6);
    assert_int_equal(texts->lines, 3);
    assert_int_equal(texts->empty, 1);
    assert_int_equal(texts->cut, 2);
    assert_int_equal(texts->tokens, 24 + 12);
    char joined[64] = "";
    for (size_t n = 0; n < 6; n++) {
        const int32_t *const ids = texts->ids + texts->begin[n];
        char *part;
        assert_int_equal(texts->begin[n + 1] - texts->begin[n], lengths[n] + 2);
        assert_int_equal(ids[0], ATTN_TOKEN_BOS);
        assert_int_equal(ids[lengths[n] + 1], ATTN_TOKEN_EOS);
        assert_int_equal(
            attn_tokenizer_decode(encoded.tokenizer, ids, lengths[n] + 2, &part, &error),
            ATTN_OK);
        strcat(joined, part);
        free(part);
    }
    assert_string_equal(joined, "abcdeabcdefabcdefghijklm");
    release(&encoded);
}

static void a_long_line_is_refused_where_the_recipe_says_so(void **state)
{
    (void)state;
    struct encoded encoded;
    assert_int_equal(encode(&encoded, "abcde\nabcdef\n", 7, true), ATTN_EFORMAT);
    assert_string_equal(
        error.message,
        "line 2 has 6 tokens, expected at most 5: the model has no more positions. "
        "Give it one sentence at a time");
    release(&encoded);
    assert_int_equal(encode(&encoded, "abcde\n", 7, true), ATTN_OK);
    release(&encoded);
}

static void a_file_without_text_is_refused(void **state)
{
    (void)state;
    struct encoded encoded;
    assert_int_equal(encode(&encoded, "\n\n", 7, false), ATTN_EFORMAT);
    assert_string_equal(error.message, "no text in 2 lines, expected one at least");
    release(&encoded);
}

/* ---- Batches --------------------------------------------------------------------- */

static attn_tape *tape_create(void)
{
    attn_context *context;
    attn_tape *tape;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_begin(tape, false, 0);
    return tape;
}

static void tape_destroy(attn_tape *tape)
{
    attn_context *const context = attn_tape_context(tape);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

static void what_a_text_hides_depends_on_no_other_of_its_batch(void **state)
{
    (void)state;
    struct encoded encoded;
    attn_examples examples;
    assert_int_equal(
        encode(&encoded, "abcdefghij\nklmnopq\nabcdefghijklmnop\n", 30, false), ATTN_OK);
    assert_int_equal(
        attn_masked_examples(&examples, &encoded.texts, 0.3, 260, false, &error),
        ATTN_OK);
    assert_int_equal(examples.sizes[2].size, 18);
    assert_int_equal(examples.sizes[2].targets, 5);
    attn_tape *const tape = tape_create();
    attn_bert_input all, one;
    const int32_t *targets, *alone;
    const size_t list[] = {1, 2, 0}, single[] = {2};
    attn_shard_batch batch = {&examples, list, 3, 1.0, 0.0f, 77};
    assert_true(attn_masked_pack(&all, &targets, tape, &batch));
    batch.list = single;
    batch.count = 1;
    assert_true(attn_masked_pack(&one, &alone, tape, &batch));
    assert_int_equal(all.packing.starts[1], 9);
    assert_memory_equal(all.ids + 9, one.ids, 18 * sizeof *one.ids);
    assert_memory_equal(targets + 9, alone, 18 * sizeof *alone);
    batch.seed = 78;
    attn_bert_input other;
    assert_true(attn_masked_pack(&other, &targets, tape, &batch));
    assert_memory_not_equal(other.ids, one.ids, 18 * sizeof *one.ids);
    tape_destroy(tape);
    attn_masked_examples_free(&examples);
    free(examples.sizes);
    release(&encoded);
}

static void each_token_alone_is_an_example(void **state)
{
    (void)state;
    struct encoded encoded;
    attn_examples examples;
    assert_int_equal(encode(&encoded, "abc\nde\n", 30, false), ATTN_OK);
    assert_int_equal(
        attn_masked_examples(&examples, &encoded.texts, 0.15, 260, true, &error),
        ATTN_OK);
    assert_int_equal(examples.count, 5);
    attn_tape *const tape = tape_create();
    static const size_t list[] = {0, 1, 2, 3, 4};
    const attn_shard_batch batch = {&examples, list, 5, 1.0, 0.0f, 0};
    attn_bert_input input;
    const int32_t *targets;
    assert_true(attn_masked_pack(&input, &targets, tape, &batch));
    static const int places[] = {1, 2, 3, 1, 2};
    for (int n = 0; n < 5; n++)
        for (int64_t i = input.packing.starts[n]; i < input.packing.starts[n + 1]; i++) {
            const bool is_hidden = i - input.packing.starts[n] == places[n];
            assert_int_equal(input.ids[i] == 260, is_hidden);
            assert_int_equal(targets[i] >= 0, is_hidden);
        }
    tape_destroy(tape);
    attn_masked_examples_free(&examples);
    free(examples.sizes);
    release(&encoded);
}

/* ---- A training ------------------------------------------------------------------ */

static const char RECIPE[] =
    "{\"kind\": \"masked-language\","
    "\"data\": {\"train\": \"-\", \"valid\": \"-\"},"
    "\"tokenizer\": {\"vocabulary\": 275},"
    "\"model\": {\"width\": 32, \"heads\": 2, \"layers\": 2, \"inner\": 48,"
    " \"max_positions\": 32, \"dropout\": 0.0, \"attention_dropout\": 0.0},"
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 300, \"length_noise\": 2,"
    " \"shards\": 2, \"epochs\": 25, \"schedule\": \"cosine\","
    " \"peak_learning_rate\": 5e-3, \"warmup_steps\": 20, \"beta1\": 0.9, \"beta2\": "
    "0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0.01, \"clip\": 1, \"label_smoothing\": 0,"
    " \"average\": 0, \"checkpoint_every\": 60, \"valid_every\": 60}}";

/* Words that count up from one of five: what is hidden follows from what is not. */
static void write_texts(const char *name, size_t lines, uint64_t seed)
{
    static const char *const WORDS[] = {"one", "two", "three", "four", "five"};
    FILE *const file = fopen(in_folder(name), "w");
    assert_non_null(file);
    for (size_t n = 0; n < lines; n++) {
        const uint64_t line = attn_mix(seed, n);
        for (size_t w = 0; w < 4 + line / 8 % 5; w++)
            fprintf(file, "%s%s", w ? " " : "", WORDS[(line + w) % 5]);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

static void train(const char *out, size_t threads, int64_t max_steps)
{
    attn_recipe recipe;
    attn_train_end end;
    if (attn_recipe_parse(&recipe, attn_task_kinds(), RECIPE, "small", &error) != ATTN_OK)
        fail_msg("%s", error.message);
    const attn_train_options options = {.out = in_folder(out),
                                        .train = in_folder("train.txt"),
                                        .valid = in_folder("valid.txt"),
                                        .threads = threads,
                                        .max_steps = max_steps};
    if (attn_train(&recipe, &options, &end, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(end, max_steps > 0 ? ATTN_TRAIN_LIMIT : ATTN_TRAIN_FINISHED);
    attn_recipe_free(&recipe);
}

static double score_of(const char *out, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "%s/scores.json", out);
    json_t *const scores = json_load_file(in_folder(name), 0, NULL);
    const json_t *const value = json_object_get(json_object_get(scores, "valid"), key);
    if (!json_is_number(value))
        fail_msg("no %s in %s", key, name);
    const double number = json_number_value(value);
    json_decref(scores);
    return number;
}

static char *file_of(const char *out, const char *file)
{
    char name[64], *data;
    size_t length;
    snprintf(name, sizeof name, "%s/%s", out, file);
    assert_int_equal(attn_file_read(in_folder(name), 1 << 24, &data, &length, &error),
                     ATTN_OK);
    return data;
}

static void a_training_learns_what_follows_from_the_rest(void **state)
{
    (void)state;
    write_texts("train.txt", 240, 1);
    write_texts("valid.txt", 30, 2);
    train("whole", 1, 0);
    assert_true(score_of("whole", "accuracy") > 0.9);
    assert_true(score_of("whole", "loss") < 0.5);
    assert_true(score_of("whole", "pseudo_perplexity") < 1.2);
    assert_true(score_of("whole", "texts") == 30.0);
    attn_tokenizer *tokenizer;
    assert_int_equal(
        attn_tokenizer_load(&tokenizer, in_folder("whole/tokenizer.json"), &error),
        ATTN_OK);
    assert_int_equal(attn_tokenizer_mask(tokenizer), 274);
    assert_int_equal(attn_tokenizer_size(tokenizer), 275);
    attn_tokenizer_destroy(tokenizer);
}

static void threads_and_a_stop_change_no_bit(void **state)
{
    (void)state;
    train("parts", 2, 70);
    train("parts", 2, 0);
    char *const whole = file_of("whole", "model.safetensors");
    char *const parts = file_of("parts", "model.safetensors");
    uint64_t header;
    memcpy(&header, whole, sizeof header);
    assert_memory_equal(whole, parts, (size_t)header + 8 + 40000);
    assert_true(score_of("whole", "loss") == score_of("parts", "loss"));
    free(whole);
    free(parts);
}

static void a_model_is_known_by_its_architecture(void **state)
{
    (void)state;
    assert_ptr_equal(attn_task_kind_of_model(in_folder("whole")), &attn_task_masked);
}

/* ---- Starting from it ------------------------------------------------------------ */

/* A rate of 0: what is saved is what was started from. */
static const char CLASSIFIER[] =
    "{\"kind\": \"classifier\","
    "\"data\": {\"train\": \"-\", \"valid\": \"-\"%s},"
    "\"tokenizer\": {%s},"
    "\"model\": {\"body\": \"%s\", \"width\": 32, \"heads\": 2, \"layers\": %d,"
    " \"inner\": 48, \"max_positions\": 32, \"dropout\": 0.0, \"too_long\": \"split\"},"
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 300, \"length_noise\": 2,"
    " \"shards\": 2, \"epochs\": 1, \"schedule\": \"cosine\","
    " \"peak_learning_rate\": 0, \"warmup_steps\": 0, \"beta1\": 0.9, \"beta2\": 0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0.01, \"clip\": 1, \"label_smoothing\": 0,"
    " \"average\": 0, \"checkpoint_every\": 60, \"valid_every\": 60}}";

static attn_status train_classifier(const char *data, const char *tokenizer,
                                    const char *body, int layers, int64_t max_steps,
                                    const char *out)
{
    char text[2048];
    attn_recipe recipe;
    attn_train_end end;
    snprintf(text, sizeof text, CLASSIFIER, data, tokenizer, body, layers);
    ATTN_TRY(attn_recipe_parse(&recipe, attn_task_kinds(), text, "start", &error));
    const attn_train_options options = {.out = in_folder(out),
                                        .train = in_folder("labels.tsv"),
                                        .valid = in_folder("labels.tsv"),
                                        .threads = 1,
                                        .max_steps = max_steps};
    const attn_status status = attn_train(&recipe, &options, &end, &error);
    attn_recipe_free(&recipe);
    return status;
}

static attn_status train_from(const char *body, int vocabulary, int layers,
                              const char *out)
{
    char data[512], tokenizer[64];
    snprintf(data, sizeof data, ", \"start\": \"%s\"", in_folder("whole"));
    snprintf(tokenizer, sizeof tokenizer, "\"vocabulary\": %d", vocabulary);
    return train_classifier(data, tokenizer, body, layers, 0, out);
}

static attn_status train_with_tokenizer_of(const char *name, int64_t max_steps,
                                           const char *out)
{
    char tokenizer[512];
    snprintf(tokenizer, sizeof tokenizer, "\"from\": \"%s\"", in_folder(name));
    return train_classifier("", tokenizer, "transformer", 2, max_steps, out);
}

static void assert_same_tokenizers(const char *one, const char *other)
{
    char *const first = file_of(one, "tokenizer.json");
    char *const second = file_of(other, "tokenizer.json");
    assert_string_equal(first, second);
    free(first);
    free(second);
}

/* How many of the parameters of a BERT another has by the same names, and of these how
 * many with the same values. */
static void compare_encoders(const char *one, const char *other, size_t *shared,
                             size_t *equal)
{
    attn_bert *from, *to;
    assert_int_equal(attn_bert_load(&from, in_folder(one), &error), ATTN_OK);
    assert_int_equal(attn_bert_load(&to, in_folder(other), &error), ATTN_OK);
    const attn_parameters *const p = attn_bert_parameters(from);
    const attn_parameters *const q = attn_bert_parameters(to);
    *shared = *equal = 0;
    for (size_t i = 0; i < p->length; i++) {
        const attn_parameter *const is = attn_parameters_find(q, p->list[i].name);
        if (!is)
            continue;
        *shared += 1;
        *equal += memcmp(p->values + p->list[i].offset, q->values + is->offset,
                         is->count * sizeof(float)) == 0;
    }
    attn_bert_destroy(from);
    attn_bert_destroy(to);
}

static void a_classifier_starts_from_its_encoder_and_tokenizer(void **state)
{
    (void)state;
    static const char labels[] = "odd\tone three\neven\ttwo four\nodd\tfive\n";
    size_t shared, equal;
    assert_int_equal(
        attn_file_write(in_folder("labels.tsv"), labels, strlen(labels), &error),
        ATTN_OK);
    if (train_from("transformer", 275, 2, "started") != ATTN_OK)
        fail_msg("%s", error.message);
    compare_encoders("whole", "started", &shared, &equal);
    assert_int_equal(shared, 5 + 2 * 16);
    assert_int_equal(equal, shared);
    assert_same_tokenizers("whole", "started");
}

static void a_classifier_takes_a_tokenizer_and_leaves_the_weights(void **state)
{
    (void)state;
    size_t shared, equal;
    if (train_with_tokenizer_of("whole", 0, "control") != ATTN_OK)
        fail_msg("%s", error.message);
    assert_same_tokenizers("whole", "control");
    compare_encoders("whole", "control", &shared, &equal);
    assert_int_equal(shared, 5 + 2 * 16);
    assert_int_equal(equal, 0);
}

static void a_training_goes_on_without_the_folder_of_its_tokenizer(void **state)
{
    (void)state;
    if (train_with_tokenizer_of("control", 1, "stopped") != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(rename(in_folder("control"), in_folder("moved")), 0);
    if (train_with_tokenizer_of("control", 0, "stopped") != ATTN_OK)
        fail_msg("%s", error.message);
    assert_same_tokenizers("moved", "stopped");
}

static void assert_tokenizer_refused(const char *data, const char *tokenizer,
                                     const char *message)
{
    assert_int_equal(train_classifier(data, tokenizer, "transformer", 2, 0, "refused"),
                     ATTN_EFORMAT);
    if (!strstr(error.message, message))
        fail_msg("\"%s\" has not \"%s\"", error.message, message);
}

static void a_tokenizer_is_learnt_or_taken_from_one_folder(void **state)
{
    (void)state;
    assert_tokenizer_refused("", "\"vocabulary\": 275, \"from\": \"x\"",
                             "start: each of tokenizer.vocabulary and tokenizer.from is "
                             "there, expected one");
    assert_tokenizer_refused("", "",
                             "start: neither of tokenizer.vocabulary and tokenizer.from");
    assert_tokenizer_refused("", "\"form\": \"x\"",
                             "tokenizer.form is not a key of a recipe; known here: "
                             "vocabulary, from");
    assert_tokenizer_refused("", "\"from\": \"\"",
                             "tokenizer.from is \"\", expected text");
    assert_tokenizer_refused(", \"start\": \"y\"", "\"from\": \"x\"",
                             "tokenizer.from with data.start, which brings a tokenizer");
}

static void a_folder_without_a_tokenizer_is_refused(void **state)
{
    (void)state;
    assert_int_equal(train_with_tokenizer_of("nowhere", 0, "refused"), ATTN_EIO);
    assert_non_null(strstr(error.message, "nowhere/tokenizer.json: No such file"));
    assert_int_equal(mkdir(in_folder("empty"), 0777), 0);
    assert_int_equal(train_with_tokenizer_of("empty", 0, "refused"), ATTN_EIO);
    assert_non_null(strstr(error.message, "empty/tokenizer.json: No such file"));
    assert_int_equal(
        train_classifier("", "\"from\": \"no/such\"", "transformer", 2, 0, "refused"),
        ATTN_EIO);
    assert_non_null(strstr(error.message, "no/such is neither beside the recipe"));
}

static void a_start_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    assert_int_equal(train_from("bag", 275, 2, "refused"), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "data.start with model.body \"bag\", expected "
                                          "\"transformer\""));
    assert_int_equal(train_from("transformer", 280, 2, "refused"), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "275"));
    assert_int_equal(train_from("transformer", 275, 3, "refused"), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "num_hidden_layers is 2, expected 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_the_chosen_tokens_80_are_masks_10_others_and_10_themselves),
        cmocka_unit_test(a_seed_decides_what_is_hidden),
        cmocka_unit_test(of_any_text_one_token_at_least_is_hidden),
        cmocka_unit_test(a_long_line_is_cut_into_equal_texts_and_loses_nothing),
        cmocka_unit_test(a_long_line_is_refused_where_the_recipe_says_so),
        cmocka_unit_test(a_file_without_text_is_refused),
        cmocka_unit_test(what_a_text_hides_depends_on_no_other_of_its_batch),
        cmocka_unit_test(each_token_alone_is_an_example),
        cmocka_unit_test(a_training_learns_what_follows_from_the_rest),
        cmocka_unit_test(threads_and_a_stop_change_no_bit),
        cmocka_unit_test(a_model_is_known_by_its_architecture),
        cmocka_unit_test(a_classifier_starts_from_its_encoder_and_tokenizer),
        cmocka_unit_test(a_classifier_takes_a_tokenizer_and_leaves_the_weights),
        cmocka_unit_test(a_training_goes_on_without_the_folder_of_its_tokenizer),
        cmocka_unit_test(a_start_that_does_not_fit_is_refused),
        cmocka_unit_test(a_tokenizer_is_learnt_or_taken_from_one_folder),
        cmocka_unit_test(a_folder_without_a_tokenizer_is_refused),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
