/* Batches: every pair once an epoch, about the same tokens in each, always the same. */
#include "train/batches.h"
#include "train/mix.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Pairs of random lengths up to longest; ids are left out, as batches do not read them.
 */
static attn_pairs make_pairs(size_t count, int64_t longest)
{
    attn_pairs pairs = {
        .count = count,
        .begin = malloc((count + 1) * sizeof *pairs.begin),
        .middle = malloc(count * sizeof *pairs.middle),
    };
    size_t at = 0;
    for (size_t n = 0; n < count; n++) {
        const int64_t source = 1 + (int64_t)(attn_mix(5, n) % (uint64_t)longest);
        const int64_t target = 1 + (int64_t)(attn_mix(6, n) % (uint64_t)longest);
        pairs.begin[n] = at;
        pairs.middle[n] = at + (size_t)source;
        at = pairs.middle[n] + (size_t)target;
        pairs.source_tokens += source;
        pairs.target_tokens += target;
    }
    pairs.begin[count] = at;
    return pairs;
}

static void assert_each_pair_once(const attn_batches *batches, const attn_pairs *pairs)
{
    unsigned char *const seen = calloc(pairs->count, 1);
    assert_int_equal(batches->first[0], 0);
    assert_int_equal(batches->first[batches->count], pairs->count);
    for (size_t b = 0; b < batches->count; b++)
        assert_true(batches->first[b] < batches->first[b + 1]);
    for (size_t n = 0; n < pairs->count; n++) {
        assert_true(batches->pairs[n] < pairs->count);
        assert_int_equal(seen[batches->pairs[n]]++, 0);
    }
    free(seen);
}

static int64_t tokens_of(const attn_batches *batches, const attn_pairs *pairs, size_t b)
{
    int64_t tokens = 0;
    for (size_t n = batches->first[b]; n < batches->first[b + 1]; n++)
        tokens += attn_pairs_target_length(pairs, batches->pairs[n]);
    return tokens;
}

static void each_pair_is_in_one_batch_of_an_epoch(void **state)
{
    (void)state;
    attn_error error;
    for (size_t count = 1; count < 600; count += 37) {
        attn_pairs pairs = make_pairs(count, 30);
        for (int64_t tokens = 1; tokens < 3000; tokens = tokens * 5 + 2) {
            attn_batches batches;
            assert_int_equal(attn_batches_create(&batches, &pairs, tokens, &error),
                             ATTN_OK);
            for (int64_t epoch = 0; epoch < 3; epoch++) {
                attn_batches_arrange(&batches, &pairs, 1, epoch, 3.0);
                assert_each_pair_once(&batches, &pairs);
            }
            attn_batches_free(&batches);
        }
        attn_pairs_free(&pairs);
    }
}

static void batches_have_about_the_tokens_asked_for(void **state)
{
    (void)state;
    attn_error error;
    attn_batches batches;
    attn_pairs pairs = make_pairs(5000, 40);
    assert_int_equal(attn_batches_create(&batches, &pairs, 1000, &error), ATTN_OK);
    attn_batches_arrange(&batches, &pairs, 3, 0, 4.0);
    for (size_t b = 0; b < batches.count; b++)
        assert_in_range(tokens_of(&batches, &pairs, b), 940, 1060);
    attn_batches_free(&batches);
    attn_pairs_free(&pairs);
}

static void lengths_in_a_batch_are_alike(void **state)
{
    (void)state;
    attn_error error;
    attn_batches batches;
    attn_pairs pairs = make_pairs(5000, 40);
    assert_int_equal(attn_batches_create(&batches, &pairs, 1000, &error), ATTN_OK);
    attn_batches_arrange(&batches, &pairs, 3, 0, 1.0);
    for (size_t b = 0; b < batches.count; b++) {
        int64_t least = 1000, most = 0;
        for (size_t n = batches.first[b]; n < batches.first[b + 1]; n++) {
            const int64_t length = attn_pairs_target_length(&pairs, batches.pairs[n]);
            least = length < least ? length : least;
            most = length > most ? length : most;
        }
        /* A batch of one-token sentences spans several lengths. */
        assert_true(most - least <= 8);
    }
    attn_batches_free(&batches);
    attn_pairs_free(&pairs);
}

static void an_epoch_depends_on_seed_and_number_only(void **state)
{
    (void)state;
    enum { COUNT = 700 };
    attn_error error;
    attn_batches one, two;
    attn_pairs pairs = make_pairs(COUNT, 20);
    assert_int_equal(attn_batches_create(&one, &pairs, 200, &error), ATTN_OK);
    assert_int_equal(attn_batches_create(&two, &pairs, 200, &error), ATTN_OK);
    for (int64_t epoch = 0; epoch < 4; epoch++)
        attn_batches_arrange(&one, &pairs, 11, epoch, 2.0);
    attn_batches_arrange(&two, &pairs, 11, 3, 2.0);
    assert_memory_equal(one.pairs, two.pairs, COUNT * sizeof *one.pairs);
    assert_memory_equal(one.first, two.first, (one.count + 1) * sizeof *one.first);
    attn_batches_arrange(&two, &pairs, 11, 2, 2.0);
    assert_memory_not_equal(one.pairs, two.pairs, COUNT * sizeof *one.pairs);
    attn_batches_arrange(&two, &pairs, 12, 3, 2.0);
    assert_memory_not_equal(one.pairs, two.pairs, COUNT * sizeof *one.pairs);
    attn_batches_free(&one);
    attn_batches_free(&two);
    attn_pairs_free(&pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_is_in_one_batch_of_an_epoch),
        cmocka_unit_test(batches_have_about_the_tokens_asked_for),
        cmocka_unit_test(lengths_in_a_batch_are_alike),
        cmocka_unit_test(an_epoch_depends_on_seed_and_number_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
