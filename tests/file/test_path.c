/* Paths are joined whole or not at all; data are found here or where ATTN_DATA says. */
#define _XOPEN_SOURCE 700 /* setenv */
#include "file/path.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    assert_string_equal(error.message,
                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…/"
                        "names: a path of 4096 bytes, expected at most 4095");
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
    assert_string_equal(error.message,
                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…: "
                        "a path of 4096 bytes, expected at most 4095");
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
        cmocka_unit_test(the_longest_path_fits_and_one_of_a_byte_more_is_refused),
        cmocka_unit_test(a_path_of_its_own_is_checked_against_the_same_limit),
        cmocka_unit_test(data_are_found_as_given_or_in_the_folder_of_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
