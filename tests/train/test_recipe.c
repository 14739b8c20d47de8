/* Recipes: what is read, and what is refused by name. */
#include "train/recipe.h"
#include "train/task_translator.h"
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.10g is not within %g of %.10g", value, tolerance, expected);
}

static const char GOOD[] =
    "{\"kind\": \"translator\","
    "\"data\": {\"train\": \"a.tsv\", \"valid\": \"b.tsv\", \"source_language\": \"en\","
    " \"target_language\": \"fr\"},"
    "\"tokenizer\": {\"vocabulary\": 600},"
    "\"model\": {\"width\": 32, \"heads\": 4, \"encoder_layers\": 1, \"decoder_layers\": "
    "2,"
    " \"inner\": 48, \"max_positions\": 64, \"activation\": \"gelu\", \"dropout\": 0.1,"
    " \"attention_dropout\": 0},"
    "\"training\": {\"seed\": 7, \"tokens_per_batch\": 100, \"length_noise\": 2.5,"
    " \"shards\": 2, \"epochs\": 3, \"schedule\": \"linear\","
    " \"peak_learning_rate\": 2e-3, \"warmup_steps\": 10, \"beta1\": 0.9, \"beta2\": "
    "0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0, \"clip\": 1, \"label_smoothing\": 0.1,"
    " \"average\": 0.99, \"checkpoint_every\": 5, \"valid_every\": 5}}";

/* GOOD with the first `what` replaced; free() it. */
static char *with(const char *what, const char *by)
{
    const char *const at = strstr(GOOD, what);
    assert_non_null(at);
    char *const text = malloc(sizeof GOOD + strlen(by));
    assert_non_null(text);
    sprintf(text, "%.*s%s%s", (int)(at - GOOD), GOOD, by, at + strlen(what));
    return text;
}

static void assert_refused(const char *what, const char *by, const char *message)
{
    attn_recipe recipe;
    attn_error error = {ATTN_OK, ""};
    char *const text = with(what, by);
    assert_int_equal(
        attn_recipe_parse(&recipe, attn_task_kinds(), text, "r.json", &error),
        ATTN_EFORMAT);
    if (!strstr(error.message, message))
        fail_msg("the message is \"%s\", expected \"%s\" in it", error.message, message);
    attn_recipe_free(&recipe);
    free(text);
}

static const attn_translator_config *model_of(const attn_recipe *recipe)
{
    return &((const attn_translator_settings *)recipe->settings)->model;
}

static void a_recipe_is_read(void **state)
{
    (void)state;
    attn_recipe recipe;
    attn_error error;
    assert_int_equal(
        attn_recipe_parse(&recipe, attn_task_kinds(), GOOD, "r.json", &error), ATTN_OK);
    assert_string_equal(recipe.train, "a.tsv");
    assert_string_equal(recipe.test, "");
    const attn_translator_config *const model = model_of(&recipe);
    assert_int_equal(model->vocabulary, 600);
    assert_int_equal(model->decoder_layers, 2);
    assert_int_equal(model->activation, ATTN_GELU);
    assert_true(model->dropout == 0.1f);
    assert_true(model->activation_dropout == 0.0f);
    assert_int_equal(recipe.schedule, ATTN_SCHEDULE_LINEAR);
    assert_true(recipe.length_noise == 2.5);
    assert_true(recipe.clip == 1.0);
    assert_int_equal(recipe.epochs, 3);
    assert_int_equal(recipe.target_tokens, 0);
    attn_recipe_free(&recipe);
}

static void the_order_of_norms_and_the_positions_may_be_chosen(void **state)
{
    (void)state;
    attn_recipe recipe;
    attn_error error;
    assert_int_equal(
        attn_recipe_parse(&recipe, attn_task_kinds(), GOOD, "r.json", &error), ATTN_OK);
    assert_true(model_of(&recipe)->normalise_first);
    assert_false(model_of(&recipe)->learned_positions);
    attn_recipe_free(&recipe);
    char *const last =
        with("\"width\"",
             "\"normalise_first\": false, \"learned_positions\": true, \"width\"");
    assert_int_equal(
        attn_recipe_parse(&recipe, attn_task_kinds(), last, "r.json", &error), ATTN_OK);
    assert_false(model_of(&recipe)->normalise_first);
    assert_true(model_of(&recipe)->learned_positions);
    attn_recipe_free(&recipe);
    free(last);
    assert_refused("\"width\"", "\"normalise_first\": 0, \"width\"",
                   "model.normalise_first is 0, expected true or false");
    assert_refused("\"width\"", "\"learned_positions\": true, \"width\"",
                   "expected model.normalise_first to be false");
}

static void an_unknown_key_is_named_with_its_path(void **state)
{
    (void)state;
    assert_refused("\"width\"", "\"widht\"", "r.json: model.widht is not a key");
    assert_refused("\"kind\"", "\"sort\": 1, \"kind\"", "r.json: sort is not a key");
}

static void a_missing_key_is_named_with_its_path(void **state)
{
    (void)state;
    assert_refused("\"seed\": 7,", "", "training.seed is missing");
    assert_refused("\"tokenizer\": {\"vocabulary\": 600},", "", "tokenizer is missing");
}

static void a_wrong_type_tells_what_was_got_and_expected(void **state)
{
    (void)state;
    assert_refused("\"width\": 32", "\"width\": \"wide\"",
                   "model.width is \"wide\", expected a whole number from 4 to 65536");
    assert_refused("\"seed\": 7", "\"seed\": 7.5",
                   "training.seed is 7.5, expected a whole");
    assert_refused("\"clip\": 1", "\"clip\": true",
                   "training.clip is true, expected a num");
    assert_refused("\"gelu\"", "3", "model.activation is 3, expected \"relu\", \"gelu\"");
    assert_refused("\"a.tsv\"", "\"\"", "data.train is \"\", expected text");
    assert_refused("{\"vocabulary\": 600}", "6000", "tokenizer is not an object");
}

static void a_value_out_of_range_tells_the_range(void **state)
{
    (void)state;
    assert_refused("\"dropout\": 0.1", "\"dropout\": 1.5",
                   "model.dropout is 1.5, expected a number from 0 to 0.99");
    assert_refused("\"shards\": 2", "\"shards\": 0", "training.shards is 0, expected");
    assert_refused(
        "\"linear\"", "\"steps\"",
        "training.schedule is \"steps\", expected \"inverse_sqrt\", \"linear\" or "
        "\"cosine\"");
    assert_refused("\"translator\"", "\"poet\"",
                   "kind is \"poet\", expected \"translator\"");
}

static void keys_that_do_not_fit_together_are_refused(void **state)
{
    (void)state;
    assert_refused("\"heads\": 4", "\"heads\": 5",
                   "model.width is 32, expected a multiple");
    assert_refused("\"epochs\": 3,", "", "neither of training.epochs and");
    assert_refused("\"epochs\": 3,", "\"epochs\": 3, \"target_tokens\": 9,", "each of");
}

static void what_is_not_json_tells_line_and_column(void **state)
{
    (void)state;
    assert_refused("\"seed\": 7,", "\"seed\": 7,,", "r.json:1:");
    assert_refused("\"seed\": 7,", "\"seed\": 7, \"seed\": 8,", "r.json:1:");
}

static void two_recipes_are_compared_by_their_first_difference(void **state)
{
    (void)state;
    attn_recipe one, two;
    attn_error error;
    bool structure;
    char *const slower = with("2e-3", "1e-3");
    char *const wider = with("\"width\": 32", "\"width\": 64");
    char *const same = with("\"clip\": 1,", "\"clip\": 1.0,");
    char *const often = with("\"valid_every\": 5", "\"valid_every\": 6");
    assert_int_equal(attn_recipe_parse(&one, attn_task_kinds(), GOOD, "r", &error),
                     ATTN_OK);

    assert_int_equal(attn_recipe_parse(&two, attn_task_kinds(), slower, "r", &error),
                     ATTN_OK);
    assert_int_equal(attn_recipe_compare(one.identity, two.identity, &structure, &error),
                     ATTN_EINVAL);
    assert_string_equal(error.message,
                        "training.peak_learning_rate was 0.002 and is 0.001");
    assert_false(structure);
    attn_recipe_free(&two);

    assert_int_equal(attn_recipe_parse(&two, attn_task_kinds(), wider, "r", &error),
                     ATTN_OK);
    assert_int_equal(attn_recipe_compare(one.identity, two.identity, &structure, &error),
                     ATTN_EINVAL);
    assert_true(structure);
    attn_recipe_free(&two);

    assert_int_equal(attn_recipe_parse(&two, attn_task_kinds(), same, "r", &error),
                     ATTN_OK);
    assert_int_equal(attn_recipe_compare(one.identity, two.identity, &structure, &error),
                     ATTN_OK);
    attn_recipe_free(&two);

    assert_int_equal(attn_recipe_parse(&two, attn_task_kinds(), often, "r", &error),
                     ATTN_OK);
    assert_int_equal(attn_recipe_compare(one.identity, two.identity, &structure, &error),
                     ATTN_OK);
    attn_recipe_free(&two);
    attn_recipe_free(&one);
    free(slower);
    free(wider);
    free(same);
    free(often);
}

static void data_that_is_nowhere_names_where_it_was_looked_for(void **state)
{
    (void)state;
    char found[ATTN_PATH_BYTES];
    attn_error error;
    setenv("ATTN_DATA", "/nonexistent", 1);
    assert_int_equal(attn_recipe_find("recipes/x.json", "no/file.tsv", found, &error),
                     ATTN_EIO);
    assert_non_null(strstr(error.message, "no/file.tsv"));
    assert_non_null(strstr(error.message, "recipes/"));
    assert_non_null(strstr(error.message, "/nonexistent"));
    unsetenv("ATTN_DATA");
    assert_int_equal(attn_recipe_find("x.json", "no/file.tsv", found, &error), ATTN_EIO);
    assert_non_null(strstr(error.message, "ATTN_DATA, which is not set"));
}

/* Cut to the size of found, its name would be that of a folder that is there. */
static void a_path_that_would_be_cut_is_refused(void **state)
{
    (void)state;
    char file[2 * ATTN_PATH_BYTES], found[ATTN_PATH_BYTES];
    attn_error error;
    for (size_t n = 0; n + 2 < sizeof file; n += 2)
        memcpy(file + n, "./", 3);
    assert_int_equal(attn_recipe_find("x.json", file, found, &error), ATTN_EIO);
    assert_non_null(strstr(error.message, "bytes, expected at most 4095"));
    file[0] = '/';
    assert_int_equal(attn_recipe_find("x.json", file, found, &error), ATTN_EIO);
    assert_non_null(strstr(error.message, "bytes, expected at most 4095"));
    file[0] = '.';
    file[ATTN_PATH_BYTES / 2] = '\0';
    assert_int_equal(attn_recipe_find("x.json", file, found, &error), ATTN_OK);
}

/* In a folder and in those within it; how many there were. */
static int load_recipes(const char *folder)
{
    int count = 0;
    DIR *const directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1024];
        struct stat about;
        attn_recipe recipe;
        attn_error error = {ATTN_OK, ""};
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &about) != 0)
            continue;
        if (S_ISDIR(about.st_mode)) {
            count += load_recipes(path);
            continue;
        }
        if (strstr(path, ".tsv")) /* data of the smallest */
            continue;
        if (attn_recipe_load(&recipe, path, &error) != ATTN_OK)
            fail_msg("%s", error.message);
        attn_recipe_free(&recipe);
        count++;
    }
    closedir(directory);
    return count;
}

static void every_recipe_of_the_house_is_good(void **state)
{
    (void)state;
    const char *const path = getenv("ATTN_RECIPES");
    if (!path) {
        print_message(
            "skipped: every_recipe_of_the_house_is_good (ATTN_RECIPES is not set)\n");
        skip();
    }
    assert_true(load_recipes(path) > 0);
}

static void the_rate_rises_in_a_line_and_falls(void **state)
{
    (void)state;
    attn_schedule schedule = {ATTN_SCHEDULE_INVERSE_SQRT, 1.0, 100, 1000};
    assert_true(attn_schedule_rate(&schedule, 1) == 0.01);
    assert_true(attn_schedule_rate(&schedule, 100) == 1.0);
    assert_true(attn_schedule_rate(&schedule, 400) == 0.5);
    schedule.shape = ATTN_SCHEDULE_LINEAR;
    assert_true(attn_schedule_rate(&schedule, 50) == 0.5);
    assert_true(attn_schedule_rate(&schedule, 100) == 1.0);
    assert_near(attn_schedule_rate(&schedule, 1000), 1.0 / 901.0, 1e-12);
    assert_true(attn_schedule_rate(&schedule, 2000) ==
                attn_schedule_rate(&schedule, 1000));
    schedule.shape = ATTN_SCHEDULE_COSINE;
    schedule.total = 299;
    assert_true(attn_schedule_rate(&schedule, 100) == 1.0);
    assert_near(attn_schedule_rate(&schedule, 200), 0.5, 1e-12);
    schedule.warmup = 0;
    assert_true(attn_schedule_rate(&schedule, 1) == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recipe_is_read),
        cmocka_unit_test(the_order_of_norms_and_the_positions_may_be_chosen),
        cmocka_unit_test(an_unknown_key_is_named_with_its_path),
        cmocka_unit_test(a_missing_key_is_named_with_its_path),
        cmocka_unit_test(a_wrong_type_tells_what_was_got_and_expected),
        cmocka_unit_test(a_value_out_of_range_tells_the_range),
        cmocka_unit_test(keys_that_do_not_fit_together_are_refused),
        cmocka_unit_test(what_is_not_json_tells_line_and_column),
        cmocka_unit_test(two_recipes_are_compared_by_their_first_difference),
        cmocka_unit_test(a_path_that_would_be_cut_is_refused),
        cmocka_unit_test(data_that_is_nowhere_names_where_it_was_looked_for),
        cmocka_unit_test(every_recipe_of_the_house_is_good),
        cmocka_unit_test(the_rate_rises_in_a_line_and_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
