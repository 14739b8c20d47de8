/* Checkpoints: whatever happens to a training, it goes on as if nothing had. */
#include "file/file.h"
#include "file/safetensors.h"
#include "small_training.h"
#include "train/progress.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUT_BYTES = 600, KILLS = 12 };

static attn_train_end run(const small_training *small, attn_train_options options)
{
    attn_error error = {ATTN_OK, ""};
    attn_train_end end = ATTN_TRAIN_STOPPED;
    if (attn_train(&small->recipe, &options, &end, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return end;
}

static void assert_same_training(const char *one, const char *two)
{
    static const char *const NOTES[] = {"recipe", "data",  "step",
                                        "epoch",  "batch", "target_tokens"};
    char path[2][OUT_BYTES + 32];
    attn_safetensors *file[2];
    attn_error error;
    const char *const folders[] = {one, two};
    for (size_t n = 0; n < 2; n++) {
        snprintf(path[n], sizeof path[n], "%s/checkpoint.safetensors", folders[n]);
        assert_int_equal(attn_safetensors_open(&file[n], path[n], &error), ATTN_OK);
    }
    assert_int_equal(attn_safetensors_count(file[0]), 4);
    assert_int_equal(attn_safetensors_count(file[1]), 4);
    for (size_t n = 0; n < 4; n++) {
        const attn_safetensor *const a = attn_safetensors_at(file[0], n);
        const attn_safetensor *const b = attn_safetensors_find(file[1], a->name);
        assert_non_null(b);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    for (size_t n = 0; n < sizeof NOTES / sizeof NOTES[0]; n++)
        assert_string_equal(attn_safetensors_metadata(file[0], NOTES[n]),
                            attn_safetensors_metadata(file[1], NOTES[n]));
    attn_safetensors_close(file[0]);
    attn_safetensors_close(file[1]);
}

static void one_and_two_threads_give_the_same_bits(void **state)
{
    small_training *const small = *state;
    char one[OUT_BYTES], two[OUT_BYTES];
    assert_int_equal(run(small, small_training_options(small, "one", 1, one)),
                     ATTN_TRAIN_FINISHED);
    assert_int_equal(run(small, small_training_options(small, "two", 2, two)),
                     ATTN_TRAIN_FINISHED);
    assert_same_training(one, two);
    assert_same_file(one, two, "model.safetensors");
    assert_same_file(one, two, "tokenizer.json");
}

static void a_training_in_two_parts_is_the_whole(void **state)
{
    small_training *const small = *state;
    char whole[OUT_BYTES], parts[OUT_BYTES];
    run(small, small_training_options(small, "whole", 2, whole));
    attn_train_options options = small_training_options(small, "parts", 1, parts);
    options.max_steps = 7;
    assert_int_equal(run(small, options), ATTN_TRAIN_LIMIT);
    options = small_training_options(small, "parts", 2, parts);
    options.resume = true;
    assert_int_equal(run(small, options), ATTN_TRAIN_FINISHED);
    assert_same_training(whole, parts);
    assert_same_file(whole, parts, "model.safetensors");
}

static void sleep_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Runs until the child has gone on for ms, then kills it; whether it was finished before.
 */
static bool run_and_kill(const small_training *small, attn_train_options options, long ms)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        attn_error error;
        attn_train_end end;
        _exit(attn_train(&small->recipe, &options, &end, &error) == ATTN_OK ? 0 : 1);
    }
    int status = 0;
    sleep_ms(ms);
    const bool ended = waitpid(child, &status, WNOHANG) == child;
    if (!ended) {
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFEXITED(status);
}

static void
a_training_killed_at_any_moment_gives_the_bits_of_an_unbroken_one(void **state)
{
    small_training *const small = *state;
    char whole[OUT_BYTES], killed[OUT_BYTES];
    const double start = attn_seconds();
    run(small, small_training_options(small, "whole", 1, whole));
    const double whole_ms = 1e3 * (attn_seconds() - start);
    for (size_t n = 0; n < KILLS; n++) {
        const attn_train_options options =
            small_training_options(small, "killed", 1 + n % 2, killed);
        if (run_and_kill(small, options, (long)(whole_ms * (double)(n % 6 + 1) / 8.0)))
            break;
    }
    run(small, small_training_options(small, "killed", 2, killed));
    assert_same_training(whole, killed);
    assert_same_file(whole, killed, "model.safetensors");
}

static void a_full_disk_stops_with_a_message_and_leaves_the_old_checkpoint(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES], kept[OUT_BYTES];
    int pipes[2];
    attn_train_options options = small_training_options(small, "full", 1, out);
    options.max_steps = 4;
    run(small, options);
    options = small_training_options(small, "kept", 1, kept);
    options.max_steps = 4;
    run(small, options);
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        attn_error error = {ATTN_OK, ""};
        attn_train_end end;
        const struct rlimit limit = {10000, 10000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        options = small_training_options(small, "full", 1, out);
        const attn_status status = attn_train(&small->recipe, &options, &end, &error);
        const ssize_t told = write(pipes[1], error.message, strlen(error.message));
        _exit(status == ATTN_EIO && told > 0 ? 0 : 1);
    }
    int status;
    char message[600] = "";
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(pipes[0], message, sizeof message - 1) > 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_non_null(strstr(message, "checkpoint.safetensors"));
    assert_same_training(kept, out);
    close(pipes[0]);
    close(pipes[1]);
}

static void assert_train_fails(const small_training *small, attn_train_options options,
                               attn_status status, const char *message)
{
    attn_error error = {ATTN_OK, ""};
    attn_train_end end;
    assert_int_equal(attn_train(&small->recipe, &options, &end, &error), status);
    if (!strstr(error.message, message))
        fail_msg("the message is \"%s\", expected \"%s\" in it", error.message, message);
}

static void another_recipe_is_not_gone_on_with_unless_asked_to(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES];
    attn_train_options options = small_training_options(small, "out", 1, out);
    options.max_steps = 2;
    run(small, options);
    char *const seed = strstr(small->recipe.identity, "\"seed\":5");
    assert_non_null(seed);
    seed[7] = '6';
    assert_train_fails(small, options, ATTN_EINVAL,
                       "training.seed was 5 and is 6 (--changed goes on all the same)");
    options.changed = true;
    options.max_steps = 3;
    assert_int_equal(run(small, options), ATTN_TRAIN_LIMIT);
    char *const width = strstr(small->recipe.identity, "\"width\":16");
    assert_non_null(width);
    width[8] = '2';
    assert_train_fails(small, options, ATTN_EINVAL,
                       "model.width was 16 and is 26 (--out another folder starts anew)");
}

static void other_data_is_refused(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES];
    attn_train_options options = small_training_options(small, "out", 1, out);
    options.max_steps = 2;
    run(small, options);
    options.train = small->valid;
    assert_train_fails(small, options, ATTN_EINVAL, "other training data");
}

static void a_checkpoint_that_is_cut_short_is_refused_by_name(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES], path[OUT_BYTES + 32];
    attn_train_options options = small_training_options(small, "out", 1, out);
    options.resume = true;
    assert_train_fails(small, options, ATTN_EIO, "checkpoint.safetensors: No such file");
    options.resume = false;
    options.max_steps = 2;
    run(small, options);
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", out);
    assert_int_equal(truncate(path, 5000), 0);
    assert_train_fails(small, options, ATTN_EFORMAT, "checkpoint.safetensors");
}

/* A weight, a moment, and a digit of the step. */
static void a_checkpoint_in_which_a_bit_changed_is_refused(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES], path[OUT_BYTES + 32], *content;
    size_t length;
    attn_error error;
    attn_train_options options = small_training_options(small, "out", 1, out);
    options.max_steps = 2;
    run(small, options);
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", out);
    assert_int_equal(attn_file_read(path, 1 << 24, &content, &length, &error), ATTN_OK);
    char *const step = strstr(content + 8, "\"step\":\"2\"");
    assert_non_null(step);
    char *const places[] = {content + length - 1, content + length / 2, step + 8};
    for (size_t n = 0; n < sizeof places / sizeof places[0]; n++) {
        *places[n] ^= 1;
        assert_int_equal(attn_file_write(path, content, length, &error), ATTN_OK);
        assert_train_fails(small, options, ATTN_EFORMAT, "is damaged: the hash");
        *places[n] ^= 1;
    }
    assert_int_equal(attn_file_write(path, content, length, &error), ATTN_OK);
    options.max_steps = 3;
    assert_int_equal(run(small, options), ATTN_TRAIN_LIMIT);
    free(content);
}

static void two_trainings_in_one_folder_are_one_too_many(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES];
    attn_train_options options = small_training_options(small, "out", 1, out);
    options.max_steps = 2;
    run(small, options);
    const int folder = open(out, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(folder, LOCK_EX), 0); /* as another training does */
    options.max_steps = 3;
    assert_train_fails(small, options, ATTN_EIO, "another training writes to this");
    close(folder);
    assert_int_equal(run(small, options), ATTN_TRAIN_LIMIT);
}

static void a_loss_that_is_not_finite_names_step_and_tensor(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES], kept[OUT_BYTES];
    attn_train_options options = small_training_options(small, "kept", 1, kept);
    options.max_steps = 2;
    run(small, options);
    options = small_training_options(small, "out", 1, out);
    options.max_steps = 2;
    run(small, options);
    options.max_steps = 0;
    options.changed = true;
    small->recipe.peak_learning_rate = 1e30;
    assert_train_fails(small, options, ATTN_ENOTFINITE,
                       ": the loss is nan and the norm of its gradient nan; first tensor "
                       "that is not finite: ");
    assert_same_training(kept, out);
}

static bool is_there(const char *folder, const char *name)
{
    char path[OUT_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* The first step makes weights so large that the second has no loss. */
static void only_a_checkpoint_that_can_be_gone_on_from_is_kept(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES];
    attn_train_options options = small_training_options(small, "out", 1, out);
    small->recipe.checkpoint_every = 1;
    small->recipe.peak_learning_rate = 1e30;
    assert_train_fails(small, options, ATTN_ENOTFINITE, "there was no checkpoint yet");
    assert_false(is_there(out, "checkpoint.safetensors"));
    /* A rate that is no float makes the weights themselves infinite. */
    options.max_steps = 1;
    small->recipe.peak_learning_rate = 1e39;
    assert_train_fails(small, options, ATTN_ENOTFINITE,
                       "step 1: its weights are not finite; first tensor");
    options.max_steps = 0;
    small->recipe.valid_every = 1;
    assert_train_fails(small, options, ATTN_ENOTFINITE,
                       "step 1: the loss of validation is ");
    assert_false(is_there(out, "checkpoint.safetensors"));
    assert_false(is_there(out, "model.safetensors"));
}

/* Found where no number is infinite: squares of the gradient were. */
static void a_norm_that_is_too_large_names_the_largest_tensor(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES];
    const attn_train_options options = small_training_options(small, "out", 1, out);
    small->recipe.weight_decay = 10.0;
    small->recipe.peak_learning_rate = 10.0;
    small->recipe.warmup_steps = 0;
    small->recipe.epochs = 20;
    assert_train_fails(small, options, ATTN_ENOTFINITE,
                       "every tensor is finite, the largest number is ");
}

static void a_perplexity_that_is_not_finite_is_null_in_the_scores(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES], path[OUT_BYTES + 32], *scores;
    size_t length;
    attn_error error;
    small->recipe.peak_learning_rate = 10.0;
    small->recipe.warmup_steps = 0;
    small->recipe.epochs = 1;
    small->recipe.average = 0.0;
    assert_int_equal(run(small, small_training_options(small, "out", 1, out)),
                     ATTN_TRAIN_FINISHED);
    snprintf(path, sizeof path, "%s/scores.json", out);
    assert_int_equal(attn_file_read(path, 1 << 20, &scores, &length, &error), ATTN_OK);
    assert_non_null(strstr(scores, "\"valid_perplexity\": null"));
    free(scores);
}

static void
what_would_be_refused_at_the_end_is_refused_before_the_first_step(void **state)
{
    small_training *const small = *state;
    static const char *const texts[][2] = {
        {"", "no lines, expected a sentence pair"},
        {"cat chat\n", "line 1: 1 column"},
        {"cat\tchat\ncat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat "
         "cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat\tchat\n",
         "line 2 has "},
    };
    char out[OUT_BYTES], path[OUT_BYTES];
    attn_error error;
    snprintf(path, sizeof path, "%s/test.tsv", small->folder);
    for (size_t n = 0; n < sizeof texts / sizeof texts[0]; n++) {
        attn_train_options options = small_training_options(small, "out", 1, out);
        assert_int_equal(attn_file_write(path, texts[n][0], strlen(texts[n][0]), &error),
                         ATTN_OK);
        options.test = path;
        assert_train_fails(small, options, ATTN_EFORMAT, texts[n][1]);
        options.test = NULL;
        options.valid = path;
        assert_train_fails(small, options, ATTN_EFORMAT, texts[n][1]);
        assert_false(is_there(out, "checkpoint.safetensors"));
    }
}

static void a_signal_stops_after_the_step_with_a_checkpoint(void **state)
{
    small_training *const small = *state;
    char out[OUT_BYTES], path[OUT_BYTES + 32];
    static const volatile sig_atomic_t stop = 1;
    attn_train_options options = small_training_options(small, "out", 1, out);
    options.max_steps = 3;
    run(small, options);
    options.stop = &stop;
    options.max_steps = 0;
    assert_int_equal(run(small, options), ATTN_TRAIN_STOPPED);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    assert_int_equal(access(path, F_OK), 0);
}

static int set_up(void **state)
{
    static small_training small;
    small_training_set_up(&small);
    *state = &small;
    return 0;
}

static int tear_down(void **state)
{
    small_training_tear_down(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_and_two_threads_give_the_same_bits),
        TEST(a_training_in_two_parts_is_the_whole),
        TEST(a_training_killed_at_any_moment_gives_the_bits_of_an_unbroken_one),
        TEST(a_full_disk_stops_with_a_message_and_leaves_the_old_checkpoint),
        TEST(another_recipe_is_not_gone_on_with_unless_asked_to),
        TEST(other_data_is_refused),
        TEST(a_checkpoint_that_is_cut_short_is_refused_by_name),
        TEST(a_checkpoint_in_which_a_bit_changed_is_refused),
        TEST(two_trainings_in_one_folder_are_one_too_many),
        TEST(a_loss_that_is_not_finite_names_step_and_tensor),
        TEST(only_a_checkpoint_that_can_be_gone_on_from_is_kept),
        TEST(a_norm_that_is_too_large_names_the_largest_tensor),
        TEST(a_perplexity_that_is_not_finite_is_null_in_the_scores),
        TEST(what_would_be_refused_at_the_end_is_refused_before_the_first_step),
        TEST(a_signal_stops_after_the_step_with_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
