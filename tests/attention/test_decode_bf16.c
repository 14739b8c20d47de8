/* Decoding from keys and values of bfloat16, which some levels multiply in a way of their
 * own: against the double-precision reference, for groups of heads and sizes of every
 * kind, and what is hidden, or not finite, to the bit. */
#include "attention/reference.h"
#include "dense.h"
#include "near.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One query for H heads over L keys of Hk heads, [L][Hk][D] where `apart`. */
struct step {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
    float *query, *output, *lse;
    uint16_t *key, *value;
    uint8_t *keep; /* [L] */
};

static uint16_t *halves(int64_t count)
{
    uint16_t *const x = allocate((size_t)count, sizeof *x);
    for (int64_t n = 0; n < count; n++)
        attn_reference_store(x, ATTN_BF16, n, (double)random_float());
    return x;
}

static attn_input rows_of(const uint16_t *x, int64_t Hk, int64_t L, int64_t D, bool apart)
{
    if (apart)
        return (attn_input){x, {L * Hk * D, D, Hk * D, 1}, ATTN_BF16};
    return (attn_input){x, {Hk * L * D, L * D, D, 1}, ATTN_BF16};
}

static struct step step_create(attn_shape shape, bool apart)
{
    const int64_t H = shape.H, Hk = shape.Hk, L = shape.Lk, D = shape.D, Dv = shape.Dv;
    struct step s = {
        .shape = shape,
        .query = floats(H * D),
        .output = floats(H * Dv),
        .lse = floats(H),
        .key = halves(Hk * L * D),
        .value = halves(Hk * L * Dv),
        .keep = allocate((size_t)L, 1),
    };
    memset(s.keep, 1, (size_t)L);
    attn_options_init(&s.options, &s.shape);
    s.options.scale = 1.0f / (float)D;
    s.options.keep = (attn_keep){s.keep, {0, 0, 0, 1}};
    s.tensors = (attn_tensors){
        .query = attn_input_dense(s.query, H, 1, D),
        .key = rows_of(s.key, Hk, L, D, apart),
        .value = rows_of(s.value, Hk, L, Dv, apart),
        .output = attn_output_dense(s.output, H, 1, Dv),
        .lse = s.lse,
    };
    return s;
}

static void step_destroy(struct step *s)
{
    free(s->query), free(s->output), free(s->lse);
    free(s->key), free(s->value), free(s->keep);
}

static void run(attn_context *context, const struct step *s)
{
    assert_ok(context, attn_forward(context, &s->shape, &s->tensors, &s->options));
}

/* The output is within `bound` of the reference's. */
static void assert_as_reference(attn_context *context, const struct step *s, double bound)
{
    const size_t count = (size_t)(s->shape.H * s->shape.Dv);
    run(context, s);
    float *const got = copied(s->output, (int64_t)count);
    float *const lse = copied(s->lse, s->shape.H);
    assert_int_equal(attn_forward_reference(&s->shape, &s->tensors, &s->options),
                     ATTN_OK);
    assert_all_near(got, s->output, count, bound, "output");
    assert_all_near(lse, s->lse, (size_t)s->shape.H, bound, "lse");
    free(got), free(lse);
}

static const int64_t groups[] = {1, 2, 3, 4, 8, 16, 20};
static const int64_t sizes[] = {24, 32, 64, 80, 96, 128, 256, 512, 544};

static attn_shape random_shape(void)
{
    const int64_t Hk = 1 + random_below(3);
    const int64_t group = groups[random_below(sizeof groups / sizeof *groups)];
    return (attn_shape){
        .B = 1,
        .H = Hk * group,
        .Hk = Hk,
        .Lq = 1,
        .Lk = 1 + random_below(700),
        .D = sizes[random_below(sizeof sizes / sizeof *sizes)],
        .Dv = sizes[random_below(sizeof sizes / sizeof *sizes)],
    };
}

static void check_reference(attn_context *context)
{
    for (int n = 0; n < 60; n++) {
        struct step s = step_create(random_shape(), n % 2);
        if (n % 3 == 0)
            for (int64_t key = 0; key < s.shape.Lk; key++)
                s.keep[key] = (uint8_t)(random_below(4) > 0);
        assert_as_reference(context, &s, 4e-6);
        step_destroy(&s);
    }
}

static void every_size_is_near_the_reference(void **state)
{
    (void)state;
    on_every_level(check_reference);
}

/* As exact as the sums of fp32 are: a part that was lost would show. */
static void check_digits(attn_context *context)
{
    struct step s = step_create((attn_shape){1, 8, 2, 1, 600, 128, 128}, false);
    assert_as_reference(context, &s, 3e-7);
    step_destroy(&s);
}

static void no_digit_of_queries_or_weights_is_lost(void **state)
{
    (void)state;
    on_every_level(check_digits);
}

/* ---- Magnitudes -----------------------------------------------------------------------
 */

/* Products are what they were. */
static void check_magnitudes(attn_context *context)
{
    static const float factors[] = {0x1p-120f, 0x1p-100f, 0x1p-60f,
                                    0x1p60f,   0x1p70f,   0x1p120f};
    for (size_t n = 0; n < sizeof factors / sizeof *factors; n++) {
        struct step s = step_create((attn_shape){1, 8, 2, 1, 200, 64, 64}, false);
        for (int64_t i = 0; i < 8 * 64; i++)
            s.query[i] *= i / 64 % 2 ? factors[n] : 1.0f;
        const float inverse = 1.0f / factors[n];
        for (int64_t i = 0; i < 2 * 200 * 64; i++) {
            const double x = attn_reference_load(s.key, ATTN_BF16, i);
            attn_reference_store(s.key, ATTN_BF16, i,
                                 i % 64 < 32 ? x * (double)inverse : x);
        }
        for (int64_t i = 0; i < 8 * 64; i++)
            if (i / 64 % 2 == 0 && i % 64 < 32)
                s.query[i] = 0.0f;
        assert_as_reference(context, &s, 4e-6);
        step_destroy(&s);
    }
}

static void large_and_tiny_queries_meet_their_opposites(void **state)
{
    (void)state;
    on_every_level(check_magnitudes);
}

/* ---- What is not finite ---------------------------------------------------------------
 */

static const double poison[] = {NAN, INFINITY, -INFINITY};

static void check_hidden(attn_context *context)
{
    for (int n = 0; n < 30; n++) {
        attn_shape shape = random_shape();
        shape.Lk += 40;
        struct step s = step_create(shape, n % 2);
        const int64_t key = random_below(shape.Lk), hk = random_below(shape.Hk);
        const int64_t count = shape.H * shape.Dv;
        const attn_input *const k = &s.tensors.key, *const v = &s.tensors.value;
        s.keep[key] = 0;
        run(context, &s);
        float *const clean = copied(s.output, count);
        attn_reference_store(s.key, ATTN_BF16,
                             hk * k->stride[1] + key * k->stride[2] + n % shape.D,
                             poison[n % 3]);
        attn_reference_store(s.value, ATTN_BF16,
                             hk * v->stride[1] + key * v->stride[2] + n % shape.Dv,
                             poison[n / 3 % 3]);
        run(context, &s);
        assert_memory_equal(s.output, clean, (size_t)count * sizeof *clean);
        free(clean);
        step_destroy(&s);
    }
}

static void what_is_hidden_changes_no_bit(void **state)
{
    (void)state;
    on_every_level(check_hidden);
}

/* And of a value that is seen, only its own element. */
static void check_seen(attn_context *context)
{
    for (int n = 0; n < 30; n++) {
        const attn_shape shape = random_shape();
        struct step s = step_create(shape, n % 2);
        const int64_t key = random_below(shape.Lk), hk = random_below(shape.Hk);
        const int64_t element = random_below(shape.Dv), count = shape.H * shape.Dv;
        const attn_input *const v = &s.tensors.value;
        run(context, &s);
        float *const clean = copied(s.output, count);
        attn_reference_store(s.value, ATTN_BF16,
                             hk * v->stride[1] + key * v->stride[2] + element,
                             poison[n % 3]);
        run(context, &s);
        for (int64_t i = 0; i < count; i++) {
            const bool sees = i / shape.Dv / (shape.H / shape.Hk) == hk;
            if (!sees || i % shape.Dv != element)
                assert_memory_equal(&s.output[i], &clean[i], sizeof *clean);
            else
                assert_true(n % 3 == 0 ? isnan(s.output[i])
                                       : (double)s.output[i] == poison[n % 3]);
        }
        free(clean);
        step_destroy(&s);
    }
}

static void what_is_not_finite_reaches_those_who_see_it_and_no_other(void **state)
{
    (void)state;
    on_every_level(check_seen);
}

static void check_neighbours(attn_context *context)
{
    for (int n = 0; n < 12; n++) {
        struct step s = step_create((attn_shape){1, 8, 2, 1, 300, 64, 96}, false);
        run(context, &s);
        float *const clean = copied(s.output, 8 * 96);
        s.query[n % 8 * 64 + n] = n < 8 ? (float)poison[n % 3] : 0x1p100f;
        run(context, &s);
        for (int64_t h = 0; h < 8; h++)
            if (h != n % 8)
                assert_memory_equal(s.output + h * 96, clean + h * 96,
                                    96 * sizeof *clean);
            else if (n % 3 == 0 && n < 8)
                assert_true(isnan(s.output[h * 96]));
        free(clean);
        step_destroy(&s);
    }
}

static void no_head_feels_another_one_s_query(void **state)
{
    (void)state;
    on_every_level(check_neighbours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_near_the_reference),
        cmocka_unit_test(no_digit_of_queries_or_weights_is_lost),
        cmocka_unit_test(large_and_tiny_queries_meet_their_opposites),
        cmocka_unit_test(what_is_hidden_changes_no_bit),
        cmocka_unit_test(what_is_not_finite_reaches_those_who_see_it_and_no_other),
        cmocka_unit_test(no_head_feels_another_one_s_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
