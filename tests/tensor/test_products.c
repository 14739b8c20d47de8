/* The linear layer and the cross-entropy: values against loops in double, gradients
 * against central differences, on every instruction set of this processor. */
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double STEP = 0.01, TOLERANCE = 2e-3;

/* ---- linear ---- */

static attn_tensor *build_linear(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    (void)user;
    return attn_linear(tape, leaves[0], leaves[1], leaves[2], leaves[2] != NULL);
}

struct linear_sizes {
    int64_t n, in, out;
};

static const struct linear_sizes linear_cases[] = {
    {1, 1, 1}, {2, 3, 5}, {7, 16, 4}, {5, 33, 9}, {9, 70, 13}};

static void linear_values(attn_tape *tape, const struct linear_sizes *s, bool training)
{
    const size_t n = (size_t)s->n, in = (size_t)s->in, out = (size_t)s->out;
    float *const x = malloc(n * in * sizeof *x), *const w = malloc(out * in * sizeof *w);
    float *const b = malloc(out * sizeof *b);
    test_fill(x, n * in, 1), test_fill(w, out * in, 2), test_fill(b, out, 3);
    attn_tape_begin(tape, training, 0);
    attn_tensor *const leaves[] = {
        attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){s->n, s->in}),
        attn_tape_leaf(tape, w, NULL, 2, (const int64_t[]){s->out, s->in}),
        attn_tape_leaf(tape, b, NULL, 1, (const int64_t[]){s->out})};
    const attn_tensor *const y = build_linear(tape, leaves, NULL);
    assert_non_null(y);
    for (size_t r = 0; r < n; r++) {
        for (size_t o = 0; o < out; o++) {
            double expected = (double)b[o];
            for (size_t i = 0; i < in; i++)
                expected += (double)x[r * in + i] * (double)w[o * in + i];
            test_close((double)y->data[r * out + o], expected, 2e-6, "linear",
                       r * out + o);
        }
    }
    free(x), free(w), free(b);
}

static void linear_is_the_product_and_the_bias(void **state)
{
    (void)state;
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < sizeof linear_cases / sizeof *linear_cases; c++) {
            linear_values(tape, &linear_cases[c], false);
            linear_values(tape, &linear_cases[c], true);
        }
    }
}

static void linear_has_the_gradients_of_differences(void **state)
{
    (void)state;
    float x[3 * 5], w[4 * 5], b[4];
    test_fill(x, 15, 1), test_fill(w, 20, 2), test_fill(b, 4, 3);
    const test_leaf leaves[] = {
        {x, 2, {3, 5}, false}, {w, 2, {4, 5}, false}, {b, 1, {4}, false}};
    EACH_TAPE(tape)
    {
        test_gradients(tape, build_linear, NULL, leaves, 3, (float)STEP, TOLERANCE);
        test_gradients(tape, build_linear, NULL, leaves, 2, (float)STEP, TOLERANCE);
    }
}

static void linear_in_inference_gives_a_row_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    enum { N = 11, IN = 37, OUT = 10 };
    float x[N * IN], w[OUT * IN], b[OUT], alone[OUT];
    test_fill(x, N * IN, 1), test_fill(w, OUT * IN, 2), test_fill(b, OUT, 3);
    EACH_TAPE(tape)
    {
        for (int64_t row = 0; row < N; row++) {
            for (int together = 0; together < 2; together++) {
                attn_tape_begin(tape, false, 0);
                attn_tensor *const leaves[] = {
                    attn_tape_leaf(tape, together ? x : x + row * IN, NULL, 2,
                                   (const int64_t[]){together ? N : 1, IN}),
                    attn_tape_leaf(tape, w, NULL, 2, (const int64_t[]){OUT, IN}),
                    attn_tape_leaf(tape, b, NULL, 1, (const int64_t[]){OUT})};
                const attn_tensor *const y = build_linear(tape, leaves, NULL);
                if (!together)
                    memcpy(alone, y->data, sizeof alone);
                else
                    assert_memory_equal(alone, y->data + row * OUT, sizeof alone);
            }
        }
    }
}

/* ---- linear_activate ---- */

struct activated {
    attn_activation activation;
    float dropout;
};

static attn_tensor *build_linear_activate(attn_tape *tape, attn_tensor *const *leaves,
                                          void *user)
{
    const struct activated *const a = user;
    return attn_linear_activate(tape, leaves[0], leaves[1], leaves[2], a->activation,
                                a->dropout);
}

static void linear_activate_has_the_gradients_of_differences(void **state)
{
    (void)state;
    float x[3 * 5], w[18 * 5], b[18];
    test_fill(x, 15, 1), test_fill(w, 90, 2), test_fill(b, 18, 3);
    const test_leaf leaves[] = {
        {x, 2, {3, 5}, false}, {w, 2, {18, 5}, false}, {b, 1, {18}, false}};
    EACH_TAPE(tape)
    {
        for (int activation = ATTN_GELU; activation <= ATTN_TANH; activation++) {
            struct activated a = {(attn_activation)activation, 0.0f};
            test_gradients(tape, build_linear_activate, &a, leaves, 3, (float)STEP,
                           TOLERANCE);
            a.dropout = 0.4f;
            test_gradients(tape, build_linear_activate, &a, leaves, 3, (float)STEP,
                           TOLERANCE);
        }
    }
}

static void linear_activate_drops_alike_forward_and_backward_in_long_runs(void **state)
{
    (void)state;
    /* Beyond a run of rows and a run of the draw; relu of a positive number is itself. */
    enum { N = 700, OUT = 120 };
    float *const x = malloc(N * sizeof *x), *const db = calloc(OUT, sizeof *db);
    float w[OUT], b[OUT] = {0}, dw[OUT] = {0};
    double kept[OUT] = {0};
    for (size_t i = 0; i < N; i++)
        x[i] = 1.0f;
    for (size_t i = 0; i < OUT; i++)
        w[i] = 1.0f;
    EACH_TAPE(tape)
    {
        memset(db, 0, OUT * sizeof *db), memset(kept, 0, sizeof kept);
        attn_tape_begin(tape, true, 5);
        attn_tensor *const y = attn_linear_activate(
            tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){N, 1}),
            attn_tape_leaf(tape, w, dw, 2, (const int64_t[]){OUT, 1}),
            attn_tape_leaf(tape, b, db, 1, (const int64_t[]){OUT}), ATTN_RELU, 0.5f);
        for (size_t i = 0; i < N * OUT; i++)
            kept[i % OUT] += test_weight(i) * (double)y->data[i];
        assert_int_equal(attn_tape_backward(tape, test_weigh(tape, y), 1.0f), ATTN_OK);
        for (size_t i = 0; i < OUT; i++)
            test_close((double)db[i], kept[i], 1e-5, "bias gradient", i);
    }
    free(x), free(db);
}

/* ---- cross-entropy ---- */

struct entropy_case {
    const int32_t *targets;
    float smoothing;
    double divisor, plain;
};

static attn_tensor *build_entropy(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    struct entropy_case *const c = user;
    return attn_linear_cross_entropy(tape, leaves[0], leaves[1], leaves[2],
                                     leaves[2] != NULL, c->targets, c->smoothing,
                                     c->divisor, &c->plain);
}

enum { TOKENS = 300, IN = 7, CLASSES = 37 };

/* The loss in double; *plain as well. */
static double entropy_expected(const float *x, const float *w, const float *b,
                               const struct entropy_case *c, double *plain)
{
    double smoothed = 0.0;
    *plain = 0.0;
    for (size_t n = 0; n < TOKENS; n++) {
        double logits[CLASSES], sum = 0.0, total = 0.0;
        for (size_t k = 0; k < CLASSES; k++) {
            logits[k] = b ? (double)b[k] : 0.0;
            for (size_t i = 0; i < IN; i++)
                logits[k] += (double)x[n * IN + i] * (double)w[k * IN + i];
            sum += exp(logits[k]);
            total += logits[k];
        }
        if (c->targets[n] < 0)
            continue;
        const double s = (double)c->smoothing, at = logits[c->targets[n]];
        *plain += log(sum) - at;
        smoothed += log(sum) - (1.0 - s) * at - s * total / CLASSES;
    }
    return smoothed / c->divisor;
}

static void cross_entropy_is_the_formula_in_training_and_not(void **state)
{
    (void)state;
    float x[TOKENS * IN], w[CLASSES * IN], b[CLASSES];
    int32_t targets[TOKENS];
    test_fill(x, TOKENS * IN, 1), test_fill(w, CLASSES * IN, 2), test_fill(b, CLASSES, 3);
    for (size_t n = 0; n < TOKENS; n++)
        targets[n] = n % 7 == 3 ? -1 : (int32_t)(n * 5 % CLASSES);
    EACH_TAPE(tape)
    {
        for (int variant = 0; variant < 8; variant++) {
            struct entropy_case c = {targets, variant & 1 ? 0.1f : 0.0f, 250.0, 0.0};
            const bool biased = variant & 2;
            attn_tape_begin(tape, variant & 4, 0);
            attn_tensor *const leaves[] = {
                attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){TOKENS, IN}),
                attn_tape_leaf(tape, w, NULL, 2, (const int64_t[]){CLASSES, IN}),
                biased ? attn_tape_leaf(tape, b, NULL, 1, (const int64_t[]){CLASSES})
                       : NULL};
            double plain;
            const double expected = entropy_expected(x, w, biased ? b : NULL, &c, &plain);
            const attn_tensor *const loss = build_entropy(tape, leaves, &c);
            test_close((double)loss->data[0], expected, 1e-6, "loss", (size_t)variant);
            test_close(c.plain, plain, 1e-6, "plain loss", (size_t)variant);
        }
    }
}

static void cross_entropy_has_the_gradients_of_differences(void **state)
{
    (void)state;
    static const int32_t targets[] = {4, -1, 0, 8};
    float x[4 * 5], w[9 * 5], b[9];
    test_fill(x, 20, 1), test_fill(w, 45, 2), test_fill(b, 9, 3);
    const test_leaf leaves[] = {
        {x, 2, {4, 5}, false}, {w, 2, {9, 5}, false}, {b, 1, {9}, false}};
    EACH_TAPE(tape)
    {
        struct entropy_case c = {targets, 0.1f, 2.0, 0.0};
        test_gradients(tape, build_entropy, &c, leaves, 3, (float)STEP, TOLERANCE);
        test_gradients(tape, build_entropy, &c, leaves, 2, (float)STEP, TOLERANCE);
        c.smoothing = 0.0f;
        test_gradients(tape, build_entropy, &c, leaves, 3, (float)STEP, TOLERANCE);
    }
}

static void cross_entropy_of_huge_logits_does_not_overflow(void **state)
{
    (void)state;
    static const int32_t target = 1;
    float x[] = {1.0f}, w[] = {1e4f, 9999.0f};
    EACH_TAPE(tape)
    {
        struct entropy_case c = {&target, 0.0f, 1.0, 0.0};
        attn_tape_begin(tape, false, 0);
        attn_tensor *const leaves[] = {
            attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){1, 1}),
            attn_tape_leaf(tape, w, NULL, 2, (const int64_t[]){2, 1}), NULL};
        test_close((double)build_entropy(tape, leaves, &c)->data[0], 1.3132616875, 1e-6,
                   "loss", 0);
    }
}

static void gradients_of_cross_entropy_scale_with_the_seed_gradient(void **state)
{
    (void)state;
    static const int32_t targets[] = {4, -1, 0, 8};
    float x[4 * 5], w[9 * 5], once[45] = {0}, thrice[45] = {0};
    test_fill(x, 20, 1), test_fill(w, 45, 2);
    EACH_TAPE(tape)
    {
        for (int times = 1; times <= 3; times += 2) {
            float *const gradient = times == 1 ? once : thrice;
            memset(gradient, 0, sizeof once);
            struct entropy_case c = {targets, 0.1f, 2.0, 0.0};
            attn_tape_begin(tape, true, 0);
            attn_tensor *const leaves[] = {
                attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){4, 5}),
                attn_tape_leaf(tape, w, gradient, 2, (const int64_t[]){9, 5}), NULL};
            assert_int_equal(
                attn_tape_backward(tape, build_entropy(tape, leaves, &c), (float)times),
                ATTN_OK);
        }
        for (size_t i = 0; i < 45; i++)
            test_close((double)thrice[i], 3.0 * (double)once[i], 1e-6, "gradient", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_the_product_and_the_bias),
        cmocka_unit_test(linear_has_the_gradients_of_differences),
        cmocka_unit_test(linear_in_inference_gives_a_row_the_same_bits_in_any_batch),
        cmocka_unit_test(linear_activate_has_the_gradients_of_differences),
        cmocka_unit_test(linear_activate_drops_alike_forward_and_backward_in_long_runs),
        cmocka_unit_test(cross_entropy_is_the_formula_in_training_and_not),
        cmocka_unit_test(cross_entropy_has_the_gradients_of_differences),
        cmocka_unit_test(cross_entropy_of_huge_logits_does_not_overflow),
        cmocka_unit_test(gradients_of_cross_entropy_scale_with_the_seed_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
