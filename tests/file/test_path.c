/* Paths are joined whole or not at all; data are found here or where ATTN_DATA says. */
#define _XOPEN_SOURCE 700 /* setenv */
#include "file/path.h"
#include "file/utf8.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static attn_error error;

static void a_name_is_joined_to_a_folder_by_one_slash(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"out", "log.jsonl", "out/log.jsonl"},
        {"out/", "log.jsonl", "out/log.jsonl"},
        {"/", "log.jsonl", "/log.jsonl"},
        {"a/b", "c/d", "a/b/c/d"},
        {"", "log.jsonl", "log.jsonl"},
        {"", "/data/text", "/data/text"},
        {"out", "", "out/"},
        {"", "", ""},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        char path[ATTN_PATH_BYTES];
        assert_int_equal(attn_path_join(path, cases[n][0], cases[n][1], &error), ATTN_OK);
        assert_string_equal(path, cases[n][2]);
    }
}

static void a_name_beside_a_file_is_in_the_folder_of_the_file(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"recipes/tiny.json", "data/a.tsv", "recipes/data/a.tsv"},
        {"/tiny.json", "a.tsv", "/a.tsv"},
        {"tiny.json", "a.tsv", "a.tsv"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        char path[ATTN_PATH_BYTES];
        assert_int_equal(attn_path_beside(path, cases[n][0], cases[n][1], &error),
                         ATTN_OK);
        assert_string_equal(path, cases[n][2]);
    }
}

/* However long the path is, and whichever character the cut falls on. */
static void a_message_keeps_its_beginning_and_its_reason(void **state)
{
    (void)state;
    static const char reason[] = "/sentences.tsv: line 3 has no tab, expected a label";
    for (size_t length = 400; length < 2000; length++) {
        char folder[2048] = "/data", whole[4096];
        while (strlen(folder) < length)
            strcat(folder, length % 3 ? "\xC3\xA9" : "/\xE6\x97\xA5");
        snprintf(whole, sizeof whole, "%s%s", folder, reason);
        assert_int_equal(attn_error_set(&error, ATTN_EFORMAT, "%s%s", folder, reason),
                         ATTN_EFORMAT);
        const size_t said = strlen(error.message);
        if (strlen(whole) < sizeof error.message) {
            assert_string_equal(error.message, whole);
            continue;
        }
        assert_in_range(said, sizeof error.message - 8, sizeof error.message - 1);
        assert_memory_equal(error.message, "/data", 5);
        assert_non_null(strstr(error.message, "…"));
        assert_string_equal(error.message + said - strlen(reason), reason);
        assert_int_equal(attn_utf8_valid(error.message, said), said);
    }
}

static void a_message_may_quote_the_one_before(void **state)
{
    (void)state;
    (void)attn_error_set(&error, ATTN_EIO, "no room");
    (void)attn_error_set(&error, ATTN_EIO, "%s: %s", "a.txt", error.message);
    assert_string_equal(error.message, "a.txt: no room");
    char *const name = calloc(1, 100001);
    assert_non_null(name);
    memset(name, 'n', 100000);
    (void)attn_error_set(&error, ATTN_EIO, "%s: %s", name, error.message);
    assert_non_null(strstr(error.message, "n…n"));
    assert_non_null(strstr(error.message, "n: a.txt: no room"));
    free(name);
}

/* Of a path of many a's, cut. */
static void assert_said(const char *end)
{
    assert_memory_equal(error.message, "aaaaaaaa", 8);
    assert_non_null(strstr(error.message, "a…a"));
    assert_string_equal(error.message + strlen(error.message) - strlen(end), end);
}

static void the_longest_path_fits_and_one_of_a_byte_more_is_refused(void **state)
{
    (void)state;
    char long_folder[ATTN_PATH_BYTES], path[ATTN_PATH_BYTES];
    memset(long_folder, 'a', sizeof long_folder);
    long_folder[ATTN_PATH_BYTES - 1 - strlen("/name")] = '\0';
    assert_int_equal(attn_path_join(path, long_folder, "name", &error), ATTN_OK);
    assert_int_equal(strlen(path), ATTN_PATH_BYTES - 1);
    assert_int_equal(attn_path_check(path, &error), ATTN_OK);

    strcpy(path, "as it was");
    assert_int_equal(attn_path_join(path, long_folder, "names", &error), ATTN_EIO);
    assert_string_equal(path, "as it was");
    assert_said("/names: a path of 4096 bytes, expected at most 4095");
    strcat(long_folder, "/x");
    assert_int_equal(attn_path_beside(path, long_folder, "names", &error), ATTN_EIO);
    assert_string_equal(path, "as it was");
}

static void a_path_of_its_own_is_checked_against_the_same_limit(void **state)
{
    (void)state;
    char path[ATTN_PATH_BYTES + 1];
    memset(path, 'a', sizeof path);
    path[ATTN_PATH_BYTES] = '\0';
    assert_int_equal(attn_path_check(path, &error), ATTN_EIO);
    assert_said("a: a path of 4096 bytes, expected at most 4095");
    path[ATTN_PATH_BYTES - 1] = '\0';
    assert_int_equal(attn_path_check(path, &error), ATTN_OK);
}

/* Every system has /dev/null. */
static void data_are_found_as_given_or_in_the_folder_of_data(void **state)
{
    (void)state;
    char path[ATTN_PATH_BYTES], long_file[ATTN_PATH_BYTES + 1];
    setenv("ATTN_DATA", "/dev/", 1);
    assert_int_equal(attn_path_data(path, "null", "null", "here", &error), ATTN_OK);
    assert_string_equal(path, "/dev/null");
    assert_int_equal(attn_path_data(path, ".", "null", "here", &error), ATTN_OK);
    assert_string_equal(path, ".");
    assert_int_equal(attn_path_data(path, "no/ne", "ne", "beside", &error), ATTN_EIO);
    assert_string_equal(error.message, "ne is neither beside nor in ATTN_DATA, /dev/");
    assert_int_equal(attn_path_data(path, "/none", "/none", "here", &error), ATTN_OK);
    assert_string_equal(path, "/none"); /* who opens it says what is wrong */
    memset(long_file, 'a', sizeof long_file);
    long_file[ATTN_PATH_BYTES - 1] = '\0'; /* fits by itself, and not in the folder */
    assert_int_equal(attn_path_data(path, long_file, long_file, "here", &error),
                     ATTN_EIO);
    assert_non_null(strstr(error.message, "a path of 4100 bytes, expected at most 4095"));
    setenv("ATTN_DATA", "", 1);
    assert_int_equal(attn_path_data(path, "null", "null", "here", &error), ATTN_EIO);
    assert_string_equal(error.message,
                        "null is neither here nor in ATTN_DATA, which is not set");
    unsetenv("ATTN_DATA");
    assert_int_equal(attn_path_data(path, "null", "null", "here", &error), ATTN_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_joined_to_a_folder_by_one_slash),
        cmocka_unit_test(a_name_beside_a_file_is_in_the_folder_of_the_file),
        cmocka_unit_test(a_message_keeps_its_beginning_and_its_reason),
        cmocka_unit_test(a_message_may_quote_the_one_before),
        cmocka_unit_test(the_longest_path_fits_and_one_of_a_byte_more_is_refused),
        cmocka_unit_test(a_path_of_its_own_is_checked_against_the_same_limit),
        cmocka_unit_test(data_are_found_as_given_or_in_the_folder_of_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
