/* Classifier and tagger as they are trained: what a recipe may say, that both learn, that
 * a training that stops goes on with the same bits, and what is refused. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/mix.h"
#include "file/file.h"
#include "model/reader.h"
#include "train/task.h"
#include "train/train.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/folder.h"

static const char TRAINING[] =
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 160, \"length_noise\": 2,"
    " \"shards\": 2, \"epochs\": 6, \"schedule\": \"cosine\","
    " \"peak_learning_rate\": 2e-2, \"warmup_steps\": 4, \"beta1\": 0.9, \"beta2\": 0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0.01, \"clip\": 1, \"label_smoothing\": 0.1,"
    " \"average\": 0, \"checkpoint_every\": 7, \"valid_every\": 5, \"keep\": \"best\"}";

static const char BAG[] =
    "\"body\": \"bag\", \"embedding\": 8, \"max_positions\": 64, \"dropout\": 0.1";
static const char ATTENTION[] =
    "\"body\": \"lstm\", \"embedding\": 8, \"width\": 6, \"layers\": 1, \"both_ways\": "
    "true, \"pooling\": \"attention\", \"attention_width\": 5, \"max_positions\": 6, "
    "\"dropout\": 0.1, \"token_dropout\": 0.05";
static const char CONVOLUTION[] =
    "\"body\": \"convolution\", \"embedding\": 8, \"width\": 6, \"filters\": \"1 3\", "
    "\"pooling\": \"max\", \"max_positions\": 64, \"dropout\": 0.1";
static const char TRANSFORMER[] =
    "\"body\": \"transformer\", \"width\": 8, \"layers\": 1, \"heads\": 2, \"inner\": "
    "16, \"max_positions\": 12, \"dropout\": 0.0";
static const char LINEAR[] =
    "\"body\": \"transformer\", \"width\": 8, \"layers\": 1, \"heads\": 2, \"inner\": "
    "16, \"max_positions\": 12, \"dropout\": 0.0, \"linear_attention\": true";
static const char TAGGER[] =
    "\"body\": \"lstm\", \"embedding\": 8, \"width\": 6, \"layers\": 1, \"both_ways\": "
    "true, \"attention\": \"additive\", \"attention_width\": 5, \"max_positions\": 64, "
    "\"dropout\": 0.0, \"word_state\": \"mean\"";

static attn_status parse(attn_recipe *recipe, const char *kind, const char *data,
                         const char *model, attn_error *error)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"kind\": \"%s\", \"data\": {\"train\": \"-\", \"valid\": \"-\"%s},"
             " \"tokenizer\": {\"vocabulary\": 265}, \"model\": {\"too_long\": \"%s\", "
             "%s}, %s}",
             kind, data, strstr(model, "refuse") ? "refuse" : "split",
             model + (strncmp(model, "refuse", 6) == 0 ? 6 : 0), TRAINING);
    return attn_recipe_parse(recipe, attn_task_kinds(), text, "small", error);
}

/* ---- Data ------------------------------------------------------------------------ */

/* Texts are good where "fine" or "well" is among their words, bad where "dull" is. */
static void write_texts(const char *path, size_t count, uint64_t seed)
{
    static const char *const good[] = {"fine", "well", "fine"};
    static const char *const other[] = {"the", "a film", "was", "and", "so"};
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    for (size_t n = 0; n < count; n++) {
        const uint64_t line = attn_mix(seed, n);
        const bool is_good = line % 2;
        const size_t words = 2 + line / 2 % 6, place = line / 64 % words;
        fputs(is_good ? "good\t" : "bad\t", file);
        for (size_t w = 0; w < words; w++)
            fprintf(file, "%s%s", w ? " " : "",
                    w != place ? other[attn_mix(line, w) % 5]
                    : is_good  ? good[attn_mix(line, w) % 3]
                               : "dull");
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

/* "run" is a verb after "they" and a noun after "the". */
static void write_words(const char *path, size_t count, uint64_t seed)
{
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    for (size_t n = 0; n < count; n++) {
        const uint64_t line = attn_mix(seed, n);
        for (size_t w = 0; w < 1 + line % 3; w++) {
            const bool is_verb = attn_mix(line, w) % 2;
            fprintf(file, "%s\n", is_verb ? "they\tPRON\t2\tnsubj" : "the\tDET");
            fprintf(file, "run\t%s\n", is_verb ? "VERB" : "NOUN");
        }
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

static void write_file(const char *name, const char *content)
{
    attn_error error;
    if (attn_file_write(in_folder(name), content, strlen(content), &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

/* ---- Training -------------------------------------------------------------------- */

static attn_status train(const char *kind, const char *data, const char *model,
                         const char *name, int64_t max_steps, size_t threads,
                         attn_error *error)
{
    char out[256];
    attn_recipe recipe;
    attn_train_end end;
    snprintf(out, sizeof out, "%s", in_folder(name));
    attn_status status = parse(&recipe, kind, data, model, error);
    const attn_train_options options = {
        .out = out,
        .train = in_folder("train"),
        .valid = in_folder("valid"),
        .test = max_steps == 0 ? in_folder("valid") : NULL,
        .threads = threads,
        .max_steps = max_steps,
    };
    if (status == ATTN_OK)
        status = attn_train(&recipe, &options, &end, error);
    attn_recipe_free(&recipe);
    return status;
}

static void train_well(const char *kind, const char *model, const char *name,
                       int64_t max_steps, size_t threads)
{
    attn_error error;
    if (train(kind, "", model, name, max_steps, threads, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static json_t *scores_of(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/scores.json", name);
    json_t *const scores = json_load_file(in_folder(path), 0, NULL);
    assert_non_null(scores);
    return scores;
}

static void assert_learnt(const char *name, const char *items)
{
    json_t *const scores = scores_of(name);
    json_t *const test = json_object_get(scores, "test");
    if (!(json_real_value(json_object_get(test, "accuracy")) > 0.9) ||
        !(json_real_value(json_object_get(test, "macro_f1")) > 0.9))
        fail_msg("%s: %s", name, json_dumps(scores, JSON_INDENT(1)));
    assert_true(json_integer_value(json_object_get(test, items)) > 0);
    assert_true(json_real_value(json_object_get(scores, "seconds_per_step")) > 0.0);
    json_decref(scores);
}

static void classifiers_learn_and_are_scored(void **state)
{
    (void)state;
    static const char *const models[] = {BAG, ATTENTION, CONVOLUTION, TRANSFORMER,
                                         LINEAR};
    static const char *const names[] = {"bag", "attention", "convolution", "transformer",
                                        "linear"};
    write_texts(in_folder("train"), 240, 1);
    write_texts(in_folder("valid"), 60, 2);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        train_well("classifier", models[i], names[i], 0, 2);
        assert_learnt(names[i], "texts");
        attn_reader *reader;
        attn_error error;
        assert_int_equal(attn_reader_load(&reader, in_folder(names[i]), &error), ATTN_OK);
        assert_string_equal(attn_reader_label(reader, 0), "bad");
        assert_string_equal(attn_reader_label(reader, 1), "good");
        attn_reader_destroy(reader);
        assert_ptr_equal(attn_task_kind_of_model(in_folder(names[i])),
                         &attn_task_classifier);
    }
}

static void taggers_learn_and_words_not_seen_are_scored_apart(void **state)
{
    (void)state;
    write_words(in_folder("train"), 200, 1);
    write_words(in_folder("valid"), 30, 2);
    FILE *const file = fopen(in_folder("valid"), "a");
    fputs("\nthe\tDET\nwalk\tNOUN\n", file);
    fclose(file);
    train_well("tagger", TAGGER, "tagger", 0, 2);
    assert_learnt("tagger", "words");
    json_t *const scores = scores_of("tagger");
    json_t *const test = json_object_get(scores, "test");
    assert_int_equal(json_integer_value(json_object_get(test, "unseen_words")), 1);
    json_decref(scores);
    assert_ptr_equal(attn_task_kind_of_model(in_folder("tagger")), &attn_task_tagger);
}

static void assert_same_file(const char *one, const char *two)
{
    char *text[2];
    size_t length[2];
    attn_error error;
    const char *const names[] = {one, two};
    for (int i = 0; i < 2; i++)
        if (attn_file_read(in_folder(names[i]), 1 << 24, &text[i], &length[i], &error) !=
            ATTN_OK)
            fail_msg("%s", error.message);
    assert_int_equal(length[0], length[1]);
    assert_memory_equal(text[0], text[1], length[0]);
    free(text[0]);
    free(text[1]);
}

static void a_training_that_stops_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    write_texts(in_folder("train"), 240, 1);
    write_texts(in_folder("valid"), 60, 2);
    train_well("classifier", ATTENTION, "whole", 0, 1);
    train_well("classifier", ATTENTION, "parts", 9, 2);
    train_well("classifier", ATTENTION, "parts", 16, 1);
    train_well("classifier", ATTENTION, "parts", 0, 2);
    assert_same_file("whole/model.safetensors", "parts/model.safetensors");
    assert_same_file("whole/tokenizer.json", "parts/tokenizer.json");
    write_words(in_folder("train"), 200, 1);
    write_words(in_folder("valid"), 30, 2);
    train_well("tagger", TAGGER, "whole tagger", 0, 1);
    train_well("tagger", TAGGER, "parts tagger", 8, 2);
    train_well("tagger", TAGGER, "parts tagger", 0, 1);
    assert_same_file("whole tagger/model.safetensors", "parts tagger/model.safetensors");
    assert_same_file("whole tagger/words.txt", "parts tagger/words.txt");
}

/* ---- What is refused ------------------------------------------------------------- */

static void fails(const char *kind, const char *data, const char *model,
                  const char *fragment)
{
    static int number;
    char name[32];
    attn_error error = {ATTN_OK, ""};
    snprintf(name, sizeof name, "refused%d", number++);
    const attn_status status = train(kind, data, model, name, 0, 1, &error);
    if (status != ATTN_EFORMAT || !strstr(error.message, fragment))
        fail_msg("%s, \"%s\" without \"%s\"", attn_status_name(status), error.message,
                 fragment);
}

static void a_recipe_that_does_not_go_together_is_named(void **state)
{
    (void)state;
    fails("classifier", "", "\"body\": \"bag\", \"max_positions\": 9, \"dropout\": 0",
          "small: model: reader: embedding is 0, expected 1 to");
    fails("classifier", "", "\"body\": \"tree\"", "model.body is \"tree\", expected");
    fails("classifier", "", "\"body\": \"bag\", \"heights\": 3", "model.heights is not");
    fails("tagger", "", ATTENTION, "words are labelled and pooling is not the mean");
    fails("classifier", "", TAGGER, "texts are labelled and words attend");
    fails("classifier", "",
          "\"linear_attention\": true, \"body\": \"bag\", \"embedding\": 8, "
          "\"max_positions\": 64, \"dropout\": 0",
          "linear attention where the body is no Transformer");
    fails("classifier", "",
          "\"body\": \"convolution\", \"embedding\": 8, \"width\": 6, "
          "\"max_positions\": 64, \"dropout\": 0, \"filters\": \"3 x\"",
          "filter 1 has 0 tokens, expected 1 to 64");
    fails("classifier", "",
          "\"body\": \"convolution\", \"embedding\": 8, \"width\": 6, "
          "\"max_positions\": 64, \"dropout\": 0, \"filters\": \"1 2 3 4 5\"",
          "filters is 5, expected 1 to 4");
}

static void data_that_does_not_fit_is_named(void **state)
{
    (void)state;
    write_texts(in_folder("train"), 40, 1);
    write_file("valid", "good\tfine\nugly\tdull\n");
    fails("classifier", "", BAG, "valid, line 2: the label \"ugly\" was not seen");
    write_file("valid", "good\tfine\nfine\n");
    fails("classifier", "", BAG, "valid, line 2: 1 column, expected a tab");
    write_file("valid", "");
    fails("classifier", "", BAG, "valid has no text");
    write_texts(in_folder("valid"), 40, 2);
    fails("classifier", ", \"labels\": \"bad good ugly\"", BAG,
          "no text has the label \"ugly\"");
    fails("classifier", ", \"labels\": \"good\"", BAG,
          "has 2 labels, expected the 1 of the recipe's data.labels");
    fails("classifier", "",
          "refuse\"body\": \"bag\", \"embedding\": 8, \"max_positions\": 6, "
          "\"dropout\": 0",
          "tokens, the model has 6 positions; model.too_long");
    write_file("train", "good\tfine\ngood\twell and fine and so on\n");
    fails("classifier", "", BAG, "\"good\" is its only label, expected at least two");
    static char label[80000];
    memset(label, 'l', sizeof label - 8);
    memcpy(label + sizeof label - 8, "\tfine\n", 7);
    write_file("train", label);
    fails("classifier", "", BAG, "1 labels take 80008 bytes");
    write_file("train", "a\tX\nb\tY\n");
    fails("tagger", "", TAGGER, "tokenizer.vocabulary is 265, but the text gives only");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classifiers_learn_and_are_scored),
        cmocka_unit_test(taggers_learn_and_words_not_seen_are_scored_apart),
        cmocka_unit_test(a_training_that_stops_goes_on_with_the_same_bits),
        cmocka_unit_test(a_recipe_that_does_not_go_together_is_named),
        cmocka_unit_test(data_that_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
