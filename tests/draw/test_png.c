/* The figure in pixels. */
#include "check.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const sample_shape ordinary = {.layers = 3, .heads = 4, .source = 7, .written = 9};

static uint32_t big_endian(const char *bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value = value << 8 | (uint8_t)bytes[i];
    return value;
}

static void picture_has_two_pixels_a_unit_unless_asked(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    char *const svg = draw(attn_draw_svg, &sample, NULL, NULL);
    int width, height;
    const char *const size = strstr(svg, "viewBox=\"0 0 ");
    assert_non_null(size);
    assert_int_equal(sscanf(size, "viewBox=\"0 0 %d %d\"", &width, &height), 2);
    attn_draw_options options;
    attn_draw_options_init(&options);
    const double zooms[] = {0, 1, 3};
    for (int i = 0; i < 3; i++) {
        options.zoom = zooms[i];
        size_t length;
        char *const png = draw(attn_draw_png, &sample, &options, &length);
        const uint32_t zoom = zooms[i] == 0 ? 2 : (uint32_t)zooms[i];
        assert_true(length > 33);
        assert_memory_equal(png, "\x89PNG\r\n\x1a\n", 8);
        assert_int_equal(big_endian(png + 16), zoom * (uint32_t)width);
        assert_int_equal(big_endian(png + 20), zoom * (uint32_t)height);
        free(png);
    }
    free(svg);
    sample_destroy(&sample);
}

static void same_record_gives_same_pixels_and_dark_others(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&ordinary);
    attn_draw_options options;
    attn_draw_options_init(&options);
    options.zoom = 1;
    size_t lengths[3];
    char *pictures[3];
    for (int i = 0; i < 3; i++) {
        options.theme = i == 2 ? ATTN_THEME_DARK : ATTN_THEME_LIGHT;
        pictures[i] = draw(attn_draw_png, &sample, &options, &lengths[i]);
    }
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(pictures[0], pictures[1], lengths[0]);
    assert_true(lengths[0] != lengths[2] ||
                memcmp(pictures[0], pictures[2], lengths[0]) != 0);
    for (int i = 0; i < 3; i++)
        free(pictures[i]);
    sample_destroy(&sample);
}

static void absurd_sizes_are_refused_by_name(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(
        &(sample_shape){.layers = 2, .heads = 2, .source = 64, .written = 64});
    attn_draw_options options;
    attn_draw_options_init(&options);
    attn_error error = {0};
    char *png = NULL;
    size_t length;
    options.zoom = 12;
    assert_int_equal(
        attn_draw_png(sample.record, sample.summary, &options, &png, &length, &error),
        ATTN_EINVAL);
    assert_non_null(strstr(error.message, "pixels, expected at most 16384 a side"));
    options.zoom = 1000;
    assert_int_equal(
        attn_draw_png(sample.record, sample.summary, &options, &png, &length, &error),
        ATTN_EINVAL);
    assert_string_equal(error.message, "zoom is 1000, expected .125 to 16");
    assert_null(png);
    sample_destroy(&sample);
}

static void hostile_words_are_drawn(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(&(sample_shape){.layers = 1,
                                                       .heads = 2,
                                                       .source = hostile_count + 1,
                                                       .written = hostile_count + 1,
                                                       .words = hostile_words,
                                                       .word_count = hostile_count});
    free(draw(attn_draw_png, &sample, NULL, NULL));
    sample_destroy(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picture_has_two_pixels_a_unit_unless_asked),
        cmocka_unit_test(same_record_gives_same_pixels_and_dark_others),
        cmocka_unit_test(absurd_sizes_are_refused_by_name),
        cmocka_unit_test(hostile_words_are_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
