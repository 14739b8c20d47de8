/* Parallel text: lines and columns, packed or not, and what is wrong with them. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "tests/folder.h"
#include "text/corpus.h"
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static attn_error error;

static attn_status load(attn_corpus *corpus, const char *name, const char *content,
                        size_t length, size_t columns)
{
    const char *const path = in_folder(name);
    if (attn_file_write(path, content, length, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return attn_corpus_load(corpus, path, columns, &error);
}

static void refuses(const char *content, size_t length, size_t columns,
                    const char *reason)
{
    attn_corpus corpus;
    assert_int_equal(load(&corpus, "bad.tsv", content, length, columns), ATTN_EFORMAT);
    if (!strstr(error.message, reason))
        fail_msg("says \"%s\", expected \"%s\"", error.message, reason);
    assert_null(corpus.text);
    assert_null(corpus.fields);
}

static void lines_are_cut_at_tabs(void **state)
{
    (void)state;
    static const char text[] = "The cat\tLe chat\nA\tb\tc\td\n\tempty first\nlast\tline";
    attn_corpus corpus;
    assert_int_equal(load(&corpus, "a.tsv", text, strlen(text), 2), ATTN_OK);
    assert_int_equal(corpus.lines, 4);
    static const size_t starts[] = {0, 2, 6, 8, 10};
    static const char *const fields[] = {
        "The cat", "Le chat", "A", "b", "c", "d", "", "empty first", "last", "line"};
    assert_memory_equal(corpus.first_field, starts, sizeof starts);
    for (size_t i = 0; i < 10; i++)
        assert_string_equal(corpus.fields[i], fields[i]);
    attn_corpus_free(&corpus);
    attn_corpus_free(&corpus);
}

static void windows_line_ends_and_a_byte_order_mark_are_no_text(void **state)
{
    (void)state;
    static const char text[] = "\xEF\xBB\xBF"
                               "a\tb\r\nc\td\r\n";
    attn_corpus corpus;
    assert_int_equal(load(&corpus, "a.tsv", text, strlen(text), 2), ATTN_OK);
    assert_int_equal(corpus.lines, 2);
    assert_string_equal(corpus.fields[0], "a");
    assert_string_equal(corpus.fields[1], "b");
    assert_string_equal(corpus.fields[3], "d");
    attn_corpus_free(&corpus);
}

static void an_empty_file_has_no_lines(void **state)
{
    (void)state;
    attn_corpus corpus;
    assert_int_equal(load(&corpus, "a.tsv", "", 0, 2), ATTN_OK);
    assert_int_equal(corpus.lines, 0);
    assert_int_equal(corpus.first_field[0], 0);
    attn_corpus_free(&corpus);
}

static void bad_lines_are_named_by_their_number(void **state)
{
    (void)state;
    refuses("a\tb\nno tab\n", 11, 2,
            "line 2: 1 column, separated by tabs, expected at least 2");
    refuses("a\tb\n\nc\td\n", 9, 2, "line 2: 1 column, ");
    refuses("a\tb\nc\tx\xFFy\n", 10, 2, "line 2: not UTF-8 at byte 4 (0xFF)");
    refuses("a\tb\nc\t\xE4\xB8\n", 9, 2, "line 2: not UTF-8");
    refuses("a\tb\nc\0\td\n", 10, 2, "line 2: a byte 0");
}

/* Packs as xz does; memory is the caller's to free. */
static uint8_t *pack(const char *text, size_t length, size_t *packed_length)
{
    const size_t bound = lzma_stream_buffer_bound(length);
    uint8_t *const packed = malloc(bound);
    *packed_length = 0;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL,
                                             (const uint8_t *)text, length, packed,
                                             packed_length, bound),
                     LZMA_OK);
    return packed;
}

static void a_packed_file_is_the_same_lines(void **state)
{
    (void)state;
    enum { LINES = 20000 };
    char *const text = malloc(LINES * 40);
    size_t length = 0, packed_length;
    for (int i = 0; i < LINES; i++)
        length += (size_t)sprintf(text + length, "sentence %d\tphrase %d\n", i, i * 7);
    uint8_t *const packed = pack(text, length, &packed_length);
    attn_corpus corpus;
    assert_int_equal(load(&corpus, "a.tsv.xz", (char *)packed, packed_length, 2),
                     ATTN_OK);
    assert_int_equal(corpus.lines, LINES);
    assert_string_equal(corpus.fields[2 * (LINES - 1)], "sentence 19999");
    assert_string_equal(corpus.fields[2 * (LINES - 1) + 1], "phrase 139993");
    attn_corpus_free(&corpus);
    free(text);
    free(packed);
}

static void a_damaged_packed_file_says_how(void **state)
{
    (void)state;
    static const char text[] = "a\tb\nc\td\n";
    static const char plain[] = "a line that was\tnever packed\n";
    size_t length;
    uint8_t *const packed = pack(text, strlen(text), &length);
    attn_corpus corpus;
    for (size_t kept = 0; kept < length; kept++)
        assert_int_equal(load(&corpus, "cut.tsv.xz", (char *)packed, kept, 2),
                         ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "cut.tsv.xz: it ends too early"));
    assert_int_equal(load(&corpus, "no.tsv.xz", plain, strlen(plain), 2), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "it is not an .xz file"));
    for (size_t i = 0; i < length; i++) {
        packed[i] ^= 0x55;
        assert_int_equal(load(&corpus, "bad.tsv.xz", (char *)packed, length, 2),
                         ATTN_EFORMAT);
        packed[i] ^= 0x55;
    }
    free(packed);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    attn_corpus corpus;
    assert_int_equal(attn_corpus_load(&corpus, in_folder("absent.tsv"), 2, &error),
                     ATTN_EIO);
    assert_non_null(strstr(error.message, "absent.tsv: No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_cut_at_tabs),
        cmocka_unit_test(windows_line_ends_and_a_byte_order_mark_are_no_text),
        cmocka_unit_test(an_empty_file_has_no_lines),
        cmocka_unit_test(bad_lines_are_named_by_their_number),
        cmocka_unit_test(a_packed_file_is_the_same_lines),
        cmocka_unit_test(a_damaged_packed_file_says_how),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
