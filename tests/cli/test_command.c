/* What all verbs share: exit codes, help, how wrong options are named. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "cli/cli.h"
#include "tests/cli/command.h"
#include <unistd.h>

static void help_and_version_go_to_standard_output(void **state)
{
    (void)state;
    expect_run("--version", "", 0, "attn " ATTN_VERSION "\n", "");
    run_result help = run("--help", "");
    assert_int_equal(help.code, 0);
    assert_non_null(strstr(help.out, "usage: attn VERB"));
    assert_non_null(strstr(help.out, "translate "));
    assert_non_null(strstr(help.out, "example: attn look"));
    assert_string_equal(help.err, "");
    run_result short_help = run("-h", "");
    assert_string_equal(short_help.out, help.out);
    run_result nothing = run("", "");
    assert_int_equal(nothing.code, 2);
    assert_string_equal(nothing.out, "");
    assert_string_equal(nothing.err, help.out);
    run_free(&help);
    run_free(&short_help);
    run_free(&nothing);
}

static void an_unknown_verb_is_answered_with_the_list(void **state)
{
    (void)state;
    run_result result = run("lok", "");
    assert_int_equal(result.code, 2);
    assert_string_equal(result.out, "");
    assert_ptr_equal(
        strstr(result.err, "attn: 'lok' is not a verb; expected one of look, translate"),
        result.err);
    run_free(&result);
}

/* A screen has 24 lines of 80 columns. */
static void assert_fits_a_screen(const char *verb, const char *text)
{
    int lines = 0;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        size_t columns = 0;
        for (const char *at = text; at < end; at++)
            columns += (*at & 0xC0) != 0x80;
        if (columns > 80)
            fail_msg("the help of %s has %zu columns in \"%.*s\"", verb, columns,
                     (int)(end - text), text);
        lines++;
    }
    assert_string_equal(text, "");
    if (lines > 24)
        fail_msg("the help of %s has %d lines", verb, lines);
}

static void the_help_of_every_verb_fits_a_screen_and_has_an_example(void **state)
{
    (void)state;
    static const char *const verbs[] = {"",      "look",     "translate", "walk",
                                        "train", "eval",     "bench",     "generate",
                                        "fill",  "classify", "tag",       "caption"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        char arguments[64];
        snprintf(arguments, sizeof arguments, "%s --help", verbs[i]);
        run_result result = run(arguments, "");
        assert_int_equal(result.code, 0);
        assert_non_null(strstr(result.out, "usage: attn "));
        assert_non_null(strstr(result.out, "example: "));
        assert_fits_a_screen(verbs[i], result.out);
        run_free(&result);
    }
}

static void a_full_standard_output_is_a_failure(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "'%s' --version > /dev/full 2> '%s'", attn_command,
             in_folder("err"));
    assert_int_equal(WEXITSTATUS(system(command)), 1);
    char *const err = run_file("err");
    assert_string_equal(err,
                        "attn: cannot write standard output: No space left on device\n");
    free(err);
}

/* A file that is written must not take the place of a closed stream: the record of a
 * training is appended to while there is talk. */
static void a_closed_stream_is_no_file_of_ours(void **state)
{
    (void)state;
    static const char *const closed[] = {">&-", "2>&-", "<&- >&- 2>&-"};
    char command[1024];
    char *const path = realpath(attn_command, NULL);
    assert_non_null(path);
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        snprintf(command, sizeof command, "cd '%s' && '%s' walk -o a.svg %s", folder,
                 path, closed[i]);
        assert_int_equal(WEXITSTATUS(system(command)), 0);
        char *const svg = run_file("a.svg");
        assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
        free(svg);
        snprintf(command, sizeof command, "cd '%s' && '%s' walk > out %s", folder, path,
                 closed[i]);
        assert_int_equal(WEXITSTATUS(system(command)), i == 1 ? 0 : 1);
    }
    free(path);
}

static void a_file_over_its_limit_is_a_failure_and_leaves_nothing(void **state)
{
    (void)state;
    char command[1024];
    char *const path = realpath(attn_command, NULL);
    assert_non_null(path);
    snprintf(command, sizeof command,
             "cd '%s' && ulimit -f 1 && '%s' walk -o over.svg 2> err", folder, path);
    free(path);
    const int how = system(command);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 1);
    char *const err = run_file("err");
    assert_non_null(strstr(err, "over.svg: File too large\n"));
    free(err);
    assert_int_equal(access(in_folder("over.svg"), F_OK), -1);
    assert_int_equal(access(in_folder("over.svg.part"), F_OK), -1);
}

static void no_argument_commands_the_terminal(void **state)
{
    (void)state;
    /* ESC, CSI of one byte, a mark that turns text around, a byte that is no text; what
     * is only foreign stays. */
    expect_run("look --model \"$(printf '\\033[31m\\302\\233\\342\\200\\256\\377é')\" x",
               "", 1, "", NULL);
    run_result result =
        run("\"$(printf '\\033[31m\\302\\233\\342\\200\\256\\377é')\"", "");
    assert_int_equal(result.code, 2);
    assert_non_null(strstr(
        result.err, "attn: '\\x1b[31m\\xc2\\x9b\\xe2\\x80\\xae\\xffé' is not a verb"));
    run_free(&result);
    result = run("walk \"$(printf -- '--\\033[31m')\"", "");
    assert_string_equal(result.err, "attn walk: --\\x1b[31m is not an option (attn walk "
                                    "--help)\n");
    run_free(&result);
    result = run("walk \"$(printf '\\007')\"", "");
    assert_string_equal(result.err,
                        "attn walk: cannot open \\x07: No such file or directory\n");
    run_free(&result);
}

/* ---- Options, by themselves ------------------------------------------------------ */

static bool parse(int argc, const char *const *arguments, bool *flag, const char **value,
                  char **positional, int *count, int *code)
{
    char *argv[16];
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)arguments[i];
    const cli_option options[] = {
        {"flag", 'f', .flag = flag}, {"value", 'v', .value = value}, {0}};
    *flag = false;
    *value = NULL;
    const bool goes_on = cli_parse(argc, argv, options, "help\n", count, code);
    for (int i = 0; i < *count; i++)
        positional[i] = argv[i + 1];
    return goes_on;
}

static void options_come_in_every_spelling_and_anywhere(void **state)
{
    (void)state;
    bool flag;
    const char *value;
    char *positional[16];
    int count, code;
    const char *const spelled[] = {"verb", "a", "--value=x=y", "b",
                                   "-f",   "-", "--",          "-v"};
    assert_true(parse(8, spelled, &flag, &value, positional, &count, &code));
    assert_int_equal(code, CLI_DONE);
    assert_true(flag);
    assert_string_equal(value, "x=y");
    assert_int_equal(count, 4);
    assert_string_equal(positional[0], "a");
    assert_string_equal(positional[1], "b");
    assert_string_equal(positional[2], "-");
    assert_string_equal(positional[3], "-v");
    const char *const apart[] = {"verb", "-v", "-1", "--value", "--flag", "--flag"};
    assert_true(parse(6, apart, &flag, &value, positional, &count, &code));
    assert_string_equal(value, "--flag"); /* a value may look like an option */
    assert_true(flag);
    assert_int_equal(count, 0);
}

static void wrong_options_are_misuse(void **state)
{
    (void)state;
    bool flag;
    const char *value;
    char *positional[16];
    int count, code;
    static const char *const wrong[][3] = {
        {"verb", "--other", NULL}, {"verb", "-x", NULL},      {"verb", "--flag=1", NULL},
        {"verb", "--value", NULL}, {"verb", "--val=1", NULL}, {"verb", "-fv", NULL},
        {"verb", "--=1", NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(parse(2, wrong[i], &flag, &value, positional, &count, &code));
        assert_int_equal(code, CLI_MISUSED);
    }
}

static void numbers_are_whole_and_within_bounds(void **state)
{
    (void)state;
    int64_t number = 7;
    double decimal = 7.0;
    static const char *const wrong[] = {
        "", "x", "1x", "1.5", "0", "9", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(cli_integer("verb", "--n", wrong[i], 1, 8, &number), 2);
    assert_int_equal(number, 7);
    assert_int_equal(cli_integer("verb", "n", "8", 1, 8, &number), 0);
    assert_int_equal(number, 8);
    static const char *const wrong_decimals[] = {"", "x", "1x", "nan", "inf", "-0.1"};
    for (size_t i = 0; i < sizeof wrong_decimals / sizeof *wrong_decimals; i++)
        assert_int_equal(cli_decimal("verb", "d", wrong_decimals[i], 0.0, 1.0, &decimal),
                         2);
    assert_int_equal(cli_decimal("verb", "d", "0.25", 0.0, 1.0, &decimal), 0);
    assert_true(decimal == 0.25);
}

static void threads_are_no_more_than_help(void **state)
{
    (void)state;
    int64_t threads = 0, all = 0;
    assert_int_equal(cli_threads("verb", NULL, &all), 0);
    assert_true(all >= 1);
    assert_int_equal(cli_threads("verb", "1", &threads), 0);
    assert_int_equal(threads, 1);
    assert_int_equal(cli_threads("verb", "1024", &threads), 0);
    assert_int_equal(threads, all > 4 ? all : 4);
    assert_int_equal(cli_threads("verb", "0", &threads), 2);
    assert_int_equal(cli_threads("verb", "1025", &threads), 2);
}

/* ---- Models ---------------------------------------------------------------------- */

static void put_model(const char *name)
{
    attn_error error;
    char path[128];
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
    snprintf(path, sizeof path, "%s/config.json", name);
    assert_int_equal(attn_file_write(in_folder(path), "{\"model_type\": 1}", 17, &error),
                     ATTN_OK);
}

/* Which folder each is taken from is told by the name of its config.json, and before that
 * where a trained one hides a shipped one. */
static void a_model_is_a_folder_or_trained_or_shipped_in_this_order(void **state)
{
    (void)state;
    char message[512];
    static const char *const places[] = {"shipped/m", "trained/m", "m"};
    put_model("shipped");
    put_model("trained");
    setenv("ATTN_MODELS", in_folder("shipped"), 1);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        put_model(places[i]);
        run_result result = run("generate m", "");
        size_t said = 0;
        if (i == 1)
            said = (size_t)snprintf(message, sizeof message,
                                    "attn: using trained/m and not %s (give that path "
                                    "for it)\n",
                                    in_folder(places[0]));
        snprintf(message + said, sizeof message - said,
                 "attn generate: %s/config.json: model_type is",
                 i == 0 ? in_folder(places[i]) : places[i]);
        assert_int_equal(result.code, 1);
        if (strncmp(result.err, message, strlen(message)) != 0)
            fail_msg("%s, expected %s", result.err, message);
        run_free(&result);
    }
    setenv("ATTN_MODELS", in_folder("trained"), 1); /* the same folder hides nothing */
    assert_int_equal(rename(in_folder("m"), in_folder("shipped/n")), 0);
    run_result same = run("generate m", "");
    assert_ptr_equal(strstr(same.err, "attn generate: trained/m/"), same.err);
    run_free(&same);
    assert_int_equal(rename(in_folder("shipped/n"), in_folder("m")), 0);
    setenv("ATTN_MODELS", in_folder("shipped"), 1);
    put_model("trained/own");
    put_model("shipped/own");
    put_model("shipped/z");
    run_result result = run("classify none x", "");
    assert_non_null(strstr(result.err, "models there: m, own, z"));
    run_free(&result);
    result = run("classify ../shipped/none x", "");
    assert_int_equal(result.code, 1);
    run_free(&result);
    unsetenv("ATTN_MODELS");
}

static void a_model_that_is_not_there_names_the_places(void **state)
{
    (void)state;
    attn_error error;
    char found[ATTN_PATH_BYTES];
    setenv("ATTN_MODELS", folder, 1);
    assert_int_equal(cli_find_model("nothing", found, &error), ATTN_EIO);
    assert_non_null(strstr(error.message, "no model 'nothing': it is no folder"));
    assert_non_null(strstr(error.message, "nor a model in trained, /"));
    assert_non_null(strstr(error.message, folder));
    assert_non_null(strstr(error.message, "; models there: "));
    assert_int_equal(attn_file_write(in_folder("config.json"), "{}", 2, &error), ATTN_OK);
    assert_int_equal(cli_find_model(folder, found, &error), ATTN_OK);
    assert_string_equal(found, folder);
    assert_int_equal(cli_find_model("../", found, &error), ATTN_EIO);
    char long_name[ATTN_PATH_BYTES];
    memset(long_name, 'a', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(cli_find_model(long_name, found, &error), ATTN_EIO);
    assert_non_null(strstr(error.message, "/config.json: a path of 4107 bytes, expected "
                                          "at most 4095"));
    unsetenv("ATTN_MODELS");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version_go_to_standard_output),
        cmocka_unit_test(an_unknown_verb_is_answered_with_the_list),
        cmocka_unit_test(the_help_of_every_verb_fits_a_screen_and_has_an_example),
        cmocka_unit_test(a_full_standard_output_is_a_failure),
        cmocka_unit_test(a_closed_stream_is_no_file_of_ours),
        cmocka_unit_test(a_file_over_its_limit_is_a_failure_and_leaves_nothing),
        cmocka_unit_test(no_argument_commands_the_terminal),
        cmocka_unit_test(options_come_in_every_spelling_and_anywhere),
        cmocka_unit_test(wrong_options_are_misuse),
        cmocka_unit_test(numbers_are_whole_and_within_bounds),
        cmocka_unit_test(threads_are_no_more_than_help),
        cmocka_unit_test(a_model_that_is_not_there_names_the_places),
        cmocka_unit_test(a_model_is_a_folder_or_trained_or_shipped_in_this_order),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
