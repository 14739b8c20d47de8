/* The page: readable without its script, its JSON the record, no address but its own. */
#include "check.h"
#include "tests/inspect/hand.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static const sample_shape ordinary = {.layers = 3, .heads = 4, .source = 7, .written = 9};
static const char data_tag[] = "<script type=\"application/json\" id=\"data\">";

static json_t *data_of(const char *html)
{
    const char *const begin = strstr(html, data_tag);
    assert_non_null(begin);
    const char *const json = begin + sizeof data_tag - 1;
    const char *const end = strstr(json, "</script>");
    assert_non_null(end);
    json_error_t error;
    json_t *const data = json_loadb(json, (size_t)(end - json), 0, &error);
    if (!data)
        fail_msg("the page's JSON: %s", error.text);
    return data;
}

static int64_t number_at(const json_t *object, const char *name)
{
    const json_t *const value = json_object_get(object, name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static uint8_t *from_base64(const char *text, size_t *length)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *const bytes = malloc(strlen(text) + 4);
    assert_non_null(bytes);
    uint32_t bits = 0;
    int count = 0;
    *length = 0;
    for (; *text && *text != '='; text++) {
        const char *const digit = strchr(digits, *text);
        assert_non_null(digit);
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count >= 8)
            bytes[(*length)++] = (uint8_t)(bits >> (count -= 8));
    }
    return bytes;
}

static void maps_in_the_page_are_the_record_s_weights(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    json_t *const data = data_of(html);
    size_t length, weights = 0;
    uint8_t *const maps =
        from_base64(json_string_value(json_object_get(data, "maps")), &length);
    const json_t *const parts = json_object_get(data, "parts");
    assert_int_equal(json_array_size(parts), 3);
    for (int64_t p = 0; p < 3; p++) {
        const attn_record_part *const part = &sample.record->parts[p];
        const json_t *const shown = json_array_get(parts, (size_t)p);
        assert_int_equal(number_at(shown, "at"), weights);
        assert_int_equal(number_at(shown, "layers"), part->layers);
        assert_int_equal(number_at(shown, "heads"), part->heads);
        const int64_t cells =
            part->layers * part->heads * part->rows->length * part->keys->length;
        for (int64_t i = 0; i < cells; i++, weights++) {
            const int level = maps[2 * weights] | maps[2 * weights + 1] << 8;
            assert_true(fabs(level / 65535.0 - (double)part->weights[i]) <=
                        1.0 / 131070 + 1e-9);
        }
    }
    assert_int_equal(length, 2 * weights);
    free(maps);
    json_decref(data);
    free(html);
    sample_destroy(&sample);
}

static void page_starts_at_the_alignment_or_at_what_was_chosen(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    attn_draw_options options;
    attn_draw_options_init(&options);
    char *html = draw(attn_draw_html, &sample, &options, NULL);
    json_t *data = data_of(html);
    const json_t *start = json_object_get(data, "start");
    assert_int_equal(number_at(start, "part"), sample.summary->alignment_part);
    assert_int_equal(number_at(start, "layer"), sample.summary->alignment_layer);
    assert_int_equal(number_at(start, "head"), -1);
    json_decref(data);
    free(html);
    options.part = ATTN_PART_DECODER;
    options.layer = 2;
    options.head = 3;
    options.row = 4;
    html = draw(attn_draw_html, &sample, &options, NULL);
    data = data_of(html);
    start = json_object_get(data, "start");
    assert_int_equal(number_at(start, "part"), 1);
    assert_int_equal(number_at(start, "layer"), 2);
    assert_int_equal(number_at(start, "head"), 3);
    assert_int_equal(number_at(start, "row"), 4);
    json_decref(data);
    free(html);
    sample_destroy(&sample);
}

static void the_page_marks_the_rows_of_the_verdict(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *html = draw(attn_draw_html, &sample, NULL, NULL);
    json_t *data = data_of(html);
    const json_t *verdict = json_object_get(data, "verdict");
    const json_t *unclear = json_object_get(verdict, "unclear");
    assert_int_equal(number_at(verdict, "part"), sample.summary->alignment_part);
    assert_int_equal(number_at(verdict, "layer"), sample.summary->alignment_layer);
    assert_true(sample.summary->unclear_count > 0);
    assert_int_equal(json_array_size(unclear), sample.summary->unclear_count);
    for (size_t i = 0; i < json_array_size(unclear); i++)
        assert_int_equal(json_integer_value(json_array_get(unclear, i)),
                         sample.summary->unclear[i]);
    json_decref(data);
    free(html);
    sample_destroy(&sample);
    sample = sample_create(
        &(sample_shape){.layers = 1, .heads = 2, .source = 20, .written = 300});
    html = draw(attn_draw_html, &sample, NULL, NULL);
    data = data_of(html);
    assert_null(json_object_get(data, "verdict")); /* its rows are tiles */
    json_decref(data);
    free(html);
    sample_destroy(&sample);
}

static void page_is_readable_without_its_script(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    char *const script = strstr(html, data_tag);
    assert_non_null(script);
    *script = '\0'; /* what is before it is there without it */
    assert_int_equal(occurrences(html, "<script"), 0);
    assert_int_equal(occurrences(html, ">The source &amp; its &lt;text&gt;.</p>"), 1);
    assert_int_equal(occurrences(html, ">Le texte.</p>"), 1);
    assert_int_equal(occurrences(html, "of the 8 words written"),
                     2); /* and in the figure */
    assert_int_equal(occurrences(html, "<button class=\"head w"), 3 * 3 * 4);
    assert_int_equal(occurrences(html, "<noscript>"), 1);
    assert_true(occurrences(html, "<text class=") > 7 + 9); /* the alignment */
    assert_int_equal(occurrences(html, "<li><button"), sample.summary->finding_count);
    free(html);
    sample_destroy(&sample);
}

static void page_asks_for_no_address(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    /* the policy's own http-equiv, and the name of SVG */
    assert_int_equal(occurrences(html, "http"), 2);
    assert_int_equal(occurrences(html, "http-equiv"), 1);
    assert_int_equal(occurrences(html, "http://www.w3.org/2000/svg"), 1);
    assert_int_equal(occurrences(html, "src="), 0);
    assert_int_equal(occurrences(html, "@import"), 0);
    assert_int_equal(occurrences(html, "url("), occurrences(html, "url(#"));
    assert_int_equal(occurrences(html, "href="), occurrences(html, "href=\"data:,\""));
    free(html);
    sample_destroy(&sample);
}

static void policy_names_the_digest_of_the_script(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    check_with_python("policy_names_the_digest_of_the_script",
                      "import sys, re, hashlib, base64; t = sys.stdin.read(); "
                      "s = t[t.rindex(\"<script>\") + 8:t.rindex(\"</script>\")]; "
                      "d = base64.b64encode(hashlib.sha256(s.encode()).digest()); "
                      "assert \"script-src \\x27sha256-\" + d.decode() in t; "
                      "assert len(s.encode()) < 24576, len(s.encode())",
                      html);
    free(html);
    sample_destroy(&sample);
}

static void hostile_words_stay_words(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&(sample_shape){.layers = 2,
                                                       .heads = 4,
                                                       .source = hostile_count + 1,
                                                       .written = hostile_count + 2,
                                                       .words = hostile_words,
                                                       .word_count = hostile_count});
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    assert_int_equal(occurrences(html, "<script"), 2);
    assert_int_equal(occurrences(html, "</script"), 2);
    assert_int_equal(occurrences(html, "<!--"), 0);
    assert_int_equal(occurrences(html, "\x1b"), 0);
    json_t *const data = data_of(html);
    const json_t *const keys =
        json_object_get(json_array_get(json_object_get(data, "parts"), 0), "keys");
    assert_string_equal(json_string_value(json_array_get(keys, 0)), hostile_words[0]);
    assert_string_equal(json_string_value(json_array_get(keys, 4)), "日本語");
    json_decref(data);
    free(html);
    sample_destroy(&sample);
}

static void long_texts_become_tiles_of_their_largest_weight(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(
        &(sample_shape){.layers = 1, .heads = 2, .source = 300, .written = 20});
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    json_t *const data = data_of(html);
    const json_t *const encoder = json_array_get(json_object_get(data, "parts"), 0);
    assert_int_equal(number_at(encoder, "tile"), 3);
    assert_int_equal(json_array_size(json_object_get(encoder, "keys")), 100);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(encoder, "keys"), 1)), "4–6");
    size_t length;
    uint8_t *const maps =
        from_base64(json_string_value(json_object_get(data, "maps")), &length);
    const float *const weights = attn_record_weights(&sample.record->parts[0], 0, 0);
    double largest = 0;
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 3; j < 6; j++)
            largest = fmax(largest, (double)weights[i * 300 + j]);
    const int level = maps[2] | maps[3] << 8; /* row 0, key 1 */
    assert_true(fabs(level / 65535.0 - largest) <= 1.0 / 131070 + 1e-9);
    free(maps);
    json_decref(data);
    free(html);
    sample_destroy(&sample);
}

static void same_record_gives_same_bytes(void **unused)
{
    (void)unused;
    draw_sample one = sample_create(&ordinary), other = sample_create(&ordinary);
    char *const a = draw(attn_draw_html, &one, NULL, NULL);
    char *const b = draw(attn_draw_html, &other, NULL, NULL);
    assert_string_equal(a, b);
    free(a);
    free(b);
    sample_destroy(&one);
    sample_destroy(&other);
}

static void a_picture_s_page_draws_its_places(void **unused)
{
    (void)unused;
    attn_record *const record = hand_picture("one two three nothing five");
    draw_sample sample = {record, hand_summary(record)};
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    json_t *const data = data_of(html);
    const json_t *const cross = json_array_get(json_object_get(data, "parts"), 0);
    assert_int_equal(number_at(cross, "across"), sample.record->picture.grid_columns);
    const json_t *const image =
        json_object_get(json_object_get(data, "picture"), "image");
    assert_int_equal(strncmp(json_string_value(image), "data:image/png;base64,", 22), 0);
    const json_t *const verdict = json_object_get(data, "verdict");
    const json_t *const held = json_object_get(verdict, "held");
    assert_string_equal(json_string_value(json_object_get(verdict, "clear")), ".50");
    assert_int_equal(json_array_size(held), sample.record->parts[0].rows->length);
    for (size_t i = 0; i < json_array_size(held); i++)
        assert_true(fabs(strtod(json_string_value(json_array_get(held, i)), NULL) -
                         sample.summary->top[i].weight) < 0.01);
    assert_int_equal(occurrences(html, "<use href=\"#picture\""), 5); /* noscript */
    json_decref(data);
    free(html);
    sample_destroy(&sample);
}

static void a_page_of_one_head_offers_no_thumbnails(void **unused)
{
    (void)unused;
    for (int64_t layers = 1; layers <= 2; layers++) {
        draw_sample sample = sample_create(&(sample_shape){
            .layers = layers, .heads = 1, .written = 6, .causal_only = true});
        char *const html = draw(attn_draw_html, &sample, NULL, NULL);
        assert_int_equal(occurrences(html, "id=\"thumbs\""), layers - 1);
        assert_int_equal(occurrences(html, "roles or thumbnails"), layers - 1);
        free(html);
        sample_destroy(&sample);
    }
}

static void what_is_no_translation_is_called_by_its_name(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&(sample_shape){
        .layers = 1, .heads = 2, .source = 0, .written = 6, .causal_only = true});
    char *html = draw(attn_draw_html, &sample, NULL, NULL);
    assert_int_equal(occurrences(html, "<p class=\"target\" dir=\"auto\" lang=\"fr\">Le"),
                     1);
    free(html);
    strcpy(sample.record->target_language, "next");
    html = draw(attn_draw_html, &sample, NULL, NULL);
    assert_int_equal(occurrences(html, "<small>next</small> Le texte.</p>"), 1);
    assert_int_equal(occurrences(html, "lang=\"next\""), 0);
    assert_int_equal(occurrences(html, " source pieces"), 0);
    assert_int_equal(occurrences(html, " 6 pieces. "), 1);
    free(html);
    sample_destroy(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_in_the_page_are_the_record_s_weights),
        cmocka_unit_test(page_starts_at_the_alignment_or_at_what_was_chosen),
        cmocka_unit_test(the_page_marks_the_rows_of_the_verdict),
        cmocka_unit_test(page_is_readable_without_its_script),
        cmocka_unit_test(page_asks_for_no_address),
        cmocka_unit_test(policy_names_the_digest_of_the_script),
        cmocka_unit_test(hostile_words_stay_words),
        cmocka_unit_test(long_texts_become_tiles_of_their_largest_weight),
        cmocka_unit_test(a_page_of_one_head_offers_no_thumbnails),
        cmocka_unit_test(what_is_no_translation_is_called_by_its_name),
        cmocka_unit_test(a_picture_s_page_draws_its_places),
        cmocka_unit_test(same_record_gives_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
