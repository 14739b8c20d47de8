/* A save is whole or has not been: without room, killed, or not possible, it leaves the
 * old files as they were. */
#include "file/safetensors.h"
#include "model/folder.h"
#include "small.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void a_type_that_is_not_written_is_named(void **state)
{
    const struct small_saved *const fixture = *state;
    attn_error error;
    assert_int_equal(attn_translator_save(fixture->translator, fixture->folder,
                                          ATTN_DTYPE_I32, &error),
                     ATTN_EINVAL);
    assert_non_null(strstr(error.message, "ATTN_DTYPE_BF16"));
    assert_int_equal(
        attn_translator_save(fixture->translator, "/dev/null/x", ATTN_DTYPE_F32, &error),
        ATTN_EIO);
    assert_non_null(strstr(error.message, "/dev/null/x"));
}

static void a_path_that_is_too_long_is_refused_and_not_cut(void **state)
{
    const struct small_saved *const fixture = *state;
    attn_error error;
    char same[ATTN_PATH_BYTES]; /* folder/././. */
    snprintf(same, sizeof same, "%s", fixture->folder);
    while (strlen(same) < sizeof same - 4)
        strcat(same, "/.");
    assert_int_equal(attn_config_file_write(json_object(), same, "config.json", &error),
                     ATTN_EIO);
    assert_non_null(strstr(error.message, "config.json: a path of 41"));
    assert_non_null(strstr(error.message, " bytes, expected at most 4095"));
}

/* ---- Whole or not at all --------------------------------------------------------- */

/* The folder holds the model with that seed, whole. */
static bool holds(const char *folder, uint64_t seed)
{
    attn_translator *const loaded = small_load(folder), *const expected =
                                                            small_translator(seed);
    const attn_parameters *const parameters = attn_translator_parameters(expected);
    const bool same = memcmp(attn_translator_parameters(loaded)->values,
                             parameters->values, parameters->floats * sizeof(float)) == 0;
    attn_translator_destroy(loaded);
    attn_translator_destroy(expected);
    return same;
}

/* A limit on the size of files stands for a full disk. */
static void a_save_without_room_leaves_the_old_file(void **state)
{
    const struct small_saved *const fixture = *state;
    for (rlim_t bytes = 0; bytes < 120000; bytes += 29000) {
        const pid_t child = fork();
        if (child == 0) {
            attn_translator *const other = small_translator(8);
            attn_error error = {0};
            const struct rlimit limit = {bytes, bytes};
            signal(SIGXFSZ, SIG_IGN);
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
                _exit(2);
            const attn_status status =
                attn_translator_save(other, fixture->folder, ATTN_DTYPE_F32, &error);
            _exit(status == ATTN_EIO && strstr(error.message, fixture->folder) ? 0 : 1);
        }
        int exit_status;
        assert_int_equal(waitpid(child, &exit_status, 0), child);
        assert_int_equal(exit_status, 0);
        assert_true(holds(fixture->folder, 7));
    }
}

static void a_save_that_is_killed_leaves_a_whole_file(void **state)
{
    const struct small_saved *const fixture = *state;
    for (long turn = 0; turn < 12; turn++) {
        const pid_t child = fork();
        if (child == 0) {
            attn_translator *const models[] = {small_translator(7), small_translator(8)};
            attn_error error;
            for (int i = 0;; i++)
                if (attn_translator_save(models[i % 2], fixture->folder, ATTN_DTYPE_F32,
                                         &error) != ATTN_OK)
                    _exit(1);
        }
        const struct timespec pause = {0, 15000000 + 1700000 * turn};
        nanosleep(&pause, NULL);
        int exit_status;
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &exit_status, 0), child);
        assert_true(WIFSIGNALED(exit_status));
        assert_true(holds(fixture->folder, 7) || holds(fixture->folder, 8));
    }
}

#define TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, small_saved_set_up, small_saved_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_type_that_is_not_written_is_named),
        TEST(a_path_that_is_too_long_is_refused_and_not_cut),
        TEST(a_save_without_room_leaves_the_old_file),
        TEST(a_save_that_is_killed_leaves_a_whole_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
