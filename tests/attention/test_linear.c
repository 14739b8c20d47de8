/* Linear attention: three forms and their reference, gradients, states, and what no query
 * may see. */
#include "attention/reference_linear.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const attn_linear_form forms[] = {ATTN_LINEAR_CHUNKED, ATTN_LINEAR_RECURRENT,
                                         ATTN_LINEAR_QUADRATIC};

enum { LENGTHS = 4 };

/* Dense tensors; identity features are made positive, so that sums stay away from 0. */
struct setup {
    attn_shape shape;
    attn_options options;
    attn_feature feature;
    struct tensor query, key, value, output, expected, cotangent;
    struct tensor dquery, dkey, dvalue, dquery_expected, dkey_expected, dvalue_expected;
    int64_t lengths[2 * LENGTHS];
};

static void fill(struct tensor *t, float low)
{
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = 0; h < t->extent[1]; h++)
            for (int64_t l = 0; l < t->extent[2]; l++)
                for (int64_t d = 0; d < t->extent[3]; d++)
                    *tensor_at(t, b, h, l, d) =
                        low > 0.0f ? low + fabsf(random_float()) : random_float();
}

static void choose_lengths(struct setup *s, int kind)
{
    if (kind == 1) {
        for (int64_t b = 0; b < s->shape.B; b++) {
            s->lengths[b] = random_below(s->shape.Lq + 1);
            s->lengths[LENGTHS + b] = random_below(s->shape.Lk + 1);
        }
        s->options.query_lengths = s->lengths;
        s->options.key_lengths = s->lengths + LENGTHS;
    } else if (kind == 2 && s->shape.B == 1) {
        int64_t *const query = s->lengths, *const key = s->lengths + LENGTHS;
        query[0] = key[0] = 0;
        query[1] = random_below(s->shape.Lq + 1);
        key[1] = random_below(s->shape.Lk + 1);
        query[2] = s->shape.Lq, key[2] = s->shape.Lk;
        s->options.sequences = 2;
        s->options.query_starts = query;
        s->options.key_starts = key;
    }
}

static void setup_create(struct setup *s, int seed)
{
    memset(s, 0, sizeof *s);
    const int64_t Hk = 1 + random_below(2);
    s->shape = (attn_shape){.B = 1 + random_below(2),
                            .H = Hk * (1 + random_below(2)),
                            .Hk = Hk,
                            .Lq = 1 + random_below(150),
                            .Lk = 1 + random_below(150),
                            .D = 1 + random_below(20),
                            .Dv = 1 + random_below(36)};
    s->feature = (attn_feature)(seed % 3);
    attn_options_init(&s->options, &s->shape);
    s->options.causal = seed % 2;
    s->options.alignment = seed % 4 == 1 ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT;
    choose_lengths(s, seed / 2 % 3);
    const attn_shape *const n = &s->shape;
    const float low = s->feature == ATTN_FEATURE_IDENTITY ? 0.1f : 0.0f;
    s->query = tensor_create(n->B, n->H, n->Lq, n->D);
    s->key = tensor_create(n->B, n->Hk, n->Lk, n->D);
    s->value = tensor_create(n->B, n->Hk, n->Lk, n->Dv);
    s->output = tensor_create(n->B, n->H, n->Lq, n->Dv);
    s->expected = tensor_create(n->B, n->H, n->Lq, n->Dv);
    s->cotangent = tensor_create(n->B, n->H, n->Lq, n->Dv);
    s->dquery = tensor_create(n->B, n->H, n->Lq, n->D);
    s->dkey = tensor_create(n->B, n->Hk, n->Lk, n->D);
    s->dvalue = tensor_create(n->B, n->Hk, n->Lk, n->Dv);
    s->dquery_expected = tensor_create(n->B, n->H, n->Lq, n->D);
    s->dkey_expected = tensor_create(n->B, n->Hk, n->Lk, n->D);
    s->dvalue_expected = tensor_create(n->B, n->Hk, n->Lk, n->Dv);
    fill(&s->query, low), fill(&s->key, low);
    fill(&s->value, 0.0f), fill(&s->cotangent, 0.0f);
}

static void setup_destroy(struct setup *s)
{
    struct tensor *const tensors[] = {
        &s->query,           &s->key,           &s->value,  &s->output,
        &s->expected,        &s->cotangent,     &s->dquery, &s->dkey,
        &s->dquery_expected, &s->dkey_expected, &s->dvalue, &s->dvalue_expected};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        free(tensors[i]->memory);
}

static attn_tensors tensors_of(const struct setup *s, const struct tensor *output)
{
    return (attn_tensors){.query = tensor_input(&s->query),
                          .key = tensor_input(&s->key),
                          .value = tensor_input(&s->value),
                          .output = tensor_output(output)};
}

static void assert_near(const struct tensor *got, const struct tensor *expected,
                        double tolerance)
{
    const int64_t *const n = got->extent;
    double largest = 1.0;
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        const int64_t d = i % n[3], l = i / n[3] % n[2], h = i / n[3] / n[2] % n[1];
        const int64_t b = i / n[3] / n[2] / n[1];
        largest = fmax(largest, fabs((double)*tensor_at(expected, b, h, l, d)));
    }
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        const int64_t d = i % n[3], l = i / n[3] % n[2], h = i / n[3] / n[2] % n[1];
        const int64_t b = i / n[3] / n[2] / n[1];
        const double x = (double)*tensor_at(got, b, h, l, d);
        const double y = (double)*tensor_at(expected, b, h, l, d);
        if (!(fabs(x - y) <= tolerance * largest))
            fail_msg("[%lld][%lld][%lld][%lld] is %.9g, expected %.9g", (long long)b,
                     (long long)h, (long long)l, (long long)d, x, y);
    }
}

/* ---- Values and gradients -------------------------------------------------------------
 */

static void check_forms(attn_context *context)
{
    for (int seed = 0; seed < 24; seed++) {
        struct setup s;
        setup_create(&s, seed);
        const attn_tensors reference = tensors_of(&s, &s.expected);
        assert_int_equal(
            attn_linear_forward_reference(&s.shape, &reference, &s.options, s.feature),
            ATTN_OK);
        const attn_tensors tensors = tensors_of(&s, &s.output);
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            const attn_linear_options linear = {s.feature, forms[f], NULL};
            assert_int_equal(
                attn_linear_forward(context, &s.shape, &tensors, &s.options, &linear),
                ATTN_OK);
            assert_near(&s.output, &s.expected, 1e-5);
        }
        setup_destroy(&s);
    }
}

static void the_three_forms_agree_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_forms);
}

/* Σ cotangent ∘ output of the reference. */
static double loss_of(const struct setup *s)
{
    const attn_tensors tensors = tensors_of(s, &s->expected);
    const attn_shape *const n = &s->shape;
    assert_int_equal(
        attn_linear_forward_reference(&s->shape, &tensors, &s->options, s->feature),
        ATTN_OK);
    double loss = 0.0;
    for (int64_t i = 0; i < n->B * n->H * n->Lq * n->Dv; i++) {
        const int64_t d = i % n->Dv, l = i / n->Dv % n->Lq;
        const int64_t h = i / n->Dv / n->Lq % n->H, b = i / n->Dv / n->Lq / n->H;
        loss += (double)*tensor_at(&s->cotangent, b, h, l, d) *
                (double)*tensor_at(&s->expected, b, h, l, d);
    }
    return loss;
}

/* A few elements.  The outputs are rounded to fp32, which the step makes 1e-3 of. */
static void assert_are_slopes(const struct setup *s, const struct tensor *x,
                              const struct tensor *gradient, const char *what)
{
    const float step = 0x1p-6f;
    for (int n = 0; n < 5; n++) {
        const int64_t b = random_below(x->extent[0]), h = random_below(x->extent[1]);
        const int64_t l = random_below(x->extent[2]), d = random_below(x->extent[3]);
        float *const at = tensor_at(x, b, h, l, d), before = *at;
        if (s->feature == ATTN_FEATURE_RELU && fabsf(before) <= step)
            continue;
        *at = before + step;
        const double above = loss_of(s);
        *at = before - step;
        const double below = loss_of(s);
        *at = before;
        const double expected = (above - below) / (2.0 * (double)step);
        const double got = (double)*tensor_at(gradient, b, h, l, d);
        if (!(fabs(got - expected) <= 3e-3 * fmax(1.0, fabs(expected))))
            fail_msg("%s [%d][%d][%d][%d]: the slope is %.6g, expected %.6g", what,
                     (int)b, (int)h, (int)l, (int)d, got, expected);
    }
}

static void gradients_of_the_reference_equal_central_differences(void **state)
{
    (void)state;
    int tried = 0;
    for (int seed = 0; tried < 24; seed++) {
        struct setup s;
        setup_create(&s, seed);
        const attn_tensors tensors = tensors_of(&s, &s.expected);
        if (s.shape.B * s.shape.H * s.shape.Lq * s.shape.Lk > 2000) {
            setup_destroy(&s);
            continue; /* would take long */
        }
        tried++;
        const attn_gradients gradients = {.output = tensor_input(&s.cotangent),
                                          .query = tensor_output(&s.dquery_expected),
                                          .key = tensor_output(&s.dkey_expected),
                                          .value = tensor_output(&s.dvalue_expected)};
        assert_int_equal(attn_linear_backward_reference(&s.shape, &tensors, &s.options,
                                                        s.feature, &gradients),
                         ATTN_OK);
        assert_are_slopes(&s, &s.query, &s.dquery_expected, "query");
        assert_are_slopes(&s, &s.key, &s.dkey_expected, "key");
        assert_are_slopes(&s, &s.value, &s.dvalue_expected, "value");
        setup_destroy(&s);
    }
}

static void check_gradients(attn_context *context)
{
    for (int seed = 0; seed < 24; seed++) {
        struct setup s;
        setup_create(&s, seed);
        const attn_tensors tensors = tensors_of(&s, &s.output);
        const attn_linear_options linear = {s.feature, ATTN_LINEAR_CHUNKED, NULL};
        const attn_gradients reference = {.output = tensor_input(&s.cotangent),
                                          .query = tensor_output(&s.dquery_expected),
                                          .key = tensor_output(&s.dkey_expected),
                                          .value = tensor_output(&s.dvalue_expected)};
        const attn_gradients gradients = {.output = tensor_input(&s.cotangent),
                                          .query = tensor_output(&s.dquery),
                                          .key = tensor_output(&s.dkey),
                                          .value = tensor_output(&s.dvalue)};
        assert_int_equal(
            attn_linear_forward(context, &s.shape, &tensors, &s.options, &linear),
            ATTN_OK);
        assert_int_equal(attn_linear_backward_reference(&s.shape, &tensors, &s.options,
                                                        s.feature, &reference),
                         ATTN_OK);
        assert_int_equal(attn_linear_backward(context, &s.shape, &tensors, &s.options,
                                              &linear, &gradients),
                         ATTN_OK);
        assert_near(&s.dvalue, &s.dvalue_expected, 1e-5);
        /* The rounded output and denominator go into these, and a small denominator makes
         * much of that. */
        assert_near(&s.dquery, &s.dquery_expected, 3e-4);
        assert_near(&s.dkey, &s.dkey_expected, 3e-4);
        setup_destroy(&s);
    }
}

static void gradients_agree_with_the_reference(void **state)
{
    (void)state;
    on_every_level(check_gradients);
}

/* ---- Small cases ----------------------------------------------------------------------
 */

struct small {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
};

static struct small small_create(int64_t Lq, int64_t Lk, int64_t D, const float *query,
                                 const float *key, const float *value, float *output)
{
    struct small s = {.shape = {1, 1, 1, Lq, Lk, D, 1}};
    attn_options_init(&s.options, &s.shape);
    s.tensors = (attn_tensors){.query = attn_input_dense(query, 1, Lq, D),
                               .key = attn_input_dense(key, 1, Lk, D),
                               .value = attn_input_dense(value, 1, Lk, 1),
                               .output = attn_output_dense(output, 1, Lq, 1)};
    return s;
}

static void check_small(attn_context *context)
{
    const float zeros[4] = {0.0f};
    float output[2] = {7.0f, 7.0f};
    const int64_t one = 1;
    for (size_t f = 0; f < 3; f++) {
        /* A pad is no key, though its feature, elu(0) + 1, is 1. */
        struct small pad =
            small_create(1, 2, 1, zeros, zeros, (const float[]){4.0f, 9.0f}, output);
        pad.options.key_lengths = &one;
        attn_linear_options linear = {ATTN_FEATURE_ELU, forms[f], NULL};
        assert_int_equal(
            attn_linear_forward(context, &pad.shape, &pad.tensors, &pad.options, &linear),
            ATTN_OK);
        assert_true(output[0] == 4.0f);

        /* One denominator for all features. */
        struct small features = small_create(1, 2, 2, (const float[]){1.0f, 2.0f},
                                             (const float[]){1.0f, 0.0f, 0.0f, 1.0f},
                                             (const float[]){3.0f, 6.0f}, output);
        linear.feature = ATTN_FEATURE_IDENTITY;
        assert_int_equal(attn_linear_forward(context, &features.shape, &features.tensors,
                                             &features.options, &linear),
                         ATTN_OK);
        assert_true(output[0] == 5.0f);

        /* No feature at all. */
        struct small nothing =
            small_create(1, 1, 1, (const float[]){-1.0f}, (const float[]){-2.0f},
                         (const float[]){3.0f}, output);
        linear.feature = ATTN_FEATURE_RELU;
        assert_int_equal(attn_linear_forward(context, &nothing.shape, &nothing.tensors,
                                             &nothing.options, &linear),
                         ATTN_OK);
        assert_true(output[0] == 0.0f);

        /* No key at all. */
        struct small empty = small_create(2, 0, 1, zeros, zeros, zeros, output);
        output[1] = 7.0f;
        assert_int_equal(attn_linear_forward(context, &empty.shape, &empty.tensors,
                                             &empty.options, &linear),
                         ATTN_OK);
        assert_true(output[0] == 0.0f && output[1] == 0.0f);
    }
}

static void pads_features_and_nothing_are_what_they_should_be(void **state)
{
    (void)state;
    on_every_level(check_small);
}

enum { LONG = 130 };

static void check_hidden(attn_context *context)
{
    float query[LONG], key[LONG], value[LONG], output[LONG], clean[LONG];
    for (int n = 0; n < LONG; n++)
        query[n] = random_float(), key[n] = random_float(), value[n] = random_float();
    struct small s = small_create(LONG, LONG, 1, query, key, value, clean);
    s.options.causal = true;
    for (size_t f = 0; f < 3; f++) {
        const attn_linear_options linear = {ATTN_FEATURE_ELU, forms[f], NULL};
        s.tensors.output = attn_output_dense(clean, 1, LONG, 1);
        assert_int_equal(
            attn_linear_forward(context, &s.shape, &s.tensors, &s.options, &linear),
            ATTN_OK);
        const float kept_key = key[70], kept_value = value[71];
        key[70] = NAN, value[71] = INFINITY;
        s.tensors.output = attn_output_dense(output, 1, LONG, 1);
        assert_int_equal(
            attn_linear_forward(context, &s.shape, &s.tensors, &s.options, &linear),
            ATTN_OK);
        assert_memory_equal(output, clean, 70 * sizeof *output);
        for (int n = 70; n < LONG; n++)
            assert_true(isnan(output[n]));
        key[70] = kept_key, value[71] = kept_value;
    }
}

static void what_a_query_cannot_see_changes_nothing(void **state)
{
    (void)state;
    on_every_level(check_hidden);
}

/* Output and gradients of queries, keys and values, one after another. */
static size_t results_of(attn_context *context, const struct setup *s,
                         attn_linear_form form, float *to)
{
    const attn_tensors tensors = tensors_of(s, &s->output);
    const attn_linear_options linear = {s->feature, form, NULL};
    const attn_gradients gradients = {.output = tensor_input(&s->cotangent),
                                      .query = tensor_output(&s->dquery),
                                      .key = tensor_output(&s->dkey),
                                      .value = tensor_output(&s->dvalue)};
    assert_ok(context,
              attn_linear_forward(context, &s->shape, &tensors, &s->options, &linear));
    assert_ok(context, attn_linear_backward(context, &s->shape, &tensors, &s->options,
                                            &linear, &gradients));
    const struct tensor *const results[] = {&s->output, &s->dquery, &s->dkey, &s->dvalue};
    size_t floats = 0;
    for (size_t n = 0; n < 4; n++) {
        if (to)
            memcpy(to + floats, results[n]->memory, results[n]->floats * sizeof *to);
        floats += results[n]->floats;
    }
    return floats;
}

static void poison(const struct tensor *t, const int64_t *lengths)
{
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = 0; h < t->extent[1]; h++)
            for (int64_t l = lengths[b]; l < t->extent[2]; l++)
                for (int64_t d = 0; d < t->extent[3]; d++)
                    *tensor_at(t, b, h, l, d) = NAN;
}

static void check_padding(attn_context *context)
{
    for (int seed = 2; seed < 14; seed += seed % 2 ? 5 : 1) { /* those with lengths */
        struct setup s;
        setup_create(&s, seed);
        assert_non_null(s.options.query_lengths);
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            const size_t floats = results_of(context, &s, forms[f], NULL);
            float *const clean = allocate(2 * floats, sizeof(float));
            results_of(context, &s, forms[f], clean);
            const int64_t *const query = s.lengths, *const key = s.lengths + LENGTHS;
            poison(&s.query, query), poison(&s.cotangent, query);
            poison(&s.key, key), poison(&s.value, key);
            results_of(context, &s, forms[f], clean + floats);
            assert_memory_equal(clean, clean + floats, floats * sizeof *clean);
            free(clean);
        }
        setup_destroy(&s);
    }
}

static void nan_of_a_pad_reaches_no_output_and_no_gradient(void **state)
{
    (void)state;
    on_every_level(check_padding);
}

/* ---- States ---------------------------------------------------------------------------
 */

/* Keys and queries first to end − 1, with what the state has of those before. */
static void step(attn_context *context, const struct setup *s, int64_t first, int64_t end,
                 attn_linear_form form, float *memory)
{
    attn_shape shape = s->shape;
    shape.Lq = shape.Lk = end - first;
    attn_tensors tensors = tensors_of(s, &s->output);
    tensors.query.data = tensor_at(&s->query, 0, 0, first, 0);
    tensors.key.data = tensor_at(&s->key, 0, 0, first, 0);
    tensors.value.data = tensor_at(&s->value, 0, 0, first, 0);
    tensors.output.data = tensor_at(&s->output, 0, 0, first, 0);
    const attn_linear_options linear = {s->feature, form, memory};
    assert_int_equal(attn_linear_forward(context, &shape, &tensors, &s->options, &linear),
                     ATTN_OK);
}

static void check_states(attn_context *context)
{
    for (size_t f = 0; f < 3; f++) {
        struct setup s;
        setup_create(&s, 3);
        const int64_t shorter = s.shape.Lq < s.shape.Lk ? s.shape.Lq : s.shape.Lk;
        s.shape.Lq = s.shape.Lk = shorter;
        s.output.extent[2] = s.expected.extent[2] = shorter;
        attn_options_init(&s.options, &s.shape);
        s.options.causal = true;
        const attn_tensors reference = tensors_of(&s, &s.expected);
        assert_int_equal(
            attn_linear_forward_reference(&s.shape, &reference, &s.options, s.feature),
            ATTN_OK);
        float *const memory =
            calloc((size_t)(s.shape.B * s.shape.H * s.shape.D * (s.shape.Dv + 1)),
                   sizeof(float));
        for (int64_t first = 0, next = 0; first < s.shape.Lq; first = next) {
            next = first + 1 + random_below(7);
            next = next < s.shape.Lq ? next : s.shape.Lq;
            step(context, &s, first, next, forms[f], memory);
        }
        assert_near(&s.output, &s.expected, 1e-5);
        free(memory);
        setup_destroy(&s);
    }
}

static void pieces_with_a_state_are_the_whole(void **state)
{
    (void)state;
    on_every_level(check_states);
}

/* ---- Errors ---------------------------------------------------------------------------
 */

static void check_refusals(attn_context *context)
{
    float x[4] = {0.0f};
    struct small s = small_create(1, 1, 1, x, x + 1, x + 2, x + 3);
    s.options.softcap = 1.0f;
    assert_int_equal(attn_linear_forward(context, &s.shape, &s.tensors, &s.options, NULL),
                     ATTN_EUNSUPPORTED);
    assert_non_null(strstr(attn_context_message(context), "options.softcap is given"));
    s.options.softcap = 0.0f, s.options.window_left = 3;
    assert_int_equal(attn_linear_forward(context, &s.shape, &s.tensors, &s.options, NULL),
                     ATTN_EUNSUPPORTED);
    s.options.window_left = -1;
    const attn_linear_options odd = {(attn_feature)9, ATTN_LINEAR_CHUNKED, NULL};
    assert_int_equal(attn_linear_forward(context, &s.shape, &s.tensors, &s.options, &odd),
                     ATTN_EINVAL);
    assert_non_null(
        strstr(attn_context_message(context), "linear.feature is 9, expected 0 to 2"));
    const attn_linear_options with_state = {ATTN_FEATURE_ELU, ATTN_LINEAR_CHUNKED, x};
    const attn_gradients gradients = {.output = attn_input_dense(x, 1, 1, 1)};
    assert_int_equal(attn_linear_backward(context, &s.shape, &s.tensors, &s.options,
                                          &with_state, &gradients),
                     ATTN_EUNSUPPORTED);
    assert_non_null(strstr(attn_context_message(context), "linear.state is given"));
}

static void what_linear_attention_cannot_do_is_refused_by_name(void **state)
{
    (void)state;
    on_every_level(check_refusals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_forms_agree_with_the_reference),
        cmocka_unit_test(gradients_of_the_reference_equal_central_differences),
        cmocka_unit_test(gradients_agree_with_the_reference),
        cmocka_unit_test(pads_features_and_nothing_are_what_they_should_be),
        cmocka_unit_test(what_a_query_cannot_see_changes_nothing),
        cmocka_unit_test(nan_of_a_pad_reaches_no_output_and_no_gradient),
        cmocka_unit_test(pieces_with_a_state_are_the_whole),
        cmocka_unit_test(what_linear_attention_cannot_do_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
