/* Text from outside in XML, HTML and JSON. */
#include "draw/escape.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static void assert_put(void (*put)(attn_buffer *, const char *), const char *text,
                       const char *expected)
{
    attn_buffer buffer = {0};
    put(&buffer, text);
    assert_string_equal(attn_buffer_text(&buffer), expected);
    attn_buffer_free(&buffer);
}

static void markup_is_text_in_xml(void **unused)
{
    (void)unused;
    assert_put(attn_put_xml, "a<b<c", "a&lt;b&lt;c");
    assert_put(attn_put_xml, "<script>alert(1)</script>",
               "&lt;script&gt;alert(1)&lt;/script&gt;");
    assert_put(attn_put_xml, "&amp; \" '", "&amp;amp; &quot; &#39;");
    assert_put(attn_put_xml, "]]>", "]]&gt;");
}

static void control_characters_are_pictures_of_themselves(void **unused)
{
    (void)unused;
    assert_put(attn_put_xml, "\x1b[2J", "␛[2J");
    assert_put(attn_put_xml, "\x01\x7f", "␁␡");
    assert_put(attn_put_xml, "a\tb\nc\rd", "a b c d");
    assert_put(attn_put_json, "\x1b[2J", "\"␛[2J\"");
}

static void what_xml_forbids_or_would_reorder_is_replaced(void **unused)
{
    (void)unused;
    assert_put(attn_put_xml, "\uFFFE\uFFFF", "\uFFFD\uFFFD");
    assert_put(attn_put_xml, "\xC2\x85", "\uFFFD"); /* U+0085, a C1 control */
    assert_put(attn_put_xml, "\u202Eevil", "\uFFFDevil");
    assert_put(attn_put_xml, "שלום", "שלום");
}

static void invalid_utf8_is_replaced_and_ends_nothing(void **unused)
{
    (void)unused;
    assert_put(attn_put_xml, "a\xFFz", "a\uFFFDz");
    assert_put(attn_put_xml, "\xED\xA0\x80<", "\uFFFD\uFFFD\uFFFD&lt;");
    assert_put(attn_put_json, "\xE4\xBD", "\"\uFFFD\uFFFD\"");
}

static void json_strings_end_no_element_and_read_back(void **unused)
{
    (void)unused;
    static const char text[] = "</script><!-- \"\\ & \u2603 日本語 👩‍👩‍👧";
    attn_buffer buffer = {0};
    attn_put_json(&buffer, text);
    assert_null(strchr(attn_buffer_text(&buffer), '<'));
    json_error_t error;
    json_t *const value = json_loads(attn_buffer_text(&buffer), JSON_DECODE_ANY, &error);
    assert_non_null(value);
    assert_string_equal(json_string_value(value), text);
    json_decref(value);
    attn_buffer_free(&buffer);
}

/* RFC 4648, section 10. */
static void base64_agrees_with_the_standard(void **unused)
{
    (void)unused;
    static const char *const cases[][2] = {
        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_buffer buffer = {0};
        attn_put_base64(&buffer, (const uint8_t *)cases[i][0], strlen(cases[i][0]));
        assert_string_equal(attn_buffer_text(&buffer), cases[i][1]);
        attn_buffer_free(&buffer);
    }
    static const uint8_t zeros[3000];
    attn_buffer buffer = {0};
    attn_put_base64(&buffer, zeros, sizeof zeros);
    assert_int_equal(buffer.length, 4000);
    assert_int_equal(strspn(attn_buffer_text(&buffer), "A"), 4000);
    attn_buffer_free(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markup_is_text_in_xml),
        cmocka_unit_test(control_characters_are_pictures_of_themselves),
        cmocka_unit_test(what_xml_forbids_or_would_reorder_is_replaced),
        cmocka_unit_test(invalid_utf8_is_replaced_and_ends_nothing),
        cmocka_unit_test(json_strings_end_no_element_and_read_back),
        cmocka_unit_test(base64_agrees_with_the_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
