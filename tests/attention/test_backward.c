/* attn_backward: the double-precision reference against central differences of the
 * forward pass, then every instruction set against the reference, on hundreds of random
 * problems with every option, poison in whatever is hidden; then what the header
 * promises. */
#include "attention/reference.h"
#include "problems.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed; /* names the problem in a failure */

/* Every gradient that a problem has, in memory with gaps of NaN. */
struct slopes {
    struct tensor output, query, key, value, bias;
    float *sinks;
};

static void randomise(const struct tensor *t)
{
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = 0; h < t->extent[1]; h++)
            for (int64_t l = 0; l < t->extent[2]; l++)
                for (int64_t d = 0; d < t->extent[3]; d++)
                    *tensor_at(t, b, h, l, d) = random_float();
}

static struct slopes slopes_create(const struct problem *p)
{
    const attn_shape *const s = &p->shape;
    struct slopes g = {
        .output = tensor_create(s->B, s->H, s->Lq, s->Dv),
        .query = tensor_create(s->B, s->H, s->Lq, s->D),
        .key = tensor_create(s->B, s->Hk, s->Lk, s->D),
        .value = tensor_create(s->B, s->Hk, s->Lk, s->Dv),
    };
    randomise(&g.output);
    if (p->options.bias.data) {
        const int64_t *const e = p->bias.extent;
        g.bias = tensor_create(e[0], e[1], e[2], e[3]);
        for (int axis = 0; axis < 4; axis++)
            if (p->options.bias.stride[axis] == 0)
                g.bias.stride[axis] = 0;
    }
    if (p->options.sinks)
        g.sinks = calloc((size_t)s->H + 1, sizeof *g.sinks);
    return g;
}

static void slopes_destroy(struct slopes *g)
{
    free(g->output.memory), free(g->query.memory), free(g->key.memory);
    free(g->value.memory), free(g->bias.memory), free(g->sinks);
}

static attn_gradients slopes_gradients(const struct slopes *g)
{
    return (attn_gradients){
        .output = tensor_input(&g->output),
        .query = tensor_output(&g->query),
        .key = tensor_output(&g->key),
        .value = tensor_output(&g->value),
        .bias = tensor_output(&g->bias),
        .sinks = g->sinks,
    };
}

static void forward(attn_context *context, const struct problem *p,
                    const struct results *r)
{
    const attn_tensors tensors = problem_tensors(p, r);
    if (attn_forward(context, &p->shape, &tensors, &p->options) != ATTN_OK)
        fail_msg("seed %d: %s", (int)seed, attn_context_message(context));
}

static void backward(attn_context *context, const struct problem *p,
                     const struct results *r, const struct slopes *g)
{
    const attn_tensors tensors = problem_tensors(p, r);
    const attn_gradients gradients = slopes_gradients(g);
    if (attn_backward(context, &p->shape, &tensors, &p->options, &gradients) != ATTN_OK)
        fail_msg("seed %d: %s", (int)seed, attn_context_message(context));
}

static void backward_reference(const struct problem *p, const struct results *r,
                               const struct slopes *g)
{
    const attn_tensors tensors = problem_tensors(p, r);
    const attn_gradients gradients = slopes_gradients(g);
    assert_int_equal(
        attn_backward_reference(&p->shape, &tensors, &p->options, &gradients), ATTN_OK);
}

/* ---- The reference against central differences
 * ----------------------------------------- */

/* Σ gradient ∘ output, in double. */
static double loss_of(const struct problem *p, const struct slopes *g)
{
    const struct results none = {.output = {.data = NULL}};
    const attn_tensors tensors = problem_tensors(p, &none);
    struct attn_reference_row row;
    assert_true(attn_reference_row_create(&row, &p->shape));
    double loss = 0.0;
    for (int64_t b = 0; b < p->shape.B; b++)
        for (int64_t h = 0; h < p->shape.H; h++)
            for (int64_t i = 0; i < p->shape.Lq; i++) {
                attn_reference_attend(&row, &p->shape, &tensors, &p->options, b, h, i);
                for (int64_t d = 0; d < p->shape.Dv; d++)
                    loss += (double)*tensor_at(&g->output, b, h, i, d) * row.output[d];
            }
    attn_reference_row_destroy(&row);
    return loss;
}

static void assert_is_slope(const struct problem *p, const struct slopes *g, float *x,
                            float gradient, const char *what)
{
    const float before = *x, step = 0x1p-9f;
    if (!isfinite(before)) { /* hidden, and poisoned; or a sink or bias of −∞ */
        if (gradient != 0.0f)
            fail_msg("seed %d: %s of what is hidden is %g, expected 0", (int)seed, what,
                     (double)gradient);
        return;
    }
    volatile float above = before + step, below = before - step;
    *x = above;
    const double loss_above = loss_of(p, g);
    *x = below;
    const double loss_below = loss_of(p, g);
    *x = before;
    const double expected = (loss_above - loss_below) / ((double)above - (double)below);
    if (!(fabs((double)gradient - expected) <= 2e-4 * fmax(1.0, fabs(expected))))
        fail_msg("seed %d: %s is %g, expected %g", (int)seed, what, (double)gradient,
                 expected);
}

/* A few elements of each: all of them would take minutes. */
static void assert_are_slopes(const struct problem *p, const struct slopes *g,
                              const struct tensor *x, const struct tensor *gradient,
                              const char *what)
{
    int64_t count = 1;
    for (int axis = 0; axis < 4; axis++)
        count *= x->extent[axis];
    for (int64_t n = 0; n < 12 && count > 0; n++) {
        const int64_t b = random_below(x->extent[0]), h = random_below(x->extent[1]);
        const int64_t l = random_below(x->extent[2]), d = random_below(x->extent[3]);
        assert_is_slope(p, g, tensor_at(x, b, h, l, d), *tensor_at(gradient, b, h, l, d),
                        what);
    }
}

static void reference_gradients_equal_central_differences(void **state)
{
    (void)state;
    for (seed = 0; seed < 150; seed++) {
        struct problem p = problem_create(seed, RULES_ALL);
        const bool shared = p.shape.B > 1 && p.key.stride[0] == 0;
        if (p.shape.Lq * p.shape.Lk * p.shape.H * p.shape.B < 4000 && !shared) {
            struct results r = results_create(&p);
            struct slopes g = slopes_create(&p);
            backward_reference(&p, &r, &g);
            assert_are_slopes(&p, &g, &p.query, &g.query, "query");
            assert_are_slopes(&p, &g, &p.key, &g.key, "key");
            assert_are_slopes(&p, &g, &p.value, &g.value, "value");
            if (p.options.bias.data)
                assert_are_slopes(&p, &g, &p.bias, &g.bias, "bias");
            for (int64_t h = 0; h < p.shape.H && p.options.sinks; h++)
                assert_is_slope(&p, &g, &p.head_floats[32 + h], g.sinks[h], "sink");
            results_destroy(&r);
            slopes_destroy(&g);
        }
        problem_destroy(&p);
    }
}

/* ---- Every instruction set against the reference
 * --------------------------------------- */

static double largest_of(const struct tensor *t)
{
    double largest = 0.0;
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = 0; h < t->extent[1]; h++)
            for (int64_t l = 0; l < t->extent[2]; l++)
                for (int64_t d = 0; d < t->extent[3]; d++) {
                    const double x = fabs((double)*tensor_at(t, b, h, l, d));
                    largest = isfinite(x) ? fmax(largest, x) : largest;
                }
    return largest;
}

static double worst;

static void assert_tensors_near(const struct tensor *got, const struct tensor *expected,
                                double bound, const char *what)
{
    for (int64_t b = 0; b < got->extent[0]; b++)
        for (int64_t h = 0; h < got->extent[1]; h++)
            for (int64_t l = 0; l < got->extent[2]; l++)
                for (int64_t d = 0; d < got->extent[3]; d++) {
                    const float x = *tensor_at(got, b, h, l, d);
                    const float y = *tensor_at(expected, b, h, l, d);
                    if (isnan(x) && isnan(y))
                        continue;
                    const double error = fabs((double)x - (double)y);
                    worst = fmax(worst, error / bound);
                    if (!(error <= bound))
                        fail_msg("seed %d: %s [%d][%d][%d][%d] is %.9g, expected %.9g "
                                 "within %g",
                                 (int)seed, what, (int)b, (int)h, (int)l, (int)d,
                                 (double)x, (double)y, bound);
                }
}

static void assert_slopes_near(const struct problem *p, const struct slopes *got,
                               const struct slopes *expected)
{
    const double scale = fabs((double)p->options.scale);
    const double kept = p->options.dropout < 1.0 ? 1.0 / (1.0 - p->options.dropout) : 1.0;
    const double by_score = kept * largest_of(&got->output) * largest_of(&p->value) *
                            sqrt((double)p->shape.Dv);
    const double tiny = 1e-5;
    const double heads = (double)(p->shape.H / p->shape.Hk);
    const double many = sqrt((double)(p->shape.Lq + 1) * heads);
    assert_tensors_near(&got->query, &expected->query,
                        tiny * (scale * by_score * largest_of(&p->key) + 1e-20), "query");
    assert_tensors_near(&got->key, &expected->key,
                        tiny * (many * scale * by_score * largest_of(&p->query) + 1e-20),
                        "key");
    assert_tensors_near(&got->value, &expected->value,
                        tiny * (many * kept * largest_of(&got->output) + 1e-20), "value");
    if (p->options.bias.data)
        assert_tensors_near(&got->bias, &expected->bias,
                            tiny * (many * sqrt((double)p->shape.H) * by_score + 1e-20),
                            "bias");
    for (int64_t h = 0; h < p->shape.H && p->options.sinks; h++)
        if (!(isnan(got->sinks[h]) && isnan(expected->sinks[h])) &&
            !(fabs((double)got->sinks[h] - (double)expected->sinks[h]) <=
              tiny * many * (by_score + 1.0)))
            fail_msg("seed %d: sink %d is %.9g, expected %.9g", (int)seed, (int)h,
                     (double)got->sinks[h], (double)expected->sinks[h]);
}

static void check_random_problems(attn_context *context)
{
    for (seed = 0; seed < 400; seed++) {
        struct problem p = problem_create(seed, RULES_ALL);
        struct results r = results_create(&p);
        struct slopes got = slopes_create(&p);
        struct slopes expected = slopes_create(&p);
        for (int64_t b = 0; b < p.shape.B; b++)
            for (int64_t h = 0; h < p.shape.H; h++)
                for (int64_t i = 0; i < p.shape.Lq; i++)
                    for (int64_t d = 0; d < p.shape.Dv; d++)
                        *tensor_at(&expected.output, b, h, i, d) =
                            *tensor_at(&got.output, b, h, i, d);
        forward(context, &p, &r);
        backward(context, &p, &r, &got);
        backward_reference(&p, &r, &expected);
        assert_slopes_near(&p, &got, &expected);
        slopes_destroy(&got);
        slopes_destroy(&expected);
        results_destroy(&r);
        problem_destroy(&p);
    }
    print_message("%s: worst %.3f of the bound\n", attn_context_isa(context), worst);
    worst = 0.0;
}

static void random_problems_equal_the_reference(void **state)
{
    (void)state;
    on_every_level(check_random_problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_gradients_equal_central_differences),
        cmocka_unit_test(random_problems_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
