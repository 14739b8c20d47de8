/* The recurrent translator as a kind: it learns a hundred pairs by heart, goes on after a
 * stop with the same bits, and refuses recipes that no model can be. */
#include "file/file.h"
#include "model/folder.h"
#include "small_training.h"
#include "train/task.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The words of the model, and epochs. */
static const char RECIPE[] =
    "{\"kind\": \"recurrent-translator\","
    "\"data\": {\"train\": \"-\", \"valid\": \"-\", \"source_language\": \"en\","
    " \"target_language\": \"fr\"},"
    "\"tokenizer\": {\"vocabulary\": 280},"
    "\"model\": {%s, \"embedding\": 32, \"encoder_width\": 32, \"width\": 64,"
    " \"max_positions\": 48, \"dropout\": 0.0},"
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 160, \"length_noise\": 2,"
    " \"shards\": 2, \"epochs\": %d, \"schedule\": \"cosine\","
    " \"peak_learning_rate\": 1e-2, \"warmup_steps\": 20, \"beta1\": 0.9, \"beta2\": "
    "0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0.0, \"clip\": 1, \"label_smoothing\": 0.0,"
    " \"average\": 0.0, \"checkpoint_every\": 1000, \"valid_every\": 1000}}";

static attn_status parse(small_training *small, const char *model, int epochs,
                         attn_error *error)
{
    char text[2048];
    snprintf(text, sizeof text, RECIPE, model, epochs);
    return attn_recipe_parse(&small->recipe, attn_task_kinds(), text, "small", error);
}

static void set_up(small_training *small, const char *model, int epochs)
{
    attn_error error;
    small_training_set_up(small);
    attn_recipe_free(&small->recipe);
    if (parse(small, model, epochs, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static void train(const small_training *small, const attn_train_options *options,
                  attn_train_end expected)
{
    attn_train_end end;
    attn_error error;
    if (attn_train(&small->recipe, options, &end, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(end, expected);
}

static json_t *scores_of(const char *folder)
{
    char path[700];
    snprintf(path, sizeof path, "%s/scores.json", folder);
    json_t *const scores = json_load_file(path, 0, NULL);
    assert_non_null(scores);
    return scores;
}

static void it_learns_a_hundred_pairs_by_heart(void **state)
{
    (void)state;
    static const char *const models[] = {
        "\"cell\": \"gru\", \"attention\": \"additive\", \"attention_width\": 32",
        "\"cell\": \"lstm\", \"attention\": \"scaled_dot\", \"context\": \"input\"",
    };
    for (size_t n = 0; n < sizeof models / sizeof models[0]; n++) {
        small_training small;
        char out[600];
        set_up(&small, models[n], 35);
        attn_train_options options = small_training_options(&small, "out", 2, out);
        options.valid = small.train;
        train(&small, &options, ATTN_TRAIN_FINISHED);
        json_t *const scores = scores_of(out);
        const json_t *const valid = json_object_get(scores, "valid");
        const double bleu = json_real_value(json_object_get(valid, "bleu"));
        if (!(bleu > 90.0))
            fail_msg("%s: BLEU %g", models[n], bleu);
        json_int_t sentences = 0;
        size_t i;
        json_t *length;
        json_array_foreach(json_object_get(valid, "by_length"), i, length) sentences +=
            json_integer_value(json_object_get(length, "sentences"));
        assert_int_equal(sentences,
                         json_integer_value(json_object_get(valid, "sentences")));
        attn_languages languages;
        attn_error error;
        assert_int_equal(attn_folder_languages_load(&languages, out, &error), ATTN_OK);
        assert_string_equal(languages.source, "en");
        assert_string_equal(languages.target, "fr");
        json_decref(scores);
        small_training_tear_down(&small);
    }
}

static void a_stopped_training_ends_with_the_bits_of_an_unbroken_one(void **state)
{
    (void)state;
    static const char *const models[] = {
        "\"cell\": \"lstm\", \"attention\": \"none\", \"bidirectional\": false",
        "\"cell\": \"gru\", \"attention\": \"general\", \"context\": \"input\"",
    };
    for (size_t n = 0; n < sizeof models / sizeof models[0]; n++) {
        small_training small;
        char whole[600], parts[600];
        set_up(&small, models[n], 2);
        attn_train_options options = small_training_options(&small, "whole", 2, whole);
        train(&small, &options, ATTN_TRAIN_FINISHED);
        options = small_training_options(&small, "parts", 1, parts);
        options.max_steps = 3;
        train(&small, &options, ATTN_TRAIN_LIMIT);
        options.max_steps = 0;
        train(&small, &options, ATTN_TRAIN_FINISHED);
        assert_same_file(whole, parts, "model.safetensors");
        small_training_tear_down(&small);
    }
}

/* Each line's two fields change places. */
static void swap_file(const char *path)
{
    char *text, *end;
    size_t length;
    attn_error error;
    if (attn_file_read(path, 1 << 20, &text, &length, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    for (char *line = text; *line; line = end + 1) {
        end = strchr(line, '\n');
        char *const tab = strchr(line, '\t');
        fprintf(file, "%.*s\t%.*s\n", (int)(end - tab - 1), tab + 1, (int)(tab - line),
                line);
    }
    assert_int_equal(fclose(file), 0);
    free(text);
}

static void swapped_data_is_data_that_stands_the_other_way_round(void **state)
{
    (void)state;
    static const char model[] = "\"cell\": \"gru\", \"attention\": \"dot\"";
    char text[2048], plain[600], swapped[600], *at;
    attn_error error;
    small_training small;
    set_up(&small, model, 1);
    attn_train_options options = small_training_options(&small, "plain", 1, plain);
    train(&small, &options, ATTN_TRAIN_FINISHED);
    snprintf(text, sizeof text, RECIPE, model, 1);
    at = strstr(text, "\"source_language\"");
    memmove(at + 14, at, strlen(at) + 1);
    memcpy(at, "\"swap\": true, ", 14);
    attn_recipe_free(&small.recipe);
    if (attn_recipe_parse(&small.recipe, attn_task_kinds(), text, "small", &error) !=
        ATTN_OK)
        fail_msg("%s", error.message);
    swap_file(small.train);
    swap_file(small.valid);
    options = small_training_options(&small, "swapped", 1, swapped);
    train(&small, &options, ATTN_TRAIN_FINISHED);
    assert_same_file(plain, swapped, "model.safetensors");
    small_training_tear_down(&small);
}

static void the_recipes_of_the_house_are_good(void **state)
{
    (void)state;
    static const char *const names[] = {
        "gru-none-de-en",    "gru-additive-de-en",   "gru-dot-de-en",
        "gru-general-de-en", "gru-scaled-dot-de-en", "gru-additive-input-de-en",
        "gru-additive-en-fr"};
    const char *const folder = getenv("ATTN_RECIPES");
    if (!folder) {
        print_message(
            "skipped: the_recipes_of_the_house_are_good (ATTN_RECIPES is not set)\n");
        skip();
    }
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        char path[1024];
        attn_recipe recipe;
        attn_error error;
        snprintf(path, sizeof path, "%s/rnn/%s.json", folder, names[n]);
        if (attn_recipe_load(&recipe, path, &error) != ATTN_OK)
            fail_msg("%s", error.message);
        attn_recipe_free(&recipe);
    }
}

static void a_recipe_that_no_model_can_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *message;
    } cases[] = {
        {"\"cell\": \"rnn\", \"attention\": \"none\"", "model.cell"},
        {"\"cell\": \"gru\", \"attention\": \"concat\"", "model.attention"},
        {"\"cell\": \"gru\", \"attention\": \"additive\"",
         "attention_width is 0, expected 1"},
        {"\"cell\": \"gru\", \"attention\": \"dot\", \"bidirectional\": false",
         "attention dot between states of width 64 and 32 of the source"},
        {"\"cell\": \"gru\", \"attention\": \"none\", \"context\": \"both\"",
         "model.context"},
        {"\"cell\": \"gru\", \"attention\": \"none\", \"heads\": 4", "heads"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        small_training small;
        attn_error error = {ATTN_OK, ""};
        assert_int_equal(parse(&small, cases[n].model, 1, &error), ATTN_EFORMAT);
        if (!strstr(error.message, cases[n].message))
            fail_msg("got \"%s\", expected \"%s\" in it", error.message,
                     cases[n].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns_a_hundred_pairs_by_heart),
        cmocka_unit_test(a_stopped_training_ends_with_the_bits_of_an_unbroken_one),
        cmocka_unit_test(swapped_data_is_data_that_stands_the_other_way_round),
        cmocka_unit_test(the_recipes_of_the_house_are_good),
        cmocka_unit_test(a_recipe_that_no_model_can_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
