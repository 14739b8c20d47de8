/* attn translate, on a small model that was never trained: what it writes is babble, but
 * lines, errors and JSON are those of any model. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/translator.h"
#include <jansson.h>
#include <math.h>

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

static void every_line_has_its_line_and_an_empty_one_stays_empty(void **state)
{
    (void)state;
    run_result result =
        run("translate --model model", "The cat\n\nwas hungry\r\n  \nlast, without end");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    assert_int_equal(lines_of(result.out), 5);
    const char *const second = strchr(result.out, '\n') + 1;
    assert_int_equal(second[0], '\n');
    run_free(&result);
    expect_run("translate --model model", "", 0, "", "");
    expect_run("translate --model model", "\n\n", 0, "\n\n", "");
}

static void a_line_does_not_depend_on_threads_or_on_the_lines_around_it(void **state)
{
    (void)state;
    char many[4096] = "", one[2][64] = {"The cat was hungry.\n", "It's a mat\n"};
    for (int i = 0; i < 40; i++)
        strcat(many, one[i % 2]);
    run_result first = run("translate --model model --threads 1", many);
    run_result second = run("translate --model model --threads 3", many);
    assert_int_equal(lines_of(first.out), 40);
    assert_string_equal(first.out, second.out);
    const char *at = first.out;
    for (int i = 0; i < 2; i++) {
        run_result alone = run("translate --model model --threads 1", one[i]);
        assert_memory_equal(at, alone.out, strlen(alone.out));
        at = strchr(at, '\n') + 1;
        run_free(&alone);
    }
    run_free(&first);
    run_free(&second);
}

static void white_space_around_and_between_words_changes_nothing(void **state)
{
    (void)state;
    run_result plain = run("translate --model model", "The cat was\n");
    expect_run("translate --model model", "  The \t cat  was \r\n", 0, plain.out, "");
    run_free(&plain);
}

static void files_are_read_one_after_another(void **state)
{
    (void)state;
    attn_error error;
    assert_int_equal(attn_file_write(in_folder("a"), "The cat\n", 8, &error), ATTN_OK);
    assert_int_equal(attn_file_write(in_folder("b"), "hungry", 6, &error), ATTN_OK);
    run_result together = run("translate --model model", "The cat\nhungry\nmat\n");
    expect_run("translate a b - --model=model", "mat\n", 0, together.out, "");
    run_free(&together);
    expect_run("translate --model model a absent.txt", "", 1, NULL,
               "attn translate: no such file: absent.txt (to give that text "
               "itself: echo TEXT | attn translate -)\n");
}

static void an_argument_that_names_no_file_is_a_line(void **state)
{
    (void)state;
    run_result lines = run("translate --model model", "The cat\nwas hungry\n");
    expect_run("translate --model model 'The cat' 'was\nhungry '", "", 0, lines.out, "");
    run_free(&lines);
    expect_run("translate --model model ' '", "", 2, "",
               "attn translate: the text is empty; expected a sentence\n");
    expect_run("translate --model model \"$(printf 'b\\377')\"", "", 1, "",
               "attn translate: the text: not UTF-8 at byte 2 (0xFF)\n");
}

static void a_mark_of_byte_order_is_no_text(void **state)
{
    (void)state;
    attn_error error;
    assert_int_equal(attn_file_write(in_folder("a"), "\xEF\xBB\xBFThe cat\n", 11, &error),
                     ATTN_OK);
    run_result line = run("translate --model model", "The cat\n");
    expect_run("translate --model model a", "", 0, line.out, "");
    expect_run("translate --model model", "\xEF\xBB\xBFThe cat", 0, line.out, "");
    expect_run("translate --model model '\xEF\xBB\xBFThe cat'", "", 0, line.out, "");
    run_free(&line);
    expect_run("translate --model model", "\xEF\xBB\xBF", 0, "", "");
    expect_run("translate --model model", "\xEF\xBB\xBF\n", 0, "\n", "");
}

static void a_line_that_fails_is_named_after_those_before_it_are_out(void **state)
{
    (void)state;
    run_result good = run("translate --model model", "The cat\n");
    expect_run("translate --model model", "The cat\nb\xFF\nThe cat\n", 1, good.out,
               "attn translate: standard input, line 2: not UTF-8 at byte 2 (0xFF)\n");
    run_result zero = run_bytes("translate --model model", "The cat\na\0b\n", 12);
    assert_int_equal(zero.code, 1);
    assert_string_equal(zero.out, good.out);
    assert_string_equal(
        zero.err,
        "attn translate: standard input, line 2: a byte 0 in it, expected text\n");
    run_free(&good);
    run_free(&zero);
}

static void a_line_longer_than_the_positions_is_never_cut(void **state)
{
    (void)state;
    run_result result = run("translate --model model", "hungry\n%%%%%%%%%%%%%%%%%%%%%%%%"
                                                       "%%%%%%%%%%%%%%%%%%%%%\n");
    assert_int_equal(result.code, 1);
    assert_int_equal(lines_of(result.out), 1);
    assert_string_equal(result.err,
                        "attn translate: standard input, line 2 has 45 tokens, expected "
                        "at most 31: the model has no more positions. Give "
                        "it one sentence at a time\n");
    run_free(&result);
    char fits[POSITIONS + 1];
    memset(fits, '%', POSITIONS - 1);
    memcpy(fits + POSITIONS - 1, "\n", 2);
    expect_run("translate --model model", fits, 0, NULL, "");
}

static void misuse_is_named(void **state)
{
    (void)state;
    expect_run(
        "translate --model model --beam 0", "a\n", 2, "",
        "attn translate: --beam is '0', expected a whole number from 1 to 256 (attn "
        "translate --help)\n");
    expect_run("translate --bream 4", "a\n", 2, "",
               "attn translate: --bream is not an option (attn translate --help)\n");
    setenv("ATTN_ISA", "x87", 1);
    run_result result = run("translate --model model", "a\n");
    unsetenv("ATTN_ISA");
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "attn translate: ATTN_ISA is 'x87', expected "));
    run_free(&result);
    result = run("translate --model nowhere", "a\n");
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "attn translate: no model 'nowhere'"));
    run_free(&result);
}

/* ---- JSON ------------------------------------------------------------------------ */

static json_t *object_of(const char **at)
{
    json_error_t reason;
    json_t *const object = json_loads(*at, JSON_DISABLE_EOF_CHECK, &reason);
    if (!object)
        fail_msg("%s in %.200s", reason.text, *at);
    *at = strchr(*at, '\n') + 1;
    return object;
}

/* Rows of weights between words sum to 1. */
static void check_alignment(const json_t *alignment, size_t source_words)
{
    const json_t *const words = json_object_get(alignment, "words");
    const json_t *const weights = json_object_get(alignment, "weights");
    assert_int_equal(json_array_size(json_object_get(alignment, "source_words")),
                     source_words);
    assert_int_equal(json_array_size(weights), json_array_size(words));
    for (size_t i = 0; i < json_array_size(weights); i++) {
        const json_t *const row = json_array_get(weights, i);
        double sum = 0.0;
        assert_int_equal(json_array_size(row), source_words);
        for (size_t j = 0; j < source_words; j++)
            sum += json_real_value(json_array_get(row, j));
        assert_true(fabs(sum - 1.0) < 1e-3);
    }
}

static void a_tokenizer_of_another_model_is_refused_by_every_verb(void **state)
{
    (void)state;
    attn_error error;
    attn_tokenizer *other;
    static const char *const letters[] = {"a b c d"};
    static const char *const verbs[] = {"translate --model other", "eval other pairs.tsv",
                                        "look x --model other"};
    char command[300];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", in_folder("model"),
             in_folder("other"));
    assert_int_equal(system(command), 0);
    assert_int_equal(attn_tokenizer_train(&other, letters, 1, 262, &error), ATTN_OK);
    const int64_t size = attn_tokenizer_size(other);
    assert_int_equal(
        attn_tokenizer_save(other, in_folder("other/tokenizer.json"), &error), ATTN_OK);
    attn_tokenizer_destroy(other);
    assert_int_equal(attn_file_write(in_folder("pairs.tsv"), "x\ty\n", 4, &error),
                     ATTN_OK);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 ": other: tokenizer.json has %lld tokens, expected ", (long long)size);
        run_result result = run(verbs[i], "x\n");
        assert_int_equal(result.code, 1);
        if (!strstr(result.err, expected))
            fail_msg("%s says: %s", verbs[i], result.err);
        run_free(&result);
    }
}

static void json_has_an_object_a_line_with_its_alignment(void **state)
{
    (void)state;
    run_result plain = run("translate --model model", "It's the cat.\n\n猫\n");
    run_result result = run("translate --model model --json", "It's the cat.\n\n猫\n");
    assert_int_equal(result.code, 0);
    assert_int_equal(lines_of(result.out), 3);
    const char *at = result.out, *plain_at = plain.out;
    static const char *const sources[] = {"It's the cat.", "", "猫"};
    static const size_t source_words[] = {5, 0, 2};
    for (int i = 0; i < 3; i++) {
        json_t *const object = object_of(&at);
        const char *const text =
            json_string_value(json_object_get(object, "translation"));
        assert_int_equal(json_integer_value(json_object_get(object, "line")), i + 1);
        assert_string_equal(json_string_value(json_object_get(object, "source")),
                            sources[i]);
        assert_memory_equal(text, plain_at, strlen(text));
        plain_at = strchr(plain_at, '\n') + 1;
        assert_true(json_is_boolean(json_object_get(object, "finished")));
        const json_t *const alignment = json_object_get(object, "alignment");
        if (i == 1) {
            assert_true(json_is_null(alignment));
            assert_true(json_is_null(json_object_get(object, "score")));
        } else {
            assert_true(json_real_value(json_object_get(object, "score")) < 0.0);
            check_alignment(alignment, source_words[i]);
        }
        json_decref(object);
    }
    run_free(&plain);
    run_free(&result);
}

/* The same model, whose tokenizer makes small letters. */
static void a_model_of_small_letters_makes_them_wherever_it_is_used(void **state)
{
    (void)state;
    attn_error error;
    attn_tokenizer *tokenizer;
    static const char pairs[] = "the cat\tle chat\n", large[] = "The CAT\tLe Chat\n";
    char command[300];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", in_folder("model"),
             in_folder("small"));
    assert_int_equal(system(command), 0);
    assert_int_equal(
        attn_tokenizer_load(&tokenizer, in_folder("small/tokenizer.json"), &error),
        ATTN_OK);
    attn_tokenizer_lower_case(tokenizer);
    assert_int_equal(
        attn_tokenizer_save(tokenizer, in_folder("small/tokenizer.json"), &error),
        ATTN_OK);
    attn_tokenizer_destroy(tokenizer);
    run_result plain = run("translate --model model 'the cat was hungry'", "");
    expect_run("translate --model small 'The CAT was hungry'", "", 0, plain.out, "");
    run_free(&plain);
    plain = run("look --model small --translation 'le chat' 'the cat' --json", "");
    run_result look =
        run("look --model small --translation 'Le CHAT' 'The CAT' --json", "");
    assert_int_equal(look.code, 0);
    assert_non_null(strstr(look.out, "\"source\":\"The CAT\""));
    const char *const weights = strstr(plain.out, "\"weights\"");
    assert_memory_equal(strstr(look.out, "\"weights\""), weights, strcspn(weights, "}"));
    run_free(&plain);
    run_free(&look);
    assert_int_equal(attn_file_write(in_folder("p.tsv"), pairs, strlen(pairs), &error),
                     ATTN_OK);
    assert_int_equal(attn_file_write(in_folder("P.tsv"), large, strlen(large), &error),
                     ATTN_OK);
    plain = run("eval model p.tsv --json", "");
    run_result eval = run("eval small P.tsv --json", "");
    assert_int_equal(eval.code, 0);
    assert_memory_equal(plain.out, eval.out,
                        (size_t)(strstr(plain.out, "\"seconds\"") - plain.out));
    run_free(&plain);
    run_free(&eval);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_has_its_line_and_an_empty_one_stays_empty),
        cmocka_unit_test(a_line_does_not_depend_on_threads_or_on_the_lines_around_it),
        cmocka_unit_test(white_space_around_and_between_words_changes_nothing),
        cmocka_unit_test(files_are_read_one_after_another),
        cmocka_unit_test(an_argument_that_names_no_file_is_a_line),
        cmocka_unit_test(a_mark_of_byte_order_is_no_text),
        cmocka_unit_test(a_line_that_fails_is_named_after_those_before_it_are_out),
        cmocka_unit_test(a_line_longer_than_the_positions_is_never_cut),
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(a_tokenizer_of_another_model_is_refused_by_every_verb),
        cmocka_unit_test(json_has_an_object_a_line_with_its_alignment),
        cmocka_unit_test(a_model_of_small_letters_makes_them_wherever_it_is_used),
    };
    return cmocka_run_group_tests(tests, start_with_translator, folder_remove);
}
