/* What a terminal would obey is shown, and all else goes through as it is. */
#include "file/shown.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_shown(const char *text, const char *expected)
{
    char *out;
    size_t length;
    FILE *const stream = open_memstream(&out, &length);
    assert_non_null(stream);
    assert_true(attn_show(stream, text, strlen(text)));
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(out, expected);
    free(out);
}

static void commands_to_a_terminal_are_shown_byte_by_byte(void **state)
{
    (void)state;
    assert_shown("\x1b[2J\x07\r\x7f", "\\x1b[2J\\x07\\x0d\\x7f");
    assert_shown("\xC2\x9B", "\\xc2\\x9b"); /* CSI as one character */
    assert_shown("\xE2\x80\xAE"
                 "evil",
                 "\\xe2\\x80\\xaeevil");
    assert_shown("\xE2\x81\xA6\xD8\x9C\xEF\xBB\xBF",
                 "\\xe2\\x81\\xa6\\xd8\\x9c\\xef\\xbb\\xbf");
}

static void what_is_not_utf_8_is_shown_byte_by_byte(void **state)
{
    (void)state;
    assert_shown("a\xff\xC3", "a\\xff\\xc3");
    assert_shown("\xE2\x82(", "\\xe2\\x82(");
}

static void text_with_its_lines_and_tabs_stays(void **state)
{
    (void)state;
    static const char text[] =
        "D\xC3\xA9j\xC3\xA0\tvu\n\xE6\x97\xA5\xD7\xA9 \xF0\x9F\x98\x80";
    assert_shown(text, text);
    assert_shown("", "");
}

static void a_stream_that_takes_nothing_is_told(void **state)
{
    (void)state;
    FILE *const full = fopen("/dev/full", "w");
    if (!full) {
        print_message("skipped: a_stream_that_takes_nothing_is_told (no /dev/full)\n");
        skip();
    }
    setvbuf(full, NULL, _IONBF, 0);
    assert_false(attn_show(full, "a", 1));
    assert_false(attn_show(full, "\x1b", 1));
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_to_a_terminal_are_shown_byte_by_byte),
        cmocka_unit_test(what_is_not_utf_8_is_shown_byte_by_byte),
        cmocka_unit_test(text_with_its_lines_and_tabs_stays),
        cmocka_unit_test(a_stream_that_takes_nothing_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
