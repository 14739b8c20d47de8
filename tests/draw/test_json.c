/* The JSON of a record: what a program reads is the record, to the digit. */
#include "draw/draw.h"
#include "tests/inspect/hand.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *draw(attn_record *record)
{
    attn_summary *summary = hand_summary(record);
    attn_draw_options options;
    attn_error error;
    json_error_t reason;
    char *text;
    size_t length;
    attn_draw_options_init(&options);
    assert_int_equal(attn_draw_json(record, summary, &options, &text, &length, &error),
                     ATTN_OK);
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    if (json == NULL)
        fail_msg("%s at %d", reason.text, reason.position);
    free(text);
    attn_summary_destroy(summary);
    return json;
}

static attn_record *example(void)
{
    attn_record *record = hand_record("a \"b\" \x1b , b \\ </script> é", "x é y", 2, 2);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 1, -1, 0.777f);
    hand_look_along(record, ATTN_PART_CROSS, 1, 0, 0, 0.9f);
    hand_look(record, ATTN_PART_CROSS, 1, 1, 0, 8, 0.3333333f);
    return record;
}

static void all_weights_are_there_and_rows_sum_to_one(void **state)
{
    (void)state;
    attn_record *record = example();
    json_t *json = draw(record), *parts = json_object_get(json, "parts");
    assert_int_equal(json_array_size(parts), 3);
    for (size_t p = 0; p < 3; p++) {
        const attn_record_part *part = &record->parts[p];
        json_t *heads = json_object_get(json_array_get(parts, p), "heads");
        const size_t rows = (size_t)part->rows->length, keys = (size_t)part->keys->length;
        assert_int_equal(json_array_size(heads), 4);
        for (size_t h = 0; h < 4; h++) {
            json_t *weights = json_object_get(json_array_get(heads, h), "weights");
            assert_int_equal(json_array_size(weights), rows);
            for (size_t i = 0; i < rows; i++) {
                json_t *row = json_array_get(weights, i);
                double sum = 0;
                assert_int_equal(json_array_size(row), keys);
                for (size_t j = 0; j < keys; j++) {
                    const double weight = json_number_value(json_array_get(row, j));
                    assert_true(
                        fabs(weight - (double)part->weights[(h * rows + i) * keys + j]) <
                        1e-7);
                    sum += weight;
                }
                assert_true(fabs(sum - 1) < 1e-6);
            }
        }
    }
    json_decref(json);
    attn_record_destroy(record);
}

static void texts_come_back_exactly(void **state)
{
    (void)state;
    attn_record *record = example();
    json_t *json = draw(record);
    assert_string_equal(json_string_value(json_object_get(json, "source")),
                        record->source);
    json_t *words = json_object_get(json, "source_words");
    for (size_t i = 0; i < json_array_size(words); i++)
        assert_string_equal(
            json_string_value(json_object_get(json_array_get(words, i), "text")),
            record->source_words.list[i].text);
    json_t *keys =
        json_object_get(json_array_get(json_object_get(json, "parts"), 0), "keys");
    assert_string_equal(json_string_value(json_array_get(keys, 4)), "b");
    json_decref(json);
    attn_record_destroy(record);
}

static void measures_verdict_and_findings_are_those_of_the_summary(void **state)
{
    (void)state;
    attn_record *record = example();
    json_t *json = draw(record);
    attn_summary *summary = hand_summary(record);
    json_t *alignment = json_object_get(json, "alignment");
    assert_int_equal(json_integer_value(json_object_get(alignment, "layer")),
                     summary->alignment_layer + 1);
    assert_int_equal(json_integer_value(json_object_get(alignment, "clear")),
                     summary->clear_count);
    int64_t unclear = 0;
    json_t *rows = json_object_get(alignment, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++)
        unclear += json_is_false(json_object_get(json_array_get(rows, i), "clear"));
    assert_int_equal(unclear, summary->unclear_count);
    assert_int_equal(json_array_size(json_object_get(json, "notable")),
                     summary->finding_count);
    json_t *head = json_array_get(
        json_object_get(json_array_get(json_object_get(json, "parts"), 0), "heads"), 1);
    assert_string_equal(json_string_value(json_object_get(head, "role")), "previous");
    assert_string_equal(json_string_value(json_object_get(head, "letter")), "P");
    assert_true(fabs(json_number_value(json_object_get(head, "mass")) -
                     summary->parts[0].heads[1].mass) < 1e-5);
    /* The decoder's first row sees one key: it has no entropy, which is not 0. */
    json_t *decoder = json_array_get(
        json_object_get(json_array_get(json_object_get(json, "parts"), 1), "heads"), 0);
    assert_true(json_is_null(json_array_get(json_object_get(decoder, "row_entropy"), 0)));
    json_decref(json);
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

static void without_a_cross_part_there_is_no_alignment(void **state)
{
    (void)state;
    attn_record *record = hand_record("a b", "c", 1, 1);
    free(record->parts[2].weights);
    free(record->parts[2].row_entropy);
    free(record->parts[2].entropy);
    record->part_count = 2;
    json_t *json = draw(record);
    assert_true(json_is_null(json_object_get(json, "alignment")));
    assert_int_equal(json_array_size(json_object_get(json, "verdict")), 0);
    json_decref(json);
    attn_record_destroy(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_weights_are_there_and_rows_sum_to_one),
        cmocka_unit_test(texts_come_back_exactly),
        cmocka_unit_test(measures_verdict_and_findings_are_those_of_the_summary),
        cmocka_unit_test(without_a_cross_part_there_is_no_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
