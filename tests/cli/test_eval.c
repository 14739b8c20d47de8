/* attn eval of translators, on a small model that was never trained: its translations are
 * babble, but what they are scored by is known. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/translator.h"
#include <jansson.h>

static void eval_ends_with_the_command_that_gives_its_scores_again(void **state)
{
    (void)state;
    attn_error error;
    static const char pairs[] = "The cat\tLe chat\nwas hungry\tavait faim\n";
    assert_int_equal(
        attn_file_write(in_folder("pairs.tsv"), pairs, strlen(pairs), &error), ATTN_OK);
    run_result result = run("eval model pairs.tsv --beam 2", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "2 sentences, 2 references"));
    assert_non_null(strstr(result.out, "\nagain: attn eval model pairs.tsv --beam 2\n"));
    assert_string_equal(result.err, "");
    run_free(&result);
}

static const char source[] = "The cat was hungry\nIt's on the mat, the cat was\nmat\n";

/* eval of the sentences of source, each with a reference, as JSON. */
static json_t *eval_json(const char *options, const char *const references[3])
{
    attn_error error;
    char pairs[2048] = "", arguments[128];
    const char *line = source;
    for (int i = 0; i < 3; i++, line = strchr(line, '\n') + 1)
        snprintf(pairs + strlen(pairs), sizeof pairs - strlen(pairs), "%.*s\t%s\n",
                 (int)strcspn(line, "\n"), line, references[i]);
    assert_int_equal(attn_file_write(in_folder("refs.tsv"), pairs, strlen(pairs), &error),
                     ATTN_OK);
    snprintf(arguments, sizeof arguments, "eval model refs.tsv --json %s", options);
    run_result result = run(arguments, "");
    if (result.code != 0)
        fail_msg("attn %s: %s", arguments, result.err);
    json_t *const object = json_loads(result.out, 0, NULL);
    assert_non_null(object);
    run_free(&result);
    return object;
}

static double number_of(const json_t *object, const char *key)
{
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

static const char *words_of(const json_t *object)
{
    return json_string_value(json_object_get(object, "bleu_words"));
}

static const char *const french[] = {"Le chat avait faim", "sur le tapis", "tapis"};
static const char *const chinese[] = {"猫饿了。", "它在垫子上。", "垫子"};

/* What the model itself writes is its best reference. */
static void eval_writes_what_translate_does_and_scores_it_against_references(void **state)
{
    (void)state;
    char own[3][512];
    const char *const references[] = {own[0], own[1], own[2]};
    json_decref(eval_json("--beam 1 --write written", french));
    char *const written = run_file("written");
    expect_run("translate --model model --beam 1", source, 0, written, "");
    const char *line = written;
    for (int i = 0; i < 3; i++, line += strcspn(line, "\n") + 1)
        snprintf(own[i], sizeof own[i], "%.*s", (int)strcspn(line, "\n"), line);
    free(written);
    static const char *const options[] = {"--beam 1", "--beam 1 --bleu zh",
                                          "--beam 1 --bleu moses"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        json_t *const scores = eval_json(options[i], references);
        assert_true(number_of(scores, "bleu") > 99.99);
        assert_true(number_of(scores, "brevity") > 0.9999);
        assert_int_equal(number_of(scores, "beams"), 1);
        json_decref(scores);
    }
}

static void eval_cuts_words_as_asked_or_by_the_references(void **state)
{
    (void)state;
    json_t *scores = eval_json("", french);
    assert_null(words_of(scores)); /* 13a */
    json_decref(scores);
    scores = eval_json("", chinese);
    assert_string_equal(words_of(scores), "zh");
    json_decref(scores);
    scores = eval_json("--bleu 13a", chinese);
    assert_null(words_of(scores));
    json_decref(scores);
    scores = eval_json("--bleu moses", french);
    assert_string_equal(words_of(scores), "moses");
    json_decref(scores);
    run_result table = run("eval model refs.tsv --bleu moses --beam 1", "");
    assert_non_null(
        strstr(table.out, "\nagain: attn eval model refs.tsv --beam 1 --bleu moses\n"));
    run_free(&table);
    expect_run("eval model refs.tsv --bleu chinese", "", 2, "",
               "attn eval: --bleu is chinese, expected 13a, zh or moses (attn eval "
               "--help)\n");
}

static void eval_scores_by_the_length_of_the_source(void **state)
{
    (void)state;
    static const char *const names[] = {"1-5", "6-10"};
    static const int sentences[] = {2, 1};
    json_t *const scores = eval_json("", french);
    const json_t *const lengths = json_object_get(scores, "by_length");
    assert_int_equal(json_array_size(lengths), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *const length = json_array_get(lengths, i);
        assert_string_equal(json_string_value(json_object_get(length, "source_words")),
                            names[i]);
        assert_int_equal(number_of(length, "sentences"), sentences[i]);
        assert_true(number_of(length, "bleu") >= 0.0);
    }
    json_decref(scores);
    run_result table = run("eval model refs.tsv", "");
    assert_non_null(strstr(table.out, "\n  1-5 "));
    assert_non_null(strstr(table.out, "   2 sentences of so many words\n  6-10 "));
    assert_non_null(strstr(table.out, "   1 sentence of so many words\n"));
    run_free(&table);
}

static void eval_takes_the_first_lines_other_powers_and_the_other_way(void **state)
{
    (void)state;
    json_t *scores = eval_json("--limit 2 --length-power 0.5 --beam 3", french);
    assert_int_equal(number_of(scores, "sentences"), 2);
    assert_int_equal(number_of(scores, "references"), 2);
    assert_int_equal(number_of(scores, "beams"), 3);
    assert_true(number_of(scores, "length_power") == 0.5);
    json_decref(scores);
    attn_error error;
    static const char way[] = "Le chat\tTHE CAT\n", other[] = "the cat\tle chat\n";
    assert_int_equal(attn_file_write(in_folder("way.tsv"), way, strlen(way), &error),
                     ATTN_OK);
    assert_int_equal(
        attn_file_write(in_folder("other.tsv"), other, strlen(other), &error), ATTN_OK);
    run_result swapped = run("eval model way.tsv --json --swap --lower-case", "");
    run_result plain = run("eval model other.tsv --json", "");
    assert_int_equal(swapped.code, 0);
    assert_memory_equal(swapped.out, plain.out,
                        (size_t)(strstr(plain.out, "\"seconds\"") - plain.out));
    run_free(&swapped);
    run_free(&plain);
}

/* In ATTN_DATA lie the files of recipes, by the names they have there. */
static void a_file_that_is_not_here_is_looked_for_in_the_folder_of_data(void **state)
{
    (void)state;
    attn_error error;
    char again[512];
    static const char pairs[] = "The cat\tLe chat\n";
    assert_int_equal(mkdir(in_folder("data"), 0700), 0);
    assert_int_equal(mkdir(in_folder("data/translate"), 0700), 0);
    assert_int_equal(
        attn_file_write(in_folder("data/translate/a.tsv"), pairs, strlen(pairs), &error),
        ATTN_OK);
    expect_run("eval model translate/a.tsv", "", 1, "",
               "attn eval: translate/a.tsv is neither here nor in ATTN_DATA, which is "
               "not set\n");
    setenv("ATTN_DATA", in_folder("data"), 1);
    snprintf(again, sizeof again, "\nagain: attn eval model %s --beam 2\n",
             in_folder("data/translate/a.tsv"));
    run_result result = run("eval model translate/a.tsv --beam 2", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, again));
    run_free(&result);
    result = run("eval model - --beam 2", pairs);
    assert_int_equal(result.code, 0);
    run_free(&result);
    unsetenv("ATTN_DATA");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    attn_command = argv[1];
    unsetenv("ATTN_DATA");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eval_ends_with_the_command_that_gives_its_scores_again),
        cmocka_unit_test(
            eval_writes_what_translate_does_and_scores_it_against_references),
        cmocka_unit_test(eval_cuts_words_as_asked_or_by_the_references),
        cmocka_unit_test(eval_scores_by_the_length_of_the_source),
        cmocka_unit_test(eval_takes_the_first_lines_other_powers_and_the_other_way),
        cmocka_unit_test(a_file_that_is_not_here_is_looked_for_in_the_folder_of_data),
    };
    return cmocka_run_group_tests(tests, start_with_translator, folder_remove);
}
