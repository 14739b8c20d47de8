/* attn_backward: the double-precision reference against central differences of the
 * forward pass, then every instruction set against the reference, on hundreds of random
 * problems with every option, poison in whatever is hidden; then what the header
 * promises. */
#include "attention/reference.h"
#include "dense.h"
#include "slopes.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed; /* names the problem in a failure */

static void backward(attn_context *context, const struct problem *p,
                     const struct results *r, const struct slopes *g)
{
    const attn_tensors tensors = problem_tensors(p, r);
    const attn_gradients gradients = slopes_gradients(g);
    assert_ok(context,
              attn_backward(context, &p->shape, &tensors, &p->options, &gradients));
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
            const bool own_gates = p.log_forget.extent[0] == p.shape.B &&
                                   p.log_forget.extent[1] == p.shape.H;
            if (p.options.log_forget.data && own_gates)
                assert_are_slopes(&p, &g, &p.log_forget, &g.log_forget, "gate");
            for (int64_t h = 0; h < p.shape.H && p.options.sinks; h++)
                assert_is_slope(&p, &g, &p.head_floats[32 + h], g.sinks[h], "sink");
            for (int64_t n = 0; n < p.shape.H * p.shape.D && p.additive; n++)
                assert_is_slope(&p, &g, &p.additive[n], g.additive[n], "vector");
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

static double largest_float(const struct problem *p)
{
    double largest = 0.0;
    for (int64_t n = 0; n < p->shape.H * p->shape.D; n++)
        largest = fmax(largest, fabs((double)p->additive[n]));
    return largest;
}

static double worst;

/* A row with a NaN reaches the gates of all positions up to its own, even those that are
 * before all keys it sees. */
static void forgive_gates(const struct tensor *got, const struct tensor *expected,
                          const struct tensor *output)
{
    for (int64_t b = 0; b < got->extent[0]; b++)
        for (int64_t h = 0; h < got->extent[1]; h++) {
            bool any_nan = false;
            for (int64_t i = 0; i < output->extent[2]; i++)
                any_nan = any_nan || isnan(*tensor_at(output, b, h, i, 0));
            for (int64_t j = 0; j < got->extent[2] && any_nan; j++)
                if (isnan(*tensor_at(got, b, h, j, 0)))
                    *tensor_at(got, b, h, j, 0) = *tensor_at(expected, b, h, j, 0);
        }
}

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

/* The bounds of attention.h. */
static void assert_slopes_near(const struct problem *p, const struct results *r,
                               const struct slopes *got, const struct slopes *expected)
{
    const double scale = fabs((double)p->options.scale);
    const double kept = p->options.dropout < 1.0 ? 1.0 / (1.0 - p->options.dropout) : 1.0;
    const double by_score = kept * largest_of(&got->output) * largest_of(&p->value) *
                            sqrt((double)p->shape.Dv);
    const double tiny = 4e-6;
    const double heads = (double)(p->shape.H / p->shape.Hk);
    const double many = sqrt((double)(p->shape.Lq + 1) * heads);
    const double by_query = p->additive ? largest_float(p) : largest_of(&p->key);
    const double by_key = p->additive ? largest_float(p) : largest_of(&p->query);
    const double pairs = sqrt((double)(p->shape.B * (p->shape.Lq + 1)));
    assert_tensors_near(&got->query, &expected->query,
                        tiny * (scale * by_score * by_query + 1e-20), "query");
    assert_tensors_near(&got->key, &expected->key,
                        tiny * (many * scale * by_score * by_key + 1e-20), "key");
    assert_tensors_near(&got->value, &expected->value,
                        tiny * (many * kept * largest_of(&got->output) + 1e-20), "value");
    if (p->options.bias.data)
        assert_tensors_near(&got->bias, &expected->bias,
                            tiny * (many * sqrt((double)p->shape.H) * by_score + 1e-20),
                            "bias");
    const double all_pairs = sqrt((double)((p->shape.Lq + 1) * (p->shape.Lk + 1)));
    if (p->options.log_forget.data)
        forgive_gates(&got->log_forget, &expected->log_forget, &r->output);
    if (p->options.log_forget.data)
        assert_tensors_near(&got->log_forget, &expected->log_forget,
                            tiny * (all_pairs * by_score + 1e-20), "gates");
    for (int64_t h = 0; h < p->shape.H && p->options.sinks; h++)
        if (!(isnan(got->sinks[h]) && isnan(expected->sinks[h])) &&
            !(fabs((double)got->sinks[h] - (double)expected->sinks[h]) <=
              tiny * many * (by_score + 1.0)))
            fail_msg("seed %d: sink %d is %.9g, expected %.9g", (int)seed, (int)h,
                     (double)got->sinks[h], (double)expected->sinks[h]);
    for (int64_t n = 0; n < p->shape.H * p->shape.D && p->additive; n++) {
        const double error = (double)got->additive[n] - (double)expected->additive[n];
        const double bound = tiny * (pairs * scale * by_score + 1e-20);
        if (isnan(got->additive[n]) && isnan(expected->additive[n]))
            continue;
        worst = fmax(worst, fabs(error) / bound);
        if (!(fabs(error) <= bound))
            fail_msg("seed %d: vector %d is %.9g, expected %.9g within %g", (int)seed,
                     (int)n, (double)got->additive[n], (double)expected->additive[n],
                     bound);
    }
}

static void copy_output(const struct slopes *to, const struct slopes *from)
{
    const int64_t *const extent = to->output.extent;
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < extent[2]; i++)
                for (int64_t d = 0; d < extent[3]; d++)
                    *tensor_at(&to->output, b, h, i, d) =
                        *tensor_at(&from->output, b, h, i, d);
}

/* The reference computes a problem once. */
static void random_problems_equal_the_reference(void **state)
{
    (void)state;
    attn_context *contexts[LEVELS_MOST];
    const size_t levels = contexts_create(contexts);
    for (seed = 0; seed < 400; seed++) {
        struct problem p = problem_create(seed, RULES_ALL);
        struct results r = results_create(&p);
        struct slopes expected = slopes_create(&p);
        backward_reference(&p, &r, &expected);
        for (size_t n = 0; n < levels; n++) {
            struct slopes got = slopes_create(&p);
            copy_output(&got, &expected);
            problem_forward(contexts[n], &p, &r);
            backward(contexts[n], &p, &r, &got);
            assert_slopes_near(&p, &r, &got, &expected);
            slopes_destroy(&got);
        }
        slopes_destroy(&expected);
        results_destroy(&r);
        problem_destroy(&p);
    }
    print_message("worst %.3f of the bound\n", worst);
    contexts_destroy(contexts, levels);
}

/* ---- Properties
 * ------------------------------------------------------------------------ */

static void assert_same_bits(const struct tensor *a, const struct tensor *b,
                             const char *what)
{
    for (int64_t i = 0; i < a->extent[0]; i++)
        for (int64_t h = 0; h < a->extent[1]; h++)
            for (int64_t l = 0; l < a->extent[2]; l++)
                for (int64_t d = 0; d < a->extent[3]; d++)
                    if (memcmp(tensor_at(a, i, h, l, d), tensor_at(b, i, h, l, d),
                               sizeof(float)) != 0)
                        fail_msg("seed %d: %s [%d][%d][%d][%d] is %.9g and %.9g",
                                 (int)seed, what, (int)i, (int)h, (int)l, (int)d,
                                 (double)*tensor_at(a, i, h, l, d),
                                 (double)*tensor_at(b, i, h, l, d));
}

static void copy_tensor(const struct tensor *to, const struct tensor *from)
{
    for (int64_t b = 0; b < to->extent[0]; b++)
        for (int64_t h = 0; h < to->extent[1]; h++)
            for (int64_t l = 0; l < to->extent[2]; l++)
                for (int64_t d = 0; d < to->extent[3]; d++)
                    *tensor_at(to, b, h, l, d) = *tensor_at(from, b, h, l, d);
}

/* A pool may run all tasks on one thread, and in any order. */
static void last_task_first(void *pool, size_t count,
                            void (*task)(void *argument, size_t index), void *argument)
{
    (void)pool;
    while (count > 0)
        task(argument, --count);
}

/* Gates, and a layout whose rows cut through groups of queries. */
static void add_gates_and_blocks(struct problem *p)
{
    const attn_shape *const s = &p->shape;
    if (p->options.causal) {
        p->log_forget = tensor_create(1, s->H, s->Lk, 1);
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t j = 0; j < s->Lk; j++)
                *tensor_at(&p->log_forget, 0, h, j, 0) = -0.02f * fabsf(random_float());
        p->options.log_forget = tensor_input(&p->log_forget);
    }
    if (seed % 8 != 3 && seed % 8 != 5)
        return;
    p->options.block_size = 64;
    const int64_t columns = (s->Lk + 63) / 64, rows = (s->Lq + 63) / 64;
    p->options.blocks.stride[2] = columns;
    p->options.blocks.stride[3] = 1;
    p->blocks = calloc((size_t)(rows * columns), 1);
    assert_non_null(p->blocks);
    for (int64_t n = 0; n < rows * columns; n++)
        p->blocks[n] = (uint8_t)random_below(2);
    p->options.blocks.data = p->blocks;
    p->options.sink_keys = seed % 16 < 8 ? 20 : 0;
}

/* Shapes that are shared out in every way: whole units, turns, and one after the other.
 */
static struct problem threaded_problem(void)
{
    struct problem p = problem_create(seed, RULES_ALL & ~RULE_LENGTHS);
    if (seed % 2 == 0)
        return p;
    problem_destroy(&p);
    p = problem_create(seed, 0);
    const attn_shape shape = {.B = 1,
                              .H = 3,
                              .Hk = seed % 4 == 1 ? 1 : 3,
                              .Lq = 300,
                              .Lk = 600,
                              .D = 16,
                              .Dv = 24};
    free(p.query.memory), free(p.key.memory), free(p.value.memory), free(p.key_class);
    p.key_class = calloc((size_t)shape.Lk, 1);
    p.shape = shape;
    p.options.query_lengths = p.options.key_lengths = NULL;
    p.query = tensor_create(1, shape.H, shape.Lq, shape.D);
    p.key = tensor_create(1, shape.Hk, shape.Lk, shape.D);
    p.value = tensor_create(1, shape.Hk, shape.Lk, shape.Dv);
    tensor_randomise(&p.query, 1.0f), tensor_randomise(&p.key, 1.0f),
        tensor_randomise(&p.value, 1.0f);
    if (seed % 8 < 4) {
        p.bias = tensor_create(1, 1, seed % 16 < 8 ? shape.Lq : 1, shape.Lk);
        tensor_randomise(&p.bias, 1.0f);
        p.options.bias = tensor_input(&p.bias);
        p.options.bias.stride[0] = p.options.bias.stride[1] = 0;
        if (p.bias.extent[2] == 1)
            p.options.bias.stride[2] = 0;
    }
    p.options.sinks = p.head_floats + 32;
    if (seed % 3 == 0) {
        p.additive = floats(shape.H * shape.D);
        p.options.score = ATTN_SCORE_ADDITIVE;
        p.options.additive = p.additive;
    }
    add_gates_and_blocks(&p);
    return p;
}

static bool takes_turns(attn_context *context, const struct problem *p,
                        const struct results *r, const struct slopes *g)
{
    const attn_tensors tensors = problem_tensors(p, r);
    const attn_gradients gradients = slopes_gradients(g);
    attn_plan plan;
    assert_int_equal(
        attn_plan_backward(context, &p->shape, &tensors, &p->options, &gradients, &plan),
        ATTN_OK);
    char in_turns[64];
    snprintf(in_turns, sizeof in_turns, "%sone sweep, queries of a head in turn, %s",
             p->additive ? "additive, " : "", attn_context_isa(context));
    return strcmp(plan.path, in_turns) == 0;
}

static void check_threads(attn_context *context)
{
    int took_turns = 0;
    for (seed = 0; seed < 48; seed++) {
        struct problem p = threaded_problem();
        struct results r = results_create(&p);
        struct slopes alone = slopes_create(&p), got = slopes_create(&p);
        copy_tensor(&got.output, &alone.output);
        problem_forward(context, &p, &r);
        backward(context, &p, &r, &alone);
        const attn_context_options options = {
            .isa = attn_context_isa(context),
            .threads = 2 + seed % 3,
            .parallel_for = seed % 5 == 4 ? last_task_first : thread_each,
        };
        attn_context *threaded = NULL;
        assert_int_equal(attn_context_create(&threaded, &options), ATTN_OK);
        took_turns += takes_turns(threaded, &p, &r, &got);
        backward(threaded, &p, &r, &got);
        assert_same_bits(&alone.query, &got.query, "query");
        assert_same_bits(&alone.key, &got.key, "key");
        assert_same_bits(&alone.value, &got.value, "value");
        if (p.options.bias.data)
            assert_same_bits(&alone.bias, &got.bias, "bias");
        if (p.options.log_forget.data)
            assert_same_bits(&alone.log_forget, &got.log_forget, "gates");
        if (p.options.sinks)
            assert_memory_equal(alone.sinks, got.sinks,
                                (size_t)p.shape.H * sizeof(float));
        if (p.additive)
            assert_memory_equal(alone.additive, got.additive,
                                (size_t)(p.shape.H * p.shape.D) * sizeof(float));
        attn_context_destroy(threaded);
        slopes_destroy(&alone), slopes_destroy(&got);
        results_destroy(&r);
        problem_destroy(&p);
    }
    assert_true(took_turns >= 10 && took_turns < 48);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    on_every_level(check_threads);
}

static struct dense plain_create(int64_t H, int64_t Lq, int64_t Lk, int64_t D)
{
    return dense_create((attn_shape){1, H, H, Lq, Lk, D, D}, false);
}

static void plain_run(attn_context *context, const struct dense *p)
{
    dense_forward(context, p);
    dense_backward(context, p);
}

/* So many that each calls the next one's memory ahead. */
static void check_many_heads(attn_context *context)
{
    const int64_t H = 300, Lq = 33, Lk = 40, D = 64;
    const size_t query_bytes = (size_t)(Lq * D) * sizeof(float);
    const size_t key_bytes = (size_t)(Lk * D) * sizeof(float);
    struct dense all = plain_create(H, Lq, Lk, D), one = plain_create(1, Lq, Lk, D);
    plain_run(context, &all);
    for (int64_t h = 0; h < H; h += 13) {
        memcpy(one.query, all.query + h * Lq * D, query_bytes);
        memcpy(one.slope, all.slope + h * Lq * D, query_bytes);
        memcpy(one.key, all.key + h * Lk * D, key_bytes);
        memcpy(one.value, all.value + h * Lk * D, key_bytes);
        plain_run(context, &one);
        assert_memory_equal(one.query_slope, all.query_slope + h * Lq * D, query_bytes);
        assert_memory_equal(one.key_slope, all.key_slope + h * Lk * D, key_bytes);
        assert_memory_equal(one.value_slope, all.value_slope + h * Lk * D, key_bytes);
    }
    dense_destroy(&all);
    dense_destroy(&one);
}

static void one_of_many_short_heads_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    on_every_level(check_many_heads);
}

/* Query 100 sees keys 0 to 100, and no other query may notice what becomes of it but by
 * the gradients of these keys. */
static void check_nan(attn_context *context)
{
    struct dense p = plain_create(1, 200, 200, 20);
    p.options.causal = true;
    plain_run(context, &p);
    float *const query_slope = copied(p.query_slope, 200 * 20);
    float *const key_slope = copied(p.key_slope, 200 * 20);
    float *const value_slope = copied(p.value_slope, 200 * 20);
    p.query[100 * 20 + 3] = NAN;
    plain_run(context, &p);
    for (int64_t l = 0; l < 200; l++)
        for (int64_t d = 0; d < 20; d++) {
            const int64_t at = l * 20 + d;
            assert_int_equal(isnan(p.query_slope[at]), l == 100);
            assert_int_equal(isnan(p.key_slope[at]), l <= 100);
            assert_int_equal(isnan(p.value_slope[at]), l <= 100);
            if (l != 100)
                assert_memory_equal(&p.query_slope[at], &query_slope[at], sizeof(float));
            if (l > 100) {
                assert_memory_equal(&p.key_slope[at], &key_slope[at], sizeof(float));
                assert_memory_equal(&p.value_slope[at], &value_slope[at], sizeof(float));
            }
        }
    free(query_slope), free(key_slope), free(value_slope);
    dense_destroy(&p);
}

static void nan_of_a_query_reaches_only_the_keys_it_sees(void **state)
{
    (void)state;
    on_every_level(check_nan);
}

/* Keys 60 and beyond are hidden from queries 0 to 59: their NaN may not reach those. */
static void check_hidden_key(attn_context *context)
{
    struct dense p = plain_create(1, 120, 120, 20);
    p.options.causal = true;
    plain_run(context, &p);
    float *const query_slope = copied(p.query_slope, 60 * 20);
    p.key[60 * 20] = p.value[61 * 20 + 1] = NAN;
    p.key[70 * 20 + 19] = INFINITY;
    plain_run(context, &p);
    assert_memory_equal(query_slope, p.query_slope, 60 * 20 * sizeof(float));
    free(query_slope);
    dense_destroy(&p);
}

static void nan_of_a_hidden_key_reaches_no_gradient(void **state)
{
    (void)state;
    on_every_level(check_hidden_key);
}

static void check_one_key(attn_context *context)
{
    struct dense p = plain_create(2, 30, 1, 33);
    plain_run(context, &p);
    for (int64_t n = 0; n < 2 * 30 * 33; n++)
        assert_true(p.query_slope[n] == 0.0f);
    for (int64_t n = 0; n < 2 * 33; n++)
        assert_true(p.key_slope[n] == 0.0f);
    dense_destroy(&p);
}

static void one_visible_key_gives_gradients_of_exactly_0(void **state)
{
    (void)state;
    on_every_level(check_one_key);
}

/* Case 1 of the public reports: keep = [[1, 0], [0, 0]].  What an empty row holds in its
 * gradient of the output is not read. */
static void check_empty_row(attn_context *context)
{
    static const uint8_t keep[] = {1, 0, 0, 0};
    struct dense p = plain_create(1, 2, 2, 1);
    p.options.keep = (attn_keep){.data = keep, .stride = {0, 0, 2, 1}};
    p.slope[1] = NAN;
    p.slope[0] = 3.0f;
    plain_run(context, &p);
    assert_true(p.lse[1] == -INFINITY && p.output[1] == 0.0f);
    assert_true(p.query_slope[0] == 0.0f && p.query_slope[1] == 0.0f);
    assert_true(p.key_slope[0] == 0.0f && p.key_slope[1] == 0.0f);
    assert_true(p.value_slope[0] == 3.0f && p.value_slope[1] == 0.0f);
    dense_destroy(&p);
}

static void empty_row_has_gradient_0(void **state)
{
    (void)state;
    on_every_level(check_empty_row);
}

static void no_keys_or_no_queries_give_gradients_of_0(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct dense no_keys = plain_create(2, 3, 0, 4),
                 no_queries = plain_create(2, 0, 3, 4);
    plain_run(context, &no_keys);
    plain_run(context, &no_queries);
    for (int64_t n = 0; n < 2 * 3 * 4; n++) {
        assert_true(no_keys.query_slope[n] == 0.0f);
        assert_true(no_queries.key_slope[n] == 0.0f);
        assert_true(no_queries.value_slope[n] == 0.0f);
    }
    dense_destroy(&no_keys), dense_destroy(&no_queries);
    attn_context_destroy(context);
}

/* Doubling is exact in binary, so twice the loss has exactly twice the gradients. */
static void check_linear(attn_context *context)
{
    struct dense p = plain_create(3, 70, 150, 24);
    plain_run(context, &p);
    float *const query_slope = copied(p.query_slope, 3 * 70 * 24);
    float *const key_slope = copied(p.key_slope, 3 * 150 * 24);
    for (int64_t n = 0; n < 3 * 70 * 24; n++)
        p.slope[n] *= 2.0f;
    plain_run(context, &p);
    for (int64_t n = 0; n < 3 * 70 * 24; n++)
        assert_true(p.query_slope[n] == 2.0f * query_slope[n]);
    for (int64_t n = 0; n < 3 * 150 * 24; n++)
        assert_true(p.key_slope[n] == 2.0f * key_slope[n]);
    free(query_slope), free(key_slope);
    dense_destroy(&p);
}

static void gradients_are_linear_in_the_outputs(void **state)
{
    (void)state;
    on_every_level(check_linear);
}

/* Three sequences in a pack, against each by itself on the same memory. */
static void check_packed(attn_context *context)
{
    static const int64_t starts[] = {0, 5, 150, 163};
    struct dense p = plain_create(1, 163, 163, 20), alone = p;
    p.options.causal = true;
    p.options.dropout = alone.options.dropout = 0.0;
    p.options.sequences = 3;
    p.options.query_starts = p.options.key_starts = starts;
    plain_run(context, &p);
    float *const query_slope = copied(p.query_slope, 163 * 20);
    float *const key_slope = copied(p.key_slope, 163 * 20);
    alone.options.causal = true;
    for (int s = 0; s < 3; s++) {
        const int64_t first = starts[s] * 20, length = starts[s + 1] - starts[s];
        struct dense of_one = alone;
        of_one.shape.Lq = of_one.shape.Lk = length;
        of_one.query += first, of_one.key += first, of_one.value += first;
        of_one.output += first, of_one.slope += first, of_one.lse += starts[s];
        of_one.query_slope += first, of_one.key_slope += first;
        of_one.value_slope += first;
        plain_run(context, &of_one);
    }
    assert_memory_equal(query_slope, p.query_slope, 163 * 20 * sizeof(float));
    assert_memory_equal(key_slope, p.key_slope, 163 * 20 * sizeof(float));
    free(query_slope), free(key_slope);
    dense_destroy(&p);
}

static void packed_sequence_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    on_every_level(check_packed);
}

static void dropping_everything_gives_gradients_of_0(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct dense p = plain_create(1, 20, 30, 8);
    p.options.dropout = 1.0;
    plain_run(context, &p);
    for (int64_t n = 0; n < 20 * 8; n++)
        assert_true(p.query_slope[n] == 0.0f);
    for (int64_t n = 0; n < 30 * 8; n++)
        assert_true(p.key_slope[n] == 0.0f && p.value_slope[n] == 0.0f);
    dense_destroy(&p);
    attn_context_destroy(context);
}

/* ---- Plan and errors
 * ------------------------------------------------------------------- */

static void plan_tells_the_scratch_that_is_enough(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct dense p = plain_create(2, 200, 300, 20);
    const attn_tensors tensors = dense_tensors(&p);
    const attn_gradients gradients = dense_gradients(&p);
    attn_plan plan;
    plain_run(context, &p);
    assert_int_equal(
        attn_plan_backward(context, &p.shape, &tensors, &p.options, &gradients, &plan),
        ATTN_OK);
    char by_heads[64];
    snprintf(by_heads, sizeof by_heads, "one sweep, heads in parallel, %s",
             attn_context_isa(context));
    assert_string_equal(plan.path, by_heads);
    assert_true(plan.visible_pairs == 2.0 * 200.0 * 300.0);
    float *const before = copied(p.key_slope, 2 * 300 * 20);
    const size_t bytes = (plan.scratch_bytes + 63) / 64 * 64;
    void *const memory = aligned_alloc(64, bytes);
    assert_int_equal(attn_context_lend_scratch(context, memory, plan.scratch_bytes - 1),
                     ATTN_OK);
    memset(p.key_slope, 0x7f, 8);
    assert_int_equal(attn_backward(context, &p.shape, &tensors, &p.options, &gradients),
                     ATTN_ENOMEM);
    assert_non_null(strstr(attn_context_message(context), "scratch"));
    assert_memory_equal(p.key_slope, "\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", 8);
    assert_int_equal(attn_context_lend_scratch(context, memory, plan.scratch_bytes),
                     ATTN_OK);
    assert_int_equal(attn_backward(context, &p.shape, &tensors, &p.options, &gradients),
                     ATTN_OK);
    assert_memory_equal(before, p.key_slope, 2 * 300 * 20 * sizeof(float));
    attn_context_destroy(context);
    free(before), free(memory);
    dense_destroy(&p);
}

static void assert_refused(attn_context *context, const struct dense *p,
                           const attn_tensors *tensors, const attn_gradients *gradients,
                           const char *named, const char *expected)
{
    assert_int_equal(attn_backward(context, &p->shape, tensors, &p->options, gradients),
                     ATTN_EINVAL);
    const char *const message = attn_context_message(context);
    if (!strstr(message, "attn_backward") || !strstr(message, named) ||
        !strstr(message, expected))
        fail_msg("message '%s', expected it to name %s and %s", message, named, expected);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct dense p = plain_create(2, 3, 4, 5);
    attn_tensors tensors = dense_tensors(&p);
    attn_gradients gradients = dense_gradients(&p);

    attn_gradients wrong = gradients;
    wrong.output.data = NULL;
    assert_refused(context, &p, &tensors, &wrong, "gradients.output is NULL", "data");
    wrong = gradients;
    wrong.query.stride[1] = 0;
    assert_refused(context, &p, &tensors, &wrong, "gradients.query.stride[1] is 0",
                   "not 0");
    wrong = gradients;
    wrong.key.stride[2] = INT64_MAX / 2;
    assert_refused(context, &p, &tensors, &wrong, "gradients.key.stride[2]", "64 bits");
    wrong = gradients;
    wrong.bias = attn_output_dense(p.value_slope, 2, 3, 4);
    assert_refused(context, &p, &tensors, &wrong, "gradients.bias", "options.bias");
    p.options.bias = attn_input_dense(p.value, 2, 3, 4);
    p.options.bias.stride[1] = 0;
    assert_refused(context, &p, &tensors, &wrong, "gradients.bias.stride[1] is 12",
                   "0, as in options.bias");
    p.options.bias.data = NULL;
    wrong = gradients;
    wrong.sinks = p.value_slope;
    assert_refused(context, &p, &tensors, &wrong, "gradients.sinks", "options.sinks");
    tensors.lse = NULL;
    assert_refused(context, &p, &tensors, &gradients, "tensors.lse is NULL",
                   "attn_forward wrote");
    dense_destroy(&p);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_gradients_equal_central_differences),
        cmocka_unit_test(random_problems_equal_the_reference),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(one_of_many_short_heads_has_the_bits_it_has_alone),
        cmocka_unit_test(nan_of_a_query_reaches_only_the_keys_it_sees),
        cmocka_unit_test(nan_of_a_hidden_key_reaches_no_gradient),
        cmocka_unit_test(one_visible_key_gives_gradients_of_exactly_0),
        cmocka_unit_test(empty_row_has_gradient_0),
        cmocka_unit_test(no_keys_or_no_queries_give_gradients_of_0),
        cmocka_unit_test(gradients_are_linear_in_the_outputs),
        cmocka_unit_test(packed_sequence_has_the_bits_it_has_alone),
        cmocka_unit_test(dropping_everything_gives_gradients_of_0),
        cmocka_unit_test(plan_tells_the_scratch_that_is_enough),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
