/* Roles, alignment, verdict and findings, on patterns made by hand. */
#include "hand.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static attn_head_summary role_of(attn_record *record, attn_part kind)
{
    attn_summary *summary = hand_summary(record);
    int64_t p = 0;
    while (record->parts[p].part != kind)
        p++;
    const attn_head_summary head = summary->parts[p].heads[0];
    attn_summary_destroy(summary);
    attn_record_destroy(record);
    return head;
}

static void assert_letter(const attn_head_summary *head, char letter)
{
    const char got[2] = {attn_role_letter(head), 0}, expected[2] = {letter, 0};
    assert_string_equal(got, expected);
}

static void a_head_that_looks_at_the_word_before_is_previous(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c d e f g", "x", 1, 1);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, -1, 0.9f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_letter(&head, 'P');
    /* 7 of 8 rows have a word before them; the first is spread evenly and counts as 0. */
    assert_true(fabs(head.mass - 0.9 * 7 / 8) < 1e-6);
    assert_true(fabs(head.even - (1.0 / 8) * 7 / 8) < 1e-6);
}

static void a_head_that_looks_at_the_word_after_is_next(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c d e f g", "x", 1, 1);
    for (int64_t row = 0; row < 8; row++) /* four rows do, four look back two words */
        hand_look(record, ATTN_PART_ENCODER, 0, 0, row, row < 4 ? row + 1 : row - 2,
                  0.9f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_letter(&head, 'n'); /* .45 and a little: shows, but is not half */
}

static void a_head_that_looks_at_itself_is_own_and_one_key_rows_do_not_count(void **state)
{
    (void)state;
    attn_record *record = hand_record("x", "a b c d e", 1, 1);
    hand_look_along(record, ATTN_PART_DECODER, 0, 0, 0, 0.6f);
    const attn_head_summary head = role_of(record, ATTN_PART_DECODER);
    assert_letter(&head, 'O');
    assert_true(fabs(head.mass - 0.6) <
                1e-6); /* the first row, which is all own, is out */
}

static void a_head_that_looks_at_the_first_word_is_first(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c d e f g", "x", 1, 1);
    for (int64_t row = 0; row < 8; row++)
        hand_look(record, ATTN_PART_ENCODER, 0, 0, row, 0, 0.7f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_letter(&head, 'F');
}

static void a_head_that_looks_at_punctuation_and_marks_is_delimiter(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b , d e f …", "x", 1, 1);
    for (int64_t row = 0; row < 8; row++)
        hand_look(record, ATTN_PART_ENCODER, 0, 0, row, row % 2 ? 2 : 7, 0.8f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_letter(&head, 'D');
    assert_true(fabs(head.even - 3.0 / 8) < 1e-6); /* ",", "…", "</s>" */
}

static void a_head_that_looks_at_the_other_occurrence_is_same_word(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b a b c d e", "x", 1, 1);
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 0, 2, 0.8f);
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 2, 0, 0.8f);
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 1, 3, 0.8f);
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 3, 1, 0.8f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_letter(&head, 'S');
    assert_true(fabs(head.mass - 0.8) < 1e-6); /* over the four rows that repeat */
}

static void same_word_needs_three_rows_that_repeat(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b a c d e f", "x", 1, 1);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, 2, 0.9f);
    hand_look(record, ATTN_PART_ENCODER, 0, 0, 2, 0, 0.9f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_letter(&head, 0);
    assert_true(head.masses[ATTN_ROLE_SAME] == 0);
}

static void cross_heads_are_same_word_where_texts_share_words(void **state)
{
    (void)state;
    attn_record *record = hand_record("Paris , Oslo .", "Paris , Oslo .", 1, 1);
    hand_look_along(record, ATTN_PART_CROSS, 0, 0, 0, 0.8f);
    const attn_head_summary head = role_of(record, ATTN_PART_CROSS);
    assert_letter(&head, 'S');
    assert_true(head.masses[ATTN_ROLE_OWN] == 0); /* own has no meaning between texts */
}

static void half_the_weight_in_one_role_is_no_longer_broad(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c", "x", 1, 1);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, 0, 0.55f);
    const attn_head_summary head = role_of(record, ATTN_PART_ENCODER);
    assert_true(head.entropy > 0.8);
    assert_letter(&head, 'O');
}

static void an_even_spread_is_broad_with_entropy_one(void **state)
{
    (void)state;
    const attn_head_summary head =
        role_of(hand_record("a b c d e", "x", 1, 1), ATTN_PART_ENCODER);
    assert_letter(&head, 'B');
    assert_true(fabs(head.entropy - 1) < 1e-6);
}

static void a_mass_that_an_even_spread_would_give_is_no_role(void **state)
{
    (void)state;
    /* Two keys: each gets half from an even spread, which is no sign of anything. */
    attn_record *record = hand_record("a", "x", 1, 1);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, 0, 0.69f);
    attn_conventions limits;
    attn_conventions_init(&limits);
    limits.broad = 0.99;
    attn_summary *summary = hand_summary_with(record, &limits);
    assert_letter(&summary->parts[0].heads[0], 0);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void thresholds_are_the_users_to_set(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c d e f g", "x", 1, 1);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, -1, 0.9f);
    attn_conventions limits;
    attn_conventions_init(&limits);
    limits.strong = 0.95;
    attn_summary *summary = hand_summary_with(record, &limits);
    assert_letter(&summary->parts[0].heads[0], 'p');
    attn_summary_destroy(summary);
    limits.weak = 0.9;
    summary = hand_summary_with(record, &limits);
    assert_letter(&summary->parts[0].heads[0], 0);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void the_alignment_is_the_mean_of_the_sharpest_layer(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c", "x y z", 3, 2);
    hand_look_along(record, ATTN_PART_CROSS, 1, 0, 0, 0.9f);
    hand_look_along(record, ATTN_PART_CROSS, 1, 1, 1, 0.9f);
    hand_look_along(record, ATTN_PART_CROSS, 2, 0, 0, 0.9f);
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->alignment_layer, 1);
    /* Row 0: (.9 + .1/3)/2 for the first two keys, (.1/3 + .1/3)/2 for the others. */
    assert_true(fabs((double)summary->alignment[0] - (0.9 + 0.1 / 3) / 2) < 1e-6);
    assert_true(fabs((double)summary->alignment[2] - 0.1 / 3) < 1e-6);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void a_tie_is_the_lower_key_and_the_earlier_layer(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c", "x y", 2, 1);
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->alignment_layer, 0);
    for (int row = 0; row < 3; row++)
        assert_int_equal(summary->top[row].key, 0);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void the_verdict_counts_clear_rows_and_those_at_marks(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c", "w x y z", 1, 1);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 0, 0, 0.8f);  /* clear */
    hand_look(record, ATTN_PART_CROSS, 0, 0, 1, 1, 0.4f);  /* unclear */
    hand_look(record, ATTN_PART_CROSS, 0, 0, 2, 3, 0.45f); /* unclear, at </s> */
    hand_look(record, ATTN_PART_CROSS, 0, 0, 3, 2, 0.5f);  /* clear, just */
    hand_look(record, ATTN_PART_CROSS, 0, 0, 4, 3, 0.9f);  /* </s>: no word */
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->judged_count, 4);
    assert_int_equal(summary->clear_count, 2);
    assert_int_equal(summary->unclear_count, 2);
    assert_true(attn_is_unclear(summary, 2) && !attn_is_unclear(summary, 4));
    assert_int_equal(summary->unclear[0], 1);
    assert_int_equal(summary->unclear[1], 2);
    assert_int_equal(summary->at_special_count, 1);
    assert_int_equal(summary->at_special[0], 2);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void a_weight_that_prints_as_the_threshold_reaches_it(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c", "x y", 1, 1);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 0, 1, 0.496f);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 1, 1, 0.494f);
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->clear_count, 1);
    assert_int_equal(summary->unclear[0], 1);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static const attn_finding *finding_of(const attn_summary *summary, attn_finding_kind kind)
{
    for (int64_t i = 0; i < summary->finding_count; i++)
        if (summary->findings[i].kind == kind)
            return &summary->findings[i];
    return NULL;
}

static void no_head_is_found_twice(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b , a b , a b", "x y z", 2, 3);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, 3, 0.95f);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 1, -3, 0.9f);
    attn_summary *summary = hand_summary(record);
    assert_true(summary->finding_count >= 3 && summary->finding_count <= ATTN_FINDINGS);
    for (int64_t i = 0; i < summary->finding_count; i++)
        for (int64_t j = 0; j < i; j++) {
            const attn_finding *a = &summary->findings[i], *b = &summary->findings[j];
            assert_false(a->part == b->part && a->layer == b->layer &&
                         a->head == b->head);
            assert_true(a->kind > b->kind);
        }
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void far_links_leave_out_delimiters_the_first_row_and_neighbours(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b , d e f", "x", 1, 2);
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 0, 5, 0.99f);     /* from the first row */
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 1, 2, 0.98f);     /* to a delimiter */
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 2, 5, 0.97f);     /* from a delimiter */
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 3, 4, 0.96f);     /* to a neighbour */
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 4, 6, 0.95f);     /* to </s> */
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 5, 1, 0.60f);     /* this one */
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, 0, 0.999f); /* the sharpest */
    attn_summary *summary = hand_summary(record);
    const attn_finding *far = finding_of(summary, ATTN_FINDING_FAR);
    assert_non_null(far);
    assert_int_equal(far->head, 1);
    assert_int_equal(far->link_count, 1);
    assert_int_equal(far->links[0].row, 5);
    assert_int_equal(far->links[0].key, 1);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void of_one_head_there_is_no_finding(void **state)
{
    (void)state;
    attn_record *record = hand_label("a good film", "positive");
    hand_look(record, ATTN_PART_POOL, 0, 0, 0, 1, 0.8f);
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->finding_count, 0);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void without_a_far_link_of_weight_there_is_no_such_finding(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b c d e f", "x", 1, 2);
    attn_summary *summary = hand_summary(record);
    assert_null(finding_of(summary, ATTN_FINDING_FAR));
    assert_null(finding_of(summary, ATTN_FINDING_SAME));
    assert_null(finding_of(summary, ATTN_FINDING_DELIMITERS));
    assert_non_null(finding_of(summary, ATTN_FINDING_BROADEST));
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void same_word_prefers_heads_within_a_text(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b a b", "a b a b", 1, 2);
    hand_look_along(record, ATTN_PART_CROSS, 0, 0, 0, 0.95f);
    hand_look_along(record, ATTN_PART_CROSS, 0, 1, 0, 0.9f);
    for (int64_t row = 0; row < 8; row++) /* one head becomes the one with far links */
        hand_look(record, ATTN_PART_ENCODER, 0, row / 4, row % 4, (row + 2) % 4, 0.6f);
    attn_summary *summary = hand_summary(record);
    const attn_finding *same = finding_of(summary, ATTN_FINDING_SAME);
    assert_non_null(same);
    assert_int_equal(record->parts[same->part].part, ATTN_PART_ENCODER);
    assert_true(fabs(same->value - 0.6) < 1e-6);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void one_word_and_an_empty_translation_are_measured(void **state)
{
    (void)state;
    attn_record *record = hand_record("", "", 2, 2); /* </s> reads </s>, <s> alone */
    attn_summary *summary = hand_summary(record);
    assert_int_equal(summary->judged_count, 0);
    assert_int_equal(summary->finding_count, 0); /* no row has a choice */
    for (int p = 0; p < 3; p++)
        for (int h = 0; h < 4; h++) {
            assert_int_equal(summary->parts[p].heads[h].role, ATTN_ROLE_MIXED);
            assert_true(summary->parts[p].heads[h].entropy == -1);
        }
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void words_are_counted_by_text_and_marks_are_not_words(void **state)
{
    (void)state;
    attn_record *record = hand_record("was The was the was </s>", "x", 1, 1);
    const int64_t expected[] = {1, 0, 2, 0, 3, 0, 0};
    for (int i = 0; i < 7; i++)
        assert_int_equal(record->source_words.list[i].occurrence, expected[i]);
    assert_false(record->source_words.list[5].special); /* a user's "</s>" is text */
    assert_true(record->source_words.list[6].special);
    attn_record_destroy(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_looks_at_the_word_before_is_previous),
        cmocka_unit_test(a_head_that_looks_at_the_word_after_is_next),
        cmocka_unit_test(
            a_head_that_looks_at_itself_is_own_and_one_key_rows_do_not_count),
        cmocka_unit_test(a_head_that_looks_at_the_first_word_is_first),
        cmocka_unit_test(a_head_that_looks_at_punctuation_and_marks_is_delimiter),
        cmocka_unit_test(a_head_that_looks_at_the_other_occurrence_is_same_word),
        cmocka_unit_test(same_word_needs_three_rows_that_repeat),
        cmocka_unit_test(cross_heads_are_same_word_where_texts_share_words),
        cmocka_unit_test(half_the_weight_in_one_role_is_no_longer_broad),
        cmocka_unit_test(an_even_spread_is_broad_with_entropy_one),
        cmocka_unit_test(a_mass_that_an_even_spread_would_give_is_no_role),
        cmocka_unit_test(thresholds_are_the_users_to_set),
        cmocka_unit_test(the_alignment_is_the_mean_of_the_sharpest_layer),
        cmocka_unit_test(a_tie_is_the_lower_key_and_the_earlier_layer),
        cmocka_unit_test(the_verdict_counts_clear_rows_and_those_at_marks),
        cmocka_unit_test(a_weight_that_prints_as_the_threshold_reaches_it),
        cmocka_unit_test(no_head_is_found_twice),
        cmocka_unit_test(far_links_leave_out_delimiters_the_first_row_and_neighbours),
        cmocka_unit_test(of_one_head_there_is_no_finding),
        cmocka_unit_test(without_a_far_link_of_weight_there_is_no_such_finding),
        cmocka_unit_test(same_word_prefers_heads_within_a_text),
        cmocka_unit_test(one_word_and_an_empty_translation_are_measured),
        cmocka_unit_test(words_are_counted_by_text_and_marks_are_not_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
