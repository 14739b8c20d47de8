/* attn train, from data that come with the sources. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/command.h"
#include <sys/stat.h>
#include <unistd.h>

static const char *recipes(void)
{
    const char *const path = getenv("ATTN_RECIPES");
    assert_non_null(path);
    return path;
}

static run_result train(const char *recipe, const char *options)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "train '%s/%s' %s", recipes(), recipe, options);
    return run(arguments, "");
}

/* Its exit code. */
static int system_in_folder(const char *command)
{
    char whole[512];
    snprintf(whole, sizeof whole, "cd '%s' && %s", folder, command);
    return WEXITSTATUS(system(whole));
}

static void the_tiny_recipe_learns_to_translate_what_it_has_not_seen(void **state)
{
    (void)state;
    run_result result = train("tiny-en-fr.json", "--threads 2 --quiet");
    if (result.code != 0)
        fail_msg("%s", result.err);
    run_free(&result);
    expect_run("translate --model tiny-en-fr", "Where is the bread?\nThe car is small.\n",
               0, "Où est le pain ?\nLa voiture est petite.\n", "");
}

static void a_log_that_cannot_be_written_is_a_failure(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("skipped: a_log_that_cannot_be_written_is_a_failure (no "
                      "/dev/full)\n");
        skip();
    }
    assert_int_equal(mkdir(in_folder("full"), 0700), 0);
    assert_int_equal(symlink("/dev/full", in_folder("full/log.jsonl")), 0);
    run_result result = train("tiny-en-fr.json", "--threads 2 --quiet --out full");
    assert_int_equal(result.code, 1);
    assert_string_equal(result.err,
                        "attn train: cannot write full/log.jsonl: No space left on "
                        "device; the training is kept after step 50\n");
    run_free(&result);
}

/* The longest name in a folder that is trained to, with its slash. */
enum { LONGEST_NAME = sizeof "checkpoint.safetensors.part" };

static void an_out_with_too_long_paths_is_refused_before_it_is_made(void **state)
{
    (void)state;
    static const size_t lengths[] = {4096 - LONGEST_NAME, 4095, 8000};
    for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++) {
        char expected[128];
        write_long_path(lengths[n], "");
        snprintf(expected, sizeof expected,
                 "a/checkpoint.safetensors.part: a path of %zu bytes, expected at most "
                 "4095\n",
                 lengths[n] + LONGEST_NAME);
        run_result result = train("tiny-en-fr.json", "--quiet --out \"$(cat long)\"");
        assert_int_equal(result.code, 1);
        if (!strstr(result.err, expected))
            fail_msg("%s", result.err);
        run_free(&result);
        assert_int_not_equal(system_in_folder("ls -d aaa* > /dev/null 2>&1"), 0);
    }
}

static void a_long_out_has_every_file_by_its_whole_name(void **state)
{
    (void)state;
    static const char *const files[] = {"checkpoint.safetensors", "log.jsonl",
                                        "tokenizer.json"};
    write_long_path(4095 - LONGEST_NAME, "/end");
    run_result result = train("tiny-en-fr.json",
                              "--threads 2 --quiet --max-steps 1 --out \"$(cat long)\"");
    if (result.code != 0)
        fail_msg("%s", result.err);
    run_free(&result);
    for (size_t n = 0; n < sizeof files / sizeof files[0]; n++) {
        char command[128];
        snprintf(command, sizeof command, "test -e \"$(cat long)/%s\"", files[n]);
        assert_int_equal(system_in_folder(command), 0);
    }
    result = train("tiny-en-fr.json", "--threads 2 --quiet --max-steps 2 --resume --out "
                                      "\"$(cat long)\"");
    if (result.code != 0)
        fail_msg("%s", result.err);
    run_free(&result);
    /* Longer than what folder_remove may name. */
    assert_int_equal(system_in_folder("rm -r aaa*"), 0);
}

static void put_pairs(void)
{
    attn_error error;
    const char pairs[] = "The cat.\tLe chat.\nThe dog.\tLe chien.\n";
    assert_int_equal(
        attn_file_write(in_folder("pairs.tsv"), pairs, sizeof pairs - 1, &error),
        ATTN_OK);
}

static void data_that_cannot_be_read_fail_in_the_same_way_for_every_kind(void **state)
{
    (void)state;
    static const char *const kinds[] = {"captioner",        "translate-en-fr",
                                        "tag-ewt-bilstm",   "polarity-lstm",
                                        "masked-sentences", "language-sentences"};
    put_pairs();
    for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; n++) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "%s.json", kinds[n]);
        run_result result = train(recipe, "--train no.images.idx --valid pairs.tsv "
                                          "--test pairs.tsv --out none --quiet");
        assert_int_equal(access(in_folder("none"), F_OK), -1);
        if (result.code != 1 ||
            !strstr(result.err, "attn train: cannot open no.images.idx: "))
            fail_msg("%s: %d, %s", kinds[n], result.code, result.err);
        run_free(&result);
    }
}

/* Its test is of other data, which need not be there; its vocabulary is too large. */
static void a_recipe_with_data_of_ones_own_leaves_its_test_out(void **state)
{
    (void)state;
    put_pairs();
    run_result result = train("translate-en-fr.json",
                              "--train pairs.tsv --valid pairs.tsv --out own --quiet");
    assert_int_equal(result.code, 1);
    const char *const test = strstr(
        result.err, "attn train: translate/tatoeba-en-fr.test.tsv.xz is not of the data "
                    "of --train: no test is scored (--test FILE)\n");
    assert_ptr_equal(test, result.err);
    assert_non_null(strstr(result.err, "tokenizer.vocabulary is 6000, but the text gives "
                                       "only "));
    assert_non_null(strstr(result.err, " tokens: set it to 2"));
    run_free(&result);
}

static void put(const char *name, const void *content, size_t length_bytes)
{
    attn_error error;
    assert_int_equal(attn_file_write(in_folder(name), content, length_bytes, &error),
                     ATTN_OK);
}

static void fails_with(const char *recipe, const char *options, const char *reason)
{
    run_result result = train(recipe, options);
    if (result.code != 1 || !strstr(result.err, reason))
        fail_msg("%s: %d, %s without %s", recipe, result.code, result.err, reason);
    run_free(&result);
}

static void a_model_without_its_checkpoint_is_not_written_over(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("other"), 0700), 0);
    put("other/config.json", "{}", 2);
    fails_with("tiny-en-fr.json", "--out other --quiet",
               "attn train: other/config.json is there and no checkpoint.safetensors to "
               "go on from: expected another --out");
    char *const config = run_file("other/config.json");
    assert_string_equal(config, "{}");
    free(config);
    assert_int_equal(access(in_folder("other/tokenizer.json"), F_OK), -1);
}

static void a_recipe_of_no_name_has_a_folder_of_its_own(void **state)
{
    (void)state;
    char path[600], *text;
    size_t length;
    attn_error error;
    snprintf(path, sizeof path, "%s/tiny-en-fr.json", recipes());
    assert_int_equal(attn_file_read(path, 1 << 16, &text, &length, &error), ATTN_OK);
    put(".json", text, length);
    free(text);
    assert_int_equal(system_in_folder("mkdir -p trained/.json"), 0);
    put("trained/.json/config.json", "{}", 2);
    put_pairs();
    run_result result =
        run("train .json --train pairs.tsv --valid pairs.tsv --quiet", "");
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "attn train: trained/.json/config.json is there"));
    run_free(&result);
}

/* Refused for what is in its data, for its model, and for its test, when the tokenizer is
 * there already. */
static void a_refused_training_leaves_no_folder_that_it_made(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "--train pairs.tsv --valid pairs.tsv",
        "--train none.tsv --valid pairs.tsv",
        "--test none.tsv",
    };
    put_pairs();
    assert_int_equal(mkdir(in_folder("there"), 0700), 0);
    for (size_t n = 0; n < sizeof refused / sizeof refused[0]; n++) {
        char options[128];
        snprintf(options, sizeof options, "%s --quiet --out there/a//b/c/", refused[n]);
        run_result result = train("tiny-en-fr.json", options);
        if (result.code != 1 || access(in_folder("there/a"), F_OK) == 0)
            fail_msg("%s: %d, %s", options, result.code, result.err);
        run_free(&result);
        assert_int_equal(mkdir(in_folder("there/own"), 0700), 0);
        snprintf(options, sizeof options, "%s --quiet --out there/own", refused[n]);
        result = train("tiny-en-fr.json", options);
        assert_int_equal(result.code, 1);
        run_free(&result);
        assert_int_equal(access(in_folder("there/own"), F_OK), 0);
        assert_int_equal(system_in_folder("rm -r there/own"), 0);
    }
}

static void a_text_without_a_word_is_said_to_be_one(void **state)
{
    (void)state;
    put("blank.txt", " \n\n", 3);
    static const char options[] = "--train blank.txt --valid blank.txt --out b --quiet";
    fails_with("language-sentences.json", options,
               "attn train: blank.txt: no text in it");
    fails_with("masked-sentences.json", options, "attn train: blank.txt: no text in it");
}

/* As its sizes alone do not tell, and creating it does. */
static void what_a_model_is_refused_for_is_the_recipes(void **state)
{
    (void)state;
    char path[600], *text;
    size_t length;
    attn_error error;
    put("labels.tsv", "pos\tfine\nneg\tdull\n", 18);
    snprintf(path, sizeof path, "%s/polarity-transformer.json", recipes());
    assert_int_equal(attn_file_read(path, 1 << 16, &text, &length, &error), ATTN_OK);
    char *const heads = strstr(text, "\"heads\": 4"), *const size = strstr(text, "8000");
    assert_non_null(heads);
    assert_non_null(size);
    memcpy(heads, "\"heads\": 3", 10);
    memcpy(size, " 260", 4);
    put("three.json", text, length);
    free(text);
    run_result result =
        run("train three.json --train labels.tsv --valid labels.tsv --out h --quiet", "");
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "attn train: three.json: model: bert: width 64 is "
                                       "not a multiple of 3 heads\n"));
    run_free(&result);
}

static void a_digit_that_is_not_trained_on_is_named(void **state)
{
    (void)state;
    unsigned char images[16 + 8 * 4] = {0, 0, 8, 3, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 2};
    unsigned char labels[8 + 8] = {0, 0, 8, 1, 0, 0, 0, 8};
    labels[8 + 7] = 9;
    put("d.images.idx", images, sizeof images);
    put("d.labels.idx", labels, sizeof labels);
    fails_with("captioner.json",
               "--train d.images.idx --valid d.images.idx --out d --quiet",
               "attn train: d.images.idx: label 8 is 9, which none of the first 6 has");
}

int main(int argc, char **argv)
{
    assert_true(argc == 2);
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tiny_recipe_learns_to_translate_what_it_has_not_seen),
        cmocka_unit_test(a_log_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(an_out_with_too_long_paths_is_refused_before_it_is_made),
        cmocka_unit_test(a_long_out_has_every_file_by_its_whole_name),
        cmocka_unit_test(data_that_cannot_be_read_fail_in_the_same_way_for_every_kind),
        cmocka_unit_test(a_recipe_with_data_of_ones_own_leaves_its_test_out),
        cmocka_unit_test(a_model_without_its_checkpoint_is_not_written_over),
        cmocka_unit_test(a_recipe_of_no_name_has_a_folder_of_its_own),
        cmocka_unit_test(a_refused_training_leaves_no_folder_that_it_made),
        cmocka_unit_test(a_text_without_a_word_is_said_to_be_one),
        cmocka_unit_test(what_a_model_is_refused_for_is_the_recipes),
        cmocka_unit_test(a_digit_that_is_not_trained_on_is_named),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
