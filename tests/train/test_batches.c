/* Batches: every example once an epoch, about the same tokens in each, always the same.
 */
#include "base/mix.h"
#include "train/batches.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Examples of random sizes up to largest. */
static attn_examples make_examples(size_t count, int64_t largest)
{
    attn_examples examples = {
        .count = count,
        .sizes = calloc(count, sizeof *examples.sizes),
    };
    for (size_t n = 0; n < count; n++)
        examples.sizes[n].size = 1 + (int32_t)(attn_mix(6, n) % (uint64_t)largest);
    return examples;
}

static void assert_each_example_once(const attn_batches *batches,
                                     const attn_examples *examples)
{
    unsigned char *const seen = calloc(examples->count, 1);
    assert_int_equal(batches->first[0], 0);
    assert_int_equal(batches->first[batches->count], examples->count);
    for (size_t b = 0; b < batches->count; b++)
        assert_true(batches->first[b] < batches->first[b + 1]);
    for (size_t n = 0; n < examples->count; n++) {
        assert_true(batches->list[n] < examples->count);
        assert_int_equal(seen[batches->list[n]]++, 0);
    }
    free(seen);
}

static int64_t tokens_of(const attn_batches *batches, const attn_examples *examples,
                         size_t b)
{
    int64_t tokens = 0;
    for (size_t n = batches->first[b]; n < batches->first[b + 1]; n++)
        tokens += examples->sizes[batches->list[n]].size;
    return tokens;
}

static void each_example_is_in_one_batch_of_an_epoch(void **state)
{
    (void)state;
    attn_error error;
    for (size_t count = 1; count < 600; count += 37) {
        attn_examples examples = make_examples(count, 30);
        for (int64_t tokens = 1; tokens < 3000; tokens = tokens * 5 + 2) {
            attn_batches batches;
            assert_int_equal(attn_batches_create(&batches, &examples, tokens, &error),
                             ATTN_OK);
            for (int64_t epoch = 0; epoch < 3; epoch++) {
                attn_batches_arrange(&batches, &examples, 1, epoch, 3.0);
                assert_each_example_once(&batches, &examples);
            }
            attn_batches_free(&batches);
        }
        free(examples.sizes);
    }
}

static void batches_have_about_the_tokens_asked_for(void **state)
{
    (void)state;
    attn_error error;
    attn_batches batches;
    attn_examples examples = make_examples(5000, 40);
    assert_int_equal(attn_batches_create(&batches, &examples, 1000, &error), ATTN_OK);
    attn_batches_arrange(&batches, &examples, 3, 0, 4.0);
    for (size_t b = 0; b < batches.count; b++)
        assert_in_range(tokens_of(&batches, &examples, b), 940, 1060);
    attn_batches_free(&batches);
    free(examples.sizes);
}

static void lengths_in_a_batch_are_alike(void **state)
{
    (void)state;
    attn_error error;
    attn_batches batches;
    attn_examples examples = make_examples(5000, 40);
    assert_int_equal(attn_batches_create(&batches, &examples, 1000, &error), ATTN_OK);
    attn_batches_arrange(&batches, &examples, 3, 0, 1.0);
    for (size_t b = 0; b < batches.count; b++) {
        int64_t least = 1000, most = 0;
        for (size_t n = batches.first[b]; n < batches.first[b + 1]; n++) {
            const int64_t length = examples.sizes[batches.list[n]].size;
            least = length < least ? length : least;
            most = length > most ? length : most;
        }
        /* A batch of one-token sentences spans several lengths. */
        assert_true(most - least <= 8);
    }
    attn_batches_free(&batches);
    free(examples.sizes);
}

static void an_epoch_depends_on_seed_and_number_only(void **state)
{
    (void)state;
    enum { COUNT = 700 };
    attn_error error;
    attn_batches one, two;
    attn_examples examples = make_examples(COUNT, 20);
    assert_int_equal(attn_batches_create(&one, &examples, 200, &error), ATTN_OK);
    assert_int_equal(attn_batches_create(&two, &examples, 200, &error), ATTN_OK);
    for (int64_t epoch = 0; epoch < 4; epoch++)
        attn_batches_arrange(&one, &examples, 11, epoch, 2.0);
    attn_batches_arrange(&two, &examples, 11, 3, 2.0);
    assert_memory_equal(one.list, two.list, COUNT * sizeof *one.list);
    assert_memory_equal(one.first, two.first, (one.count + 1) * sizeof *one.first);
    attn_batches_arrange(&two, &examples, 11, 2, 2.0);
    assert_memory_not_equal(one.list, two.list, COUNT * sizeof *one.list);
    attn_batches_arrange(&two, &examples, 12, 3, 2.0);
    assert_memory_not_equal(one.list, two.list, COUNT * sizeof *one.list);
    attn_batches_free(&one);
    attn_batches_free(&two);
    free(examples.sizes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_example_is_in_one_batch_of_an_epoch),
        cmocka_unit_test(batches_have_about_the_tokens_asked_for),
        cmocka_unit_test(lengths_in_a_batch_are_alike),
        cmocka_unit_test(an_epoch_depends_on_seed_and_number_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
