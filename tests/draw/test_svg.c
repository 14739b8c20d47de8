/* The figure: well-formed for any text, the same bytes for the same record, and every
 * number in it in the record. */
#include "check.h"
#include "tests/inspect/hand.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const sample_shape ordinary = {.layers = 3, .heads = 4, .source = 7, .written = 9};

static void assert_good(const sample_shape *shape)
{
    draw_sample sample = sample_create(shape);
    size_t length;
    char *const svg = draw(attn_draw_svg, &sample, NULL, &length);
    assert_draws_within_its_edges(svg, length);
    free(svg);
    sample_destroy(&sample);
}

static void figure_of_any_size_is_well_formed_and_stays_in_its_box(void **unused)
{
    (void)unused;
    const sample_shape shapes[] = {
        ordinary,
        {.layers = 1, .heads = 1, .source = 1, .written = 1},
        {.layers = 1, .heads = 2, .source = 2, .written = 3},
        {.layers = 12, .heads = 12, .source = 64, .written = 64},
        {.layers = 2, .heads = 40, .source = 5, .written = 5},
        {.layers = 1, .heads = 2, .source = 130, .written = 100},
        {.layers = 1, .heads = 2, .source = 300, .written = 280},
        {.layers = 2, .heads = 8, .source = 3, .written = 12, .causal_only = true}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_good(&shapes[i]);
}

static void a_picture_stands_once_under_a_map_for_each_word(void **unused)
{
    (void)unused;
    attn_record *const record = hand_picture("one two three nothing five");
    const draw_sample sample = {record, hand_summary(record)};
    size_t length;
    char *const svg = draw(attn_draw_svg, &sample, NULL, &length);
    assert_draws_within_its_edges(svg, length);
    assert_int_equal(occurrences(svg, "<image "), 1);
    assert_int_equal(occurrences(svg, "<use href=\"#picture\""), 5);
    assert_int_equal(occurrences(svg, "fill-opacity"), 5 * 6);
    free(svg);
    attn_summary_destroy(sample.summary);
    attn_record_destroy(record);
}

static void a_label_s_figure_is_the_text_with_its_words_shaded(void **unused)
{
    (void)unused;
    enum { WORDS = 300 };
    char source[6 * WORDS + 1] = "fine";
    for (int i = 1; i < WORDS; i++)
        snprintf(source + strlen(source), sizeof source - strlen(source), " w%d", i);
    attn_record *const record = hand_label(source, "pos");
    hand_look(record, ATTN_PART_POOL, 0, 0, 0, 0, 0.8f);
    const draw_sample sample = {record, hand_summary(record)};
    size_t length;
    char *const svg = draw(attn_draw_svg, &sample, NULL, &length);
    assert_draws_within_its_edges(svg, length);
    assert_int_equal(occurrences(svg, ">fine</text>"), 1);
    assert_int_equal(occurrences(svg, ">.80</text>"), 1);
    assert_int_equal(occurrences(svg, ">w299</text>"), 1);
    assert_int_equal(occurrences(svg, "–3</text>"), 0); /* no tiles */
    assert_int_equal(occurrences(svg, "<rect class=\"w0\""), WORDS - 1 + 1);
    free(svg);
    attn_summary_destroy(sample.summary);
    attn_record_destroy(record);
}

static void a_figure_says_what_was_read_and_what_was_made_of_it(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    size_t length;
    char *svg = draw(attn_draw_svg, &sample, NULL, &length);
    assert_int_equal(occurrences(svg, ">The source &amp; its &lt;text&gt;.</text>"), 1);
    assert_int_equal(occurrences(svg, ">Le texte.</text>"), 1);
    free(svg);
    /* A text without spaces goes on in the next line, all of it. */
    free(sample.record->translation);
    sample.record->translation = calloc(1, 3 * 200 + 1);
    assert_non_null(sample.record->translation);
    for (int i = 0; i < 200; i++)
        strcat(sample.record->translation, "\u6587");
    svg = draw(attn_draw_svg, &sample, NULL, &length);
    assert_draws_within_its_edges(svg, length);
    assert_int_equal(occurrences(svg, "\u6587"), 200);
    free(svg);
    sample_destroy(&sample);
}

static const sample_shape hostile = {.layers = 2,
                                     .heads = 4,
                                     .source = 17,
                                     .written = 18,
                                     .words = hostile_words,
                                     .word_count = 16};

static void hostile_words_stay_words(void **unused)
{
    (void)unused;
    assert_int_equal(hostile_count, hostile.word_count);
    assert_good(&hostile);
    draw_sample sample = sample_create(&hostile);
    char *const svg = draw(attn_draw_svg, &sample, NULL, NULL);
    assert_int_equal(occurrences(svg, "<script"), 0);
    assert_int_equal(occurrences(svg, "</svg>"), 1);
    assert_int_equal(occurrences(svg, "\x1b"), 0);
    assert_int_equal(occurrences(svg, ">a&lt;b&lt;c<"), 2); /* a row and a key */
    free(svg);
    sample_destroy(&sample);
}

static void every_word_that_is_drawn_has_its_label(void **unused)
{
    (void)unused;
    static const int64_t words[] = {65, 128, 129, 256};
    for (size_t n = 0; n < sizeof words / sizeof words[0]; n++) {
        draw_sample sample = sample_create(
            &(sample_shape){.layers = 1, .heads = 2, .source = words[n], .written = 8});
        char *const svg = draw(attn_draw_svg, &sample, NULL, NULL);
        assert_int_equal(occurrences(svg, "rotate(-90)"), words[n]);
        free(svg);
        sample_destroy(&sample);
    }
}

static void another_parser_reads_the_figure(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&hostile);
    char *const svg = draw(attn_draw_svg, &sample, NULL, NULL);
    sample_destroy(&sample);
    check_with_python("another_parser_reads_the_figure",
                      "import sys, xml.dom.minidom as d; "
                      "d.parseString(sys.stdin.buffer.read())",
                      svg);
    free(svg);
}

static void same_record_gives_same_bytes(void **unused)
{
    (void)unused;
    draw_sample one = sample_create(&ordinary), other = sample_create(&ordinary);
    size_t one_length, other_length;
    char *const a = draw(attn_draw_svg, &one, NULL, &one_length);
    char *const b = draw(attn_draw_svg, &other, NULL, &other_length);
    assert_int_equal(one_length, other_length);
    assert_memory_equal(a, b, one_length);
    free(a);
    free(b);
    sample_destroy(&one);
    sample_destroy(&other);
}

/* Without a cross part, as the wording of verdicts is tested where they are made.
 * ATTN_UPDATE=1 writes the file anew, for a change that is meant. */
static void small_record_gives_these_very_bytes(void **unused)
{
    (void)unused;
    static const char path[] = ATTN_TEST_FOLDER "/small.svg";
    const sample_shape shape = {
        .layers = 1, .heads = 2, .source = 3, .written = 3, .causal_only = true};
    draw_sample sample = sample_create(&shape);
    size_t length;
    char *const svg = draw(attn_draw_svg, &sample, NULL, &length);
    FILE *file;
    if (getenv("ATTN_UPDATE")) {
        file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(svg, 1, length, file), length);
        assert_int_equal(fclose(file), 0);
    }
    file = fopen(path, "rb");
    assert_non_null(file);
    char *const expected = calloc(1, length + 2);
    assert_non_null(expected);
    assert_int_equal(fread(expected, 1, length + 1, file), length);
    fclose(file);
    assert_string_equal(svg, expected);
    free(expected);
    free(svg);
    sample_destroy(&sample);
}

static void numbers_in_cells_are_the_record_s(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    attn_draw_options options;
    attn_draw_options_init(&options);
    options.part = ATTN_PART_CROSS;
    options.layer = 1;
    options.head = 2;
    char *const svg = draw(attn_draw_svg, &sample, &options, NULL);
    const attn_record_part *const part =
        attn_record_find_part(sample.record, ATTN_PART_CROSS);
    const float *const weights = attn_record_weights(part, 1, 2);
    const char *at = svg;
    for (int64_t i = 0; i < part->rows->length * part->keys->length; i++) {
        const int hundredths = (int)lround(100 * (double)weights[i]);
        if (hundredths < 10)
            continue;
        char number[16];
        at = strstr(at, " mid s9\" x=");
        assert_non_null(at);
        at = strchr(at, '>');
        snprintf(number, sizeof number, ">%d<", hundredths);
        assert_int_equal(strncmp(at, number, strlen(number)), 0);
    }
    free(svg);
    sample_destroy(&sample);
}

static void caption_names_model_map_scale_and_what_is_hidden(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    attn_draw_options options;
    attn_draw_options_init(&options);
    options.part = ATTN_PART_DECODER;
    options.layer = 2;
    options.head = 0;
    options.scale = ATTN_SCALE_LOG;
    char *const svg = draw(attn_draw_svg, &sample, &options, NULL);
    assert_int_equal(occurrences(svg, "Model sample: 3+3 layers of 4 heads."), 1);
    assert_int_equal(occurrences(svg, "decoder layer 3, head 1"), 1);
    assert_int_equal(occurrences(svg, "log scale"), 1);
    assert_int_equal(occurrences(svg, "Hatched: comes later"), 1);
    assert_true(occurrences(svg, "Decoder layer 3 head 1: ") > 0);
    free(svg);
    sample_destroy(&sample);
}

static void a_legend_names_the_letters_that_occur(void **unused)
{
    (void)unused;
    attn_record *const record = hand_record("it was , was", "oui était", 1, 2);
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, -1, 0.8f);
    const draw_sample sample = {record, hand_summary(record)};
    attn_draw *const formats[] = {attn_draw_svg, attn_draw_html};
    for (int i = 0; i < 2; i++) {
        char *const drawn = draw(formats[i], &sample, NULL, NULL);
        assert_int_equal(
            occurrences(drawn, "P\u00A0previous, B\u00A0broad. Capital: .50"), 1);
        assert_int_equal(occurrences(drawn, "N\u00A0next"), 0);
        assert_int_equal(occurrences(drawn, "·\u00A0mixed"), 0);
        assert_int_equal(occurrences(drawn, "S: over"), 0);
        assert_int_equal(occurrences(drawn, "What the heads do"), 1);
        free(drawn);
    }
    attn_summary_destroy(sample.summary);
    attn_record_destroy(record);
}

static void one_head_alone_takes_no_choice_and_no_limits(void **unused)
{
    (void)unused;
    attn_record *const record = hand_text("a good film");
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, 0, 0.9f);
    const draw_sample sample = {record, hand_summary(record)};
    attn_draw *const formats[] = {attn_draw_svg, attn_draw_html};
    for (int i = 0; i < 2; i++) {
        char *const drawn = draw(formats[i], &sample, NULL, NULL);
        assert_int_equal(occurrences(drawn, "O\u00A0own word .90. Number: entropy"), 1);
        assert_int_equal(occurrences(drawn, "Capital"), 0);
        assert_int_equal(occurrences(drawn, "lowest entropy"), 0);
        assert_int_equal(occurrences(drawn, "the mean of its heads"), 0);
        assert_int_equal(occurrences(drawn, "What the head does"), 1);
        free(drawn);
    }
    attn_summary_destroy(sample.summary);
    attn_record_destroy(record);
}

static void a_caption_says_why_this_layer_and_which_row_is_framed(void **unused)
{
    (void)unused;
    attn_record *const record = hand_record("the cat sat", "le chat", 2, 2);
    hand_look(record, ATTN_PART_ENCODER, 1, 0, 1, 0, 1.0f);
    const draw_sample sample = {record, hand_summary(record)};
    attn_draw_options options;
    attn_draw_options_init(&options);
    options.part = ATTN_PART_ENCODER;
    options.row = 1;
    char *svg = draw(attn_draw_svg, &sample, &options, NULL);
    assert_int_equal(occurrences(svg, "encoder layer 2, mean of 2 heads, the layer"), 1);
    assert_int_equal(occurrences(svg, "framed: the row of &quot;cat&quot;"), 1);
    free(svg);
    options.layer = 1; /* asked for: no choice of the figure's */
    options.row = -1;
    svg = draw(attn_draw_svg, &sample, &options, NULL);
    assert_int_equal(occurrences(svg, "lowest"), 0);
    assert_int_equal(occurrences(svg, "framed"), 0);
    free(svg);
    attn_summary_destroy(sample.summary);
    attn_record_destroy(record);
}

static void eleven_classes_follow_light_and_dark(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *const svg = draw(attn_draw_svg, &sample, NULL, NULL);
    const char *const dark = strstr(svg, "@media(prefers-color-scheme:dark)");
    assert_non_null(dark);
    const char *const light_first = strstr(svg, ".w0{fill:#F1EFEA}");
    assert_non_null(light_first);
    assert_true(light_first < dark);
    assert_non_null(strstr(dark, ".w0{fill:#1C2128}"));
    for (int i = 0; i <= 10; i++) {
        char class[16];
        snprintf(class, sizeof class, ".w%d{", i);
        assert_int_equal(occurrences(svg, class), 2);
        class[1] = 't';
        assert_int_equal(occurrences(svg, class), 2);
    }
    assert_int_equal(occurrences(svg, "http"), 1); /* the name of the format */
    free(svg);
    sample_destroy(&sample);
}

static void assert_refused(const attn_draw_options *options, const char *message)
{
    draw_sample sample = sample_create(&ordinary);
    attn_error error = {0};
    char *text = NULL;
    size_t length = 7;
    assert_int_equal(
        attn_draw_svg(sample.record, sample.summary, options, &text, &length, &error),
        ATTN_EINVAL);
    assert_string_equal(error.message, message);
    assert_null(text);
    assert_int_equal(length, 7);
    sample_destroy(&sample);
}

static void selection_outside_the_record_is_named(void **unused)
{
    (void)unused;
    attn_draw_options options;
    attn_draw_options_init(&options);
    options.layer = 3;
    assert_refused(&options, "no layer 4: the cross has 3 layers of 4 heads");
    options.layer = 0;
    options.head = 4;
    assert_refused(&options, "no head 1.5: the cross has 3 layers of 4 heads");
    options.head = 0;
    options.part = ATTN_PART_ENCODER;
    options.row = 7;
    assert_refused(&options, "no word 8: the encoder has 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figure_of_any_size_is_well_formed_and_stays_in_its_box),
        cmocka_unit_test(a_picture_stands_once_under_a_map_for_each_word),
        cmocka_unit_test(a_label_s_figure_is_the_text_with_its_words_shaded),
        cmocka_unit_test(a_figure_says_what_was_read_and_what_was_made_of_it),
        cmocka_unit_test(hostile_words_stay_words),
        cmocka_unit_test(every_word_that_is_drawn_has_its_label),
        cmocka_unit_test(another_parser_reads_the_figure),
        cmocka_unit_test(same_record_gives_same_bytes),
        cmocka_unit_test(small_record_gives_these_very_bytes),
        cmocka_unit_test(numbers_in_cells_are_the_record_s),
        cmocka_unit_test(caption_names_model_map_scale_and_what_is_hidden),
        cmocka_unit_test(a_legend_names_the_letters_that_occur),
        cmocka_unit_test(one_head_alone_takes_no_choice_and_no_limits),
        cmocka_unit_test(a_caption_says_why_this_layer_and_which_row_is_framed),
        cmocka_unit_test(eleven_classes_follow_light_and_dark),
        cmocka_unit_test(selection_outside_the_record_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
