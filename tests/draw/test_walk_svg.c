/* The worked example as a picture. */
#include "check.h"
#include "draw/walk.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 3, WIDTH = 4 };

typedef struct walk_example {
    attn_walk walk;
    float values[ATTN_WALK_STEPS][16 * 16];
} walk_example;

/* The numbers need not belong together: the picture shows what it is given. */
static void fill(walk_example *example, int64_t n, int64_t d, int64_t D, int64_t Dv,
                 const char *const *words)
{
    const int64_t shapes[ATTN_WALK_STEPS][2] = {{n, d}, {d, D}, {d, D},  {d, Dv},
                                                {n, D}, {n, D}, {n, Dv}, {n, n},
                                                {n, n}, {n, n}, {n, Dv}};
    *example = (walk_example){.walk = {.words = words, .tokens = n}};
    example->walk.scale = 1.0 / sqrt((double)D);
    for (int i = 0; i < ATTN_WALK_STEPS; i++) {
        example->walk.steps[i] =
            (attn_walk_matrix){shapes[i][0], shapes[i][1], example->values[i]};
        for (int64_t j = 0; j < shapes[i][0] * shapes[i][1]; j++)
            example->values[i][j] =
                (float)(j % 3) + (i < ATTN_WALK_SCORES ? 0.0f : 0.25f);
    }
    for (int64_t j = 0; j < n * n; j++)
        example->values[ATTN_WALK_WEIGHTS][j] = 1.0f / (float)n;
}

static const char *const words[] = {"the", "cat", "sat"};

static char *drawn(const attn_walk *walk)
{
    attn_error error = {0};
    char *svg = NULL;
    size_t length = 0;
    if (attn_draw_walk_svg(walk, &svg, &length, &error) != ATTN_OK)
        fail_msg("drawing failed: %s", error.message);
    assert_int_equal(strlen(svg), length);
    assert_draws_within_its_edges(svg, length);
    return svg;
}

static void every_number_of_every_step_is_in_the_picture(void **unused)
{
    (void)unused;
    walk_example example;
    fill(&example, TOKENS, WIDTH, WIDTH, WIDTH, words);
    for (int i = 0; i < ATTN_WALK_STEPS; i++) /* numbers that occur once */
        example.values[i][1] = 100.5f + (float)i;
    example.values[ATTN_WALK_WEIGHTS][1] = 0.77f;
    char *const svg = drawn(&example.walk);
    for (int i = 0; i < ATTN_WALK_STEPS; i++) {
        char number[32];
        snprintf(number, sizeof number, ">%d.50</text>", 100 + i);
        assert_int_equal(occurrences(svg, number), i != ATTN_WALK_WEIGHTS);
    }
    assert_int_equal(occurrences(svg, ">0.77</text>"), 1);
    assert_int_equal(occurrences(svg, "class=\"w8\""), 1); /* and its shade */
    assert_int_equal(occurrences(svg, ">÷ √4</text>"), 1);
    assert_int_equal(occurrences(svg, ">softmax</text>"), 1);
    free(svg);
}

static void negative_large_and_undefined_numbers_are_written(void **unused)
{
    (void)unused;
    walk_example example;
    fill(&example, TOKENS, WIDTH, WIDTH, WIDTH, words);
    example.values[ATTN_WALK_INPUT][0] = -0.5f;
    example.values[ATTN_WALK_INPUT][1] = 3e9f;
    example.values[ATTN_WALK_LOGITS][0] = NAN;
    example.values[ATTN_WALK_LOGITS][1] = INFINITY;
    char *const svg = drawn(&example.walk);
    assert_int_equal(occurrences(svg, ">−0.50<"), 1);
    assert_int_equal(occurrences(svg, ">3e9<"), 1);
    assert_int_equal(occurrences(svg, ">NaN<"), 1);
    assert_int_equal(occurrences(svg, ">∞<"), 1);
    free(svg);
}

static void hidden_keys_are_hatched_and_have_no_number(void **unused)
{
    (void)unused;
    walk_example example;
    fill(&example, TOKENS, WIDTH, WIDTH, WIDTH, words);
    for (int i = 0; i < TOKENS; i++)
        for (int j = i + 1; j < TOKENS; j++) {
            example.values[ATTN_WALK_SCORES][TOKENS * i + j] = -INFINITY;
            example.values[ATTN_WALK_WEIGHTS][TOKENS * i + j] = 0;
        }
    char *const svg = drawn(&example.walk);
    assert_int_equal(occurrences(svg, "<rect class=\"unseen\""), 6);
    assert_int_equal(occurrences(svg, "Hatched: "), 1);
    assert_int_equal(occurrences(svg, "inf"), 0);
    free(svg);
}

static void any_shape_and_any_word_stays_in_its_box(void **unused)
{
    (void)unused;
    walk_example example;
    const int64_t shapes[][4] = {
        {1, 1, 1, 1}, {3, 4, 2, 5}, {16, 16, 16, 16}, {2, 16, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fill(&example, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
             hostile_words);
        char *const svg = drawn(&example.walk);
        assert_int_equal(occurrences(svg, "<script"), 0);
        free(svg);
    }
}

static void another_parser_reads_the_picture(void **unused)
{
    (void)unused;
    walk_example example;
    fill(&example, 16, 4, 4, 4, hostile_words);
    char *const svg = drawn(&example.walk);
    check_with_python("another_parser_reads_the_picture",
                      "import sys, xml.dom.minidom as d; "
                      "d.parseString(sys.stdin.buffer.read())",
                      svg);
    free(svg);
}

static void shapes_that_do_not_fit_are_named(void **unused)
{
    (void)unused;
    walk_example example;
    attn_error error = {0};
    char *svg = NULL;
    size_t length;
    fill(&example, TOKENS, WIDTH, WIDTH, WIDTH, words);
    example.walk.steps[ATTN_WALK_KEY].columns = 3;
    assert_int_equal(attn_draw_walk_svg(&example.walk, &svg, &length, &error),
                     ATTN_EINVAL);
    assert_string_equal(error.message, "K is 3 × 3, expected 3 × 4 with values");
    example.walk.tokens = 17;
    assert_int_equal(attn_draw_walk_svg(&example.walk, &svg, &length, &error),
                     ATTN_EINVAL);
    assert_string_equal(error.message, "tokens is 17, expected 1 to 16");
    assert_null(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_every_step_is_in_the_picture),
        cmocka_unit_test(negative_large_and_undefined_numbers_are_written),
        cmocka_unit_test(hidden_keys_are_hatched_and_have_no_number),
        cmocka_unit_test(any_shape_and_any_word_stays_in_its_box),
        cmocka_unit_test(another_parser_reads_the_picture),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
