/* Labelled texts: how files of them are read and encoded, what is refused, and how labels
 * are scored. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "train/label_scores.h"
#include "train/texts.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/folder.h"

static void write_file(const char *content)
{
    attn_error error;
    if (attn_file_write(in_folder("data"), content, strlen(content), &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static attn_labelled load(const char *content, bool tags)
{
    attn_labelled labelled;
    attn_error error;
    write_file(content);
    if (attn_labelled_load(&labelled, in_folder("data"), tags, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return labelled;
}

static void load_fails(const char *content, bool tags, const char *fragment)
{
    attn_labelled labelled;
    attn_error error;
    write_file(content);
    assert_int_equal(attn_labelled_load(&labelled, in_folder("data"), tags, &error),
                     ATTN_EFORMAT);
    if (!strstr(error.message, fragment))
        fail_msg("\"%s\" without \"%s\"", error.message, fragment);
}

static void a_classifier_has_a_text_a_line(void **state)
{
    (void)state;
    attn_labelled labelled = load("pos\ta good film\nneg\t\npos\tb\n", false);
    assert_int_equal(labelled.count, 3);
    assert_string_equal(labelled.texts[0], "a good film");
    assert_string_equal(labelled.texts[1], "");
    assert_string_equal(labelled.labels[1], "neg");
    assert_string_equal(labelled.texts[2], "b");
    assert_int_equal(labelled.lines[2], 3);
    attn_labelled_free(&labelled);
}

static void a_tagger_has_a_word_a_line_and_sentences_between_empty_ones(void **state)
{
    (void)state;
    attn_labelled labelled =
        load("\n\nThe\tDET\t2\tdet\ncat\tNOUN\n\n\r\nsat\tVERB\n\ndown\tADV", true);
    assert_int_equal(labelled.count, 3);
    assert_int_equal(labelled.first[1], 2);
    assert_int_equal(labelled.first[2], 3);
    assert_int_equal(labelled.first[3], 4);
    assert_string_equal(labelled.texts[1], "cat");
    assert_string_equal(labelled.labels[0], "DET");
    assert_int_equal(labelled.lines[3], 9);
    attn_labelled_free(&labelled);
}

static void lines_without_a_tab_or_a_label_are_named(void **state)
{
    (void)state;
    load_fails("pos\ta\nno tab\n", false, "line 2: 1 column, expected a tab");
    load_fails("pos\ta\n\nneg\tb\n", false, "line 2: 1 column, expected a tab");
    load_fails("pos\ta\nneg\tb\tc\n", false, "line 2: 3 columns, expected 2");
    load_fails("pos\ta\n\tb\n", false, "line 2: the label is empty");
    load_fails("", false, "has no text");
    load_fails("a\tNOUN\nb\n", true, "line 2: 1 column, expected a tab");
    load_fails("a\tNOUN\nb\t\n", true, "line 2: the label is empty");
    load_fails("a\tNOUN\n\tX\n", true, "line 2: the word is empty");
    load_fails("\n\n\n", true, "has no text");
    load_fails("pos\t\xff\n", false, "line 1: not UTF-8");
}

static void labels_are_collected_once_and_found(void **state)
{
    (void)state;
    attn_labelled labelled = load("b\tx\na\ty\nb\tz\nc\t\n", false);
    attn_label_set set;
    attn_error error;
    assert_int_equal(attn_label_set_collect(&set, &labelled, &error), ATTN_OK);
    assert_int_equal(set.count, 3);
    assert_string_equal(set.names[0], "a");
    assert_int_equal(attn_label_set_find(&set, "c"), 2);
    assert_int_equal(attn_label_set_find(&set, "d"), -1);
    attn_label_set_free(&set);
    attn_labelled_free(&labelled);
    const char *names[] = {"z", "a"};
    const attn_label_set given = {.names = names, .count = 2};
    assert_int_equal(attn_label_set_find(&given, "a"), 1);
    assert_int_equal(attn_label_set_find(&given, "b"), -1);
}

/* ---- Encoding -------------------------------------------------------------------- */

/* A tokenizer of bytes, and a bag of 8 positions. */
static void with_model(attn_tokenizer **tokenizer, attn_reader **reader, bool tags)
{
    attn_error error;
    const attn_reader_config config = {.tags = tags,
                                       .labels = 2,
                                       .vocabulary = 260,
                                       .max_positions = 8,
                                       .body = ATTN_BODY_BAG,
                                       .embedding = 4};
    if (attn_tokenizer_train(tokenizer, (const char *const[]){"x"}, 1, 260, &error) !=
            ATTN_OK ||
        attn_reader_create(reader, &config, 1, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static attn_status encode(const char *content, bool tags, bool refuses_long,
                          attn_texts *texts, attn_error *error)
{
    attn_tokenizer *tokenizer;
    attn_reader *reader;
    const char *names[] = {"A", "B"};
    const attn_label_set labels = {.names = names, .count = 2};
    with_model(&tokenizer, &reader, tags);
    attn_labelled labelled = load(content, tags);
    const attn_texts_rules rules = {tokenizer, &labels, reader, refuses_long, "data"};
    const attn_status status = attn_texts_encode(texts, &labelled, &rules, error);
    attn_labelled_free(&labelled);
    attn_reader_destroy(reader);
    attn_tokenizer_destroy(tokenizer);
    return status;
}

static void texts_become_tokens_and_targets(void **state)
{
    (void)state;
    attn_texts texts;
    attn_error error;
    assert_int_equal(encode("B\tabc\nA\t\nB\tabcdefghij\n", false, false, &texts, &error),
                     ATTN_OK);
    assert_int_equal(texts.count, 3);
    assert_int_equal(texts.tokens, 13);
    assert_int_equal(texts.cut, 1);
    assert_int_equal(texts.texts[1].count, 0);
    assert_int_equal(texts.texts[2].count, 10);
    assert_int_equal(texts.texts[2].ids[0], texts.texts[0].ids[0]);
    assert_null(texts.texts[0].starts);
    assert_int_equal(texts.targets[0], 1);
    assert_int_equal(texts.targets[1], 0);
    attn_texts_free(&texts);
}

static void words_become_a_space_and_their_bytes(void **state)
{
    (void)state;
    attn_texts texts;
    attn_error error;
    assert_int_equal(encode("ab\tA\nc\tB\n\nd\tB\n", true, false, &texts, &error),
                     ATTN_OK);
    assert_int_equal(texts.count, 2);
    assert_int_equal(texts.texts[0].words, 2);
    assert_int_equal(texts.texts[0].starts[1], 3);
    assert_int_equal(texts.texts[0].starts[2], 5);
    assert_int_equal(texts.texts[0].ids[0], texts.texts[1].ids[0]);
    assert_int_equal(texts.first_target[1], 2);
    assert_int_equal(texts.targets[2], 1);
    attn_texts_free(&texts);
}

static void what_does_not_fit_or_was_not_seen_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        bool tags, refuses_long;
        const char *fragment;
    } cases[] = {
        {"A\tabc\nC\tx\n", false, false,
         "data, line 2: the label \"C\" was not seen in training"},
        {"A\tabc\nB\tabcdefghij\n", false, true,
         "data, line 2: 10 tokens, the model has 8 positions; model.too_long \"split\""},
        {"ab\tA\nabcdefgh\tB\n", true, false, "which one of its words alone does not"},
        {"ab\tA\nabc\tB\nab\tA\n", true, true, "data, line 1: 10 tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_texts texts;
        attn_error error;
        assert_int_equal(encode(cases[i].content, cases[i].tags, cases[i].refuses_long,
                                &texts, &error),
                         ATTN_EFORMAT);
        if (!strstr(error.message, cases[i].fragment))
            fail_msg("\"%s\" without \"%s\"", error.message, cases[i].fragment);
    }
}

/* ---- Scores ---------------------------------------------------------------------- */

static void near(double got, double expected)
{
    if (!(fabs(got - expected) < 1e-12))
        fail_msg("%.15g, expected %.15g", got, expected);
}

static void scores_are_those_of_the_textbook(void **state)
{
    (void)state;
    attn_label_scores scores;
    attn_error error;
    assert_int_equal(attn_label_scores_create(&scores, 4, &error), ATTN_OK);
    near(attn_label_scores_accuracy(&scores), 0.0);
    near(attn_label_scores_macro_f1(&scores), 0.0);
    /* 3 of label 0, of which two are found; 2 of label 1, one found; label 2 is found
     * once where it is not; label 3 does not occur. */
    static const int64_t pairs[][2] = {{0, 0}, {0, 0}, {0, 1}, {1, 1}, {1, 2}};
    for (size_t i = 0; i < 5; i++)
        attn_label_scores_add(&scores, pairs[i][0], pairs[i][1]);
    assert_int_equal(attn_label_scores_total(&scores), 5);
    near(attn_label_scores_accuracy(&scores), 3.0 / 5.0);
    const attn_label_score first = attn_label_scores_of(&scores, 0);
    assert_int_equal(first.count, 3);
    near(first.precision, 1.0);
    near(first.recall, 2.0 / 3.0);
    near(first.f1, 0.8);
    const attn_label_score second = attn_label_scores_of(&scores, 1);
    near(second.precision, 0.5);
    near(second.recall, 0.5);
    near(second.f1, 0.5);
    near(attn_label_scores_of(&scores, 2).f1, 0.0);
    near(attn_label_scores_macro_f1(&scores), 1.3 / 3.0);
    attn_label_scores_free(&scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_classifier_has_a_text_a_line),
        cmocka_unit_test(a_tagger_has_a_word_a_line_and_sentences_between_empty_ones),
        cmocka_unit_test(lines_without_a_tab_or_a_label_are_named),
        cmocka_unit_test(labels_are_collected_once_and_found),
        cmocka_unit_test(texts_become_tokens_and_targets),
        cmocka_unit_test(words_become_a_space_and_their_bytes),
        cmocka_unit_test(what_does_not_fit_or_was_not_seen_is_named),
        cmocka_unit_test(scores_are_those_of_the_textbook),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
