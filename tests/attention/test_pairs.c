/* The kernels that multiply pairs of bfloat16, which run where queries, keys, values and
 * output all are: against the double-precision reference within the bound of their own,
 * then what holds for every kernel, to the bit. */
#include "attention/reference.h"
#include "near.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed; /* names the problem in a failure */

static const char *level; /* that has such kernels, and what a test runs on */

/* Skips the test, and says so, where this machine cannot run the level. */
static attn_context *context_with_pairs(void)
{
    attn_context *context = NULL;
    const attn_context_options options = {.isa = level, .threads = 1};
    const attn_status status = attn_context_create(&context, &options);
    if (status == ATTN_EUNSUPPORTED) {
        print_message("%s: not on this machine\n", level);
        skip();
    }
    assert_int_equal(status, ATTN_OK);
    return context;
}

static void assert_uses_pairs(attn_context *context, const attn_shape *shape,
                              const attn_tensors *tensors, const attn_options *options)
{
    attn_plan plan;
    assert_ok(context, attn_plan_forward(context, shape, tensors, options, &plan));
    if (!strstr(plan.path, "bf16 products") && strcmp(plan.path, "nothing") != 0)
        fail_msg("seed %d: the path is %s", (int)seed, plan.path);
}

/* ---- Against the reference ------------------------------------------------------------
 */

/* A problem's tensors rounded to bfloat16, gaps and all. */
struct narrow {
    attn_tensors tensors;
    uint16_t *query, *key, *value, *output;
};

static uint16_t *round_tensor(const struct tensor *t)
{
    uint16_t *const memory = allocate(t->floats, sizeof *memory);
    for (size_t i = 0; i < t->floats; i++)
        attn_reference_store(memory, ATTN_BF16, (int64_t)i, (double)t->memory[i]);
    return memory;
}

static struct narrow narrow_create(const struct problem *p, const struct results *r)
{
    struct narrow n = {.tensors = problem_tensors(p, r)};
    n.query = round_tensor(&p->query);
    n.key = round_tensor(&p->key);
    n.value = round_tensor(&p->value);
    n.output = round_tensor(&r->output);
    n.tensors.query.data = n.query + (p->query.data - p->query.memory);
    n.tensors.key.data = n.key + (p->key.data - p->key.memory);
    n.tensors.value.data = n.value + (p->value.data - p->value.memory);
    n.tensors.output.data = n.output + (r->output.data - r->output.memory);
    n.tensors.query.type = n.tensors.key.type = n.tensors.value.type = ATTN_BF16;
    n.tensors.output.type = ATTN_BF16;
    return n;
}

/* The output, as fp32, back to the results. */
static void narrow_widen(const struct narrow *n, const struct results *r)
{
    for (size_t i = 0; i < r->output.floats; i++)
        r->output.memory[i] =
            (float)attn_reference_load(n->output, ATTN_BF16, (int64_t)i);
}

static void narrow_destroy(struct narrow *n)
{
    free(n->query), free(n->key), free(n->value), free(n->output);
}

/* Within 2⁻⁸ of the largest |value|, which is 2, and the rounding of the output. */
static void assert_output_near(const struct problem *p, const struct tensor *got,
                               const struct tensor *expected)
{
    const double dropout = p->options.dropout;
    const double growth = dropout > 0.0 ? 1.0 / (1.0 - dropout) : 1.0;
    const int64_t *const e = got->extent;
    for (int64_t b = 0; b < e[0]; b++)
        for (int64_t h = 0; h < e[1]; h++)
            for (int64_t l = 0; l < e[2]; l++)
                for (int64_t d = 0; d < e[3]; d++) {
                    const float o = *tensor_at(expected, b, h, l, d);
                    assert_near(*tensor_at(got, b, h, l, d), o,
                                (0x1p-8 + 0x1p-9) * 2.0 * growth, "output",
                                (size_t)((b * e[1] + h) * e[2] + l));
                }
}

static void pairs_agree_with_the_reference(void **state)
{
    (void)state;
    attn_context *const context = context_with_pairs();
    for (seed = 0; seed < 400; seed++) {
        struct problem p =
            problem_create(seed, seed < 100 ? 0 : RULES_ALL & ~RULE_ADDITIVE);
        struct results got = results_create(&p), expected = results_create(&p);
        struct narrow narrow = narrow_create(&p, &got);
        const attn_tensors *const to_got = &narrow.tensors;
        attn_tensors to_expected = problem_tensors(&p, &expected);
        to_expected.query = to_got->query;
        to_expected.key = to_got->key;
        to_expected.value = to_got->value;
        assert_int_equal(attn_forward_reference(&p.shape, &to_expected, &p.options),
                         ATTN_OK);
        if (p.shape.Lq > 1)
            assert_uses_pairs(context, &p.shape, to_got, &p.options);
        assert_ok(context, attn_forward(context, &p.shape, to_got, &p.options));
        narrow_widen(&narrow, &got);
        assert_output_near(&p, &got.output, &expected.output);
        /* Of the weights before they are rounded: bounds as ever. */
        assert_statistics_near(&p, &got, &expected);
        narrow_destroy(&narrow);
        results_destroy(&got), results_destroy(&expected), problem_destroy(&p);
    }
    attn_context_destroy(context);
}

/* Where whole blocks are multiplied while others are weighed, if no statistics are asked.
 * Some that is seen is not finite. */
static struct problem create_long(void)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY};
    const unsigned rules = RULE_LONG | RULE_LENGTHS | RULE_PACKED | RULE_SINK;
    struct problem p =
        problem_create(seed, seed % 4 ? rules : RULE_LONG | (RULES_ALL & ~RULE_ADDITIVE));
    const attn_shape *const s = &p.shape;
    if (seed % 3 == 0)
        for (int n = 0; n < 3; n++)
            *tensor_at(&p.value, 0, random_below(s->Hk), random_below(s->Lk),
                       random_below(s->Dv)) = poison[n];
    if (seed % 5 == 0)
        *tensor_at(&p.key, 0, 0, random_below(s->Lk), random_below(s->D)) = NAN;
    return p;
}

/* What a context gives of the problem, with the output widened. */
static struct results run_long(attn_context *context, const struct problem *p,
                               bool statistics)
{
    struct results r = results_create(p);
    struct narrow n = narrow_create(p, &r);
    if (!statistics)
        n.tensors.statistics = (attn_statistics){0};
    assert_ok(context, attn_forward(context, &p->shape, &n.tensors, &p->options));
    narrow_widen(&n, &r);
    narrow_destroy(&n);
    return r;
}

static struct results refer_long(const struct problem *p)
{
    struct results r = results_create(p);
    struct narrow n = narrow_create(p, &r);
    attn_tensors tensors = problem_tensors(p, &r);
    tensors.query = n.tensors.query;
    tensors.key = n.tensors.key;
    tensors.value = n.tensors.value;
    assert_int_equal(attn_forward_reference(&p->shape, &tensors, &p->options), ATTN_OK);
    narrow_destroy(&n);
    return r;
}

static void assert_same_float(float a, float b)
{
    if (memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b)))
        fail_msg("seed %d: %a is not %a", (int)seed, (double)a, (double)b);
}

static void assert_same(const struct results *x, const struct results *y)
{
    const int64_t *const e = x->output.extent;
    for (int64_t b = 0; b < e[0]; b++)
        for (int64_t h = 0; h < e[1]; h++)
            for (int64_t l = 0; l < e[2]; l++)
                for (int64_t d = 0; d < e[3]; d++)
                    assert_same_float(*tensor_at(&x->output, b, h, l, d),
                                      *tensor_at(&y->output, b, h, l, d));
    for (size_t row = 0; row < x->rows; row++)
        assert_same_float(x->lse[row], y->lse[row]);
}

static void long_sequences(void **state)
{
    (void)state;
    attn_context *const context = context_with_pairs();
    attn_context *two = NULL;
    const attn_context_options options = {.isa = level, .threads = 2};
    assert_int_equal(attn_context_create(&two, &options), ATTN_OK);
    for (seed = 0; seed < 60; seed++) {
        struct problem p = create_long();
        struct results expected = refer_long(&p), got = run_long(context, &p, false);
        struct results looked = run_long(context, &p, true);
        struct results by_two = run_long(two, &p, false);
        assert_output_near(&p, &got.output, &expected.output);
        assert_all_near(got.lse, expected.lse, got.rows, 4e-6, "lse");
        assert_same(&got, &looked);
        assert_same(&got, &by_two);
        results_destroy(&expected), results_destroy(&got);
        results_destroy(&looked), results_destroy(&by_two);
        problem_destroy(&p);
    }
    attn_context_destroy(two);
    attn_context_destroy(context);
}

/* Groups of queries are larger where there are many of them for each thread. */
static void groups_of_any_size_have_the_same_bits(void **state)
{
    (void)state;
    enum { HEADS = 4, LENGTH = 800, SIZE = 24, ALL = HEADS * LENGTH * SIZE };
    const attn_shape shape = {1, HEADS, HEADS, LENGTH, LENGTH, SIZE, SIZE};
    attn_context *contexts[2] = {context_with_pairs()};
    uint16_t *const rows = allocate(ALL, sizeof *rows);
    uint16_t *const output[2] = {allocate(ALL, sizeof *rows),
                                 allocate(ALL, sizeof *rows)};
    const attn_context_options eight = {.isa = level, .threads = 8};
    assert_int_equal(attn_context_create(&contexts[1], &eight), ATTN_OK);
    for (int64_t n = 0; n < ALL; n++)
        attn_reference_store(rows, ATTN_BF16, n, (double)random_float());
    for (int causal = 0; causal < 2; causal++) {
        for (int n = 0; n < 2; n++) {
            attn_options options;
            attn_options_init(&options, &shape);
            options.causal = causal;
            attn_tensors tensors = {
                .query = attn_input_dense(rows, HEADS, LENGTH, SIZE),
                .key = attn_input_dense(rows, HEADS, LENGTH, SIZE),
                .value = attn_input_dense(rows, HEADS, LENGTH, SIZE),
                .output = attn_output_dense(output[n], HEADS, LENGTH, SIZE),
            };
            tensors.query.type = tensors.key.type = ATTN_BF16;
            tensors.value.type = tensors.output.type = ATTN_BF16;
            assert_ok(contexts[n], attn_forward(contexts[n], &shape, &tensors, &options));
        }
        assert_memory_equal(output[0], output[1], ALL * sizeof *rows);
    }
    free(rows), free(output[0]), free(output[1]);
    attn_context_destroy(contexts[0]), attn_context_destroy(contexts[1]);
}

/* ---- What holds for every kernel ------------------------------------------------------
 */

enum { L = 403, D = 37, Dv = 21, H = 2 };

/* [tokens][heads][size] of bfloat16. */
struct pack {
    uint16_t query[L * H * D], key[L * D], value[L * Dv], output[L * H * Dv];
    attn_options options;
};

static struct pack *pack_create(void)
{
    static const attn_shape shape = {1, H, 1, L, L, D, Dv};
    struct pack *const p = allocate(1, sizeof *p);
    for (int n = 0; n < L * H * D; n++)
        attn_reference_store(p->query, ATTN_BF16, n, (double)random_float());
    for (int n = 0; n < L * D; n++)
        attn_reference_store(p->key, ATTN_BF16, n, (double)random_float());
    for (int n = 0; n < L * Dv; n++)
        attn_reference_store(p->value, ATTN_BF16, n, (double)random_float());
    attn_options_init(&p->options, &shape);
    p->options.causal = true;
    p->options.window_left = 75;
    return p;
}

/* Tokens [first, first + count) alone. */
static void run_part(attn_context *context, struct pack *p, int64_t first, int64_t count,
                     uint16_t *output)
{
    const attn_shape shape = {1, H, 1, count, count, D, Dv};
    const attn_tensors tensors = {
        .query = {p->query + first * H * D, {0, D, H * D, 1}, ATTN_BF16},
        .key = {p->key + first * D, {0, 0, D, 1}, ATTN_BF16},
        .value = {p->value + first * Dv, {0, 0, Dv, 1}, ATTN_BF16},
        .output = {output + first * H * Dv, {0, Dv, H * Dv, 1}, ATTN_BF16},
    };
    if (count > 1)
        assert_uses_pairs(context, &shape, &tensors, &p->options);
    assert_ok(context, attn_forward(context, &shape, &tensors, &p->options));
}

static void a_packed_sequence_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 3, 10, 10, 203, L};
    attn_context *const context = context_with_pairs();
    struct pack *const p = pack_create();
    uint16_t *const alone = allocate(L * H * Dv, sizeof *alone);
    for (int s = 0; s < 5; s++)
        run_part(context, p, starts[s], starts[s + 1] - starts[s], alone);
    p->options.sequences = 5;
    p->options.query_starts = p->options.key_starts = starts;
    run_part(context, p, 0, L, p->output);
    assert_memory_equal(p->output, alone, sizeof p->output);
    free(alone), free(p);
    attn_context_destroy(context);
}

static void what_is_hidden_changes_no_bit(void **state)
{
    (void)state;
    static const int64_t poisoned[] = {0, 136, 137, 255, 256, 402};
    static const float poison[] = {NAN, INFINITY};
    attn_context *const context = context_with_pairs();
    struct pack *const p = pack_create();
    uint16_t *const clean = allocate(L * H * Dv, sizeof *clean);
    run_part(context, p, 0, L, clean);
    for (int n = 0; n < 12; n++) {
        const int64_t key = poisoned[n / 2];
        uint16_t *const of_key = &p->key[key * D + 5], *const of_value =
                                                           &p->value[key * Dv];
        const uint16_t key_before = *of_key, value_before = *of_value;
        attn_reference_store(of_key, ATTN_BF16, 0, (double)poison[n % 2]);
        attn_reference_store(of_value, ATTN_BF16, 0, (double)poison[n % 2]);
        run_part(context, p, 0, L, p->output);
        *of_key = key_before, *of_value = value_before;
        for (int64_t i = 0; i < L; i++) {
            const uint16_t *const got = p->output + i * H * Dv;
            if (key > i || key < i - 75)
                assert_memory_equal(got, clean + i * H * Dv, H * Dv * sizeof *got);
            else
                assert_true(!isfinite(attn_reference_load(got, ATTN_BF16, 0)));
        }
    }
    free(clean), free(p);
    attn_context_destroy(context);
}

/* Nothing is hidden, so nobody has written down which lane sees what. */
static void what_is_not_finite_is_seen_by_all(void **state)
{
    (void)state;
    enum { LENGTH = 40, SIZE = 21 };
    static const double poison[] = {NAN, INFINITY, -INFINITY};
    attn_context *const context = context_with_pairs();
    const attn_shape shape = {
        .B = 1, .H = 1, .Hk = 1, .Lq = LENGTH, .Lk = LENGTH, .D = SIZE, .Dv = SIZE};
    attn_options options;
    attn_options_init(&options, &shape);
    uint16_t query[LENGTH * SIZE] = {0}, value[LENGTH * SIZE] = {0};
    uint16_t output[LENGTH * SIZE];
    attn_tensors tensors = {
        .query = attn_input_dense(query, 1, LENGTH, SIZE),
        .key = attn_input_dense(query, 1, LENGTH, SIZE),
        .value = attn_input_dense(value, 1, LENGTH, SIZE),
        .output = attn_output_dense(output, 1, LENGTH, SIZE),
    };
    tensors.query.type = tensors.key.type = ATTN_BF16;
    tensors.value.type = tensors.output.type = ATTN_BF16;
    assert_uses_pairs(context, &shape, &tensors, &options);
    for (int64_t n = 0; n < 3 * LENGTH; n++) {
        const int64_t at = n / 3 * SIZE + n % SIZE;
        attn_reference_store(value, ATTN_BF16, at, poison[n % 3]);
        assert_ok(context, attn_forward(context, &shape, &tensors, &options));
        for (int64_t i = 0; i < LENGTH * SIZE; i++) {
            const double got = attn_reference_load(output, ATTN_BF16, i);
            const double expected = i % SIZE == n % SIZE ? poison[n % 3] : 0.0;
            assert_true(isnan(expected) ? isnan(got) : got == expected);
        }
        value[at] = 0;
    }
    attn_context_destroy(context);
}

/* The weights, rounded as they are, sum to 1. */
static void equal_values_are_the_output(void **state)
{
    (void)state;
    attn_context *const context = context_with_pairs();
    struct pack *const p = pack_create();
    for (int n = 0; n < L * Dv; n++)
        attn_reference_store(p->value, ATTN_BF16, n, 100.0);
    run_part(context, p, 0, L, p->output);
    for (int n = 0; n < L * H * Dv; n++)
        assert_true(attn_reference_load(p->output, ATTN_BF16, n) == 100.0);
    free(p);
    attn_context_destroy(context);
}

static void statistics_and_lse_change_no_bit(void **state)
{
    (void)state;
    attn_context *const context = context_with_pairs();
    for (seed = 0; seed < 40; seed++) {
        struct problem p = problem_create(seed, RULES_ALL & ~RULE_ADDITIVE);
        struct results r = results_create(&p);
        struct narrow n = narrow_create(&p, &r);
        const size_t bytes = r.output.floats * sizeof *n.output;
        uint16_t *const with = allocate(bytes, 1);
        assert_ok(context, attn_forward(context, &p.shape, &n.tensors, &p.options));
        memcpy(with, n.output, bytes);
        n.tensors.statistics = (attn_statistics){0};
        n.tensors.lse = NULL;
        assert_ok(context, attn_forward(context, &p.shape, &n.tensors, &p.options));
        assert_memory_equal(with, n.output, bytes);
        free(with), narrow_destroy(&n);
        results_destroy(&r), problem_destroy(&p);
    }
    attn_context_destroy(context);
}

/* Decoding, where a value that one head must not see is NaN. */
static void a_single_query_leaves_out_hidden_values_of_nan(void **state)
{
    (void)state;
    enum { HEADS = 4, KEYS = 70, SIZE = 64, HIDDEN = 37 };
    const attn_shape shape = {
        .B = 1, .H = HEADS, .Hk = 1, .Lq = 1, .Lk = KEYS, .D = SIZE, .Dv = SIZE};
    attn_context *const context = context_with_pairs();
    attn_options options;
    attn_options_init(&options, &shape);
    uint8_t keep[HEADS * KEYS];
    memset(keep, 1, sizeof keep);
    keep[2 * KEYS + HIDDEN] = 0;
    options.keep = (attn_keep){keep, {0, KEYS, 0, 1}};
    uint16_t rows[KEYS * SIZE], value[KEYS * SIZE], output[2][HEADS * SIZE];
    for (int64_t n = 0; n < KEYS * SIZE; n++) {
        attn_reference_store(rows, ATTN_BF16, n, (double)random_float());
        attn_reference_store(value, ATTN_BF16, n, (double)random_float());
    }
    for (int poisoned = 0; poisoned < 2; poisoned++) {
        attn_tensors tensors = {
            .query = attn_input_dense(rows, HEADS, 1, SIZE),
            .key = attn_input_dense(rows, 1, KEYS, SIZE),
            .value = attn_input_dense(value, 1, KEYS, SIZE),
            .output = attn_output_dense(output[poisoned], HEADS, 1, SIZE),
        };
        tensors.query.type = tensors.key.type = ATTN_BF16;
        tensors.value.type = tensors.output.type = ATTN_BF16;
        assert_ok(context, attn_forward(context, &shape, &tensors, &options));
        for (int64_t d = 0; d < SIZE; d++)
            attn_reference_store(value, ATTN_BF16, HIDDEN * SIZE + d, NAN);
    }
    for (int64_t n = 0; n < HEADS * SIZE; n++) {
        const double got = attn_reference_load(output[1], ATTN_BF16, n);
        if (n / SIZE == 2)
            assert_near((float)got, (float)attn_reference_load(output[0], ATTN_BF16, n),
                        0x1p-8, "element", (size_t)n);
        else
            assert_true(isnan(got));
    }
    attn_context_destroy(context);
}

static void fp32_takes_no_pairs(void **state)
{
    (void)state;
    attn_context *const context = context_with_pairs();
    for (seed = 0; seed < 40; seed++) {
        struct problem p = problem_create(seed, RULES_ALL);
        struct results r = results_create(&p);
        const attn_tensors tensors = problem_tensors(&p, &r);
        attn_plan plan;
        assert_ok(context,
                  attn_plan_forward(context, &p.shape, &tensors, &p.options, &plan));
        assert_null(strstr(plan.path, "bf16 products"));
        results_destroy(&r), problem_destroy(&p);
    }
    attn_context_destroy(context);
}

static void fp32_has_the_bits_of_avx512(void **state)
{
    (void)state;
    if (strcmp(level, "amx") == 0) {
        print_message("amx: its softmax takes other steps\n");
        skip();
    }
    attn_context *const context = context_with_pairs();
    attn_context *plain = NULL;
    const attn_context_options options = {.isa = "avx512", .threads = 1};
    assert_int_equal(attn_context_create(&plain, &options), ATTN_OK);
    for (seed = 0; seed < 40; seed++) {
        struct problem p = problem_create(seed, RULES_ALL);
        struct results r = results_create(&p);
        const attn_tensors tensors = problem_tensors(&p, &r);
        float *const before = allocate(r.output.floats, sizeof *before);
        assert_ok(plain, attn_forward(plain, &p.shape, &tensors, &p.options));
        memcpy(before, r.output.memory, r.output.floats * sizeof *before);
        assert_ok(context, attn_forward(context, &p.shape, &tensors, &p.options));
        assert_memory_equal(before, r.output.memory, r.output.floats * sizeof *before);
        free(before);
        results_destroy(&r), problem_destroy(&p);
    }
    attn_context_destroy(plain);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_agree_with_the_reference),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(groups_of_any_size_have_the_same_bits),
        cmocka_unit_test(a_packed_sequence_has_the_bits_it_has_alone),
        cmocka_unit_test(what_is_hidden_changes_no_bit),
        cmocka_unit_test(what_is_not_finite_is_seen_by_all),
        cmocka_unit_test(equal_values_are_the_output),
        cmocka_unit_test(statistics_and_lse_change_no_bit),
        cmocka_unit_test(a_single_query_leaves_out_hidden_values_of_nan),
        cmocka_unit_test(fp32_takes_no_pairs),
        cmocka_unit_test(fp32_has_the_bits_of_avx512),
    };
    static const char *const levels[] = {"avx512bf16", "amx"};
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        level = levels[i];
        failed += cmocka_run_group_tests_name(level, tests, NULL, NULL);
    }
    return failed;
}
