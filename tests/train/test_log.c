/* log.jsonl on a disk that is full. */
#include "file/file.h"
#include "small_training.h"
#include "train/progress.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUT_BYTES = 600, PATH_BYTES = OUT_BYTES + 32, VALID_EVERY = 5 };

/* The first line of the log follows the first validation. */
static void a_full_disk_ends_a_training_which_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("skipped: a_full_disk_ends_a_training_which_goes_on_with_the_same_"
                      "bits (no /dev/full)\n");
        skip();
    }
    small_training small;
    char whole[OUT_BYTES], out[OUT_BYTES], log[PATH_BYTES], expected[2 * PATH_BYTES];
    attn_error error;
    attn_train_end end;
    small_training_set_up(&small);
    attn_train_options options = small_training_options(&small, "whole", 1, whole);
    assert_int_equal(attn_train(&small.recipe, &options, &end, &error), ATTN_OK);
    options = small_training_options(&small, "out", 1, out);
    assert_int_equal(mkdir(out, 0700), 0);
    snprintf(log, sizeof log, "%s/log.jsonl", out);
    assert_int_equal(symlink("/dev/full", log), 0);
    assert_int_equal(attn_train(&small.recipe, &options, &end, &error), ATTN_EIO);
    snprintf(expected, sizeof expected,
             "cannot write %s: No space left on device; the training is kept after step "
             "%d",
             log, VALID_EVERY);
    assert_string_equal(error.message, expected);
    assert_int_equal(unlink(log), 0);
    options.resume = true;
    assert_int_equal(attn_train(&small.recipe, &options, &end, &error), ATTN_OK);
    assert_int_equal(end, ATTN_TRAIN_FINISHED);
    assert_same_file(whole, out, "model.safetensors");
    small_training_tear_down(&small);
}

static attn_status log_validation(const char *folder, attn_error *error)
{
    attn_progress progress;
    const attn_valid_scores scores = {.loss = 1.5,
                                      .average_loss = (double)NAN,
                                      .accuracy = (double)NAN,
                                      .lowest.entropy = (double)NAN};
    const attn_position position = {.step = 10};
    assert_int_equal(attn_progress_start(&progress, NULL, folder, 20, 4, error), ATTN_OK);
    const attn_status status = attn_progress_valid(&progress, &position, &scores, error);
    attn_progress_end(&progress);
    return status;
}

/* A limit on the size of files stands for a full disk. */
static void a_line_without_room_leaves_nothing_of_itself(void **state)
{
    (void)state;
    static const char line[] = "{\"step\": 10, \"valid_loss\": 1.50000}\n";
    const size_t length = sizeof line - 1;
    small_training small;
    char path[PATH_BYTES], *log;
    size_t read;
    attn_error error;
    struct rlimit before;
    small_training_set_up(&small);
    snprintf(path, sizeof path, "%s/log.jsonl", small.folder);
    assert_int_equal(log_validation(small.folder, &error), ATTN_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    const struct rlimit small_limit = {length + length / 2, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small_limit);
    const attn_status status = log_validation(small.folder, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, ATTN_EIO);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(log_validation(small.folder, &error), ATTN_OK);
    assert_int_equal(attn_file_read(path, 1 << 20, &log, &read, &error), ATTN_OK);
    assert_int_equal(read, 2 * length);
    assert_memory_equal(log, line, length);
    assert_memory_equal(log + length, line, length);
    free(log);
    small_training_tear_down(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_ends_a_training_which_goes_on_with_the_same_bits),
        cmocka_unit_test(a_line_without_room_leaves_nothing_of_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
