/* The tape itself: failures and their messages, memory, the order of gradients.  Linked
 * with --wrap=aligned_alloc, so that memory can be refused. */
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static int allocations_left = -1; /* −1: any number */

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    if (allocations_left == 0)
        return NULL;
    if (allocations_left > 0)
        allocations_left--;
    return __real_aligned_alloc(alignment, bytes);
}

static attn_tape *tape_begun(bool training)
{
    attn_tape *const tape = test_tape_create(NULL);
    assert_non_null(tape);
    attn_tape_begin(tape, training, 1);
    return tape;
}

static const char *message_of(const attn_tape *tape)
{
    return attn_context_message(attn_tape_context(tape));
}

static attn_tensor *matrix(attn_tape *tape, float *data, int64_t rows, int64_t columns)
{
    return attn_tape_leaf(tape, data, NULL, 2, (const int64_t[]){rows, columns});
}

static attn_tensor *vector(attn_tape *tape, float *data, int64_t length)
{
    return attn_tape_leaf(tape, data, NULL, 1, &length);
}

static float zeros[64];

static void failed_with(attn_tape *tape, const attn_tensor *result, attn_status status,
                        const char *message)
{
    assert_null(result);
    assert_int_equal(attn_tape_status(tape), status);
    assert_string_equal(message_of(tape), message);
    attn_tape_begin(tape, attn_tape_training(tape), 1);
}

static void the_first_failure_stays_until_begin(void **state)
{
    (void)state;
    attn_tape *const tape = tape_begun(false);
    attn_tensor *const x = matrix(tape, zeros, 2, 3);
    assert_null(attn_add(tape, x, matrix(tape, zeros, 3, 2)));
    assert_null(attn_add(tape, x, x));
    assert_null(attn_linear(tape, NULL, NULL, NULL, false));
    assert_null(attn_dropout(tape, x, 2.0f));
    assert_null(attn_tape_tensor(tape, 1, (const int64_t[]){1}));
    assert_null(attn_tape_allocate(tape, 1));
    assert_int_equal(attn_tape_backward(tape, x, 1.0f), ATTN_EINVAL);
    assert_string_equal(message_of(tape), "attn_add: b is [3][2], expected [2][3]");
    attn_tape_begin(tape, false, 0);
    assert_int_equal(attn_tape_status(tape), ATTN_OK);
    attn_tensor *const y = matrix(tape, zeros, 2, 3);
    assert_non_null(attn_add(tape, y, y));
    test_tape_destroy(tape);
}

static void shapes_that_do_not_fit_are_both_named(void **state)
{
    (void)state;
    attn_tape *const tape = tape_begun(true);
    failed_with(tape,
                attn_linear(tape, matrix(tape, zeros, 2, 3), matrix(tape, zeros, 4, 5),
                            NULL, false),
                ATTN_EINVAL, "attn_linear: weight is [4][5], expected [any][3]");
    failed_with(tape,
                attn_linear(tape, matrix(tape, zeros, 2, 3), matrix(tape, zeros, 4, 3),
                            vector(tape, zeros, 5), true),
                ATTN_EINVAL, "attn_linear: bias is [5], expected [4]");
    failed_with(
        tape,
        attn_linear(tape, vector(tape, zeros, 3), matrix(tape, zeros, 4, 3), NULL, false),
        ATTN_EINVAL, "attn_linear: x is [3], expected [any][any]");
    failed_with(tape,
                attn_linear_activate(tape, matrix(tape, zeros, 2, 3),
                                     matrix(tape, zeros, 4, 2), vector(tape, zeros, 4),
                                     ATTN_RELU, 0.0f),
                ATTN_EINVAL, "attn_linear_activate: weight is [4][2], expected [any][3]");
    failed_with(tape,
                attn_layer_norm(tape, matrix(tape, zeros, 2, 3), vector(tape, zeros, 3),
                                vector(tape, zeros, 2), 1e-5f),
                ATTN_EINVAL, "attn_layer_norm: bias is [2], expected [3]");
    failed_with(
        tape,
        attn_add_dropout(tape, matrix(tape, zeros, 2, 3), vector(tape, zeros, 6), 0.5f),
        ATTN_EINVAL, "attn_add_dropout: branch is [6], expected [2][3]");
    static const int32_t target = 0;
    failed_with(tape,
                attn_linear_cross_entropy(tape, matrix(tape, zeros, 1, 3),
                                          matrix(tape, zeros, 4, 2), NULL, false, &target,
                                          0.0f, 1.0, NULL),
                ATTN_EINVAL,
                "attn_linear_cross_entropy: weight is [4][2], expected [any][3]");
    test_tape_destroy(tape);
}

static void an_absent_tensor_is_named(void **state)
{
    (void)state;
    attn_tape *const tape = tape_begun(true);
    attn_tensor *const x = matrix(tape, zeros, 2, 3);
    failed_with(tape, attn_add(tape, x, NULL), ATTN_EINVAL,
                "attn_add: b is NULL, expected a tensor");
    failed_with(tape, attn_linear(tape, matrix(tape, zeros, 2, 3), NULL, NULL, false),
                ATTN_EINVAL, "attn_linear: weight is NULL, expected a tensor");
    failed_with(tape, attn_linear(tape, NULL, NULL, NULL, true), ATTN_EINVAL,
                "attn_linear: bias is NULL, expected a tensor");
    test_tape_destroy(tape);
}

static void an_id_outside_the_table_is_named_with_its_place_and_the_size(void **state)
{
    (void)state;
    static const int32_t high[] = {1, 4}, negative[] = {-1};
    attn_tape *const tape = tape_begun(true);
    failed_with(tape, attn_embedding(tape, matrix(tape, zeros, 4, 2), high, 2, 1.0f),
                ATTN_EINVAL,
                "attn_embedding: id 4 at place 1, expected 0 to 3: the table has 4 rows");
    failed_with(
        tape, attn_embedding(tape, matrix(tape, zeros, 4, 2), negative, 1, 1.0f),
        ATTN_EINVAL,
        "attn_embedding: id -1 at place 0, expected 0 to 3: the table has 4 rows");
    failed_with(
        tape,
        attn_linear_cross_entropy(tape, matrix(tape, zeros, 2, 3),
                                  matrix(tape, zeros, 4, 3), NULL, false, high, 0.0f, 1.0,
                                  NULL),
        ATTN_EINVAL,
        "attn_linear_cross_entropy: target 4 at place 1, expected less than 4, the "
        "number of classes");
    test_tape_destroy(tape);
}

static void probabilities_outside_0_to_1_fail(void **state)
{
    (void)state;
    static const float bad[] = {-0.1f, 1.1f, NAN};
    attn_tape *const tape = tape_begun(true);
    for (size_t i = 0; i < 3; i++) {
        assert_null(attn_dropout(tape, matrix(tape, zeros, 2, 3), bad[i]));
        assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
        assert_non_null(strstr(message_of(tape), "expected 0 to 1"));
        attn_tape_begin(tape, true, 1);
        attn_tensor *const x = matrix(tape, zeros, 2, 3);
        assert_null(attn_add_dropout(tape, x, x, bad[i]));
        attn_tape_begin(tape, true, 1);
    }
    test_tape_destroy(tape);
}

static void backward_needs_training_and_a_loss_of_one_element(void **state)
{
    (void)state;
    attn_tape *const tape = tape_begun(true);
    attn_tensor *const x = vector(tape, zeros, 2);
    assert_int_equal(attn_tape_backward(tape, attn_add(tape, x, x), 1.0f), ATTN_EINVAL);
    assert_string_equal(message_of(tape),
                        "attn_tape_backward: loss has 2 elements, expected 1");
    attn_tape_begin(tape, true, 1);
    assert_int_equal(attn_tape_backward(tape, NULL, 1.0f), ATTN_EINVAL);
    attn_tape_begin(tape, false, 1);
    attn_tensor *const y = vector(tape, zeros, 1);
    assert_int_equal(attn_tape_backward(tape, attn_add(tape, y, y), 1.0f), ATTN_EINVAL);
    assert_string_equal(message_of(tape),
                        "attn_tape_backward: the tape was begun without training");
    test_tape_destroy(tape);
}

static void extents_that_cannot_be_fail_the_tape(void **state)
{
    (void)state;
    attn_tape *const tape = tape_begun(true);
    const int64_t negative[] = {2, -1}, wraps[] = {INT64_C(1) << 32, INT64_C(1) << 32};
    failed_with(tape, attn_tape_tensor(tape, 2, negative), ATTN_EINVAL,
                "tensor: extent 1 is -1, expected 0 or more");
    failed_with(tape, attn_tape_tensor(tape, 5, negative), ATTN_EINVAL,
                "tensor: rank is 5, expected 1 to 4");
    assert_null(attn_tape_tensor(tape, 2, wraps));
    assert_int_equal(attn_tape_status(tape), ATTN_ENOMEM);
    attn_tape_begin(tape, true, 1);
    assert_null(attn_tape_allocate(tape, SIZE_MAX));
    assert_int_equal(attn_tape_status(tape), ATTN_ENOMEM);
    test_tape_destroy(tape);
}

static void no_rows_are_no_work(void **state)
{
    (void)state;
    float gradient[12] = {0}, bias_gradient[4] = {0};
    attn_tape *const tape = tape_begun(true);
    attn_tensor *const x = matrix(tape, zeros, 0, 3);
    attn_tensor *const w =
        attn_tape_leaf(tape, zeros, gradient, 2, (const int64_t[]){4, 3});
    attn_tensor *const b = attn_tape_leaf(tape, zeros, bias_gradient, 1, w->extent);
    attn_tensor *y = attn_linear(tape, x, w, b, true);
    y = attn_layer_norm(tape, attn_add_dropout(tape, y, y, 0.5f), b, b, 1e-5f);
    attn_tensor *const loss = attn_linear_cross_entropy(
        tape, attn_linear(tape, y, matrix(tape, zeros, 3, 4), b, false), w, b, true, NULL,
        0.1f, 1.0, NULL);
    assert_non_null(loss);
    assert_true(loss->data[0] == 0.0f);
    assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
    for (size_t i = 0; i < 12; i++)
        assert_true(gradient[i] == 0.0f && bias_gradient[i % 4] == 0.0f);
    test_tape_destroy(tape);
}

static void memory_is_aligned_apart_and_the_same_after_begin(void **state)
{
    (void)state;
    enum { PIECES = 200 };
    char *pieces[PIECES];
    attn_tape *const tape = tape_begun(false);
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < PIECES; i++) {
            const size_t bytes = i * i * 37 + 1;
            char *const piece = attn_tape_allocate(tape, bytes);
            assert_int_equal((uintptr_t)piece % 64, 0);
            assert_true(turn == 0 || piece == pieces[i]);
            memset(piece, (int)i, bytes);
            pieces[i] = piece;
        }
        for (size_t i = 0; i < PIECES; i++)
            assert_true(pieces[i][0] == (char)i && pieces[i][i * i * 37] == (char)i);
        attn_tape_begin(tape, false, 0);
    }
    test_tape_destroy(tape);
}

static void a_branch_that_the_loss_does_not_read_gets_no_gradient(void **state)
{
    (void)state;
    float x[] = {1.0f, 2.0f}, used[2] = {0}, unused[2] = {0};
    attn_tape *const tape = tape_begun(true);
    const int64_t extent[] = {2};
    attn_tensor *const a = attn_tape_leaf(tape, x, used, 1, extent);
    attn_tensor *const b = attn_tape_leaf(tape, x, unused, 1, extent);
    attn_tensor *const loss = test_weigh(tape, attn_activate(tape, a, ATTN_RELU));
    assert_non_null(attn_add(tape, a, b));
    assert_int_equal(attn_tape_backward(tape, loss, 2.0f), ATTN_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_true(fabs((double)used[i] - 2.0 * test_weight(i)) < 1e-6);
        assert_true(unused[i] == 0.0f);
    }
    test_tape_destroy(tape);
}

static void seeds_of_a_step_differ_and_come_back_with_the_step(void **state)
{
    (void)state;
    attn_tape *const tape = tape_begun(true);
    const uint64_t first = attn_tape_next_seed(tape), second = attn_tape_next_seed(tape);
    assert_true(first != second);
    attn_tape_begin(tape, true, 1);
    assert_true(first == attn_tape_next_seed(tape));
    attn_tape_begin(tape, true, 2);
    assert_true(first != attn_tape_next_seed(tape));
    test_tape_destroy(tape);
}

enum { ROWS = 300, WIDTH = 256 }; /* 300 kB a tensor: nearly each takes a block */

/* A step of every operation that allocates. */
static attn_status step(attn_tape *tape, float *x, float *w, float *gradient)
{
    static const int32_t targets[ROWS] = {0};
    static const int64_t starts[] = {0, ROWS};
    attn_tape_begin(tape, true, 1);
    attn_tensor *const input =
        attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){ROWS, WIDTH});
    attn_tensor *const weight =
        attn_tape_leaf(tape, w, gradient, 2, (const int64_t[]){WIDTH, WIDTH});
    attn_tensor *const bias =
        attn_tape_leaf(tape, w, gradient, 1, (const int64_t[]){WIDTH});
    attn_tensor *y = attn_linear(tape, input, weight, bias, true);
    y = attn_linear_activate(tape, y, weight, bias, ATTN_GELU, 0.1f);
    attn_packed_attention attention = {.H = 4, .Hk = 4};
    attn_options_init(&attention.options, &(attn_shape){.D = WIDTH / 4});
    attention.options.sequences = 1;
    attention.options.query_starts = attention.options.key_starts = starts;
    attention.options.dropout = 0.1;
    y = attn_attend(tape, y, y, input, &attention, NULL, NULL);
    y = attn_add_dropout(tape, input, attn_layer_norm(tape, y, bias, bias, 1e-5f), 0.1f);
    y = attn_add(tape, y, attn_embedding(tape, weight, targets, ROWS, 1.0f));
    y = attn_activate(tape, attn_dropout(tape, y, 0.1f), ATTN_SILU);
    attn_tensor *const loss =
        attn_linear_cross_entropy(tape, y, weight, bias, true, targets, 0.1f, 1.0, NULL);
    if (attn_tape_status(tape) != ATTN_OK)
        assert_null(loss);
    return attn_tape_backward(tape, loss, 1.0f);
}

static void refused_memory_is_a_status_wherever_it_is_refused(void **state)
{
    (void)state;
    float *const x = malloc(ROWS * WIDTH * sizeof *x);
    float *const w = malloc(WIDTH * WIDTH * sizeof *w);
    float *const gradient = calloc(WIDTH * WIDTH, sizeof *gradient);
    test_fill(x, ROWS * WIDTH, 1), test_fill(w, WIDTH * WIDTH, 2);
    attn_status status = ATTN_ENOMEM;
    int count = 0;
    for (; status != ATTN_OK; count++) {
        attn_tape *const tape = test_tape_create(NULL);
        allocations_left = count;
        status = step(tape, x, w, gradient);
        allocations_left = -1;
        assert_true(status == ATTN_OK || status == ATTN_ENOMEM);
        assert_true(status == ATTN_OK || strstr(message_of(tape), "no memory"));
        assert_int_equal(step(tape, x, w, gradient),
                         ATTN_OK); /* the tape is good again */
        test_tape_destroy(tape);
    }
    assert_true(count > 4);
    free(x), free(w), free(gradient);
}

static void a_step_of_the_same_seed_has_the_same_bits(void **state)
{
    (void)state;
    float *const x = malloc(ROWS * WIDTH * sizeof *x);
    float *const w = malloc(WIDTH * WIDTH * sizeof *w);
    float *gradients[2];
    test_fill(x, ROWS * WIDTH, 1), test_fill(w, WIDTH * WIDTH, 2);
    attn_tape *const tape = test_tape_create(NULL);
    for (size_t turn = 0; turn < 2; turn++) {
        gradients[turn] = calloc(WIDTH * WIDTH, sizeof(float));
        assert_int_equal(step(tape, x, w, gradients[turn]), ATTN_OK);
    }
    assert_memory_equal(gradients[0], gradients[1], WIDTH * WIDTH * sizeof(float));
    test_tape_destroy(tape);
    free(x), free(w), free(gradients[0]), free(gradients[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_stays_until_begin),
        cmocka_unit_test(shapes_that_do_not_fit_are_both_named),
        cmocka_unit_test(an_absent_tensor_is_named),
        cmocka_unit_test(an_id_outside_the_table_is_named_with_its_place_and_the_size),
        cmocka_unit_test(probabilities_outside_0_to_1_fail),
        cmocka_unit_test(backward_needs_training_and_a_loss_of_one_element),
        cmocka_unit_test(extents_that_cannot_be_fail_the_tape),
        cmocka_unit_test(no_rows_are_no_work),
        cmocka_unit_test(memory_is_aligned_apart_and_the_same_after_begin),
        cmocka_unit_test(a_branch_that_the_loss_does_not_read_gets_no_gradient),
        cmocka_unit_test(seeds_of_a_step_differ_and_come_back_with_the_step),
        cmocka_unit_test(refused_memory_is_a_status_wherever_it_is_refused),
        cmocka_unit_test(a_step_of_the_same_seed_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
