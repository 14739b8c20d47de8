/* Statistics of rows that can be worked by hand, and their accuracy in long rows. */
#include "attention/reference.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 8, TOP = 3, CLASSES = 2 };

/* One query at position `position` of up to eight keys with these scores. */
struct look {
    float entropy, largest_weight, distance, signed_distance, first, own, previous, next;
    float class_mass[CLASSES], received[KEYS], top_weight[TOP], lse;
    int64_t largest_key, visible, top_key[TOP];
};

static struct look look(attn_context *context, int64_t keys, const float *scores,
                        int64_t position)
{
    static const float one = 1.0f;
    static const uint8_t key_class[KEYS] = {0, 1, 0, 1, 0, 1, 0, 1};
    struct look r = {0};
    float output = 0.0f;
    const attn_shape shape = {1, 1, 1, 1, keys, 1, 1};
    const attn_tensors tensors = {.query = {&one, {0}},
                                  .key = {scores, {0, 0, 1, 0}},
                                  .value = {&one, {0}},
                                  .output = {&output, {0}},
                                  .lse = &r.lse,
                                  .statistics = {.entropy = &r.entropy,
                                                 .largest_weight = &r.largest_weight,
                                                 .largest_key = &r.largest_key,
                                                 .distance = &r.distance,
                                                 .signed_distance = &r.signed_distance,
                                                 .first_key_mass = &r.first,
                                                 .own_mass = &r.own,
                                                 .previous_mass = &r.previous,
                                                 .next_mass = &r.next,
                                                 .visible_keys = &r.visible,
                                                 .key_class = key_class,
                                                 .classes = CLASSES,
                                                 .class_mass = r.class_mass,
                                                 .received = r.received,
                                                 .top = TOP,
                                                 .top_weight = r.top_weight,
                                                 .top_key = r.top_key}};
    attn_options options;
    attn_options_init(&options, &shape);
    options.alignment = ATTN_ALIGN_OFFSET;
    options.query_offset = position;
    if (attn_forward(context, &shape, &tensors, &options) != ATTN_OK)
        fail_msg("%s", attn_context_message(context));
    return r;
}

static void assert_close(float got, double expected)
{
    if (!(fabs((double)got - expected) <= 4e-7 * (1.0 + fabs(expected))))
        fail_msg("got %.9g, expected %.9g", (double)got, expected);
}

static void check_entropy(attn_context *context)
{
    const float half[] = {-INFINITY, 0, 0}, one_hot[] = {0, -500, -500, -500};
    const float uniform[] = {2, 2, 2, 2}, alone[] = {-7.3f};
    assert_close(look(context, 3, half, 0).entropy, 0.693147181);
    assert_true(look(context, 4, one_hot, 0).entropy == 0.0f);
    assert_close(look(context, 4, uniform, 0).entropy, 1.386294361);
    const struct look one = look(context, 1, alone, 0);
    assert_true(one.entropy == 0.0f && one.largest_weight == 1.0f && one.own == 1.0f);
    assert_true(one.received[0] == 1.0f && one.top_weight[0] == 1.0f);
    assert_true(one.top_key[0] == 0 && one.top_key[1] == -1 && one.top_weight[1] == 0);
    assert_true(one.lse == -7.3f);
}

static void entropy_of_zero_weights_is_no_nan_and_of_one_key_is_zero(void **state)
{
    (void)state;
    on_every_level(check_entropy);
}

/* Weights 1/8, 2/8, 4/8, 1/8 seen from position 2. */
static void check_all(attn_context *context)
{
    const float scores[] = {0.0f, 0.693147181f, 1.386294361f, 0.0f};
    const struct look r = look(context, 4, scores, 2);
    assert_close(r.entropy, 1.75 * log(2.0));
    assert_close(r.largest_weight, 0.5);
    assert_int_equal(r.largest_key, 2);
    assert_close(r.distance, 0.25 + 0.25 + 0.125);
    assert_close(r.signed_distance, 0.25 + 0.25 - 0.125);
    assert_close(r.first, 0.125);
    assert_close(r.own, 0.5);
    assert_close(r.previous, 0.25);
    assert_close(r.next, 0.125);
    assert_int_equal(r.visible, 4);
    assert_close(r.class_mass[0], 0.625);
    assert_close(r.class_mass[1], 0.375);
    assert_close(r.received[1], 0.25);
    assert_int_equal(r.top_key[0], 2);
    assert_int_equal(r.top_key[1], 1);
    assert_int_equal(r.top_key[2], 0); /* as heavy as key 3, and before it */
    assert_close(r.top_weight[2], 0.125);

    const struct look beyond = look(context, 4, scores, 5);
    assert_true(beyond.own == 0.0f && beyond.next == 0.0f && beyond.previous == 0.0f);
    const struct look before = look(context, 4, scores, -1);
    assert_close(before.next, 0.125);
    assert_true(before.own == 0.0f && before.previous == 0.0f);
    assert_close(before.signed_distance, -(0.125 + 0.5 + 1.5 + 0.5));
}

static void every_statistic_of_a_row_worked_by_hand(void **state)
{
    (void)state;
    on_every_level(check_all);
}

static void check_ties(attn_context *context)
{
    const float scores[KEYS] = {1, 3, 2, 3, 0, 3, 2, 1};
    const struct look r = look(context, KEYS, scores, 0);
    assert_int_equal(r.largest_key, 1);
    assert_int_equal(r.top_key[0], 1);
    assert_int_equal(r.top_key[1], 3);
    assert_int_equal(r.top_key[2], 5);
}

static void a_tie_goes_to_the_lowest_key(void **state)
{
    (void)state;
    on_every_level(check_ties);
}

/* Causal, a long row: far keys, many blocks, references that rise. */
static void check_long_rows(attn_context *context)
{
    enum { L = 3000, ROWS = 6, D = 4 };
    float *const floats = calloc((size_t)(2 * L * D + 12 * ROWS + 2 * L + ROWS * D), 4);
    assert_non_null(floats);
    float *const key = floats, *const value = floats + L * D, *const rest = value + L * D;
    float query[ROWS * D], output[ROWS * D];
    for (int64_t i = 0; i < ROWS * D; i++)
        query[i] = 2.0f * random_float();
    for (int64_t j = 0; j < L * D; j++) {
        key[j] = random_float() * (1.0f + (float)(j / D) / 1500.0f);
        value[j] = random_float();
    }
    const attn_shape shape = {1, 1, 1, ROWS, L, D, D};
    int64_t keys[2 * ROWS];
    attn_tensors tensors[2];
    for (int n = 0; n < 2; n++) {
        float *const x = rest + n * 6 * ROWS;
        tensors[n] = (attn_tensors){.query = attn_input_dense(query, 1, ROWS, D),
                                    .key = attn_input_dense(key, 1, L, D),
                                    .value = attn_input_dense(value, 1, L, D),
                                    .output = attn_output_dense(output, 1, ROWS, D),
                                    .lse = x,
                                    .statistics = {.entropy = x + ROWS,
                                                   .distance = x + 2 * ROWS,
                                                   .signed_distance = x + 3 * ROWS,
                                                   .largest_weight = x + 4 * ROWS,
                                                   .own_mass = x + 5 * ROWS,
                                                   .largest_key = keys + n * ROWS,
                                                   .received = rest + 12 * ROWS + n * L}};
    }
    attn_options options;
    attn_options_init(&options, &shape);
    options.causal = true;
    assert_int_equal(attn_forward(context, &shape, &tensors[0], &options), ATTN_OK);
    assert_int_equal(attn_forward_reference(&shape, &tensors[1], &options), ATTN_OK);
    for (int64_t n = 0; n < 6 * ROWS; n++) {
        const double expected = (double)rest[6 * ROWS + n];
        const double bound = n < ROWS ? 4e-6 : n < 2 * ROWS ? 2e-5 : 8e-6;
        if (fabs((double)rest[n] - expected) > bound * fmax(1.0, fabs(expected)))
            fail_msg("number %d is %.9g, expected %.9g", (int)n, (double)rest[n],
                     expected);
    }
    for (int64_t j = 0; j < L; j++)
        assert_true(fabsf(rest[12 * ROWS + j] - rest[12 * ROWS + L + j]) < 8e-6f);
    assert_memory_equal(keys, keys + ROWS, ROWS * sizeof *keys);
    free(floats);
}

static void long_rows_are_within_the_stated_bounds(void **state)
{
    (void)state;
    on_every_level(check_long_rows);
}

/* Whether key a goes before key b in a row of these scores. */
static bool goes_before(const float *scores, int64_t a, int64_t b)
{
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
}

/* Small whole numbers, exact and full of ties, in a row of several blocks.  Query i sees
 * keys 0 to first + i. */
static void check_top(attn_context *context, int64_t top)
{
    enum { L = 420, ROWS = 37, MOST = 64 };
    static const float one = 1.0f;
    float scores[L], output[ROWS], largest[ROWS], top_weight[ROWS * MOST];
    int64_t top_key[ROWS * MOST], largest_key[ROWS];
    for (int64_t j = 0; j < L; j++) {
        const int64_t range = j < 200 ? 6 : 9; /* some come late */
        scores[j] = (float)random_below(range);
    }
    const attn_shape shape = {1, 1, 1, ROWS, L, 1, 1};
    const attn_tensors tensors = {.query = {&one, {0}},
                                  .key = attn_input_dense(scores, 1, L, 1),
                                  .value = attn_input_dense(scores, 1, L, 1),
                                  .output = attn_output_dense(output, 1, ROWS, 1),
                                  .statistics = {.top = top,
                                                 .top_weight = top_weight,
                                                 .top_key = top_key,
                                                 .largest_weight = largest,
                                                 .largest_key = largest_key}};
    attn_options options;
    attn_options_init(&options, &shape);
    options.alignment = ATTN_ALIGN_OFFSET;
    options.query_offset = top % 2 ? L - ROWS : 0;
    options.causal = true;
    assert_int_equal(attn_forward(context, &shape, &tensors, &options), ATTN_OK);
    for (int64_t i = 0; i < ROWS; i++) {
        const int64_t visible = i + options.query_offset + 1, *const got =
                                                                  top_key + i * top;
        const float *const weight = top_weight + i * top;
        assert_int_equal(largest_key[i], got[0]);
        assert_true(largest[i] == weight[0]);
        for (int64_t n = 0; n < top; n++) {
            if (n >= visible) {
                assert_true(got[n] == -1 && weight[n] == 0.0f);
                continue;
            }
            int64_t before = 0;
            for (int64_t j = 0; j < visible; j++)
                before += goes_before(scores, j, got[n]);
            assert_int_equal(before, n);
            assert_close(weight[n], (double)weight[0] *
                                        exp((double)(scores[got[n]] - scores[got[0]])));
        }
    }
}

static void check_tops(attn_context *context)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 33, 64};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        check_top(context, sizes[n]);
}

static void the_largest_weights_are_those_that_sorting_finds(void **state)
{
    (void)state;
    on_every_level(check_tops);
}

/* One key for all, so that every score ties, and a window around number 2^31, where a
 * split of decoding ends: no sign of 32 bits may put a later key first. */
static void check_far_ties(attn_context *context)
{
    static const float one = 1.0f;
    const int64_t far = (int64_t)1 << 31, first = far - 2;
    for (int64_t rows = 1; rows <= 2; rows++) {
        enum { TIES = 4 };
        float output[2], top_weight[2 * TIES];
        int64_t top_key[2 * TIES], largest_key[2];
        const attn_shape shape = {1, 1, 1, rows, far + 1000, 1, 1};
        const attn_tensors tensors = {.query = {&one, {0}},
                                      .key = {&one, {0}},
                                      .value = {&one, {0}},
                                      .output = attn_output_dense(output, 1, rows, 1),
                                      .statistics = {.top = TIES,
                                                     .top_weight = top_weight,
                                                     .top_key = top_key,
                                                     .largest_key = largest_key}};
        attn_options options;
        attn_options_init(&options, &shape);
        options.alignment = ATTN_ALIGN_OFFSET;
        options.query_offset = first + 4;
        options.causal = true;
        options.window_left = 4; /* five keys, of which the last is left out */
        if (attn_forward(context, &shape, &tensors, &options) != ATTN_OK)
            fail_msg("%s", attn_context_message(context));
        for (int64_t i = 0; i < rows; i++) {
            assert_true(output[i] == 1.0f);
            assert_true(largest_key[i] == first + i);
            for (int64_t n = 0; n < TIES; n++)
                assert_true(top_key[i * TIES + n] == first + i + n);
        }
    }
}

static void ties_of_keys_beyond_two_to_the_31_go_to_the_lowest(void **state)
{
    (void)state;
    on_every_level(check_far_ties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entropy_of_zero_weights_is_no_nan_and_of_one_key_is_zero),
        cmocka_unit_test(every_statistic_of_a_row_worked_by_hand),
        cmocka_unit_test(a_tie_goes_to_the_lowest_key),
        cmocka_unit_test(the_largest_weights_are_those_that_sorting_finds),
        cmocka_unit_test(ties_of_keys_beyond_two_to_the_31_go_to_the_lowest),
        cmocka_unit_test(long_rows_are_within_the_stated_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
