/* Text in pieces: wherever bytes are cut, the text is that of all of them together, and
 * nothing leaves before it is whole. */
#include "text/stream.h"
#include "text/words.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct output {
    attn_text_stream stream;
    char *text;
    size_t used;
};

static void put(struct output *output, const char *bytes, size_t length)
{
    attn_error error;
    if (attn_text_stream_put(&output->stream, bytes, length, &output->text, &output->used,
                             &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static void end(struct output *output)
{
    attn_error error;
    if (attn_text_stream_end(&output->stream, &output->text, &output->used, &error) !=
        ATTN_OK)
        fail_msg("%s", error.message);
}

static void check_cut(const char *bytes, size_t length, const char *expected,
                      size_t first, size_t second)
{
    struct output output = {{{0}, 0}, NULL, 0};
    put(&output, bytes, first);
    put(&output, bytes + first, second - first);
    put(&output, bytes + second, length - second);
    end(&output);
    if (strlen(expected) != output.used || strcmp(output.text, expected) != 0)
        fail_msg("cut at %zu and %zu: \"%s\", expected \"%s\"", first, second,
                 output.text, expected);
    free(output.text);
}

/* Also of what is no UTF-8: the counts of U+FFFD are those of Python's "replace". */
static void pieces_cut_anywhere_give_the_text_of_the_whole(void **state)
{
    (void)state;
    const char *const cases[] = {"",
                                 "plain",
                                 "d\xC3\xA9j\xC3\xA0 \xE4\xBD\xA0\xE5\xA5\xBD "
                                 "\xF0\x9F\x98\x80!",
                                 "\xFF",
                                 "\xE4\xBD",
                                 "a\xC0\x80z",
                                 "\xED\xA0\x80",
                                 "\xF4\x90\x80\x80",
                                 "\xF0\x9F\x98"
                                 "A",
                                 "\xF0\x9F\xF0\x9F\x98\x80\xF0"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t length = strlen(cases[i]);
        char *expected;
        size_t used;
        attn_error error;
        assert_int_equal(attn_utf8_repair(cases[i], length, &expected, &used, &error),
                         ATTN_OK);
        for (size_t first = 0; first <= length; first++)
            for (size_t second = first; second <= length; second++)
                check_cut(cases[i], length, expected, first, second);
        free(expected);
    }
}

static void a_character_waits_until_it_is_whole(void **state)
{
    (void)state;
    struct output output = {{{0}, 0}, NULL, 0};
    put(&output, "a\xF0\x9F", 3);
    assert_string_equal(output.text, "a");
    put(&output, "\x98", 1);
    assert_string_equal(output.text, "a");
    put(&output,
        "\x80"
        "b",
        2);
    assert_string_equal(output.text, "a\xF0\x9F\x98\x80"
                                     "b");
    end(&output);
    assert_string_equal(output.text, "a\xF0\x9F\x98\x80"
                                     "b");
    free(output.text);
}

static void a_tail_that_stays_open_ends_as_one_replacement(void **state)
{
    (void)state;
    struct output output = {{{0}, 0}, NULL, 0};
    put(&output, "x\xE4\xBD", 3);
    end(&output);
    assert_string_equal(output.text, "x\xEF\xBF\xBD");
    end(&output);
    assert_string_equal(output.text, "x\xEF\xBF\xBD");
    free(output.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cut_anywhere_give_the_text_of_the_whole),
        cmocka_unit_test(a_character_waits_until_it_is_whole),
        cmocka_unit_test(a_tail_that_stays_open_ends_as_one_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
