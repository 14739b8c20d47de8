/* Labels, numbers and sentences. */
#include "hand.h"
#include "inspect/sentence.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_text(attn_buffer *buffer, const char *expected)
{
    assert_false(buffer->failed);
    assert_string_equal(attn_buffer_text(buffer), expected);
    attn_buffer_free(buffer);
}

static void weights_have_two_digits_and_no_zero_before_them(void **state)
{
    (void)state;
    static const struct {
        double weight;
        const char *text;
    } cases[] = {{0, ".00"},       {0.004, ".00"},  {0.005001, ".01"}, {0.68, ".68"},
                 {0.9949, ".99"},  {0.9951, "1.0"}, {1, "1.0"},        {0.125, ".12"},
                 {0.99998, "1.0"}, {0.5, ".50"},    {0.07, ".07"},     {-1e-9, ".00"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_buffer buffer = {0};
        attn_put_weight(&buffer, cases[i].weight);
        assert_text(&buffer, cases[i].text);
    }
}

static void assert_word(const char *text, int64_t occurrence, attn_spelling spelling,
                        const char *expected)
{
    const attn_record_word word = {(char *)text, false, occurrence, 1};
    attn_buffer buffer = {0};
    attn_put_word(&buffer, &word, spelling);
    assert_text(&buffer, expected);
}

static void a_repeated_word_carries_its_number(void **state)
{
    (void)state;
    assert_word("was", 2, ATTN_SPELL_PLAIN, "was²");
    assert_word("was", 10, ATTN_SPELL_TERMINAL, "was¹⁰");
    assert_word("était", 2, ATTN_SPELL_ASCII, "etait#2");
    assert_word("was", 0, ATTN_SPELL_TERMINAL, "was");
}

static void a_terminal_gets_no_commands(void **state)
{
    (void)state;
    assert_word("\x1b[2J", 0, ATTN_SPELL_TERMINAL, "\\x1b[2J");
    assert_word("a\tb\n\r\x7f", 0, ATTN_SPELL_TERMINAL, "a\\x09b\\x0a\\x0d\\x7f");
    assert_word("\xc2\x9b"
                "31m",
                0, ATTN_SPELL_TERMINAL, "\\x9b31m");
    assert_word("a\u202eb", 0, ATTN_SPELL_TERMINAL, "a\\u202eb");
    assert_word("a\u2069b", 0, ATTN_SPELL_ASCII, "a\\u2069b");
    assert_word("\x1b", 0, ATTN_SPELL_PLAIN, "\x1b"); /* who escapes by himself gets it */
}

static void right_to_left_is_isolated(void **state)
{
    (void)state;
    assert_word("שלום", 0, ATTN_SPELL_TERMINAL, "\u2068שלום\u2069");
    assert_word("مرحبا", 2, ATTN_SPELL_TERMINAL, "\u2068مرحبا\u2069²");
    assert_word("日本", 0, ATTN_SPELL_TERMINAL, "日本");
}

static void ascii_drops_accents_and_asks_for_the_rest(void **state)
{
    (void)state;
    assert_word("œuvré", 0, ATTN_SPELL_ASCII, "?uvre");
    assert_word("l’été", 0, ATTN_SPELL_ASCII, "l'ete");
    assert_word("日本", 0, ATTN_SPELL_ASCII, "??");
    assert_word("ﬁn", 0, ATTN_SPELL_ASCII, "fin");
}

static void assert_label(const char *text, int64_t occurrence, int64_t columns,
                         attn_spelling spelling, const char *expected)
{
    const attn_record_word word = {(char *)text, false, occurrence, 1};
    attn_buffer buffer = {0};
    const int64_t taken = attn_put_label(&buffer, &word, spelling, columns);
    assert_true(taken <= columns);
    assert_text(&buffer, expected);
}

static void a_label_is_cut_before_its_mark_and_between_graphemes(void **state)
{
    (void)state;
    assert_label("sitting", 0, 7, ATTN_SPELL_TERMINAL, "sitting");
    assert_label("matières", 0, 7, ATTN_SPELL_TERMINAL, "matièr…");
    assert_label("matière", 2, 7, ATTN_SPELL_TERMINAL, "matiè…²");
    assert_label("matiere", 2, 7, ATTN_SPELL_ASCII, "mati~#2");
    assert_label("日本語日本", 0, 7, ATTN_SPELL_TERMINAL, "日本語…");
    assert_label(
        "👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧", 0, 7,
        ATTN_SPELL_TERMINAL, "👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧…");
    assert_label("e\u0301e\u0301e\u0301", 0, 2, ATTN_SPELL_TERMINAL, "e\u0301…");
    assert_label("שלוםשלום", 0, 5, ATTN_SPELL_TERMINAL, "\u2068שלום\u2069…");
}

static void assert_verdict(attn_record *record, int64_t columns, const char *const *lines,
                           int64_t count)
{
    attn_summary *summary = hand_summary(record);
    assert_int_equal(attn_verdict_lines(record, summary), count);
    for (int64_t line = 0; line < count; line++) {
        attn_buffer buffer = {0};
        attn_put_verdict(&buffer, record, summary, line, ATTN_SPELL_PLAIN, columns);
        assert_text(&buffer, lines[line]);
    }
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static attn_record *rows_with_weights(const char *written, const float *weights,
                                      const int64_t *keys)
{
    attn_record *record = hand_record("the cat sat", written, 1, 1);
    for (int64_t row = 0; row < record->written_words.length; row++)
        hand_look(record, ATTN_PART_CROSS, 0, 0, row, keys[row], weights[row]);
    return record;
}

static void a_verdict_counts_in_words(void **state)
{
    (void)state;
    const int64_t keys[] = {0, 1, 2, 3}, at_mark[] = {3, 3, 3, 3}, mixed[] = {0, 3, 2, 3};
    const float all[] = {.9f, .9f, .9f, .9f}, none[] = {.4f, .4f, .4f, .4f};
    const float one[] = {.9f, .4f, .4f, .4f}, three[] = {.4f, .9f, .9f, .9f};
    assert_verdict(
        rows_with_weights("a b c", all, keys), 0,
        (const char *[]){"All 3 words written read one source word (weight .50 "
                         "or more, .10 ahead)."},
        1);
    assert_verdict(rows_with_weights("a b c", one, keys), 0,
                   (const char *[]){"1 of the 3 words written reads one source word "
                                    "(weight .50 or more, .10 ahead).",
                                    "No clear source: \"b\" .40, \"c\" .40."},
                   2);
    assert_verdict(
        rows_with_weights("a b c", none, at_mark), 0,
        (const char *[]){
            "None of the 3 words written reads one source word (weight .50 or more, .10 "
            "ahead).",
            "No clear source: \"a\" (</s>), \"b\" (</s>), \"c\" (</s>).",
            "\"b\" and \"c\" look most at the end mark </s>: check the text there."},
        3);
    assert_verdict(
        rows_with_weights("a b c", three, mixed), 0,
        (const char *[]){
            "1 of the 3 words written reads one source word (weight .50 or more, .10 "
            "ahead).",
            "No clear source: \"a\" .40, \"b\" (</s>).",
            "\"b\" looks most at the end mark </s>: check the text there."},
        3);
}

static void the_first_word_and_punctuation_may_read_the_end_mark(void **state)
{
    (void)state;
    const int64_t keys[] = {3, 3, 2, 3, 3};
    const float weights[] = {.9f, .9f, .9f, .9f, .9f};
    assert_verdict(
        rows_with_weights("« a b .", weights, keys), 0,
        (const char *[]){
            "1 of the 4 words written reads one source word (weight .50 or more, .10 "
            "ahead).",
            "No clear source: \"«\" (</s>), \"a\" (</s>), \".\" (</s>)."},
        2);
}

static void a_near_tie_is_no_clear_source(void **state)
{
    (void)state;
    const float ties[][4] = {
        {.50f, .49f, .01f, 0}, {.55f, .45f, 0, 0}, {.55f, .01f, .44f, 0}};
    attn_record *record = hand_record("the cat sat", "a b c", 1, 1);
    memcpy(hand_part(record, ATTN_PART_CROSS)->weights, ties, sizeof ties);
    assert_verdict(record, 0,
                   (const char *[]){"2 of the 3 words written read one source word "
                                    "(weight .50 or more, .10 ahead).",
                                    "No clear source: \"a\" .50 (next .49)."},
                   2);
}

/* What the only head of a text gives the word itself, and delimiters, is no link. */
static void the_only_head_of_a_text_is_told_by_its_links(void **state)
{
    (void)state;
    attn_record *record = hand_text("she saw the man , there");
    const int64_t keys[] = {3, 1, 4, 0, 0, 1};
    const float weights[] = {.5f, .9f, .8f, .4f, .9f, .6f};
    for (int64_t row = 0; row < 6; row++)
        hand_look(record, ATTN_PART_ENCODER, 0, 0, row, keys[row], weights[row]);
    assert_verdict(record, 0,
                   (const char *[]){"Between words, \"there\" looks at \"saw\" .60, "
                                    "\"she\" looks at \"man\" .50, \"man\" looks at "
                                    "\"she\" .40 most."},
                   1);

    record = hand_text("a b");
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 0, 1, .25f);
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 1, 0, .25f);
    assert_verdict(
        record, 0,
        (const char *[]){
            "Between words, \"a\" looks at \"b\" .25, \"b\" looks at \"a\" .25 most."},
        1);
    assert_verdict(hand_text("Wow !"), 0, NULL, 0);
}

static void a_verdict_that_does_not_fit_counts_the_rest(void **state)
{
    (void)state;
    float weights[10];
    int64_t keys[10];
    for (int i = 0; i < 10; i++) {
        weights[i] = .4f;
        keys[i] = 1;
    }
    assert_verdict(
        rows_with_weights("aaa bbb ccc ddd eee fff ggg hhh iii", weights, keys), 60,
        (const char *[]){
            "None of the 9 words written reads one source word (weight .50 or more, .10 "
            "ahead).",
            "No clear source: \"aaa\" .40, \"bbb\" .40, \"ccc\" .40 and 6 more."},
        2);
}

static void an_empty_translation_says_so(void **state)
{
    (void)state;
    assert_verdict(hand_record("a b c", "", 1, 1), 0,
                   (const char *[]){"No word was written."}, 1);
}

/* Two words are written, both from the last but </s>. */
static attn_record *of_last_word(const char *source)
{
    attn_record *record = hand_record(source, "a b", 1, 1);
    for (int64_t row = 0; row < 2; row++)
        hand_look(record, ATTN_PART_CROSS, 0, 0, row, record->source_words.length - 2,
                  0.9f);
    return record;
}

static void source_words_that_nothing_reads_are_named(void **state)
{
    (void)state;
    const char *const count =
        "All 2 words written read one source word (weight .50 or more, .10 ahead).";
    assert_verdict(of_last_word("so he had , to wait , here"), 0,
                   (const char *[]){count, "Hardly read: \"so he had, to wait\"."}, 2);
    assert_verdict(of_last_word("in the , here"), 0, (const char *[]){count}, 1);
    attn_record *record =
        of_last_word("so he had to wait and he went home for good , here");
    hand_look(record, ATTN_PART_CROSS, 0, 0, 0, 5, 0.9f);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 1, 5, 0.9f);
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->unread_count, 2);
    static const char *const said[] = {
        "Hardly read: \"so he had to wait\", \"he went home for good, here\".",
        "Hardly read: \"so he had to wait\" and 1 more.",
        "Hardly read: \"so he had~\" and 1 more."};
    const int64_t columns[] = {40, 27, 11};
    for (int i = 0; i < 3; i++) {
        attn_buffer buffer = {0};
        attn_put_verdict(&buffer, record, summary, 1, ATTN_SPELL_ASCII, columns[i]);
        assert_text(&buffer, said[i]);
    }
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void assert_finding(const attn_record *record, attn_finding finding,
                           int64_t columns, const char *expected)
{
    attn_buffer buffer = {0};
    attn_put_finding(&buffer, record, &finding, ATTN_SPELL_PLAIN, columns);
    assert_text(&buffer, expected);
}

static void a_finding_says_looks_at_or_reads_and_drops_its_last_clause(void **state)
{
    (void)state;
    attn_record *record = hand_record("the cat sat", "le chat le", 1, 1);
    const attn_finding sharp = {.kind = ATTN_FINDING_SHARPEST,
                                .part = 2,
                                .value = .18,
                                .links = {{0, 0, .99}, {1, 1, .98}},
                                .link_count = 2};
    assert_finding(record, sharp, 0,
                   "entropy .18; \"le¹\" reads \"the\" .99, \"chat\" reads \"cat\" .98");
    assert_finding(record, sharp, 54, "entropy .18; \"le¹\" reads \"the\" .99");
    assert_finding(record, sharp, 20, "entropy .18");
    assert_finding(record, sharp, 1, "entropy .18");
    attn_finding far = sharp;
    far.kind = ATTN_FINDING_FAR;
    far.part = 0;
    assert_finding(record, far, 0,
                   "\"the\" looks at \"the\" .99, \"cat\" looks at \"cat\" .98");
    assert_finding(record, far, 30, "\"the\" looks at \"the\" .99");
    attn_finding marks = {.kind = ATTN_FINDING_DELIMITERS,
                          .part = 0,
                          .value = .43,
                          .even = .29,
                          .links = {{1, -1, .79}},
                          .link_count = 1};
    assert_finding(record, marks, 0,
                   ".43 of its weight (even: .29); \"cat\" gives them .79");
    marks.kind = ATTN_FINDING_BROADEST;
    assert_finding(record, marks, 0, "entropy .43; \"cat\" gives no word more than .79");
    attn_finding same = {.kind = ATTN_FINDING_SAME,
                         .part = 1,
                         .value = .36,
                         .links = {{3, 1, .46}},
                         .link_count = 1};
    assert_finding(record, same, 0,
                   ".36 where words repeat; \"le²\" looks at \"le¹\" .46");
    attn_record_destroy(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_two_digits_and_no_zero_before_them),
        cmocka_unit_test(a_repeated_word_carries_its_number),
        cmocka_unit_test(a_terminal_gets_no_commands),
        cmocka_unit_test(right_to_left_is_isolated),
        cmocka_unit_test(ascii_drops_accents_and_asks_for_the_rest),
        cmocka_unit_test(a_label_is_cut_before_its_mark_and_between_graphemes),
        cmocka_unit_test(a_verdict_counts_in_words),
        cmocka_unit_test(the_first_word_and_punctuation_may_read_the_end_mark),
        cmocka_unit_test(a_near_tie_is_no_clear_source),
        cmocka_unit_test(source_words_that_nothing_reads_are_named),
        cmocka_unit_test(the_only_head_of_a_text_is_told_by_its_links),
        cmocka_unit_test(a_verdict_that_does_not_fit_counts_the_rest),
        cmocka_unit_test(an_empty_translation_says_so),
        cmocka_unit_test(a_finding_says_looks_at_or_reads_and_drops_its_last_clause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
