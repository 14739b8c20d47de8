/* Forget gates, block-sparse layouts and sink keys: values by hand, and what each must
 * equal that is known from elsewhere.  That they agree with the reference among all other
 * rules, test_forward, test_backward, test_weights and test_types say. */
#include "attention/reference.h"
#include "attn/linear.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Self-attention of one batch, dense, with gradients. */
struct call {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
    attn_gradients gradients;
    float *memory, *gates, *gate_gradient;
    uint8_t *bytes;
};

static float *numbers(float **next, int64_t count, float size)
{
    float *const x = *next;
    for (int64_t n = 0; n < count; n++)
        x[n] = size * random_float();
    *next += count;
    return x;
}

static struct call call_create(int64_t H, int64_t L, int64_t D)
{
    struct call c = {.shape = {1, H, H, L, L, D, D}};
    const int64_t row = H * L * D;
    c.memory = calloc((size_t)(8 * row + 8 * H * L), sizeof *c.memory);
    c.bytes = calloc((size_t)(H * L * L), 1);
    assert_non_null(c.memory);
    assert_non_null(c.bytes);
    float *next = c.memory;
    c.tensors.query = attn_input_dense(numbers(&next, row, 1.0f), H, L, D);
    c.tensors.key = attn_input_dense(numbers(&next, row, 1.0f), H, L, D);
    c.tensors.value = attn_input_dense(numbers(&next, row, 1.0f), H, L, D);
    c.tensors.output = attn_output_dense(numbers(&next, row, 0.0f), H, L, D);
    c.gradients.output = attn_input_dense(numbers(&next, row, 1.0f), H, L, D);
    c.gradients.query = attn_output_dense(numbers(&next, row, 0.0f), H, L, D);
    c.gradients.key = attn_output_dense(numbers(&next, row, 0.0f), H, L, D);
    c.gradients.value = attn_output_dense(numbers(&next, row, 0.0f), H, L, D);
    c.tensors.lse = numbers(&next, H * L, 0.0f);
    c.tensors.statistics.entropy = numbers(&next, H * L, 0.0f);
    c.tensors.statistics.received = numbers(&next, H * L, 0.0f);
    c.gates = numbers(&next, H * L, 0.0f);
    c.gate_gradient = numbers(&next, H * L, 0.0f);
    attn_options_init(&c.options, &c.shape);
    c.options.causal = true;
    return c;
}

static void call_destroy(struct call *c)
{
    free(c->memory), free(c->bytes);
}

static void use_gates(struct call *c)
{
    c->options.log_forget = attn_input_dense(c->gates, c->shape.H, c->shape.Lk, 1);
}

static void run(attn_context *context, const struct call *c)
{
    if (attn_forward(context, &c->shape, &c->tensors, &c->options) != ATTN_OK ||
        attn_backward(context, &c->shape, &c->tensors, &c->options, &c->gradients) !=
            ATTN_OK)
        fail_msg("%s", attn_context_message(context));
}

static size_t floats_of(const struct call *c)
{
    return (size_t)(c->shape.H * c->shape.Lq * c->shape.D);
}

/* Output, and gradients of query, key and value. */
static void copy_results(const struct call *c, float *to)
{
    const size_t floats = floats_of(c);
    memcpy(to, c->tensors.output.data, floats * sizeof *to);
    memcpy(to + floats, c->gradients.query.data, floats * sizeof *to);
    memcpy(to + 2 * floats, c->gradients.key.data, floats * sizeof *to);
    memcpy(to + 3 * floats, c->gradients.value.data, floats * sizeof *to);
}

static void assert_results(const struct call *c, const float *expected, double bound)
{
    float *const got = calloc(4 * floats_of(c), sizeof *got);
    assert_non_null(got);
    copy_results(c, got);
    for (size_t n = 0; n < 4 * floats_of(c); n++)
        if (!(fabs((double)got[n] - (double)expected[n]) <=
              bound * (1.0 + fabs((double)expected[n]))))
            fail_msg("result %d is %.9g, expected %.9g", (int)n, (double)got[n],
                     (double)expected[n]);
    free(got);
}

/* What `change` makes of a call must be near what it was before. */
static void assert_same_after(attn_context *context, struct call *c,
                              void (*change)(struct call *), double bound)
{
    float *const before = calloc(4 * floats_of(c), sizeof *before);
    assert_non_null(before);
    run(context, c);
    copy_results(c, before);
    change(c);
    run(context, c);
    assert_results(c, before, bound);
    free(before);
}

/* ---- Forget gates
 * ----------------------------------------------------------------------
 */

/* f = 1, ½, ½ and equal scores: weights of the last row are ¼ : ½ : 1. */
static void check_by_hand(attn_context *context)
{
    struct call c = call_create(1, 3, 1);
    float *const query = (float *)(uintptr_t)c.tensors.query.data;
    float *const value = (float *)(uintptr_t)c.tensors.value.data;
    for (int i = 0; i < 3; i++)
        query[i] = 0.0f, value[i] = (float)(i == 0 ? 7 : i == 1 ? 14 : 28);
    c.gates[1] = c.gates[2] = (float)log(0.5);
    use_gates(&c);
    run(context, &c);
    const float *const o = c.tensors.output.data;
    assert_float_equal(o[0], 7.0f, 1e-5f);
    assert_float_equal(o[1], (7.0f * 0.5f + 14.0f) / 1.5f, 1e-5f);
    assert_float_equal(o[2], (7.0f * 0.25f + 14.0f * 0.5f + 28.0f) / 1.75f, 1e-5f);
    assert_float_equal(c.tensors.lse[2], logf(1.75f), 1e-6f);
    call_destroy(&c);
}

static void a_gate_multiplies_the_weights_of_all_keys_before_it(void **state)
{
    (void)state;
    on_every_level(check_by_hand);
}

static void check_open(attn_context *context)
{
    struct call c = call_create(2, 300, 20);
    assert_same_after(context, &c, use_gates, 0.0);
    call_destroy(&c);
}

static void gates_that_are_open_change_no_bit(void **state)
{
    (void)state;
    on_every_level(check_open);
}

static void slopes_to_gates(struct call *c)
{
    for (int64_t n = 0; n < c->shape.H * c->shape.Lk; n++)
        c->gates[n] = -c->options.alibi_slopes[n / c->shape.Lk];
    c->options.alibi_slopes = NULL;
    use_gates(c);
}

static void check_alibi(attn_context *context)
{
    const float slopes[] = {0.25f, 0.01f};
    struct call c = call_create(2, 300, 20);
    c.options.alibi_slopes = slopes;
    assert_same_after(context, &c, slopes_to_gates, 1e-5);
    call_destroy(&c);
}

static void constant_gates_are_alibi(void **state)
{
    (void)state;
    on_every_level(check_alibi);
}

static void check_bias(attn_context *context)
{
    enum { L = 130 };
    struct call c = call_create(1, L, 20);
    float *const bias = calloc(L * L, sizeof *bias);
    assert_non_null(bias);
    for (int64_t j = 0; j < L; j++)
        c.gates[j] = -0.1f * fabsf(random_float());
    for (int64_t i = 0; i < L; i++) {
        double sum = 0.0;
        for (int64_t j = i; j >= 0; j--) {
            bias[i * L + j] = (float)sum;
            sum += (double)c.gates[j];
        }
    }
    c.options.bias = attn_input_dense(bias, 1, L, L);
    run(context, &c);
    float *const before = calloc(4 * floats_of(&c), sizeof *before);
    assert_non_null(before);
    copy_results(&c, before);
    c.options.bias.data = NULL;
    use_gates(&c);
    run(context, &c);
    assert_results(&c, before, 1e-5);
    free(before), free(bias);
    call_destroy(&c);
}

static void gates_are_a_bias_of_sums(void **state)
{
    (void)state;
    on_every_level(check_bias);
}

/* Gates of 0 at keys 50 and 200: what is before is as if it were hidden. */
static void close_gates(struct call *c)
{
    c->options.keep.data = NULL;
    c->gates[50] = -INFINITY;
    c->gates[200] = -1e30f;
    use_gates(c);
}

static void check_closed(attn_context *context)
{
    struct call c = call_create(1, 300, 20);
    for (int64_t i = 0; i < 300; i++)
        for (int64_t j = 0; j <= i; j++)
            c.bytes[i * 300 + j] = j >= (i < 50 ? 0 : i < 200 ? 50 : 200);
    c.options.keep = (attn_keep){c.bytes, {0, 0, 300, 1}};
    assert_same_after(context, &c, close_gates, 1e-5);
    call_destroy(&c);
}

static void a_closed_gate_hides_what_is_before(void **state)
{
    (void)state;
    on_every_level(check_closed);
}

/* ln f of −7 each, and in the end sums of −21,000: what is between near keys must not
 * drown in them. */
static void check_long(attn_context *context)
{
    enum { L = 3000 };
    struct call c = call_create(1, L, 8);
    for (int64_t j = 0; j < L; j++)
        c.gates[j] = j % 5 == 0 ? -35.0f : -0.01f;
    use_gates(&c);
    run(context, &c);
    struct attn_reference_row row;
    assert_true(attn_reference_row_create(&row, &c.shape));
    for (int64_t i = L - 40; i < L; i++) {
        attn_reference_attend(&row, &c.shape, &c.tensors, &c.options, 0, 0, i);
        const float *const o = (const float *)c.tensors.output.data + i * 8;
        for (int d = 0; d < 8; d++)
            assert_true(fabs((double)o[d] - row.output[d]) <= 8e-6);
        assert_true(fabs((double)c.tensors.lse[i] - row.lse) <= 4e-6 * 4.0);
    }
    attn_reference_row_destroy(&row);
    call_destroy(&c);
}

static void gates_far_along_are_as_exact_as_the_first(void **state)
{
    (void)state;
    on_every_level(check_long);
}

/* A row does not change when all its scores do: the gate of the first position, which
 * lies after no key, has gradient 0, and so has that of a position after which nobody
 * asks. */
static void check_gate_gradient(attn_context *context)
{
    struct call c = call_create(1, 200, 20);
    for (int64_t j = 0; j < 200; j++)
        c.gates[j] = -0.1f * fabsf(random_float());
    const int64_t queries = 150;
    c.options.query_lengths = &queries;
    c.options.alignment = ATTN_ALIGN_TOP_LEFT;
    use_gates(&c);
    c.gradients.log_forget = attn_output_dense(c.gate_gradient, 1, 200, 1);
    run(context, &c);
    assert_true(fabsf(c.gate_gradient[0]) <= 1e-4f);
    float largest = 0.0f;
    for (int64_t j = 1; j < 150; j++)
        largest = fmaxf(largest, fabsf(c.gate_gradient[j]));
    assert_true(largest > 0.1f);
    for (int64_t j = 150; j < 200; j++)
        assert_true(c.gate_gradient[j] == 0.0f);
    call_destroy(&c);
}

static void a_gate_that_nobody_passes_has_gradient_0(void **state)
{
    (void)state;
    on_every_level(check_gate_gradient);
}

/* ---- Layouts and sink keys
 * ----------------------------------------------------------------
 */

static void fill_and_print(char *text, int64_t rows, int64_t columns, attn_layout layout)
{
    uint8_t blocks[64];
    assert_int_equal(attn_layout_fill(blocks, rows, columns, &layout), ATTN_OK);
    for (int64_t n = 0; n < rows * columns; n++)
        text[n] = blocks[n] ? 'x' : '.';
    text[rows * columns] = 0;
}

static void layouts_are_local_global_and_strided(void **state)
{
    (void)state;
    char text[65];
    fill_and_print(text, 4, 5, (attn_layout){.local = 1});
    assert_string_equal(text, "xx..."
                              "xxx.."
                              ".xxx."
                              "..xxx");
    fill_and_print(text, 4, 4, (attn_layout){.local = 0, .global = 1});
    assert_string_equal(text, "xxxx"
                              "xx.."
                              "x.x."
                              "x..x");
    fill_and_print(text, 4, 6, (attn_layout){.local = -1, .stride = 3});
    assert_string_equal(text, "x..x.."
                              ".x..x."
                              "..x..x"
                              "x..x..");
    const attn_layout wrong = {.local = -2};
    uint8_t block = 7;
    assert_int_equal(attn_layout_fill(&block, 1, 1, &wrong), ATTN_EINVAL);
    assert_int_equal(attn_layout_fill(NULL, 1, 1, &(attn_layout){.local = 0}),
                     ATTN_EINVAL);
    assert_int_equal(block, 7);
}

enum { PLACES = 64 }; /* more blocks than a test has, either way */

static uint8_t layout_bytes[PLACES * PLACES];

static void keep_to_blocks(struct call *c)
{
    c->options.keep.data = NULL;
    c->options.blocks = (attn_keep){layout_bytes, {0, 0, (c->shape.Lk + 31) / 32, 1}};
    c->options.block_size = 32;
}

/* The keep mask that says the same. */
static void check_blocks(attn_context *context)
{
    struct call c = call_create(2, 333, 20);
    const int64_t L = c.shape.Lk, blocks = (L + 31) / 32;
    const attn_layout layout = {.local = 1, .global = 1, .stride = 4};
    assert_int_equal(attn_layout_fill(layout_bytes, blocks, blocks, &layout), ATTN_OK);
    for (int64_t i = 0; i < L; i++)
        for (int64_t j = 0; j < L; j++)
            c.bytes[i * L + j] = layout_bytes[i / 32 * blocks + j / 32];
    c.options.keep = (attn_keep){c.bytes, {0, 0, L, 1}};
    c.options.causal = false;
    assert_same_after(context, &c, keep_to_blocks, 1e-5);
    c.options.causal = true;
    run(context, &c);
    call_destroy(&c);
}

static void a_layout_equals_the_keep_mask_that_says_the_same(void **state)
{
    (void)state;
    on_every_level(check_blocks);
}

static void everything_visible(struct call *c)
{
    memset(layout_bytes, 1, sizeof layout_bytes);
    c->options.blocks = (attn_keep){layout_bytes, {0, 0, PLACES, 1}};
    c->options.block_size = 128;
}

static void check_whole_layout(attn_context *context)
{
    struct call c = call_create(1, 300, 20);
    assert_same_after(context, &c, everything_visible, 1e-5);
    call_destroy(&c);
}

static void a_layout_that_hides_nothing_changes_nothing(void **state)
{
    (void)state;
    on_every_level(check_whole_layout);
}

static void keep_to_sink_keys(struct call *c)
{
    c->options.keep.data = NULL;
    c->options.window_left = 40;
    c->options.sink_keys = 5;
}

static void check_sink_keys(attn_context *context)
{
    struct call c = call_create(1, 400, 20);
    for (int64_t i = 0; i < 400; i++)
        for (int64_t j = 0; j <= i; j++)
            c.bytes[i * 400 + j] = j < 5 || j >= i - 40;
    c.options.keep = (attn_keep){c.bytes, {0, 0, 400, 1}};
    assert_same_after(context, &c, keep_to_sink_keys, 1e-5);
    call_destroy(&c);
}

static void sink_keys_are_seen_beside_the_window(void **state)
{
    (void)state;
    on_every_level(check_sink_keys);
}

/* The plan counts what each row says it sees. */
static bool is_seen_by(int64_t query, int64_t key)
{
    const bool by_window = key == 0 || key >= query - 2;
    const bool by_layout = key / 16 == query / 16 || key / 16 == 0 || query / 16 == 0;
    return key <= query && by_window && by_layout;
}

/* Equal scores, gates of ½, own block and the first, a window of three and the first key,
 * and a sink logit of ln 2: it joins the sum as 2, once a row, and no gate lessens it. */
static void check_sink_among_them(attn_context *context)
{
    enum { L = 64 };
    const float logit = logf(2.0f);
    struct call c = call_create(1, L, 1);
    const float *const value = c.tensors.value.data;
    const attn_layout layout = {.local = 0, .global = 1};
    memset(c.memory, 0, L * sizeof *c.memory); /* the queries */
    for (int n = 0; n < L; n++)
        c.gates[n] = logf(0.5f);
    use_gates(&c);
    assert_int_equal(attn_layout_fill(layout_bytes, 4, 4, &layout), ATTN_OK);
    c.options.blocks = (attn_keep){layout_bytes, {0, 0, 4, 1}};
    c.options.block_size = 16;
    c.options.window_left = 2;
    c.options.sink_keys = 1;
    c.options.sinks = &logit;
    run(context, &c);
    for (int64_t i = 0; i < L; i++) {
        double sum = 2.0, weighed = 0.0;
        for (int64_t j = 0; j < L; j++)
            if (is_seen_by(i, j)) {
                sum += exp2((double)(j - i));
                weighed += exp2((double)(j - i)) * (double)value[j];
            }
        const double output = (double)((const float *)c.tensors.output.data)[i];
        if (!(fabs(output - weighed / sum) <= 2e-6) ||
            !(fabs((double)c.tensors.lse[i] - log(sum)) <= 4e-6))
            fail_msg("row %lld: %.9g and lse %.9g, expected %.9g and %.9g", (long long)i,
                     output, (double)c.tensors.lse[i], weighed / sum, log(sum));
    }
    call_destroy(&c);
}

static void a_sink_logit_joins_once_whatever_gates_and_layouts_do(void **state)
{
    (void)state;
    on_every_level(check_sink_among_them);
}

/* A sink's share is σ(sink − lse), and is never clamped: e⁻³⁰ where it is 30 above.  A
 * logit of 0 is the softmax with one more in its denominator. */
static void check_share(attn_context *context)
{
    enum { L = 70, D = 20 };
    const float logits[] = {0.0f, 30.0f, -30.0f};
    struct call c = call_create(3, L, D);
    const float *const o = c.tensors.output.data;
    float before[3 * L * D], lse[3 * L];
    run(context, &c);
    memcpy(before, o, sizeof before);
    memcpy(lse, c.tensors.lse, sizeof lse);
    c.options.sinks = logits;
    run(context, &c);
    for (int n = 0; n < 3 * L * D; n++) {
        const int row = n / D;
        const double logit = (double)logits[row / L], sum = (double)lse[row];
        const double left = 1.0 / (1.0 + exp(logit - sum));
        if (!(fabs((double)o[n] - left * (double)before[n]) <= 2e-5 * left))
            fail_msg("row %d: %.9g, expected %.9g of %.9g", row, (double)o[n], left,
                     (double)before[n]);
        const double expected = fmax(logit, sum) + log1p(exp(-fabs(logit - sum)));
        assert_true(fabs((double)c.tensors.lse[row] - expected) <=
                    4e-6 * fmax(1.0, fabs(expected)));
    }
    call_destroy(&c);
}

static void a_sink_logit_leaves_the_share_that_the_sigmoid_says(void **state)
{
    (void)state;
    on_every_level(check_share);
}

static void pairs_of_the_plan_are_those_of_the_rows(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct problem p = problem_create(seed, RULE_PACKED | RULE_LENGTHS | RULE_BLOCKS |
                                                    RULE_SINK_KEYS);
        struct results r = results_create(&p);
        const attn_tensors tensors = problem_tensors(&p, &r);
        attn_plan plan;
        assert_int_equal(
            attn_plan_forward(context, &p.shape, &tensors, &p.options, &plan), ATTN_OK);
        assert_int_equal(attn_forward(context, &p.shape, &tensors, &p.options), ATTN_OK);
        double pairs = 0.0;
        for (size_t n = 0; n < r.rows; n++)
            pairs += (double)r.statistics.visible_keys[n];
        if (plan.visible_pairs != pairs)
            fail_msg("seed %d: %.0f pairs, expected %.0f", (int)seed, plan.visible_pairs,
                     pairs);
        results_destroy(&r);
        problem_destroy(&p);
    }
    attn_context_destroy(context);
}

/* ---- What cannot be
 * --------------------------------------------------------------------
 */

static void assert_refused(attn_context *context, const struct call *c,
                           const char *message)
{
    assert_int_equal(attn_forward(context, &c->shape, &c->tensors, &c->options),
                     ATTN_EINVAL);
    assert_string_equal(attn_context_message(context), message);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct call c = call_create(1, 20, 4);
    c.options.sink_keys = -1;
    assert_refused(context, &c,
                   "attn_forward: options.sink_keys is -1, expected 0 to "
                   "281474976710656");
    c.options.sink_keys = 0;
    c.options.blocks = (attn_keep){c.bytes, {0, 0, 1, 1}};
    c.options.block_size = 24;
    assert_refused(context, &c,
                   "attn_forward: options.block_size is 24, expected a multiple of 16");
    c.options.blocks.data = NULL;
    c.options.causal = false;
    use_gates(&c);
    assert_refused(context, &c,
                   "attn_forward: options.log_forget is given without causal, expected "
                   "both: what is after a query cannot have been forgotten");
    c.options.causal = true;
    c.options.log_forget.type = (attn_type)9;
    assert_refused(context, &c,
                   "attn_forward: options.log_forget.type is 9, expected ATTN_F32, "
                   "ATTN_F16 or ATTN_BF16");
    c.options.log_forget = (attn_input){.data = NULL};
    c.gradients.log_forget = attn_output_dense(c.gate_gradient, 1, 20, 1);
    assert_int_equal(
        attn_backward(context, &c.shape, &c.tensors, &c.options, &c.gradients),
        ATTN_EINVAL);
    assert_string_equal(attn_context_message(context),
                        "attn_backward: gradients.log_forget is given without the "
                        "option, expected options.log_forget and type ATTN_F32");
    call_destroy(&c);
    attn_context_destroy(context);
}

static void a_linear_form_has_no_use_for_them(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct call c = call_create(1, 20, 4);
    c.options.sink_keys = 3;
    assert_int_not_equal(
        attn_linear_forward(context, &c.shape, &c.tensors, &c.options, NULL), ATTN_OK);
    assert_non_null(strstr(attn_context_message(context), "sink_keys"));
    call_destroy(&c);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gate_multiplies_the_weights_of_all_keys_before_it),
        cmocka_unit_test(gates_that_are_open_change_no_bit),
        cmocka_unit_test(constant_gates_are_alibi),
        cmocka_unit_test(gates_are_a_bias_of_sums),
        cmocka_unit_test(a_closed_gate_hides_what_is_before),
        cmocka_unit_test(gates_far_along_are_as_exact_as_the_first),
        cmocka_unit_test(a_gate_that_nobody_passes_has_gradient_0),
        cmocka_unit_test(layouts_are_local_global_and_strided),
        cmocka_unit_test(a_layout_equals_the_keep_mask_that_says_the_same),
        cmocka_unit_test(a_layout_that_hides_nothing_changes_nothing),
        cmocka_unit_test(sink_keys_are_seen_beside_the_window),
        cmocka_unit_test(a_sink_logit_joins_once_whatever_gates_and_layouts_do),
        cmocka_unit_test(a_sink_logit_leaves_the_share_that_the_sigmoid_says),
        cmocka_unit_test(pairs_of_the_plan_are_those_of_the_rows),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_linear_form_has_no_use_for_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
