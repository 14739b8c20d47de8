/* Parameters, positions and the feed-forward layer. */
#include "nn/layers.h"
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void layers_name_and_shape_their_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int rank;
        int64_t extent[2];
        bool decays;
    } expected[] = {
        {"l.fc1.weight", 2, {12, 8}, true},       {"l.fc1.bias", 1, {12}, false},
        {"l.fc2.weight", 2, {8, 12}, true},       {"l.fc2.bias", 1, {8}, false},
        {"l.norm.weight", 1, {8}, false},         {"l.norm.bias", 1, {8}, false},
        {"l.a.q_proj.weight", 2, {8, 8}, true},   {"l.a.q_proj.bias", 1, {8}, false},
        {"l.a.k_proj.weight", 2, {8, 8}, true},   {"l.a.k_proj.bias", 1, {8}, false},
        {"l.a.v_proj.weight", 2, {8, 8}, true},   {"l.a.v_proj.bias", 1, {8}, false},
        {"l.a.out_proj.weight", 2, {8, 8}, true}, {"l.a.out_proj.bias", 1, {8}, false},
    };
    attn_parameters p = {0};
    attn_feed_forward_layer feed_forward;
    attn_norm_layer norm;
    attn_multihead_layer multihead;
    assert_int_equal(
        attn_feed_forward_layer_add(&feed_forward, &p, "l", 8, 12, ATTN_RELU), ATTN_OK);
    assert_int_equal(attn_norm_layer_add(&norm, &p, "l.norm", 8, 1e-5f), ATTN_OK);
    assert_int_equal(
        attn_multihead_layer_add(&multihead, &p, "l.a", 8, 2, ATTN_PART_ENCODER, 0),
        ATTN_OK);
    assert_int_equal(p.length, sizeof expected / sizeof *expected);
    size_t end = 0;
    for (size_t i = 0; i < p.length; i++) {
        const attn_parameter *const got = attn_parameters_find(&p, expected[i].name);
        assert_ptr_equal(got, p.list + i);
        assert_int_equal(got->rank, expected[i].rank);
        assert_int_equal(got->decays, expected[i].decays);
        assert_int_equal(got->extent[0], expected[i].extent[0]);
        assert_int_equal(got->extent[1], expected[i].extent[1]);
        assert_true(got->offset % 16 == 0 && got->offset >= end);
        end = got->offset + got->count;
    }
    assert_true(p.floats >= end);
    assert_int_equal(attn_parameters_count(&p), 2 * 12 * 8 + 12 + 8 + 2 * 8 + 4 * 72);
    assert_null(attn_parameters_find(&p, "l.fc3.weight"));
    attn_parameters_free(&p);
}

static void parameters_that_cannot_be_are_refused(void **state)
{
    (void)state;
    attn_parameters p = {0};
    size_t index = 77;
    const int64_t one = 1, zero = 0, huge[] = {INT64_MAX, INT64_MAX};
    char name[200];
    memset(name, 'n', sizeof name - 1), name[sizeof name - 1] = '\0';
    assert_int_equal(attn_parameters_add(&p, name, 1, &one, ATTN_INITIAL_ZEROS, &index),
                     ATTN_EINVAL);
    assert_int_equal(attn_parameters_add(&p, "a", 1, &zero, ATTN_INITIAL_ZEROS, &index),
                     ATTN_EINVAL);
    assert_int_equal(attn_parameters_add(&p, "a", 2, huge, ATTN_INITIAL_ZEROS, &index),
                     ATTN_EINVAL);
    assert_int_equal(index, 77);
    assert_int_equal(attn_parameters_add(&p, "a", 1, &one, ATTN_INITIAL_ZEROS, &index),
                     ATTN_OK);
    assert_int_equal(index, 0);
    assert_int_equal(attn_parameters_add(&p, "a", 1, &one, ATTN_INITIAL_ZEROS, &index),
                     ATTN_EINVAL);
    attn_multihead_layer layer;
    assert_int_equal(
        attn_multihead_layer_add(&layer, &p, "m", 10, 3, ATTN_PART_ENCODER, 0),
        ATTN_EINVAL);
    assert_int_equal(
        attn_multihead_layer_add(&layer, &p, "m", 10, 0, ATTN_PART_ENCODER, 0),
        ATTN_EINVAL);
    attn_parameters_free(&p);
}

static void moments(const float *values, size_t count, double *mean, double *deviation)
{
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    *mean = sum / (double)count;
    *deviation = sqrt(squares / (double)count);
}

static void first_values_have_the_spread_they_promise(void **state)
{
    (void)state;
    attn_parameters p = {0};
    size_t index[4];
    const int64_t extent[] = {300, 100}, odd[] = {3};
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(attn_parameters_add(&p, name, i < 2 ? 1 : 2,
                                             i < 2 ? odd : extent, (attn_initial)i,
                                             &index[i]),
                         ATTN_OK);
    }
    assert_int_equal(attn_parameters_allocate(&p), ATTN_OK);
    attn_parameters_initialise(&p, 1);
    const float *const zeros = p.values + p.list[0].offset;
    const float *const ones = p.values + p.list[1].offset;
    assert_true(zeros[0] == 0.0f && ones[2] == 1.0f && ones[3] == 0.0f);
    double mean, deviation;
    const float *const xavier = p.values + p.list[2].offset;
    const double bound = sqrt(6.0 / 400.0);
    moments(xavier, 30000, &mean, &deviation);
    assert_true(fabs(mean) < 0.02 * bound);
    assert_true(fabs(deviation - bound / sqrt(3.0)) < 0.01 * bound);
    for (size_t i = 0; i < 30000; i++)
        assert_true(fabs((double)xavier[i]) <= bound);
    moments(p.values + p.list[3].offset, 30000, &mean, &deviation);
    assert_true(fabs(mean) < 0.003 && fabs(deviation - 0.1) < 0.002);
    attn_parameters_free(&p);
}

static void the_same_seed_gives_the_same_first_values(void **state)
{
    (void)state;
    attn_parameters p = {0};
    size_t a, b;
    const int64_t extent[] = {10, 16};
    assert_int_equal(attn_parameters_add(&p, "a", 2, extent, ATTN_INITIAL_XAVIER, &a),
                     ATTN_OK);
    assert_int_equal(attn_parameters_add(&p, "b", 2, extent, ATTN_INITIAL_XAVIER, &b),
                     ATTN_OK);
    assert_int_equal(attn_parameters_allocate(&p), ATTN_OK);
    float first[160];
    attn_parameters_initialise(&p, 1);
    memcpy(first, p.values, sizeof first);
    assert_memory_not_equal(first, p.values + 160, sizeof first);
    attn_parameters_initialise(&p, 2);
    assert_memory_not_equal(first, p.values, sizeof first);
    attn_parameters_initialise(&p, 1);
    assert_memory_equal(first, p.values, sizeof first);
    attn_parameters_free(&p);
}

static void feed_forward_is_two_linears_around_the_activation(void **state)
{
    (void)state;
    attn_tape *const tape = test_tape_create(NULL);
    attn_parameters p = {0};
    attn_feed_forward_layer layer;
    float x[3 * 5];
    test_fill(x, 15, 1);
    assert_int_equal(attn_feed_forward_layer_add(&layer, &p, "l", 5, 7, ATTN_SILU),
                     ATTN_OK);
    assert_int_equal(attn_parameters_allocate(&p), ATTN_OK);
    test_fill(p.values, p.floats, 2);
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {.tape = tape, .parameters = &p};
    attn_tensor *const input = attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){3, 5});
    const attn_tensor *const y =
        attn_feed_forward_layer_forward(&layer, &pass, input, 0.5f);
    const attn_tensor *const expected = attn_linear_layer_forward(
        &layer.out, &pass,
        attn_activate(tape, attn_linear_layer_forward(&layer.in, &pass, input),
                      ATTN_SILU));
    assert_int_equal(attn_tensor_count(y), 15);
    assert_memory_equal(y->data, expected->data, sizeof x);
    attn_parameters_free(&p);
    test_tape_destroy(tape);
}

static void sinusoids_interleave_and_an_odd_width_stays_in_its_row(void **state)
{
    (void)state;
    static const float first[] = {0.841470985f, 0.540302306f, 0.025116223f, 0.999684538f,
                                  0.000630957f};
    static const float zeroth[] = {0.0f, 1.0f, 0.0f, 1.0f, 0.0f};
    float table[11];
    table[10] = -7.0f;
    attn_sinusoidal_positions(table, 2, 5, false);
    for (size_t i = 0; i < 5; i++) {
        assert_true(table[i] == zeroth[i]);
        assert_true(fabsf(table[5 + i] - first[i]) < 1e-7f);
    }
    assert_true(table[10] == -7.0f);
}

static void the_same_sinusoids_come_in_halves(void **state)
{
    (void)state;
    for (int64_t width = 4; width <= 7; width++) {
        float pairs[3 * 7], halves[3 * 7];
        attn_sinusoidal_positions(pairs, 3, width, false);
        attn_sinusoidal_positions(halves, 3, width, true);
        for (int64_t position = 0; position < 3; position++)
            for (int64_t i = 0; i < width; i++)
                assert_true(
                    pairs[position * width + i] ==
                    halves[position * width + i / 2 + (i % 2 ? (width + 1) / 2 : 0)]);
    }
}

static void fairseq_sinusoids_are_halves_and_an_odd_width_ends_in_zero(void **state)
{
    (void)state;
    float table[4 * 7 + 1];
    table[28] = -7.0f;
    attn_sinusoidal_positions_fairseq(table, 4, 7, 1);
    for (size_t position = 0; position < 4; position++) {
        for (size_t i = 0; i < 7; i++) {
            const double angle = (double)position * pow(10000.0, -(double)(i % 3) / 2.0);
            double expected = i < 3 ? sin(angle) : cos(angle);
            if (i == 6 || position == 1)
                expected = 0.0;
            assert_true(fabs((double)table[position * 7 + i] - expected) < 1e-7);
        }
    }
    assert_true(table[28] == -7.0f);
    attn_sinusoidal_positions_fairseq(table, 2, 3, -1); /* half of 1: no frequencies */
    assert_true(fabsf(table[3] - 0.841470985f) < 1e-7f && table[5] == 0.0f);
}

static const int64_t starts[] = {0, 3, 3, 5};
static const attn_packing packing = {3, starts};

static attn_tensor *build_positions(attn_tape *tape, attn_tensor *const *leaves,
                                    void *user)
{
    const int64_t *const first = user;
    return attn_add_positions(&(attn_pass){.tape = tape}, leaves[0], packing, leaves[1],
                              *first);
}

static void positions_count_within_each_sequence(void **state)
{
    (void)state;
    attn_tape *const tape = test_tape_create(NULL);
    float x[5 * 2] = {0}, table[5 * 2];
    for (size_t i = 0; i < 10; i++)
        table[i] = (float)(i / 2);
    static const float expected[] = {2, 2, 3, 3, 4, 4, 2, 2, 3, 3};
    attn_tape_begin(tape, false, 0);
    attn_tensor *const leaves[] = {
        attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){5, 2}),
        attn_tape_leaf(tape, table, NULL, 2, (const int64_t[]){5, 2})};
    int64_t first = 2;
    const attn_tensor *const y = build_positions(tape, leaves, &first);
    assert_memory_equal(y->data, expected, sizeof expected);
    const test_leaf checked[] = {{x, 2, {5, 2}, false}, {table, 2, {5, 2}, false}};
    test_gradients(tape, build_positions, &first, checked, 2, 0.01f, 1e-3);
    test_tape_destroy(tape);
}

static void a_position_beyond_the_table_is_named(void **state)
{
    (void)state;
    attn_tape *const tape = test_tape_create(NULL);
    float zeros[10] = {0};
    attn_tape_begin(tape, false, 0);
    attn_tensor *const leaves[] = {
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){5, 2}),
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){4, 2})};
    int64_t first = 2;
    assert_null(build_positions(tape, leaves, &first));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_string_equal(attn_context_message(attn_tape_context(tape)),
                        "attn_positions: sequence 0 has 3 tokens from position 2, "
                        "expected the last to be less than 4, the rows of the table");
    test_tape_destroy(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_name_and_shape_their_parameters),
        cmocka_unit_test(parameters_that_cannot_be_are_refused),
        cmocka_unit_test(first_values_have_the_spread_they_promise),
        cmocka_unit_test(the_same_seed_gives_the_same_first_values),
        cmocka_unit_test(feed_forward_is_two_linears_around_the_activation),
        cmocka_unit_test(sinusoids_interleave_and_an_odd_width_stays_in_its_row),
        cmocka_unit_test(the_same_sinusoids_come_in_halves),
        cmocka_unit_test(fairseq_sinusoids_are_halves_and_an_odd_width_ends_in_zero),
        cmocka_unit_test(positions_count_within_each_sequence),
        cmocka_unit_test(a_position_beyond_the_table_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
