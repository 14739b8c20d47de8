/* Tensors of 16-bit elements.  Widening is exact and arithmetic is fp32, so a call with
 * them has the very bits of the same call with widened copies, rounded at the end: of
 * that call the other tests say what is right.  Random types, strides and options, every
 * instruction set. */
#include "attention/reference.h"
#include "dense.h"
#include "kernel/backward_table.h"
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

/* ---- Conversions ----------------------------------------------------------------------
 */

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void check_widening(attn_context *context)
{
    const struct attn_kernels *const kernels =
        attn_kernels_find(attn_context_isa(context));
    enum { ALL = 65536, ROWS = 64, SIZE = ALL / ROWS };
    uint16_t *const bits = allocate(ALL, sizeof *bits);
    float *const wide = allocate(ALL, sizeof *wide);
    for (int n = 0; n < ALL; n++)
        bits[n] = (uint16_t)n;
    for (attn_type type = ATTN_F16; type <= ATTN_BF16; type++) {
        const struct attn_matrix rows = {bits, SIZE, 1, ROWS, SIZE, type};
        kernels->widen(wide, &rows);
        for (int n = 0; n < ALL; n++)
            if (!same_float(wide[n], (float)attn_reference_load(bits, type, n)))
                fail_msg("type %d: %04x becomes %a", (int)type, (unsigned)n,
                         (double)wide[n]);
    }
    free(bits), free(wide);
}

/* Numbers of every exponent, and those half-way between neighbours. */
static float any_float(int n)
{
    static const float special[] = {0.0f,       -0.0f,           65504.0f,    65519.99f,
                                    65520.0f,   65536.0f,        0x1p-24f,    0x1p-25f,
                                    0x1.8p-24f, 0x1.000002p-25f, INFINITY,    -INFINITY,
                                    NAN,        0x1.fep127f,     0x1.ffp127f, 1e-45f};
    enum { SPECIAL = sizeof special / sizeof *special };
    if (n < SPECIAL)
        return special[n];
    uint32_t bits =
        (uint32_t)random_below((int64_t)1 << 31) * 2u + (uint32_t)random_below(2);
    if (n % 3 == 0) /* not far from what binary16 holds */
        bits = (bits & 0x807fffff) | (uint32_t)(100 + random_below(46)) << 23;
    if (n % 4 == 0)
        bits = (bits & 0xffffe000) | 0x1000;
    if (n % 5 == 0)
        bits = (bits & 0xffff0000) | 0x8000;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void check_rounding(attn_context *context)
{
    const struct attn_kernels *const kernels =
        attn_kernels_find(attn_context_isa(context));
    enum { COUNT = 100000 };
    float *const from = allocate(COUNT + 16, sizeof *from);
    uint16_t *const to = allocate(COUNT, sizeof *to);
    for (int n = 0; n < COUNT; n++)
        from[n] = any_float(n);
    for (attn_type type = ATTN_F16; type <= ATTN_BF16; type++) {
        const struct attn_target row = {to, 0, 1, 1, COUNT, type};
        kernels->backward->put(&row, from, 0, 1.0f);
        for (int n = 0; n < COUNT; n++) {
            uint16_t expected;
            attn_reference_store(&expected, type, 0, (double)from[n]);
            const bool nan = isnan(from[n]) && isnan(attn_reference_load(to, type, n));
            if (to[n] != expected && !nan)
                fail_msg("type %d: %a becomes %04x, expected %04x", (int)type,
                         (double)from[n], to[n], expected);
        }
    }
    free(from), free(to);
}

static void every_16_bit_value_widens_to_what_its_bits_mean(void **state)
{
    (void)state;
    on_every_level(check_widening);
}

static void numbers_are_rounded_to_nearest_even(void **state)
{
    (void)state;
    on_every_level(check_rounding);
}

/* ---- Twins ----------------------------------------------------------------------------
 */

/* The memory of a tensor again, in another type. */
struct narrow {
    attn_type type;
    void *memory, *data;
};

static attn_type random_type(void)
{
    return (attn_type)random_below(3);
}

/* Rounds the tensor to the type, gaps and all, and gives the same in that type. */
static struct narrow narrow_twin(const struct tensor *t, attn_type type)
{
    const size_t bytes = attn_type_bytes(type);
    struct narrow n = {.type = type};
    if (!t->memory)
        return n;
    n.memory = allocate(t->floats, bytes);
    for (size_t i = 0; i < t->floats; i++) {
        attn_reference_store(n.memory, type, (int64_t)i, (double)t->memory[i]);
        t->memory[i] = (float)attn_reference_load(n.memory, type, (int64_t)i);
    }
    n.data = (char *)n.memory + (t->data - t->memory) * (ptrdiff_t)bytes;
    return n;
}

static attn_input narrow_input(attn_input input, const struct narrow *n)
{
    input.data = n->data;
    input.type = n->type;
    return input;
}

static attn_output narrow_output(attn_output output, const struct narrow *n)
{
    output.data = n->data;
    output.type = n->type;
    return output;
}

/* That what is narrow is what is wide, rounded: gaps, too, are as they were. */
static void assert_twins(const struct narrow *narrow, const struct tensor *wide,
                         const char *what)
{
    for (size_t i = 0; i < wide->floats && narrow->memory; i++) {
        uint32_t rounded = 0;
        attn_reference_store(&rounded, narrow->type, 0, (double)wide->memory[i]);
        const float expected = (float)attn_reference_load(&rounded, narrow->type, 0);
        const float got =
            (float)attn_reference_load(narrow->memory, narrow->type, (int64_t)i);
        if (!same_float(got, expected))
            fail_msg("seed %d: %s of type %d: %a, expected %a", (int)seed, what,
                     (int)narrow->type, (double)got, (double)expected);
    }
}

struct twins {
    struct problem wide;
    attn_options options; /* of the narrow one */
    struct narrow query, key, value, bias;
};

static struct twins twins_create(unsigned rules)
{
    struct twins t = {.wide = problem_create(seed, rules)};
    t.query = narrow_twin(&t.wide.query, random_type());
    t.key = narrow_twin(&t.wide.key, random_type());
    t.value = narrow_twin(&t.wide.value, random_type());
    t.options = t.wide.options;
    t.bias = narrow_twin(&t.wide.bias, random_type());
    if (t.options.bias.data)
        t.options.bias = narrow_input(t.options.bias, &t.bias);
    return t;
}

static void twins_destroy(struct twins *t)
{
    free(t->query.memory), free(t->key.memory), free(t->value.memory);
    free(t->bias.memory);
    problem_destroy(&t->wide);
}

/* With the output as the results have it. */
static attn_tensors narrow_tensors(const struct twins *t, const struct results *r)
{
    attn_tensors tensors = problem_tensors(&t->wide, r);
    tensors.query = narrow_input(tensors.query, &t->query);
    tensors.key = narrow_input(tensors.key, &t->key);
    tensors.value = narrow_input(tensors.value, &t->value);
    return tensors;
}

/* ---- Forward --------------------------------------------------------------------------
 */

static void assert_floats_same(const float *got, const float *expected, size_t count,
                               const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (!same_float(got[i], expected[i]))
            fail_msg("seed %d: %s %d is %a, expected %a", (int)seed, what, (int)i,
                     (double)got[i], (double)expected[i]);
}

static void assert_statistics_same(const struct problem *p, const struct results *a,
                                   const struct results *b)
{
    const attn_statistics *const g = &a->statistics, *const e = &b->statistics;
    assert_floats_same(a->lse, b->lse, a->rows, "lse");
    assert_floats_same(g->entropy, e->entropy, a->rows, "entropy");
    assert_floats_same(g->largest_weight, e->largest_weight, a->rows, "largest weight");
    assert_floats_same(g->own_mass, e->own_mass, a->rows, "own mass");
    assert_floats_same(g->class_mass, e->class_mass, a->rows * RESULT_CLASSES, "class");
    assert_floats_same(g->received, e->received,
                       (size_t)(p->shape.B * p->shape.H * p->shape.Lk), "received");
    assert_floats_same(g->top_weight, e->top_weight, a->rows * RESULT_TOP, "top weight");
    assert_memory_equal(g->visible_keys, e->visible_keys, a->rows * sizeof(int64_t));
}

/* Whether a call has kernels of its own, which test_pairs looks at. */
static bool multiplies_pairs(attn_context *context, const attn_shape *shape,
                             const attn_tensors *tensors, const attn_options *options)
{
    attn_plan plan;
    assert_ok(context, attn_plan_forward(context, shape, tensors, options, &plan));
    return strstr(plan.path, "bf16 products");
}

static void check_forward(attn_context *context)
{
    for (seed = 0; seed < 200; seed++) {
        struct twins t = twins_create(RULES_ALL);
        const struct problem *const p = &t.wide;
        struct results wide = results_create(p), of_narrow = results_create(p);
        const struct narrow output = narrow_twin(&wide.output, random_type());
        const attn_tensors as_wide = problem_tensors(p, &wide);
        attn_tensors as_narrow = narrow_tensors(&t, &of_narrow);
        as_narrow.output = narrow_output(as_wide.output, &output);
        assert_ok(context, attn_forward(context, &p->shape, &as_wide, &p->options));
        assert_ok(context, attn_forward(context, &p->shape, &as_narrow, &t.options));
        if (!multiplies_pairs(context, &p->shape, &as_narrow, &t.options)) {
            assert_twins(&output, &wide.output, "output");
            assert_statistics_same(p, &of_narrow, &wide);
        }
        free(output.memory);
        results_destroy(&wide), results_destroy(&of_narrow), twins_destroy(&t);
    }
}

static void forward_has_the_bits_of_widened_tensors(void **state)
{
    (void)state;
    on_every_level(check_forward);
}

static void check_weights(attn_context *context)
{
    for (seed = 0; seed < 40; seed++) {
        struct twins t = twins_create(RULES_ALL);
        const attn_shape *const s = &t.wide.shape;
        struct results r = results_create(&t.wide);
        const attn_tensors as_wide = problem_tensors(&t.wide, &r);
        attn_tensors as_narrow = narrow_tensors(&t, &r);
        assert_ok(context, attn_forward(context, s, &as_wide, &t.wide.options));
        if (seed % 2)
            as_narrow.lse = NULL;
        const attn_rectangle all = {s->B - 1, s->H - 1, 0, s->Lq, 0, s->Lk};
        const size_t count = (size_t)(s->Lq * s->Lk);
        float *const wide = allocate(count, sizeof(float));
        float *const narrow = allocate(count, sizeof(float));
        attn_tensors without_lse = as_wide;
        without_lse.lse = as_narrow.lse;
        assert_ok(context, attn_weights(context, s, &without_lse, &t.wide.options, &all,
                                        wide, s->Lk));
        assert_ok(context,
                  attn_weights(context, s, &as_narrow, &t.options, &all, narrow, s->Lk));
        assert_floats_same(narrow, wide, count, "weight");
        free(wide), free(narrow);
        results_destroy(&r), twins_destroy(&t);
    }
}

static void weights_have_the_bits_of_widened_tensors(void **state)
{
    (void)state;
    on_every_level(check_weights);
}

/* ---- Backward -------------------------------------------------------------------------
 */

/* The slopes of the wide problem, of what both have in common; and the narrow ones. */
struct twin_slopes {
    struct slopes wide;
    struct narrow output, query, key, value, bias;
};

static struct twin_slopes twin_slopes_create(const struct problem *p)
{
    struct twin_slopes g = {.wide = slopes_create(p)};
    g.output = narrow_twin(&g.wide.output, random_type());
    g.query = narrow_twin(&g.wide.query, random_type());
    g.key = narrow_twin(&g.wide.key, random_type());
    g.value = narrow_twin(&g.wide.value, random_type());
    g.bias = narrow_twin(&g.wide.bias, random_type());
    return g;
}

static void twin_slopes_destroy(struct twin_slopes *g)
{
    free(g->output.memory), free(g->query.memory), free(g->key.memory);
    free(g->value.memory), free(g->bias.memory);
    slopes_destroy(&g->wide);
}

static attn_gradients narrow_gradients(const struct twin_slopes *g)
{
    attn_gradients gradients = slopes_gradients(&g->wide);
    gradients.output = narrow_input(gradients.output, &g->output);
    gradients.query = narrow_output(gradients.query, &g->query);
    gradients.key = narrow_output(gradients.key, &g->key);
    gradients.value = narrow_output(gradients.value, &g->value);
    gradients.bias = narrow_output(gradients.bias, &g->bias);
    return gradients;
}

/* The output stays fp32 in both, so that what is taken from it is the same. */
static void check_backward(attn_context *context)
{
    for (seed = 0; seed < 150; seed++) {
        struct twins t = twins_create(RULES_ALL);
        const attn_shape *const s = &t.wide.shape;
        struct results r = results_create(&t.wide);
        struct twin_slopes g = twin_slopes_create(&t.wide);
        const attn_tensors as_wide = problem_tensors(&t.wide, &r);
        const attn_tensors as_narrow = narrow_tensors(&t, &r);
        const attn_gradients wide = slopes_gradients(&g.wide);
        const attn_gradients narrow = narrow_gradients(&g);
        assert_ok(context, attn_forward(context, s, &as_wide, &t.wide.options));
        assert_ok(context, attn_backward(context, s, &as_wide, &t.wide.options, &wide));
        float *const sinks = allocate((size_t)s->H, sizeof *sinks);
        if (g.wide.sinks)
            memcpy(sinks, g.wide.sinks, (size_t)s->H * sizeof *sinks);
        assert_ok(context, attn_backward(context, s, &as_narrow, &t.options, &narrow));
        assert_twins(&g.query, &g.wide.query, "gradient of the query");
        assert_twins(&g.key, &g.wide.key, "gradient of the key");
        assert_twins(&g.value, &g.wide.value, "gradient of the value");
        assert_twins(&g.bias, &g.wide.bias, "gradient of the bias");
        if (g.wide.sinks)
            assert_floats_same(g.wide.sinks, sinks, (size_t)s->H, "gradient of the sink");
        free(sinks);
        twin_slopes_destroy(&g), results_destroy(&r), twins_destroy(&t);
    }
}

static void backward_has_the_bits_of_widened_tensors(void **state)
{
    (void)state;
    on_every_level(check_backward);
}

/* ---- What the header promises ---------------------------------------------------------
 */

/* One head of random numbers of one type, causal: forward, then backward into that type.
 */
struct call {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
    attn_gradients gradients;
    char *memory;
    size_t bytes;
};

static struct call call_create(attn_shape shape, attn_type type)
{
    struct call c = {.shape = shape};
    const attn_shape *const s = &shape;
    const int64_t queries = s->B * s->H * s->Lq, keys = s->B * s->Hk * s->Lk;
    const int64_t sizes[] = {
        queries * s->D, keys * s->D, keys * s->Dv, queries * s->Dv, queries * s->Dv,
        queries * s->D, keys * s->D, keys * s->Dv, s->Lq * s->Lk,   s->Lq * s->Lk};
    enum { ARRAYS = sizeof sizes / sizeof *sizes };
    void *x[ARRAYS];
    int64_t elements = 0;
    for (int n = 0; n < ARRAYS; n++)
        elements += sizes[n];
    c.bytes = (size_t)elements * 4 + (size_t)queries * sizeof(float);
    c.memory = allocate(c.bytes, 1);
    char *next = c.memory + (size_t)queries * sizeof(float);
    for (int n = 0; n < ARRAYS; n++) {
        x[n] = next;
        next += sizes[n] * 4;
        for (int64_t i = 0; i < sizes[n]; i++)
            attn_reference_store(x[n], type, i, (double)random_float());
    }
    c.tensors = (attn_tensors){
        .query = attn_input_dense(x[0], s->H, s->Lq, s->D),
        .key = attn_input_dense(x[1], s->Hk, s->Lk, s->D),
        .value = attn_input_dense(x[2], s->Hk, s->Lk, s->Dv),
        .output = attn_output_dense(x[3], s->H, s->Lq, s->Dv),
        .lse = (float *)(void *)c.memory,
    };
    c.gradients = (attn_gradients){
        .output = attn_input_dense(x[4], s->H, s->Lq, s->Dv),
        .query = attn_output_dense(x[5], s->H, s->Lq, s->D),
        .key = attn_output_dense(x[6], s->Hk, s->Lk, s->D),
        .value = attn_output_dense(x[7], s->Hk, s->Lk, s->Dv),
        .bias = attn_output_dense(x[8], 1, s->Lq, s->Lk),
    };
    attn_options_init(&c.options, &c.shape);
    c.options.causal = true;
    c.options.bias = attn_input_dense(x[9], 1, s->Lq, s->Lk);
    for (int axis = 0; axis < 2; axis++)
        c.options.bias.stride[axis] = c.gradients.bias.stride[axis] = 0;
    attn_input *const in[] = {&c.tensors.query, &c.tensors.key, &c.tensors.value,
                              &c.gradients.output, &c.options.bias};
    attn_output *const out[] = {&c.tensors.output, &c.gradients.query, &c.gradients.key,
                                &c.gradients.value, &c.gradients.bias};
    for (int n = 0; n < 5; n++)
        in[n]->type = out[n]->type = type;
    return c;
}

static void run(attn_context *context, const struct call *c)
{
    assert_ok(context, attn_forward(context, &c->shape, &c->tensors, &c->options));
    assert_ok(context,
              attn_backward(context, &c->shape, &c->tensors, &c->options, &c->gradients));
}

/* Both ways that backward shares out its work. */
static void check_threads(attn_context *context)
{
    attn_context *many = NULL;
    const attn_context_options options = {
        .isa = attn_context_isa(context), .threads = 3, .parallel_for = thread_each};
    assert_int_equal(attn_context_create(&many, &options), ATTN_OK);
    for (attn_type type = ATTN_F32; type <= ATTN_BF16; type++)
        for (int64_t heads = 1; heads <= 6; heads += 5) {
            seed = (uint64_t)type;
            struct call c = call_create((attn_shape){1, heads, 1, 300, 700, 20, 9}, type);
            char *const before = allocate(c.bytes, 1);
            run(context, &c);
            memcpy(before, c.memory, c.bytes);
            run(many, &c);
            assert_memory_equal(c.memory, before, c.bytes);
            free(before), free(c.memory);
        }
    attn_context_destroy(many);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    on_every_level(check_threads);
}

static void check_scratch(attn_context *context)
{
    for (attn_type type = ATTN_F32; type <= ATTN_BF16; type++) {
        struct call c = call_create((attn_shape){1, 2, 1, 50, 170, 20, 9}, type);
        attn_plan forward, backward;
        assert_ok(context,
                  attn_plan_forward(context, &c.shape, &c.tensors, &c.options, &forward));
        assert_ok(context, attn_plan_backward(context, &c.shape, &c.tensors, &c.options,
                                              &c.gradients, &backward));
        const size_t bytes = (backward.scratch_bytes + 63) / 64 * 64;
        void *const memory = aligned_alloc(64, bytes);
        assert_non_null(memory);
        assert_true(forward.scratch_bytes <= bytes);
        assert_ok(context,
                  attn_context_lend_scratch(context, memory, backward.scratch_bytes));
        run(context, &c);
        assert_ok(context, attn_context_lend_scratch(context, NULL, 0));
        free(memory), free(c.memory);
    }
}

static void the_planned_scratch_is_enough(void **state)
{
    (void)state;
    on_every_level(check_scratch);
}

/* Scores 65536 and 65280 before the scale: the former is infinite in binary16.  And the
 * sum of 1024 values of 100 before it is divided: beyond 65504. */
static void check_overflow(attn_context *context)
{
    enum { KEYS = 1024 };
    uint16_t query[4], key[8], value[KEYS], output, zeros[KEYS] = {0};
    for (int d = 0; d < 4; d++) {
        attn_reference_store(query, ATTN_F16, d, 128.0);
        attn_reference_store(key, ATTN_F16, d, 128.0);
        attn_reference_store(key, ATTN_F16, 4 + d, 127.5);
    }
    attn_reference_store(value, ATTN_F16, 0, 1.0);
    attn_reference_store(value, ATTN_F16, 1, 0.0);
    attn_shape shape = {1, 1, 1, 1, 2, 4, 1};
    attn_tensors tensors = {.query = attn_input_dense(query, 1, 1, 4),
                            .key = attn_input_dense(key, 1, 2, 4),
                            .value = attn_input_dense(value, 1, 2, 1),
                            .output = attn_output_dense(&output, 1, 1, 1)};
    tensors.query.type = tensors.key.type = tensors.value.type = ATTN_F16;
    tensors.output.type = ATTN_F16;
    attn_options options;
    attn_options_init(&options, &shape);
    assert_ok(context, attn_forward(context, &shape, &tensors, &options));
    assert_true(attn_reference_load(&output, ATTN_F16, 0) == 1.0);

    for (int64_t j = 0; j < KEYS; j++)
        attn_reference_store(value, ATTN_F16, j, 100.0);
    shape = (attn_shape){1, 1, 1, 1, KEYS, 1, 1};
    tensors.query.data = zeros;
    tensors.key.data = zeros;
    tensors.key.stride[2] = 1;
    assert_ok(context, attn_forward(context, &shape, &tensors, &options));
    assert_true(attn_reference_load(&output, ATTN_F16, 0) == 100.0);
}

static void no_sum_on_the_way_overflows_binary16(void **state)
{
    (void)state;
    on_every_level(check_overflow);
}

/* What the output cannot hold is infinite there, and NaN stays NaN. */
static void check_large_outputs(attn_context *context)
{
    const float zero = 0.0f;
    const float values[] = {1e6f, -1e6f, 65519.0f, NAN};
    uint16_t output[4];
    const attn_shape shape = {1, 1, 1, 1, 1, 1, 4};
    attn_tensors tensors = {.query = attn_input_dense(&zero, 1, 1, 1),
                            .key = attn_input_dense(&zero, 1, 1, 1),
                            .value = attn_input_dense(values, 1, 1, 4),
                            .output = attn_output_dense(output, 1, 1, 4)};
    tensors.output.type = ATTN_F16;
    attn_options options;
    attn_options_init(&options, &shape);
    assert_ok(context, attn_forward(context, &shape, &tensors, &options));
    assert_int_equal(output[0], 0x7c00);
    assert_int_equal(output[1], 0xfc00);
    assert_true(attn_reference_load(output, ATTN_F16, 2) == 65504.0);
    assert_true(isnan(attn_reference_load(output, ATTN_F16, 3)));
}

static void an_output_too_large_for_its_type_is_infinite(void **state)
{
    (void)state;
    on_every_level(check_large_outputs);
}

/* The values are fp32, the output loses bits of them, and yet nothing could move: query 0
 * sees one key, and so does query 1 by the bias. */
static void check_single_key(attn_context *context)
{
    enum { D = 5 };
    for (attn_type type = ATTN_F32; type <= ATTN_BF16; type++) {
        float query[2 * D], key[2 * D], value[2 * D], gradient[2 * D], lse[2];
        float to_query[2 * D], to_key[2 * D], output[2 * D];
        const float bias[] = {0.0f, 0.0f, -INFINITY, 0.0f};
        for (int n = 0; n < 2 * D; n++) {
            query[n] = random_float(), key[n] = random_float();
            value[n] = random_float(), gradient[n] = random_float();
        }
        const attn_shape shape = {1, 1, 1, 2, 2, D, D};
        attn_tensors tensors = {.query = attn_input_dense(query, 1, 2, D),
                                .key = attn_input_dense(key, 1, 2, D),
                                .value = attn_input_dense(value, 1, 2, D),
                                .output = attn_output_dense(output, 1, 2, D),
                                .lse = lse};
        tensors.output.type = type;
        const attn_gradients gradients = {.output = attn_input_dense(gradient, 1, 2, D),
                                          .query = attn_output_dense(to_query, 1, 2, D),
                                          .key = attn_output_dense(to_key, 1, 2, D)};
        attn_options options;
        attn_options_init(&options, &shape);
        options.causal = true;
        options.bias = attn_input_dense(bias, 1, 2, 2);
        assert_ok(context, attn_forward(context, &shape, &tensors, &options));
        assert_ok(context,
                  attn_backward(context, &shape, &tensors, &options, &gradients));
        for (int n = 0; n < 2 * D; n++)
            assert_true(to_query[n] == 0.0f && to_key[n] == 0.0f);
    }
}

static void a_single_visible_key_has_gradient_0_whatever_the_output_rounds(void **state)
{
    (void)state;
    on_every_level(check_single_key);
}

static void an_unknown_type_is_named(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct call c = call_create((attn_shape){1, 1, 1, 4, 4, 2, 2}, ATTN_F16);
    const struct {
        attn_type *type;
        const char *name;
    } cases[] = {
        {&c.tensors.query.type, "tensors.query.type is 7"},
        {&c.tensors.key.type, "tensors.key.type is 7"},
        {&c.tensors.value.type, "tensors.value.type is 7"},
        {&c.tensors.output.type, "tensors.output.type is 7"},
        {&c.options.bias.type, "options.bias.type is 7"},
        {&c.gradients.output.type, "gradients.output.type is 7"},
        {&c.gradients.query.type, "gradients.query.type is 7"},
        {&c.gradients.key.type, "gradients.key.type is 7"},
        {&c.gradients.value.type, "gradients.value.type is 7"},
        {&c.gradients.bias.type, "gradients.bias.type is 7"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        *cases[n].type = (attn_type)7;
        assert_int_equal(
            attn_backward(context, &c.shape, &c.tensors, &c.options, &c.gradients),
            ATTN_EINVAL);
        assert_non_null(strstr(attn_context_message(context), cases[n].name));
        *cases[n].type = ATTN_F16;
    }
    free(c.memory);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_value_widens_to_what_its_bits_mean),
        cmocka_unit_test(numbers_are_rounded_to_nearest_even),
        cmocka_unit_test(forward_has_the_bits_of_widened_tensors),
        cmocka_unit_test(weights_have_the_bits_of_widened_tensors),
        cmocka_unit_test(backward_has_the_bits_of_widened_tensors),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(the_planned_scratch_is_enough),
        cmocka_unit_test(no_sum_on_the_way_overflows_binary16),
        cmocka_unit_test(an_output_too_large_for_its_type_is_infinite),
        cmocka_unit_test(a_single_visible_key_has_gradient_0_whatever_the_output_rounds),
        cmocka_unit_test(an_unknown_type_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
