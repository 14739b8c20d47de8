/* attn walk: what it prints to the letter, and what it says of a wrong file. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/command.h"

static const char up_to_the_logits[] =
    "Attention by hand: 3 tokens, head size 4\n"
    "\n"
    "1. Each token is a vector: a row of X.\n"
    "  X  [3 × 4]\n"
    "    the       1       0       0       1\n"
    "    cat       0       2       1       0\n"
    "    sat       1       1       0       2\n"
    "\n"
    "2. Three projections are learned, and are the same for every token.\n"
    "  W_Q  [4 × 4]\n"
    "              1       0       0       0\n"
    "              0       1       0       1\n"
    "              0       0       1       0\n"
    "              1       1       0       0\n"
    "  W_K  [4 × 4]\n"
    "              0       1       0       0\n"
    "              1       1       0       0\n"
    "              0       0       1       1\n"
    "              0       0       1       0\n"
    "  W_V  [4 × 4]\n"
    "              1       0       0       0\n"
    "              0       2       0       1\n"
    "              0       0       3       0\n"
    "              1       0       0       1\n"
    "\n"
    "3. They give each token a query (what it looks for), a key (what it is found\n"
    "   by) and a value (what it hands over).\n"
    "  Q = X W_Q  [3 × 4]\n"
    "    the       2       1       0       0\n"
    "    cat       0       2       1       2\n"
    "    sat       3       3       0       1\n"
    "  K = X W_K  [3 × 4]\n"
    "    the       0       1       1       0\n"
    "    cat       2       2       1       1\n"
    "    sat       1       2       2       0\n"
    "  V = X W_V  [3 × 4]\n"
    "    the       2       0       0       1\n"
    "    cat       0       4       3       2\n"
    "    sat       3       2       0       3\n"
    "\n"
    "4. Every query meets every key: a row for each query, a column for each key.\n"
    "  Q Kᵀ  [3 × 3]\n"
    "            the     cat     sat\n"
    "    the       1       6       4\n"
    "    cat       3       7       6\n"
    "    sat       3      13       9\n"
    "\n";

static const char from_the_scores[] =
    "5. Products of longer vectors are larger, so they are scaled down.\n"
    "  Q Kᵀ ÷ √4  [3 × 3]\n"
    "            the     cat     sat\n"
    "    the    0.50    3.00    2.00\n"
    "    cat    1.50    3.50    3.00\n"
    "    sat    1.50    6.50    4.50\n"
    "\n"
    "6. Softmax turns each row into weights that sum to 1.\n"
    "  A = softmax  [3 × 3]\n"
    "            the     cat     sat\n"
    "    the   0.057   0.690   0.254\n"
    "    cat   0.078   0.574   0.348\n"
    "    sat   0.006   0.876   0.118\n"
    "  \"the\" looks most at \"cat\": 0.69 of its weight\n"
    "  \"cat\" looks most at \"cat\": 0.57 of its weight\n"
    "  \"sat\" looks most at \"cat\": 0.88 of its weight\n"
    "\n"
    "7. Each token takes the values in these shares: its new vector.\n"
    "  A V  [3 × 4]\n"
    "    the    0.87    3.27    2.07    2.20\n"
    "    cat    1.20    2.99    1.72    2.27\n"
    "    sat    0.37    3.74    2.63    2.11\n";

static void default_example_is_worked_to_the_letter(void **state)
{
    (void)state;
    char expected[4096];
    snprintf(expected, sizeof expected, "%s%s", up_to_the_logits, from_the_scores);
    expect_run("walk", "", 0, expected, "");
}

static const char causal_from_the_scores[] =
    "5. Products of longer vectors are larger, so they are scaled down.\n"
    "  Q Kᵀ ÷ √4  [3 × 3]\n"
    "            the     cat     sat\n"
    "    the    0.50  hidden  hidden\n"
    "    cat    1.50    3.50  hidden\n"
    "    sat    1.50    6.50    4.50\n"
    "\n"
    "6. Softmax turns each row into weights that sum to 1.\n"
    "  A = softmax  [3 × 3]\n"
    "            the     cat     sat\n"
    "    the   1.000   0.000   0.000\n"
    "    cat   0.119   0.881   0.000\n"
    "    sat   0.006   0.876   0.118\n"
    "  \"the\" looks most at \"the\": 1.00 of its weight\n"
    "  \"cat\" looks most at \"cat\": 0.88 of its weight\n"
    "  \"sat\" looks most at \"cat\": 0.88 of its weight\n"
    "\n"
    "7. Each token takes the values in these shares: its new vector.\n"
    "  A V  [3 × 4]\n"
    "    the    2.00    0.00    0.00    1.00\n"
    "    cat    0.24    3.52    2.64    1.88\n"
    "    sat    0.37    3.74    2.63    2.11\n";

static void causal_hides_the_keys_after_each_token(void **state)
{
    (void)state;
    char expected[4096];
    snprintf(expected, sizeof expected, "%s%s", up_to_the_logits, causal_from_the_scores);
    expect_run("walk --causal", "", 0, expected, "");
}

static void a_scale_stands_in_the_title_and_bends_the_weights(void **state)
{
    (void)state;
    run_result result = run("walk --scale 0", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "  Q Kᵀ × 0  [3 × 3]\n"));
    assert_non_null(strstr(result.out, "    the   0.333   0.333   0.333\n"));
    assert_non_null(strstr(result.out, "\"sat\" looks most at \"the\": 0.33 "));
    run_free(&result);
    result = run("walk --scale=0.5", ""); /* what it is by itself */
    run_result plain = run("walk", "");
    assert_string_equal(result.out, plain.out);
    run_free(&result);
    run_free(&plain);
}

static const char own_example[] = "tokens 猫 a # two of them\n"
                                  "X\n"
                                  "1 2\n"
                                  "0.5,-1\n"
                                  "W_V\n"
                                  "2\n"
                                  "0\n";

static const char own_walk[] =
    "Attention by hand: 2 tokens, head size 2\n"
    "\n"
    "1. Each token is a vector: a row of X.\n"
    "  X  [2 × 2]\n"
    "    猫    1.00    2.00\n"
    "    a     0.50   -1.00\n"
    "\n"
    "2. Three projections are learned, and are the same for every token.\n"
    "  W_Q  [2 × 2]\n"
    "             1       0\n"
    "             0       1\n"
    "  W_K  [2 × 2]\n"
    "             1       0\n"
    "             0       1\n"
    "  W_V  [2 × 1]\n"
    "             2\n"
    "             0\n"
    "\n"
    "3. They give each token a query (what it looks for), a key (what it is found\n"
    "   by) and a value (what it hands over).\n"
    "  Q = X W_Q  [2 × 2]\n"
    "    猫    1.00    2.00\n"
    "    a     0.50   -1.00\n"
    "  K = X W_K  [2 × 2]\n"
    "    猫    1.00    2.00\n"
    "    a     0.50   -1.00\n"
    "  V = X W_V  [2 × 1]\n"
    "    猫       2\n"
    "    a        1\n"
    "\n"
    "4. Every query meets every key: a row for each query, a column for each key.\n"
    "  Q Kᵀ  [2 × 2]\n"
    "            猫       a\n"
    "    猫    5.00   -1.50\n"
    "    a    -1.50    1.25\n"
    "\n"
    "5. Products of longer vectors are larger, so they are scaled down.\n"
    "  Q Kᵀ ÷ √2  [2 × 2]\n"
    "            猫       a\n"
    "    猫    3.54   -1.06\n"
    "    a    -1.06    0.88\n"
    "\n"
    "6. Softmax turns each row into weights that sum to 1.\n"
    "  A = softmax  [2 × 2]\n"
    "            猫       a\n"
    "    猫   0.990   0.010\n"
    "    a    0.125   0.875\n"
    "  \"猫\" looks most at \"猫\": 0.99 of its weight\n"
    "  \"a\" looks most at \"a\": 0.87 of its weight\n"
    "\n"
    "7. Each token takes the values in these shares: its new vector.\n"
    "  A V  [2 × 1]\n"
    "    猫    1.99\n"
    "    a     1.13\n";

static void own_matrices_come_from_a_file_or_standard_input(void **state)
{
    (void)state;
    attn_error error;
    assert_int_equal(attn_file_write(in_folder("own.txt"), own_example,
                                     sizeof own_example - 1, &error),
                     ATTN_OK);
    expect_run("walk own.txt", "", 0, own_walk, "");
    expect_run("walk -", own_example, 0, own_walk, "");
    expect_run("walk -- own.txt", "", 0, own_walk, "");
    run_result one = run("walk -", "X\n3\n");
    assert_int_equal(one.code, 0);
    assert_non_null(strstr(one.out, "Attention by hand: 1 token, head size 1\n"));
    assert_non_null(strstr(one.out, "\"x1\" looks most at \"x1\": 1.00 "));
    run_free(&one);
}

static void large_numbers_keep_apart(void **state)
{
    (void)state;
    run_result result = run("walk -", "X\n-123456 -2000.5 1e15\n");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "    x1 -1.2e+05 -2000.50   1e+15\n"));
    run_free(&result);
}

static void no_token_commands_the_terminal(void **state)
{
    (void)state;
    run_result result = run("walk -", "tokens \x1b[31m\x07 b\xC2\x9B\nX\n1\n2\n");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "\\x1b[31m\\x07"));
    for (const char *c = result.out; *c; c++)
        assert_true((unsigned char)*c >= 0x20 || *c == '\n');
    assert_null(strstr(result.out, "\xC2\x9B"));
    run_free(&result);
    expect_run("walk -", "\x1b[31m\nX\n1\n", 1, "",
               "attn walk: standard input, line 1: '\\x1b[31m' is no number and no name, "
               "expected one of tokens, X, W_Q, W_K, W_V\n");
}

static void the_flow_is_drawn_to_a_file(void **state)
{
    (void)state;
    expect_run("walk -o flow.svg", "", 0, "", "wrote flow.svg\n");
    char *const svg = run_file("flow.svg");
    assert_ptr_equal(strstr(svg, "<svg "), svg);
    free(svg);
    run_result result = run("walk -o nowhere/flow.svg", "");
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "cannot write nowhere/flow.svg"));
    run_free(&result);
}

static void wrong_options_are_misuse(void **state)
{
    (void)state;
    expect_run("walk a b", "", 2, "",
               "attn walk: got 2 files, expected one at most (attn walk --help)\n");
    expect_run("walk --scale x", "", 2, "",
               "attn walk: --scale is 'x', expected a number from -1e+06 to 1e+06 (attn "
               "walk --help)\n");
    expect_run("walk --scale nan", "", 2, "", NULL);
    expect_run("walk --scale", "", 2, "",
               "attn walk: --scale needs a value (attn walk --help)\n");
    expect_run(
        "walk -o flow.png", "", 2, "",
        "attn walk: -o is 'flow.png', expected a name that ends in .svg (attn walk "
        "--help)\n");
    expect_run("walk -o svg", "", 2, "", NULL);
    expect_run("walk --causal=1", "", 2, "", NULL);
}

static void a_wrong_file_is_named_with_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "X is missing: a row for each token"},
        {"X\n", "X is missing: a row for each token"},
        {"tokens a b\nX\n1\n", "X has 1 row, expected 2, one for each token"},
        {"X\n1 2\nW_Q\n1 2\n", "W_Q has 1 row, expected 2, the columns of X"},
        {"X\n1\nW_K\n1\n2\n", "W_K has 2 rows, expected 1, the columns of X"},
        {"X\n1\nW_V\n", "W_V has 0 rows, expected 1, the columns of X"},
        {"X\n1\nW_K\n1 2\n", "W_K has 2 columns, expected 1, as W_Q has"},
        {"X\n1e30\n",
         "Q Kᵀ has inf at row 1, column 1, expected smaller numbers in X and "
         "its projections"},
        {"X\n1\n3e38\nW_V\n2\n", "V has inf at row 2, column 1, expected smaller numbers "
                                 "in X and its projections"},
        {"X\n1\nX\n", "standard input, line 3: X is given a second time"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "attn walk: %s\n", wrong[i].message);
        expect_run("walk -", wrong[i].text, 1, "", expected);
    }
    run_result result = run_bytes("walk -", "X\n1\0 2\n", 7);
    assert_int_equal(result.code, 1);
    assert_string_equal(
        result.err, "attn walk: standard input, line 2: a byte 0 in it, expected text\n");
    run_free(&result);
    result = run("walk nothing.txt", "");
    assert_int_equal(result.code, 1);
    assert_string_equal(result.err, "attn walk: cannot open nothing.txt: No such file or "
                                    "directory\n");
    run_free(&result);
    expect_run("walk .", "", 1, "", "attn walk: . is a folder, expected a file\n");
}

static void a_long_path_to_write_to_is_refused_and_not_cut(void **state)
{
    (void)state;
    static const struct {
        size_t length_bytes;
        const char *end; /* of the message */
    } cases[] = {
        {1000, "a.svg: No such file or directory\n"},
        {4096, "a.svg: a path of 4096 bytes, expected at most 4095\n"},
        {8000, "a.svg: a path of 8000 bytes, expected at most 4095\n"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        write_long_path(cases[n].length_bytes, ".svg");
        run_result result = run("walk -o \"$(cat long)\"", "");
        assert_int_equal(result.code, 1);
        assert_string_equal(result.out, "");
        if (!attn_file_named(result.err, cases[n].end))
            fail_msg("%s", result.err);
        run_free(&result);
    }
}

static void a_full_standard_output_is_a_failure(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "'%s' walk > /dev/full 2> '%s'", attn_command,
             in_folder("err"));
    assert_int_equal(WEXITSTATUS(system(command)), 1);
    char *const err = run_file("err");
    assert_string_equal(err, "attn walk: cannot write standard output: No space left on "
                             "device\n");
    free(err);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_example_is_worked_to_the_letter),
        cmocka_unit_test(causal_hides_the_keys_after_each_token),
        cmocka_unit_test(a_scale_stands_in_the_title_and_bends_the_weights),
        cmocka_unit_test(own_matrices_come_from_a_file_or_standard_input),
        cmocka_unit_test(large_numbers_keep_apart),
        cmocka_unit_test(no_token_commands_the_terminal),
        cmocka_unit_test(the_flow_is_drawn_to_a_file),
        cmocka_unit_test(wrong_options_are_misuse),
        cmocka_unit_test(a_wrong_file_is_named_with_what_is_wrong),
        cmocka_unit_test(a_long_path_to_write_to_is_refused_and_not_cut),
        cmocka_unit_test(a_full_standard_output_is_a_failure),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
