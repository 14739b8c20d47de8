/* The step that is measured: the same bits on one thread and on two, and it learns. */
#include "train/step.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 6 };

static attn_step_options small(size_t threads)
{
    attn_step_options options;
    attn_step_options_init(&options);
    options.decoder.layers = 2;
    options.decoder.width = 32;
    options.decoder.inner = 48;
    options.decoder.vocabulary = 300;
    options.texts = 4;
    options.length = 40;
    options.threads = threads;
    return options;
}

static void run(size_t threads, double *losses)
{
    const attn_step_options options = small(threads);
    attn_step *step;
    attn_error error;
    if (attn_step_create(&step, &options, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(attn_step_tokens(step), 160);
    for (int i = 0; i < STEPS; i++)
        if (attn_step_run(step, &losses[i], &error) != ATTN_OK)
            fail_msg("%s", error.message);
    attn_step_destroy(step);
}

static void a_step_has_the_same_bits_on_one_thread_and_two(void **state)
{
    (void)state;
    double one[STEPS], two[STEPS];
    run(1, one);
    run(2, two);
    assert_memory_equal(one, two, sizeof one);
    for (int i = 1; i < STEPS; i++)
        assert_true(one[i] < one[i - 1]);
}

static void the_decoder_of_the_header_has_its_parameters(void **state)
{
    (void)state;
    attn_step_options options;
    attn_step *step;
    attn_error error;
    attn_step_options_init(&options);
    if (attn_step_create(&step, &options, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(attn_step_parameters(step), 6794496);
    assert_int_equal(attn_step_tokens(step), 4096);
    attn_step_destroy(step);
}

static void options_that_do_not_fit_are_named(void **state)
{
    (void)state;
    attn_step_options options = small(1);
    attn_step *step;
    attn_error error;
    options.texts = 3;
    assert_int_equal(attn_step_create(&step, &options, &error), ATTN_EINVAL);
    assert_non_null(strstr(error.message, "3 texts of 40 tokens"));
    options = small(0);
    assert_int_equal(attn_step_create(&step, &options, &error), ATTN_EINVAL);
    options = small(1);
    options.length = 257;
    assert_int_equal(attn_step_create(&step, &options, &error), ATTN_EINVAL);
    assert_null(step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_the_same_bits_on_one_thread_and_two),
        cmocka_unit_test(the_decoder_of_the_header_has_its_parameters),
        cmocka_unit_test(options_that_do_not_fit_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
