/* Matrices in a text file: what is read, and what each wrong file is told. */
#include "text/matrices.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static const char *const names[] = {"X", "W_Q", NULL};

static attn_status parse(attn_text_matrices *matrices, const char *text,
                         attn_error *error)
{
    return attn_text_matrices_parse(matrices, text, strlen(text), "f", names, error);
}

static void words_and_matrices_are_read(void **state)
{
    (void)state;
    attn_error error;
    attn_text_matrices m;
    assert_int_equal(parse(&m,
                           "# a comment\r\n\ntokens the, cat  # two\r\n"
                           "W_Q\n  1.5 -2e1;+.5\r\nX\n0x1p-1\n-0\n\n3\n",
                           &error),
                     ATTN_OK);
    assert_int_equal(m.word_count, 2);
    assert_string_equal(m.words[0], "the");
    assert_string_equal(m.words[1], "cat");
    assert_int_equal(m.count, 2);
    const attn_text_matrix *const x = attn_text_matrices_find(&m, "X");
    const attn_text_matrix *const q = attn_text_matrices_find(&m, "W_Q");
    assert_int_equal(q->rows, 1);
    assert_int_equal(q->columns, 3);
    assert_int_equal(q->line, 4);
    assert_true(q->values[0] == 1.5f && q->values[1] == -20.0f && q->values[2] == 0.5f);
    assert_int_equal(x->rows, 3);
    assert_int_equal(x->columns, 1);
    assert_true(x->values[0] == 0.5f && x->values[1] == 0.0f && x->values[2] == 3.0f);
    assert_null(attn_text_matrices_find(&m, "W_K"));
    attn_text_matrices_free(&m);
    assert_int_equal(m.count, 0);
    attn_text_matrices_free(&m);
}

static void nothing_and_a_name_without_rows_are_read_as_such(void **state)
{
    (void)state;
    attn_error error;
    attn_text_matrices m;
    assert_int_equal(parse(&m, "", &error), ATTN_OK);
    assert_int_equal(m.count + m.word_count, 0);
    attn_text_matrices_free(&m);
    assert_int_equal(parse(&m, "X", &error), ATTN_OK);
    assert_int_equal(attn_text_matrices_find(&m, "X")->rows, 0);
    attn_text_matrices_free(&m);
}

static void sixteen_by_sixteen_fit_and_no_more(void **state)
{
    (void)state;
    attn_error error;
    attn_text_matrices m;
    char text[4096] = "X\n";
    for (int i = 0; i < 16; i++)
        strcat(text, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
    assert_int_equal(parse(&m, text, &error), ATTN_OK);
    assert_int_equal(m.list[0].rows, 16);
    assert_int_equal(m.list[0].columns, 16);
    assert_true(m.list[0].values[255] == 16.0f);
    attn_text_matrices_free(&m);
    strcat(text, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
    assert_int_equal(parse(&m, text, &error), ATTN_EFORMAT);
    assert_string_equal(error.message, "f, line 18: X has more than 16 rows");
    assert_int_equal(m.count, 0);
}

static void each_wrong_line_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"1 2\n", "f, line 1: numbers come before the name of a matrix"},
        {"X\n1 x\n", "f, line 2: 'x' is not a finite number"},
        {"X\n1 nan\n", "f, line 2: 'nan' is not a finite number"},
        {"X\n-inf\n", "f, line 2: '-inf' is not a finite number"},
        {"X\n1e39\n", "f, line 2: '1e39' is not a finite number"},
        {"X\n1.2.3\n", "f, line 2: '1.2.3' is not a finite number"},
        {"X\n1 2\n3\n", "f, line 3: a row of X has 1 number, expected 2 as in its first"},
        {"X\n1\n2 3\n", "f, line 3: the row of X is longer than 1, its first row"},
        {"X\n1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
         "f, line 2: X has more than 16 columns"},
        {"X\n1\nX\n1\n", "f, line 3: X is given a second time"},
        {"Y\n",
         "f, line 1: 'Y' is no number and no name, expected one of tokens, X, W_Q"},
        {"X 1 2\n", "f, line 1: '1 2' stands after X, expected its rows on lines below"},
        {"tokens\n", "f, line 1: no token after 'tokens'"},
        {"tokens a\n\ntokens b\n", "f, line 3: tokens are given a second time"},
        {"tokens 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
         "f, line 1: more than 16 tokens"},
        {"X\n1\ntokens \xFF\n", "f, line 3: not UTF-8 at byte 8 (0xFF)"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_error error;
        attn_text_matrices m;
        assert_int_equal(parse(&m, wrong[i].text, &error), ATTN_EFORMAT);
        assert_string_equal(error.message, wrong[i].message);
        assert_int_equal(m.count + m.word_count, 0); /* nothing is left to free */
    }
}

static void a_byte_0_ends_nothing_in_silence(void **state)
{
    (void)state;
    attn_error error;
    attn_text_matrices m;
    static const char text[] = "X\n1 2\n\0 3\nnonsense\xFF";
    assert_int_equal(
        attn_text_matrices_parse(&m, text, sizeof text - 1, "f", names, &error),
        ATTN_EFORMAT);
    assert_string_equal(error.message, "f, line 3: a byte 0 in it, expected text");
    static const char at_the_end[] = "X\n1 2\0";
    assert_int_equal(attn_text_matrices_parse(&m, at_the_end, sizeof at_the_end - 1, "f",
                                              names, &error),
                     ATTN_EFORMAT);
    assert_string_equal(error.message, "f, line 2: a byte 0 in it, expected text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_matrices_are_read),
        cmocka_unit_test(nothing_and_a_name_without_rows_are_read_as_such),
        cmocka_unit_test(sixteen_by_sixteen_fit_and_no_more),
        cmocka_unit_test(each_wrong_line_is_named),
        cmocka_unit_test(a_byte_0_ends_nothing_in_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
