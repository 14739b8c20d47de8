/* attn classify and attn tag, on models whose few weights are set by hand: what they
 * print is known to the digit. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/context.h"
#include "file/safetensors.h"
#include "model/reader.h"
#include "tests/cli/command.h"
#include "text/tokenizer.h"
#include <math.h>
#include <sys/stat.h>

/* Tokens are bytes.  A 'g' has the vector 20, all else 0; the state of a text, or of a
 * word, is a mean; the first label's logit is the state, the second's its opposite and
 * ln 3, so that without a 'g' the labels have probabilities 1/4 and 3/4. */
static attn_status make_model(const char *name, bool tags, const char *const *labels,
                              attn_error *error)
{
    char path[128];
    attn_tokenizer *tokenizer;
    attn_reader *reader;
    const attn_reader_config config = {.tags = tags,
                                       .labels = 2,
                                       .vocabulary = 260,
                                       .max_positions = 8,
                                       .body = ATTN_BODY_BAG,
                                       .embedding = 1,
                                       .mean_pieces = tags};
    ATTN_TRY(attn_tokenizer_train(&tokenizer, (const char *const[]){"x"}, 1, 260, error));
    attn_token *tokens;
    size_t count;
    ATTN_TRY(attn_tokenizer_encode(tokenizer, "g", 1, &tokens, &count, error));
    const int32_t id = tokens[0].id;
    free(tokens);
    mkdir(in_folder(name), 0700);
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    ATTN_TRY(attn_tokenizer_save(tokenizer, in_folder(path), error));
    attn_tokenizer_destroy(tokenizer);
    ATTN_TRY(attn_reader_create(&reader, &config, 1, error));
    attn_parameters *const parameters = attn_reader_parameters(reader);
    memset(parameters->values, 0, parameters->floats * sizeof(float));
    const struct {
        const char *parameter;
        size_t place;
        float value;
    } values[] = {
        {"embeddings.word_embeddings.weight", (size_t)id, 20.0f},
        {"classifier.weight", 0, 1.0f},
        {"classifier.weight", 1, -1.0f},
        {"classifier.bias", 1, logf(3.0f)},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        parameters->values[attn_parameters_find(parameters, values[i].parameter)->offset +
                           values[i].place] = values[i].value;
    attn_status status = attn_reader_name_labels(reader, labels, error);
    if (status == ATTN_OK)
        status = attn_reader_save(reader, in_folder(name), ATTN_DTYPE_F32, error);
    attn_reader_destroy(reader);
    return status;
}

static int start(void **state)
{
    attn_error error;
    if (folder_make(state) != 0)
        return -1;
    if (make_model("texts", false, (const char *const[]){"good", "bad"}, &error) ==
            ATTN_OK &&
        make_model("words", true, (const char *const[]){"NOUN", "VERB"}, &error) ==
            ATTN_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

static void write_file(const char *name, const char *content)
{
    attn_error error;
    assert_int_equal(attn_file_write(in_folder(name), content, strlen(content), &error),
                     ATTN_OK);
}

static void a_text_has_its_label_and_probabilities(void **state)
{
    (void)state;
    expect_run("classify texts x", "", 0, "bad\tbad 0.7500, good 0.2500\n", "");
    expect_run("classify texts ggg 'a b'", "", 0,
               "good\tgood 1.0000, bad 0.0000\nbad\tbad 0.7500, good 0.2500\n", "");
    expect_run("classify texts --top 1 x", "", 0, "bad\tbad 0.7500\n", "");
}

static void files_and_standard_input_have_a_text_a_line(void **state)
{
    (void)state;
    write_file("lines", "x\n\nggg\r\n");
    const char *const expected = "bad\tbad 0.7500, good 0.2500\n"
                                 "\n"
                                 "good\tgood 1.0000, bad 0.0000\n";
    expect_run("classify texts lines", "", 0, expected, "");
    expect_run("classify texts", "x\n\nggg\n", 0, expected, "");
    expect_run("classify texts -", "x\n\nggg", 0, expected, "");
    expect_run("classify texts --json", " \n", 0,
               "{\"text\":\"\",\"label\":null,\"probabilities\":{},\"tokens\":0,"
               "\"parts\":0}\n",
               "");
}

static void a_tab_in_a_file_is_warned_of_once(void **state)
{
    (void)state;
    const char *const warning =
        "attn classify: standard input, line 2: a tab is read as a "
        "space; labels in a file are for attn eval MODEL FILE\n";
    expect_run("classify texts", "x\nx\ty\nx\ty\n", 0, NULL, warning);
    expect_run("classify texts 'x\ty'", "", 0, NULL, "");
}

/* A misspelt name is no text, and what is read has no mark of byte order. */
static void an_argument_is_a_file_or_a_text(void **state)
{
    (void)state;
    static const char *const verbs[] = {"classify texts", "tag words"};
    static const char *const names[] = {"line.txt", "no/lines", "./x.tsv"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        char arguments[64], message[200];
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            snprintf(arguments, sizeof arguments, "%s %s", verbs[i], names[n]);
            snprintf(message, sizeof message,
                     "attn %.*s: no such file: %s (to give that text itself: echo TEXT | "
                     "attn %.*s MODEL -)\n",
                     (int)strcspn(verbs[i], " "), verbs[i], names[n],
                     (int)strcspn(verbs[i], " "), verbs[i]);
            expect_run(arguments, "", 1, "", message);
        }
        snprintf(arguments, sizeof arguments, "%s words/", verbs[i]);
        run_result folder_given = run(arguments, "");
        assert_int_equal(folder_given.code, 1);
        assert_non_null(strstr(folder_given.err, "a folder, expected a file: words/"));
        run_free(&folder_given);
        snprintf(arguments, sizeof arguments, "%s ' \t'", verbs[i]);
        snprintf(message, sizeof message,
                 "attn %.*s: the text is empty; expected a sentence\n",
                 (int)strcspn(verbs[i], " "), verbs[i]);
        expect_run(arguments, "", 2, "", message);
    }
    expect_run("classify texts 'and/or not.txt'", "", 0, NULL, ""); /* white space */
    expect_run("classify texts words", "", 0, NULL, "");            /* a folder's name */
    expect_run("tag words --words", "no/line\n", 0, "no/line/VERB\n", "");
    expect_run("tag words '\xEF\xBB\xBFg'", "", 0, "g/NOUN\n", "");
}

/* 21 bytes in 3 parts of 7, of which the last, with </s>, has the mean 20/8 = 2.5: the
 * logits are 2.5/3 and ln 3 − 2.5/3, their difference 0.568. */
static void a_long_text_is_read_in_parts(void **state)
{
    (void)state;
    expect_run("classify texts --json xxxxxxxxxxxxxxxxxxxxg", "", 0,
               "{\"text\":\"xxxxxxxxxxxxxxxxxxxxg\",\"label\":\"good\","
               "\"probabilities\":{\"good\":0.6383,\"bad\":0.3617},"
               "\"tokens\":21,\"parts\":3}\n",
               "");
}

static void words_have_their_labels(void **state)
{
    (void)state;
    expect_run("tag words 'go, dog!'", "", 0, "go/NOUN ,/VERB dog/NOUN !/VERB\n", "");
    expect_run("tag words \"It's g... don't\"", "", 0,
               "It/VERB 's/VERB g/NOUN .../VERB do/VERB n't/VERB\n", "");
    expect_run("tag words --words \"It's g...\"", "", 0, "It's/VERB g.../NOUN\n", "");
    expect_run("tag words", "a\n\ng\n", 0, "a/VERB\n\ng/NOUN\n", "");
    expect_run("tag words --json 'a g'", "", 0,
               "{\"text\":\"a g\",\"words\":[{\"word\":\"a\",\"label\":\"VERB\","
               "\"probability\":0.75,\"begin\":0,\"end\":1},{\"word\":\"g\","
               "\"label\":\"NOUN\",\"probability\":1.0,\"begin\":2,\"end\":3}]}\n",
               "");
}

/* One of three is wrong; the losses are 1.8 · 10⁻⁹ (ggg), ln 4/3 and ln 4. */
static void eval_prints_figures_in_words_and_the_labels_as_a_table(void **state)
{
    (void)state;
    write_file("labelled.tsv", "good\tggg\nbad\tx\ngood\tx\n");
    run_result result = run("eval texts labelled.tsv", "");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    const char *const speed = strstr(result.out, "\nspeed ");
    assert_non_null(speed);
    const char *const after = strchr(speed + 1, '\n');
    const char figures[] =
        "accuracy                  0.6667  share that is right\n"
        "macro F1                  0.6667  mean of the labels' F1\n"
        "loss                      0.5580  nats each, mean\n"
        "texts                          3\n"
        "texts cut                      0  longer than the positions, read in parts";
    assert_int_equal(speed - result.out, sizeof figures - 1);
    assert_memory_equal(result.out, figures, sizeof figures - 1);
    assert_string_equal(
        after, "\n\n"
               "label                      count   precision      recall          F1\n"
               "good                           2      1.0000      0.5000      0.6667\n"
               "bad                            1      0.5000      1.0000      0.6667\n"
               "\nagain: attn eval texts labelled.tsv\n");
    run_free(&result);
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    expect_run("tag words 'a abcdefghi'", "", 1, "",
               "attn tag: the text: \"abcdefghi\" is a word of 10 tokens, the model has "
               "positions for 8\n");
    expect_run("classify words x", "", 1, "",
               "attn classify: words: its labels are of words: attn tag reads with it\n");
    expect_run("tag texts x", "", 1, "",
               "attn tag: texts: its labels are of texts: attn classify reads with it\n");
    expect_run("classify texts", "x\n\xFF\n", 1, "bad\tbad 0.7500, good 0.2500\n",
               "attn classify: standard input, line 2: not UTF-8 at byte 1 (0xFF)\n");
    expect_run("classify", "", 2, "",
               "attn classify: expected a model (attn classify --help)\n");
    expect_run("classify texts --top 0 x", "", 2, "", NULL);
    expect_run("tag words --bream x", "", 2, "",
               "attn tag: --bream is not an option (attn tag --help)\n");
}

static void a_long_path_hides_no_reason(void **state)
{
    (void)state;
    char command[512];
    write_long_path(900, "/end.txt");
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p \"$(dirname \"$(cat long)\")\" && "
             "printf 'x\\n\\377\\n' > \"$(cat long)\"",
             folder);
    assert_int_equal(system(command), 0);
    run_result result = run("classify texts \"$(cat long)\"", "");
    assert_int_equal(result.code, 1);
    if (!strstr(result.err, "/end.txt, line 2: not UTF-8 at byte 1 (0xFF)\n"))
        fail_msg("%s", result.err);
    run_free(&result);
    result = run("eval texts \"$(cat long)\"", "");
    assert_int_equal(result.code, 1);
    if (!strstr(result.err, "/end.txt, line 2: not UTF-8"))
        fail_msg("%s", result.err);
    run_free(&result);
}

static void a_terminal_is_commanded_by_no_text(void **state)
{
    (void)state;
    expect_on_terminal("tag words --words \"$(printf 'g\\033[2J \\302\\233\\303\\251')\"",
                       "g\\x1b[2J/NOUN \\xc2\\x9b\xC3\xA9/VERB\r\n",
                       "g\x1b[2J/NOUN \xC2\x9B\xC3\xA9/VERB\n");
    static const char object[] =
        "{\"text\":\"\\u001B\\u009b\",\"label\":\"bad\",\"probabilities\":{\"bad\":0.75,"
        "\"good\":0.25},\"tokens\":3,\"parts\":1}";
    char line[256], shown[256];
    snprintf(line, sizeof line, "%s\n", object);
    snprintf(shown, sizeof shown, "%s\r\n", object);
    expect_on_terminal("classify texts --json \"$(printf '\\033\\302\\233')\"", shown,
                       line);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_its_label_and_probabilities),
        cmocka_unit_test(files_and_standard_input_have_a_text_a_line),
        cmocka_unit_test(an_argument_is_a_file_or_a_text),
        cmocka_unit_test(a_tab_in_a_file_is_warned_of_once),
        cmocka_unit_test(a_long_text_is_read_in_parts),
        cmocka_unit_test(words_have_their_labels),
        cmocka_unit_test(eval_prints_figures_in_words_and_the_labels_as_a_table),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(a_long_path_hides_no_reason),
        cmocka_unit_test(a_terminal_is_commanded_by_no_text),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_read ATTN\n");
        return 2;
    }
    attn_command = argv[1];
    return cmocka_run_group_tests(tests, start, folder_remove);
}
