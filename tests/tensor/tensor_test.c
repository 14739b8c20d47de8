/* The helpers. */
#include "tensor_test.h"
#include "tensor/rows.h"
#include <math.h>
#include <stdlib.h>

const char *const test_isas[] = {"generic",    "avx2", "avx512",
                                 "avx512bf16", "amx",  "neon"};
const size_t test_isa_count = sizeof test_isas / sizeof *test_isas;

attn_tape *test_tape_create(const char *isa)
{
    attn_context *context;
    const attn_context_options options = {.isa = isa, .threads = 1};
    if (attn_context_create(&context, &options) != ATTN_OK)
        return NULL;
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    return tape;
}

void test_tape_destroy(attn_tape *tape)
{
    attn_context *const context = attn_tape_context(tape);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

static double uniform(uint64_t seed, uint64_t counter)
{
    uint64_t x = seed * UINT64_C(0xd1342543de82ef95) +
                 (counter + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

void test_fill(float *values, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(2.0 * uniform(seed, i) - 1.0);
}

void test_close(double got, double expected, double tolerance, const char *what, size_t i)
{
    if (!(fabs(got - expected) <= tolerance * fmax(1.0, fabs(expected))))
        fail_msg("%s, element %zu: %.9g, expected %.9g", what, i, got, expected);
}

double test_weight(size_t i)
{
    return 2.0 * uniform(99, i) - 1.0;
}

static double weighed(const attn_tensor *y)
{
    double sum = 0.0;
    for (size_t i = 0; i < attn_tensor_count(y); i++)
        sum += test_weight(i) * (double)y->data[i];
    return sum;
}

struct weigh {
    attn_tensor *y, *loss;
    const float *weights; /* NULL: test_weight */
};

static double weight_of(const float *weights, size_t i)
{
    return weights ? (double)weights[i] : test_weight(i);
}

static void weigh_backward(attn_tape *tape, void *arguments)
{
    const struct weigh *const w = arguments;
    bool add;
    float *const dy = attn_tape_gradient(tape, w->y, &add);
    for (size_t i = 0; dy && i < attn_tensor_count(w->y); i++)
        dy[i] =
            (add ? dy[i] : 0.0f) + (float)weight_of(w->weights, i) * w->loss->gradient[0];
}

attn_tensor *test_weigh_by(attn_tape *tape, attn_tensor *y, const float *weights)
{
    if (!y)
        return NULL;
    attn_tensor *const loss = attn_tape_tensor(tape, 1, (const int64_t[]){1});
    struct weigh *const w = attn_tape_allocate(tape, sizeof *w);
    assert_non_null(w);
    double sum = 0.0;
    for (size_t i = 0; i < attn_tensor_count(y); i++)
        sum += weight_of(weights, i) * (double)y->data[i];
    loss->data[0] = (float)sum;
    *w = (struct weigh){y, loss, weights};
    attn_tape_record(tape, loss, weigh_backward, w);
    return loss;
}

attn_tensor *test_weigh(attn_tape *tape, attn_tensor *y)
{
    return test_weigh_by(tape, y, NULL);
}

static attn_tensor *build_with(attn_tape *tape, test_build *build, void *user,
                               const test_leaf *leaves, size_t count,
                               float *const *gradients)
{
    attn_tensor *tensors[TEST_LEAVES] = {NULL};
    attn_tape_begin(tape, true, 7);
    for (size_t i = 0; i < count; i++)
        tensors[i] = attn_tape_leaf(tape, leaves[i].data, gradients ? gradients[i] : NULL,
                                    leaves[i].rank, leaves[i].extent);
    attn_tensor *const y = build(tape, tensors, user);
    if (!y)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    return y;
}

static size_t leaf_count(const test_leaf *leaf)
{
    size_t count = 1;
    for (int axis = 0; axis < leaf->rank; axis++)
        count *= (size_t)leaf->extent[axis];
    return count;
}

static void compare_leaf(attn_tape *tape, test_build *build, void *user,
                         const test_leaf *leaves, size_t count, size_t which,
                         const float *gradient, float step, double tolerance)
{
    const test_leaf *const leaf = &leaves[which];
    for (size_t i = 0; i < leaf_count(leaf); i++) {
        const float kept = leaf->data[i];
        const float up = kept + step, down = kept - step;
        leaf->data[i] = up;
        const double above = weighed(build_with(tape, build, user, leaves, count, NULL));
        leaf->data[i] = down;
        const double below = weighed(build_with(tape, build, user, leaves, count, NULL));
        leaf->data[i] = kept;
        const double expected = (above - below) / ((double)up - (double)down);
        const double got = (double)gradient[i] - 1.0; /* it was added to 1 */
        if (!(fabs(got - expected) <= tolerance * fmax(1.0, fabs(expected))))
            fail_msg("leaf %zu, element %zu: gradient is %.8g, differences say %.8g",
                     which, i, got, expected);
    }
}

void test_gradients(attn_tape *tape, test_build *build, void *user,
                    const test_leaf *leaves, size_t count, float step, double tolerance)
{
    float *gradients[TEST_LEAVES] = {NULL};
    for (size_t l = 0; l < count; l++) {
        gradients[l] = malloc(leaf_count(&leaves[l]) * sizeof(float));
        for (size_t i = 0; i < leaf_count(&leaves[l]); i++)
            gradients[l][i] = 1.0f;
    }
    float *wanted[TEST_LEAVES];
    for (size_t l = 0; l < TEST_LEAVES; l++)
        wanted[l] = l < count && leaves[l].no_gradient ? NULL : gradients[l];
    attn_tensor *const y = build_with(tape, build, user, leaves, count, wanted);
    assert_int_equal(attn_tape_backward(tape, test_weigh(tape, y), 1.0f), ATTN_OK);
    for (size_t l = 0; l < count; l++) {
        if (!leaves[l].no_gradient)
            compare_leaf(tape, build, user, leaves, count, l, gradients[l], step,
                         tolerance);
        free(gradients[l]);
    }
}
