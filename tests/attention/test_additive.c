/* Additive scores: how exact a term and a tanh are, on every instruction set; large
 * elements and vectors of every kind; what belongs to no other score.  That they obey
 * every option, statistic and gradient is shown by the random problems of the other
 * tests, of which every third has them. */
#include "attention/reference.h"
#include "dense.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One batch of additive attention. */
static struct dense call_create(int64_t B, int64_t H, int64_t Lq, int64_t Lk, int64_t D)
{
    return dense_create((attn_shape){B, H, H, Lq, Lk, D, 3}, true);
}

/* ---- How exact ------------------------------------------------------------------------
 */

/* With one key the lse is the score. */
static void check_terms(attn_context *context)
{
    enum { QUERIES = 6000, KEYS = 40 };
    struct dense c = call_create(1, 1, QUERIES, 1, 1);
    c.vector[0] = 1.0f;
    double worst = 0.0;
    for (int n = 0; n < KEYS; n++) {
        c.key[0] = 15.0f * random_float();
        for (int i = 0; i < QUERIES; i++)
            c.query[i] =
                n % 2 ? 2.5f * random_float() - c.key[0] : 16.0f * random_float();
        dense_forward(context, &c);
        for (int i = 0; i < QUERIES; i++) {
            const double x = (double)c.query[i] + (double)c.key[0];
            const double error = fabs((double)c.lse[i] - tanh(x));
            worst = fmax(worst, error);
            if (!(error <= 3e-7))
                fail_msg("tanh(%.9g + %.9g) is %.9g, expected %.9g", (double)c.query[i],
                         (double)c.key[0], (double)c.lse[i], tanh(x));
        }
    }
    print_message("%s: terms within %.3g\n", attn_context_isa(context), worst);
    dense_destroy(&c);
}

static void a_term_is_within_its_bound(void **state)
{
    (void)state;
    on_every_level(check_terms);
}

/* In units in the last place of the float nearest to the exact value. */
static double error_in_ulp(float got, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    const double ulp = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)got - exact) / ulp;
}

/* A softcap of 1 is tanh itself; every 211th float, of both signs. */
static void check_tanh(attn_context *context)
{
    enum { QUERIES = 1 << 16 };
    struct dense c = call_create(1, 1, QUERIES, 1, 1);
    attn_options_init(&c.options, &c.shape);
    c.options.softcap = 1.0f;
    c.key[0] = 1.0f;
    double worst = 0.0;
    for (uint32_t bits = 0; bits < 0x7f800000;) {
        int count = 0;
        for (; count < QUERIES && bits < 0x7f800000; count++, bits += 211) {
            const uint32_t x = bits | (bits & 1) << 31;
            memcpy(&c.query[count], &x, sizeof x);
        }
        dense_forward(context, &c);
        for (int i = 0; i < count; i++) {
            const double exact = tanh((double)c.query[i]);
            const double error = error_in_ulp(c.lse[i], exact);
            worst = fabs(exact) > 0x1p-100 ? fmax(worst, error) : worst;
            /* Parts below 2⁻¹²⁶ count as 0 in products of tiles. */
            if (!(error <= 2.0 || fabs((double)c.lse[i] - exact) <= 0x1p-125))
                fail_msg("tanh(%.9g) is %.9g, off by %g ulp", (double)c.query[i],
                         (double)c.lse[i], error);
        }
    }
    print_message("%s: tanh within %.2f ulp\n", attn_context_isa(context), worst);
    c.query[0] = INFINITY, c.query[1] = -INFINITY, c.query[2] = NAN;
    dense_forward(context, &c);
    assert_true(c.lse[0] == 1.0f && c.lse[1] == -1.0f && isnan(c.lse[2]));
    dense_destroy(&c);
}

static void tanh_is_within_2_ulp(void **state)
{
    (void)state;
    on_every_level(check_tanh);
}

/* ---- Against the reference ------------------------------------------------------------
 */

static void assert_near(const float *got, const float *expected, int64_t count,
                        double bound, const char *what)
{
    for (int64_t n = 0; n < count; n++)
        if (!(fabs((double)got[n] - (double)expected[n]) <= bound) &&
            !(isnan(got[n]) && isnan(expected[n])))
            fail_msg("%s %d is %.9g, expected %.9g within %g", what, (int)n,
                     (double)got[n], (double)expected[n], bound);
}

/* All that the call gives, forward and backward. */
static void assert_is_reference(attn_context *context, struct dense *c, double size)
{
    const attn_shape *const s = &c->shape;
    const int64_t queries = s->B * s->H * s->Lq, keys = s->B * s->H * s->Lk;
    dense_forward(context, c);
    dense_backward(context, c);
    struct dense expected = call_create(s->B, s->H, s->Lq, s->Lk, s->D);
    const attn_tensors inputs = dense_tensors(c);
    attn_tensors tensors = dense_tensors(&expected);
    tensors.query = inputs.query, tensors.key = inputs.key, tensors.value = inputs.value;
    attn_gradients gradients = dense_gradients(&expected);
    gradients.output = dense_gradients(c).output;
    assert_int_equal(attn_forward_reference(s, &tensors, &c->options), ATTN_OK);
    assert_int_equal(attn_backward_reference(s, &tensors, &c->options, &gradients),
                     ATTN_OK);
    assert_near(c->output, expected.output, queries * 3, 8e-6, "output");
    assert_near(c->lse, expected.lse, queries, 4e-6 * fmax(1.0, size), "lse");
    assert_near(c->query_slope, expected.query_slope, queries * s->D, 1e-4 * size,
                "query");
    assert_near(c->key_slope, expected.key_slope, keys * s->D, 1e-4 * size, "key");
    assert_near(c->value_slope, expected.value_slope, keys * 3, 1e-4, "value");
    assert_near(c->vector_slope, expected.vector_slope, s->H * s->D, 2e-4, "vector");
    dense_destroy(&expected);
}

static void check_sizes(attn_context *context)
{
    static const int64_t sizes[] = {1, 2, 15, 63, 64, 65, 100, 127, 129, 200};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        struct dense c = call_create(2, 2, 50 - 4 * (int64_t)n, 140, sizes[n]);
        for (int64_t d = 0; d < 2 * sizes[n]; d++)
            c.vector[d] *= 1.0f / sqrtf((float)sizes[n]);
        assert_is_reference(context, &c, 1.0);
        dense_destroy(&c);
    }
}

static void every_size_agrees_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_sizes);
}

/* One query a sequence, as a recurrent decoder asks. */
static void check_single_queries(attn_context *context)
{
    static const int64_t sizes[] = {1, 7, 16, 40, 64, 65, 130, 256};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        struct dense c = call_create(3, 2, 1, 300, sizes[n]);
        for (int64_t d = 0; d < 2 * sizes[n]; d++)
            c.vector[d] *= 1.0f / sqrtf((float)sizes[n]);
        if (n % 2 > 0) { /* and some that are not moderate */
            c.query[3 % sizes[n]] = 40.0f;
            c.key[sizes[n] * 7] = -39.0f;
            c.key[sizes[n] * 400] = 100.0f;
        }
        assert_is_reference(context, &c, 1.0);
        dense_destroy(&c);
    }
}

static void single_queries_agree_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_single_queries);
}

/* Elements far beyond the exponent's range, of which query and key may cancel. */
static void check_large(attn_context *context)
{
    struct dense c = call_create(1, 1, 70, 150, 21);
    for (int64_t n = 0; n < 70; n += 3)
        c.query[n * 21 + n % 21] = n % 2 ? 1e30f : -27.0f - (float)n;
    for (int64_t n = 0; n < 150; n += 5)
        c.key[n * 21 + n % 21] = n % 2 ? 28.0f + (float)n : -3e38f;
    c.query[5 * 21] = 60.0f, c.key[7 * 21] = -60.25f;
    c.query[8 * 21] = INFINITY, c.key[9 * 21 + 1] = -INFINITY;
    assert_is_reference(context, &c, 1.0);
    dense_destroy(&c);
}

static void large_elements_agree_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_large);
}

static void check_vectors(attn_context *context)
{
    static const struct {
        float first, others, scale;
        double size;
    } kinds[] = {
        {0.0f, 0.0f, 1.0f, 1.0},   {1.0f, 0.0f, 1.0f, 1.0},
        {1.0f, 1e-30f, 2.0f, 1.0}, {1e-30f, 1e-33f, 1e30f, 1.0},
        {1e-42f, 0.0f, 1.0f, 1.0}, {3e30f, 1e-30f, 1e-30f, 1.0},
        {-1.0f, 1.0f, -1.0f, 1.0}, {1.0f, -1.0f, 0.0f, 1.0},
    };
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        struct dense c = call_create(1, 1, 20, 30, 9);
        for (int64_t d = 0; d < 9; d++)
            c.vector[d] = d == 0 ? kinds[n].first : kinds[n].others;
        c.options.scale = kinds[n].scale;
        const float size = fabsf(c.options.scale);
        if (size > 1e3f) /* the slope by the vector is as large */
            memset(c.slope, 0, 20 * 3 * sizeof *c.slope);
        assert_is_reference(context, &c, kinds[n].size);
        dense_destroy(&c);
    }
}

static void vectors_of_every_kind_agree_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_vectors);
}

static void check_not_finite_vector(attn_context *context)
{
    struct dense c = call_create(1, 2, 5, 6, 4);
    c.vector[1] = NAN;
    dense_forward(context, &c);
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(isnan(c.lse[i]), i < 5);
    c.vector[1] = INFINITY;
    dense_forward(context, &c);
    for (int64_t i = 5; i < 10; i++)
        assert_true(isfinite(c.lse[i]));
    dense_destroy(&c);
}

static void a_vector_that_is_not_finite_spoils_its_head_alone(void **state)
{
    (void)state;
    on_every_level(check_not_finite_vector);
}

/* ---- Properties -----------------------------------------------------------------------
 */

/* Case 10: h = [4, 4, 0], the last one padding, and every score 0, which is exact. */
static void check_padding(attn_context *context)
{
    static const int64_t lengths[] = {2, 3};
    struct dense c = call_create(2, 1, 1, 3, 5);
    static const float annotations[] = {4.0f, 4.0f, 0.0f};
    memset(c.vector, 0, 5 * sizeof *c.vector);
    for (int64_t n = 0; n < 2 * 3 * 3; n++)
        c.value[n] = annotations[n / 3 % 3];
    for (int zero = 0; zero < 2; zero++) { /* zero projections, then a zero vector */
        c.options.key_lengths = lengths;
        dense_forward(context, &c);
        assert_true(c.output[0] == 4.0f);
        assert_true(fabsf(c.output[3] - 8.0f / 3.0f) < 1e-6f);
        assert_true(fabsf(c.lse[0] - logf(2.0f)) < 1e-7f);
        memset(c.query, 0, 2 * 5 * sizeof *c.query);
        memset(c.key, 0, 2 * 3 * 5 * sizeof *c.key);
        for (int64_t d = 0; d < 5; d++)
            c.vector[d] = 0.3f * (float)(d - 2);
    }
    dense_destroy(&c);
}

static void padding_takes_no_part_in_the_context(void **state)
{
    (void)state;
    on_every_level(check_padding);
}

/* tanh(q + k) knows the sum alone, and is odd. */
static void check_symmetry(attn_context *context)
{
    struct dense c = call_create(1, 1, 40, 40, 33);
    dense_forward(context, &c);
    float *const lse = copied(c.lse, 40);
    for (int64_t n = 0; n < 40 * 33; n++)
        c.query[n] = -c.query[n], c.key[n] = -c.key[n];
    for (int64_t d = 0; d < 33; d++)
        c.vector[d] = -c.vector[d];
    dense_forward(context, &c);
    assert_near(c.lse, lse, 40, 0.0, "lse of the negatives");
    for (int64_t n = 0; n < 40 * 33; n++)
        c.query[n] += 0.25f, c.key[n] -= 0.25f;
    dense_forward(context, &c);
    assert_near(c.lse, lse, 40, 1e-5, "lse of the moved");
    free(lse);
    dense_destroy(&c);
}

static void only_the_sum_of_query_and_key_counts(void **state)
{
    (void)state;
    on_every_level(check_symmetry);
}

/* What some rows hold changes no bit of what others get: large elements, NaN, ∞. */
static void check_independence(attn_context *context)
{
    enum { L = 200, D = 70, SEEN_FROM = 100 };
    struct dense c = call_create(1, 1, L, L, D);
    c.options.causal = true;
    dense_forward(context, &c), dense_backward(context, &c);
    float *const output = copied(c.output, L * 3), *const lse = copied(c.lse, L);
    float *const query_slope = copied(c.query_slope, L * D);
    static const float poison[] = {50.0f, NAN, INFINITY, -1e30f};
    for (int64_t n = 0; n < 4; n++) {
        c.key[(SEEN_FROM + n) * D + 2 * n] = poison[n];
        c.query[(SEEN_FROM + 10 + n) * D + n] = poison[n];
    }
    dense_forward(context, &c), dense_backward(context, &c);
    assert_memory_equal(output, c.output, SEEN_FROM * 3 * sizeof(float));
    assert_memory_equal(lse, c.lse, SEEN_FROM * sizeof(float));
    assert_memory_equal(query_slope, c.query_slope, SEEN_FROM * D * sizeof(float));
    for (int64_t i = SEEN_FROM + 1; i < L; i++)
        assert_true(isnan(c.lse[i]));
    free(output), free(lse), free(query_slope);
    dense_destroy(&c);
}

static void what_a_row_does_not_see_changes_none_of_its_bits(void **state)
{
    (void)state;
    on_every_level(check_independence);
}

static void check_one_key(attn_context *context)
{
    struct dense c = call_create(2, 2, 30, 1, 19);
    dense_forward(context, &c), dense_backward(context, &c);
    for (int64_t n = 0; n < 2 * 2 * 30 * 19; n++)
        assert_true(c.query_slope[n] == 0.0f);
    for (int64_t n = 0; n < 2 * 2 * 19; n++)
        assert_true(c.key_slope[n] == 0.0f);
    for (int64_t n = 0; n < 2 * 19; n++)
        assert_true(c.vector_slope[n] == 0.0f);
    dense_destroy(&c);
}

static void one_visible_key_gives_gradients_of_exactly_0(void **state)
{
    (void)state;
    on_every_level(check_one_key);
}

static void no_keys_or_no_queries_give_a_gradient_of_0(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct dense no_keys = call_create(2, 2, 3, 0, 5),
                 no_queries = call_create(2, 2, 0, 3, 5);
    dense_forward(context, &no_keys), dense_backward(context, &no_keys);
    dense_forward(context, &no_queries), dense_backward(context, &no_queries);
    for (int64_t n = 0; n < 2 * 5; n++)
        assert_true(no_keys.vector_slope[n] == 0.0f &&
                    no_queries.vector_slope[n] == 0.0f);
    dense_destroy(&no_keys), dense_destroy(&no_queries);
    attn_context_destroy(context);
}

/* ---- Plan and errors ------------------------------------------------------------------
 */

/* Memory for the pairs would be 60 times what four times the length may take. */
static void the_plan_says_additive_and_memory_is_linear(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    size_t bytes[2][2];
    for (int n = 0; n < 2; n++) {
        const int64_t L = n ? 4096 : 1024;
        struct dense c = call_create(1, 1, L, L, 128);
        const attn_tensors tensors = dense_tensors(&c);
        const attn_gradients gradients = dense_gradients(&c);
        attn_plan plan;
        assert_int_equal(
            attn_plan_forward(context, &c.shape, &tensors, &c.options, &plan), ATTN_OK);
        assert_memory_equal(plan.path, "additive", strlen("additive"));
        bytes[0][n] = plan.scratch_bytes;
        assert_int_equal(attn_plan_backward(context, &c.shape, &tensors, &c.options,
                                            &gradients, &plan),
                         ATTN_OK);
        assert_memory_equal(plan.path, "additive", strlen("additive"));
        bytes[1][n] = plan.scratch_bytes;
        dense_destroy(&c);
    }
    assert_true(bytes[0][1] == bytes[0][0]);
    assert_true(bytes[1][1] <= 4 * bytes[1][0]);
    attn_context_destroy(context);
}

static void assert_refused(attn_context *context, const struct dense *c,
                           const attn_gradients *gradients, const char *expected)
{
    const attn_tensors tensors = dense_tensors(c);
    const attn_status status =
        gradients ? attn_backward(context, &c->shape, &tensors, &c->options, gradients)
                  : attn_forward(context, &c->shape, &tensors, &c->options);
    assert_int_equal(status, ATTN_EINVAL);
    assert_string_equal(attn_context_message(context), expected);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct dense c = call_create(1, 1, 2, 3, 4);
    assert_true(c.options.scale == 1.0f && c.options.score == ATTN_SCORE_ADDITIVE);
    c.options.additive = NULL;
    assert_refused(context, &c, NULL,
                   "attn_forward: options.additive is NULL, expected a vector for each "
                   "head with ATTN_SCORE_ADDITIVE");
    c.options.additive = c.vector;
    c.options.score = ATTN_SCORE_DOT;
    assert_refused(context, &c, NULL,
                   "attn_forward: options.additive is given with ATTN_SCORE_DOT, "
                   "expected NULL or ATTN_SCORE_ADDITIVE");
    c.options.score = (attn_score)7;
    assert_refused(context, &c, NULL,
                   "attn_forward: options.score is 7, expected 0 to 2");
    attn_options_init_additive(&c.options, &c.shape, c.vector);
    c.options.scale = INFINITY;
    assert_refused(context, &c, NULL,
                   "attn_forward: options.scale is inf, expected a finite number");
    attn_options_init(&c.options, &c.shape);
    const attn_gradients gradients = dense_gradients(&c);
    assert_refused(context, &c, &gradients,
                   "attn_backward: gradients.additive is given without "
                   "options.additive, expected both or gradients.additive NULL");
    dense_destroy(&c);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_term_is_within_its_bound),
        cmocka_unit_test(tanh_is_within_2_ulp),
        cmocka_unit_test(every_size_agrees_with_the_reference),
        cmocka_unit_test(single_queries_agree_with_the_reference),
        cmocka_unit_test(large_elements_agree_with_the_reference),
        cmocka_unit_test(vectors_of_every_kind_agree_with_the_reference),
        cmocka_unit_test(a_vector_that_is_not_finite_spoils_its_head_alone),
        cmocka_unit_test(padding_takes_no_part_in_the_context),
        cmocka_unit_test(only_the_sum_of_query_and_key_counts),
        cmocka_unit_test(what_a_row_does_not_see_changes_none_of_its_bits),
        cmocka_unit_test(one_visible_key_gives_gradients_of_exactly_0),
        cmocka_unit_test(no_keys_or_no_queries_give_a_gradient_of_0),
        cmocka_unit_test(the_plan_says_additive_and_memory_is_linear),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
