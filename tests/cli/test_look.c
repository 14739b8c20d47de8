/* attn look, on a small model that was never trained: where it looks means nothing, but
 * pictures, records, selections and errors are those of any model. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/translator.h"
#include <jansson.h>
#include <math.h>

#define MODEL "--model small-en-fr "
#define OWN "--translation 'le chat avait faim, le chat' "

static const char *const texts[] = {"the cat was hungry", "the cat was on the mat",
                                    "le chat avait faim"};

/* Fonts that libfontconfig keeps until the end are no leak of the command's. */
static attn_status suppress_leaks(attn_error *error)
{
    static const char leaks[] = "leak:libfontconfig\n";
    char options[512];
    ATTN_TRY(attn_file_write(in_folder("leaks"), leaks, strlen(leaks), error));
    snprintf(options, sizeof options, "print_suppressions=0:suppressions=%s",
             in_folder("leaks"));
    return setenv("LSAN_OPTIONS", options, 1) == 0 ? ATTN_OK : ATTN_ENOMEM;
}

static int start(void **state)
{
    attn_error error;
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("COLORTERM");
    unsetenv("COLORFGBG");
    if (folder_make(state) != 0)
        return -1;
    if (suppress_leaks(&error) == ATTN_OK &&
        make_translator("small-en-fr", texts, 3, &error) == ATTN_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

static run_result look(const char *arguments, const char *input)
{
    char line[1024];
    snprintf(line, sizeof line, "look %s", arguments);
    run_result result = run(line, input);
    if (result.code != 0)
        fail_msg("attn %s: %s", line, result.err);
    return result;
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no \"%s\" in: %s", part, text);
}

static void the_picture_answers_first(void **state)
{
    (void)state;
    run_result result = look(MODEL OWN "'the cat was hungry'", "");
    assert_contains(result.out,
                    "en  the cat was hungry\nfr  le chat avait faim, le chat\n\n");
    assert_contains(result.out, " of the 7 words written");
    assert_contains(result.out,
                    "\nWhich source word each written word read  cross layer ");
    assert_contains(result.out, "\nWhat the heads do");
    assert_contains(result.out, "\nHeads worth a look\n");
    assert_contains(result.out,
                    "\nnext: attn look TEXT " MODEL "--translation TRANSLATION --at ");
    assert_string_equal(result.err, "");
    assert_null(strchr(result.out, '\x1b')); /* a pipe gets no colour */
    run_free(&result);
}

static void text_file_and_standard_input_are_the_same(void **state)
{
    (void)state;
    attn_error error;
    run_result text = look(MODEL "'the cat was hungry'", "");
    assert_int_equal(
        attn_file_write(in_folder("cat.txt"), "the cat\n was  hungry\n", 21, &error),
        ATTN_OK);
    static const char *const others[] = {MODEL "cat.txt", MODEL "-", MODEL,
                                         MODEL "'\xEF\xBB\xBFthe cat was hungry'"};
    for (int i = 0; i < 4; i++) {
        run_result other = look(others[i], "\xEF\xBB\xBFthe cat was hungry\n");
        assert_string_equal(other.out, text.out);
        run_free(&other);
    }
    run_free(&text);
}

static void a_translation_without_end_is_said_to_be_stopped(void **state)
{
    (void)state;
    /* This model, never trained, goes on to its last position. */
    run_result result = look(MODEL "'the cat was hungry'", "");
    assert_string_equal(result.err, "attn look: the model did not end what it wrote; it "
                                    "was stopped\n");
    run_free(&result);
}

static void a_record_draws_the_same_pictures_again(void **state)
{
    (void)state;
    run_result silent = look(MODEL OWN "'the cat was hungry' -o cat.attn", "");
    assert_string_equal(silent.out, "");
    static const char *const views[] = {"",
                                        "--json",
                                        "--at cat",
                                        "--part decoder --at 2",
                                        "--head 2.1",
                                        "--colour full --theme light",
                                        "--at cat --head 1.2",
                                        "--scale uniform"};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        char fresh[256], again[256];
        snprintf(fresh, sizeof fresh, MODEL OWN "'the cat was hungry' %s", views[i]);
        snprintf(again, sizeof again, "cat.attn %s", views[i]);
        run_result a = look(fresh, ""), b = look(again, "");
        cut_proposal(&a, "attn look TEXT " MODEL "--translation TRANSLATION --at ");
        cut_proposal(&b, "attn look cat.attn --at ");
        assert_string_equal(a.out, b.out);
        run_free(&a);
        run_free(&b);
    }
    run_free(&silent);
}

static void each_format_is_written_by_the_names_end(void **state)
{
    (void)state;
    static const struct {
        const char *name, *begin;
    } formats[] = {{"a.svg", "<svg"},
                   {"a.png", "\x89PNG"},
                   {"a.html", "<!doctype html>"},
                   {"a.json", "{\""},
                   {"a.attn", NULL}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, MODEL OWN "'the cat was hungry' -o %s",
                 formats[i].name);
        run_result result = look(arguments, "");
        assert_string_equal(result.out, "");
        snprintf(arguments, sizeof arguments, "wrote %s\n", formats[i].name);
        assert_int_equal(result.code, 0);
        assert_non_null(strstr(result.err, arguments));
        char *content = run_file(formats[i].name);
        if (formats[i].begin != NULL)
            assert_int_equal(strncmp(content, formats[i].begin, strlen(formats[i].begin)),
                             0);
        free(content);
        run_free(&result);
    }
}

static void a_file_is_light_whatever_the_terminal(void **state)
{
    static const struct {
        const char *colours, *theme;
        bool dark;
    } cases[] = {{"15;0", "", false},
                 {"0;15", "", false},
                 {NULL, "", false},
                 {"15;0", " --theme light", false},
                 {"0;15", " --theme dark", true}};
    (void)state;
    char *light = NULL;
    size_t light_length = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[128];
        if (cases[i].colours != NULL)
            setenv("COLORFGBG", cases[i].colours, 1);
        else
            unsetenv("COLORFGBG");
        snprintf(arguments, sizeof arguments, MODEL "cat.txt -o a.png%s", cases[i].theme);
        run_result result = look(arguments, "");
        assert_int_equal(result.code, 0);
        run_free(&result);
        attn_error error;
        char *png;
        size_t length;
        assert_int_equal(
            attn_file_read(in_folder("a.png"), 1 << 24, &png, &length, &error), ATTN_OK);
        if (light != NULL) {
            assert_int_equal(length != light_length || memcmp(light, png, length) != 0,
                             cases[i].dark);
            free(png);
            continue;
        }
        light = png;
        light_length = length;
    }
    free(light);
    unsetenv("COLORFGBG");
}

static void json_rows_sum_to_one(void **state)
{
    (void)state;
    run_result result = look(MODEL OWN "'the cat was hungry' --json", "");
    json_t *json = json_loads(result.out, 0, NULL);
    assert_non_null(json);
    json_t *parts = json_object_get(json, "parts"), *part, *head, *row;
    size_t p, h, i;
    int rows = 0;
    json_array_foreach(parts, p, part)
        json_array_foreach(json_object_get(part, "heads"), h, head)
            json_array_foreach(json_object_get(head, "weights"), i, row)
    {
        double sum = 0;
        for (size_t j = 0; j < json_array_size(row); j++)
            sum += json_number_value(json_array_get(row, j));
        assert_true(fabs(sum - 1) < 1e-5);
        rows++;
    }
    assert_int_equal(rows, 4 * (5 + 8 + 8));
    json_decref(json);
    run_free(&result);
}

static void a_word_is_found_by_text_number_and_occurrence(void **state)
{
    (void)state;
    static const struct {
        const char *at, *title;
    } words[] = {
        {"'was#2'", "Where \"was²\" looks  encoder, word 6 of 8"},
        {"was²", "Where \"was²\" looks  encoder, word 6 of 8"},
        {"'was#1'", "Where \"was¹\" looks  encoder, word 3 of 8"},
        {"6", "Where \"was²\" looks  encoder, word 6 of 8"},
        {"Hungry", "Where \"hungry\" looks  encoder, word 7 of 8"},
        {"faim", "Where \"faim\" reads  cross, word 4 of 8"},
        {"'chat#2'", "Where \"chat²\" reads  cross, word 7 of 8"},
        {"'</s>'", "Where \"</s>\" looks  encoder, word 8 of 8"},
        {"'le#2' --part decoder", "Where \"le²\" looks  decoder, word 7 of 8"},
        {"1 --part cross", "Where \"le¹\" reads  cross, word 1 of 8"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 MODEL OWN "'the cat was . the was hungry' --at %s", words[i].at);
        run_result result = look(arguments, "");
        assert_contains(result.out, words[i].title);
        assert_string_equal(result.err, "");
        run_free(&result);
    }
    run_result first = look(MODEL OWN "'was it was' --at was", "");
    assert_contains(first.out, "Where \"was¹\" looks");
    assert_contains(first.err, "\"was\" occurs 2 times; this is the first");
    run_free(&first);
}

static void a_part_by_itself_has_its_heads_alone(void **state)
{
    (void)state;
    run_result result = look(MODEL OWN "'the cat was hungry' --part decoder", "");
    assert_contains(result.out, "\nWhat the heads do");
    assert_contains(result.out, "\n         decoder\nlayer 1  ");
    assert_null(strstr(result.out, "encoder"));
    assert_null(strstr(result.out, "cross"));
    run_free(&result);
    result = look(MODEL OWN "'the cat was hungry' --part cross", "");
    assert_contains(result.out, "mean of 2 heads\n");
    assert_null(strstr(result.out, "coder"));
    run_free(&result);
}

static void limits_are_printed_as_they_are_set(void **state)
{
    (void)state;
    run_result result =
        look(MODEL OWN "'the cat was hungry' --limits clear=.6,weak=.2,strong=.7", "");
    assert_contains(result.out, "(weight .60 or more, .10 ahead)");
    assert_contains(result.out, "capital: .70 of the weight or more, small: .20 or more");
    run_free(&result);
    result = look(MODEL OWN "'the cat was hungry' --json --limits unread=.1,faint=0", "");
    assert_contains(result.out, "\"faint\":0,");
    assert_contains(result.out, "\"unread\":0.1,");
    run_free(&result);
}

static void a_terminal_without_utf8_gets_ascii(void **state)
{
    (void)state;
    setenv("LC_ALL", "C", 1);
    run_result result = look(MODEL "'the cat was hungry' --translation 'été'", "");
    setenv("LC_ALL", "C.UTF-8", 1);
    for (const char *at = result.out; *at != '\0'; at++)
        assert_true(*at == '\n' || (*at >= 0x20 && *at < 0x7f));
    assert_contains(result.out, "fr  ete\n");
    run_free(&result);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    attn_error error;
    assert_int_equal(attn_file_write(in_folder("junk.attn"), "not a record", 12, &error),
                     ATTN_OK);
    static const struct {
        const char *arguments;
        int code;
        const char *message;
    } cases[] = {
        {MODEL "''", 2, "the text is empty; expected a sentence"},
        {MODEL "-", 2, "the text is empty; expected a sentence"},
        {MODEL "missing.txt", 1, "no such file: missing.txt"},
        {MODEL "no/cat", 1, "no such file: no/cat"},
        {MODEL "$(printf 'a\\377')", 1, "the text: not UTF-8 at byte 2 (0xFF)"},
        {MODEL "$(printf 'z%.0s' $(seq 40))", 1,
         "the text has 40 tokens, expected at most 31: the model has no more positions"},
        {MODEL OWN "'the cat' --at dog", 2,
         "no word \"dog\"; there are: the cat </s>; or le#1 chat#1 avait faim , le#2 "
         "chat#2 "
         "</s>"},
        {MODEL OWN "'the cat' --at 9 --part decoder", 2,
         "no word \"9\"; there are: <s> le#1"},
        {MODEL OWN "'the cat' --head 3.1", 2,
         "no head 3.1: the encoder has 2 layers of 2 heads"},
        {MODEL OWN "'the cat' --head 1", 2, "of which layer?"},
        {MODEL OWN "'the cat' --head 1.2.3", 2,
         "--head is \"1.2.3\"; expected a number from 1, or layer.head as in 3.4"},
        {MODEL OWN "'the cat' --head x.1", 2, "--head is \"x.1\"; expected a number"},
        {MODEL OWN "'the cat' --head 1. --layer 1", 2, "--head is \"1.\"; expected a"},
        {MODEL OWN "'the cat' --head 1.1 --layer 1", 2, "--head is \"1.1\"; expected a"},
        {MODEL OWN "'the cat' --part pooling", 2,
         "the record has no pooling part; it has encoder, decoder and cross"},
        {MODEL OWN "'the cat' --json --part cross", 2,
         "JSON has all parts, layers, heads and words; expected no --part"},
        {MODEL OWN "'the cat' -o a.attn --at cat", 2,
         "a record has all parts, layers, heads and words; expected no --at"},
        {MODEL OWN "'the cat' -o a.json --layer 1", 2, "expected no --layer"},
        {MODEL "'the cat' --part middle", 2,
         "expected encoder, decoder, cross or pooling"},
        {MODEL "'the cat' --limits clear=2", 2, "--limits has \"clear=2\""},
        {MODEL "'the cat' --theme blue", 2, "expected light or dark"},
        {MODEL "'the cat' --colour many", 2, "expected none, 256 or full"},
        {MODEL "'the cat' --scale other", 2, "expected linear, log or uniform"},
        {MODEL "'the cat' --width 12", 2, "--width"},
        {MODEL "'the cat' --beam 0", 2, "--beam"},
        {MODEL "'the cat' -o cat.gif", 2, ".svg, .png, .html, .json or .attn"},
        {MODEL "the cat", 2, "put the sentence in quotes"},
        {MODEL OWN "'the cat' -o nowhere/a.svg", 1, "nowhere/a.svg"},
        {"--model nothing 'the cat'", 1, "nothing"},
        {"missing.attn", 1, "missing.attn"},
        {"junk.attn", 1, "junk.attn"},
        {"junk.attn --beam 2", 2, "is a record"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "look %s", cases[i].arguments);
        run_result result = run(arguments, "");
        if (result.code != cases[i].code ||
            strstr(result.err, cases[i].message) == NULL ||
            strncmp(result.err, "attn look: ", 11) != 0)
            fail_msg("attn %s gives %d: %s (expected %d: %s)", arguments, result.code,
                     result.err, cases[i].code, cases[i].message);
        assert_string_equal(result.out, "");
        run_free(&result);
    }
}

static void help_fits_a_screen(void **state)
{
    (void)state;
    run_result result = look("--help", "");
    int lines = 0;
    for (const char *at = result.out; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_true(lines <= 24);
    assert_contains(result.out, "example:");
    run_free(&result);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_picture_answers_first),
        cmocka_unit_test(text_file_and_standard_input_are_the_same),
        cmocka_unit_test(a_translation_without_end_is_said_to_be_stopped),
        cmocka_unit_test(a_record_draws_the_same_pictures_again),
        cmocka_unit_test(each_format_is_written_by_the_names_end),
        cmocka_unit_test(a_file_is_light_whatever_the_terminal),
        cmocka_unit_test(json_rows_sum_to_one),
        cmocka_unit_test(a_word_is_found_by_text_number_and_occurrence),
        cmocka_unit_test(a_part_by_itself_has_its_heads_alone),
        cmocka_unit_test(limits_are_printed_as_they_are_set),
        cmocka_unit_test(a_terminal_without_utf8_gets_ascii),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(help_fits_a_screen),
    };
    return cmocka_run_group_tests(tests, start, folder_remove);
}
