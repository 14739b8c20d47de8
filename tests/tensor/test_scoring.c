/* Kinds of scores and forget gates, in the multi-head layer: gradients against central
 * differences, and what the layer computes against the reference. */
#include "attention/reference.h"
#include "nn/layers.h"
#include "tensor_test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 8, TOKENS = 9, OTHERS = 7, SEQUENCES = 3 };
static const int64_t token_starts[] = {0, 5, 6, TOKENS};
static const int64_t other_starts[] = {0, 2, 6, OTHERS};
static const attn_packing packing = {SEQUENCES, token_starts};
static const attn_packing other_packing = {SEQUENCES, other_starts};

struct fixture {
    attn_tape *tape;
    attn_parameters parameters;
    attn_multihead_layer layer;
    float x[TOKENS * WIDTH], other[OTHERS * WIDTH];
    bool cross;
};

static void fixture_create(struct fixture *f, attn_scoring scoring, int64_t heads,
                           bool forgets)
{
    *f = (struct fixture){.tape = test_tape_create(NULL)};
    assert_int_equal(attn_multihead_layer_add(&f->layer, &f->parameters, "attn", WIDTH,
                                              heads, ATTN_PART_DECODER, 0),
                     ATTN_OK);
    assert_int_equal(
        attn_multihead_layer_add_scoring(&f->layer, &f->parameters, "attn", scoring),
        ATTN_OK);
    if (forgets)
        assert_int_equal(
            attn_multihead_layer_add_forget(&f->layer, &f->parameters, "attn"), ATTN_OK);
    assert_int_equal(attn_parameters_allocate(&f->parameters), ATTN_OK);
    test_fill(f->parameters.values, f->parameters.floats, 5);
    test_fill(f->x, TOKENS * WIDTH, 6);
    test_fill(f->other, OTHERS * WIDTH, 7);
    /* Large weights bend the softmax too much for differences. */
    for (size_t i = 0; i < f->parameters.floats; i++)
        f->parameters.values[i] *= 0.5f;
}

static void fixture_destroy(struct fixture *f)
{
    attn_parameters_free(&f->parameters);
    test_tape_destroy(f->tape);
}

static attn_tensor *attend(const struct fixture *f, const attn_pass *pass, attn_tensor *x,
                           attn_tensor *other)
{
    const attn_memory memory =
        f->cross ? attn_multihead_layer_memory(&f->layer, pass, other, other_packing)
                 : attn_multihead_layer_memory(&f->layer, pass, x, packing);
    return attn_multihead_layer_forward(&f->layer, pass, x, packing, &memory, !f->cross,
                                        0.0f);
}

static attn_tensor *build(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    struct fixture *const f = user;
    f->parameters.values = leaves[1]->data;
    const attn_pass pass = {
        .tape = tape, .parameters = &f->parameters, .gradients = leaves[1]->gradient};
    return attend(f, &pass, leaves[0], leaves[2]);
}

static void check_gradients(attn_scoring scoring, int64_t heads, bool cross, bool forgets)
{
    struct fixture f;
    fixture_create(&f, scoring, heads, forgets);
    f.cross = cross;
    float *const values = f.parameters.values;
    const test_leaf leaves[] = {{f.x, 2, {TOKENS, WIDTH}, false},
                                {values, 1, {(int64_t)f.parameters.floats}, false},
                                {f.other, 2, {OTHERS, WIDTH}, !cross}};
    test_gradients(f.tape, build, &f, leaves, 3, 0.01f, 3e-3);
    fixture_destroy(&f);
}

static void every_score_has_the_gradients_of_differences(void **state)
{
    (void)state;
    for (int scoring = 0; attn_scoring_name((attn_scoring)scoring); scoring++)
        for (int64_t heads = 1; heads <= 4; heads *= 2)
            for (int cross = 0; cross < 2; cross++)
                check_gradients((attn_scoring)scoring, heads, cross, false);
}

static void forget_gates_have_the_gradients_of_differences(void **state)
{
    (void)state;
    check_gradients(ATTN_SCORING_SCALED, 2, false, true);
    check_gradients(ATTN_SCORING_ADDITIVE, 2, false, true);
}

/* ---- Against the reference
 * --------------------------------------------------------------
 */

static const float *parameter(const struct fixture *f, const char *name)
{
    const attn_parameter *const p = attn_parameters_find(&f->parameters, name);
    if (!p)
        fail_msg("no parameter %s", name);
    return f->parameters.values + p->offset;
}

/* out[rows][outs] = x · weightᵀ + bias */
static void project(const struct fixture *f, const char *name, const float *x,
                    size_t outs, float *out)
{
    char text[64];
    snprintf(text, sizeof text, "attn.%s.weight", name);
    const float *const weight = parameter(f, text);
    snprintf(text, sizeof text, "attn.%s.bias", name);
    const float *const bias = strcmp(name, "general") == 0 ? NULL : parameter(f, text);
    for (size_t n = 0; n < TOKENS; n++)
        for (size_t o = 0; o < outs; o++) {
            double sum = bias ? (double)bias[o] : 0.0;
            for (size_t i = 0; i < WIDTH; i++)
                sum += (double)x[n * WIDTH + i] * (double)weight[o * WIDTH + i];
            out[n * outs + o] = (float)sum;
        }
}

static void check_against_reference(attn_scoring scoring, bool forgets)
{
    enum { HEADS = 2, SIZE = WIDTH / HEADS };
    struct fixture f;
    fixture_create(&f, scoring, HEADS, forgets);
    float query[TOKENS * WIDTH], key[TOKENS * WIDTH], value[TOKENS * WIDTH];
    float attended[TOKENS * WIDTH], expected[TOKENS * WIDTH], gates[TOKENS * HEADS];
    project(&f, "q_proj", f.x, WIDTH, query);
    project(&f, "k_proj", f.x, WIDTH, key);
    project(&f, "v_proj", f.x, WIDTH, value);
    if (scoring == ATTN_SCORING_GENERAL) {
        project(&f, "general", query, WIDTH, attended);
        memcpy(query, attended, sizeof query);
    }
    const attn_shape shape = {1, HEADS, HEADS, TOKENS, TOKENS, SIZE, SIZE};
    const attn_tensors tensors = {.query = {query, {0, SIZE, WIDTH, 1}},
                                  .key = {key, {0, SIZE, WIDTH, 1}},
                                  .value = {value, {0, SIZE, WIDTH, 1}},
                                  .output = {attended, {0, SIZE, WIDTH, 1}}};
    attn_options options;
    attn_options_init(&options, &shape);
    options.scale = scoring == ATTN_SCORING_SCALED ? 0.5f : 1.0f; /* 1/√4 */
    if (scoring == ATTN_SCORING_ADDITIVE) {
        options.score = ATTN_SCORE_ADDITIVE;
        options.additive = parameter(&f, "attn.additive");
    }
    options.causal = true;
    options.sequences = SEQUENCES;
    options.query_starts = options.key_starts = token_starts;
    if (forgets) {
        project(&f, "forget_proj", f.x, HEADS, gates);
        for (size_t n = 0; n < TOKENS * HEADS; n++)
            gates[n] = (float)-log1p(exp(-(double)gates[n]));
        options.log_forget = (attn_input){.data = gates, .stride = {0, 1, HEADS, 1}};
    }
    assert_int_equal(attn_forward_reference(&shape, &tensors, &options), ATTN_OK);
    project(&f, "out_proj", attended, WIDTH, expected);

    const attn_pass pass = {.tape = f.tape, .parameters = &f.parameters};
    attn_tape_begin(f.tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(f.tape, f.x, NULL, 2, (const int64_t[]){TOKENS, WIDTH});
    const attn_tensor *const y = attend(&f, &pass, x, NULL);
    assert_non_null(y);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        test_close((double)y->data[i], (double)expected[i], 5e-6,
                   attn_scoring_name(scoring), i);
    fixture_destroy(&f);
}

static void every_score_is_what_the_reference_says(void **state)
{
    (void)state;
    for (int scoring = 0; attn_scoring_name((attn_scoring)scoring); scoring++)
        for (int forgets = 0; forgets < 2; forgets++)
            check_against_reference((attn_scoring)scoring, forgets);
}

/* A decoder of one width reads an encoder of another. */
static void a_general_score_leads_from_one_width_to_another(void **state)
{
    (void)state;
    attn_scoring_layer layer;
    attn_parameters parameters = {0};
    assert_int_equal(attn_scoring_layer_add(&layer, &parameters, "score",
                                            ATTN_SCORING_GENERAL, 2, 6, 4),
                     ATTN_OK);
    assert_int_equal(parameters.list[0].extent[0], 4);
    assert_int_equal(parameters.list[0].extent[1], 6);
    assert_int_equal(
        attn_scoring_layer_add(&layer, &parameters, "s", ATTN_SCORING_DOT, 2, 6, 4),
        ATTN_EINVAL);
    assert_int_equal(
        attn_scoring_layer_add(&layer, &parameters, "s", ATTN_SCORING_GENERAL, 3, 6, 4),
        ATTN_EINVAL);
    assert_int_equal(
        attn_scoring_layer_add(&layer, &parameters, "s", (attn_scoring)4, 2, 4, 4),
        ATTN_EINVAL);
    attn_parameters_free(&parameters);
}

static attn_status count_visible(void *user, const attn_observation *o)
{
    const int64_t *const visible = o->tensors->statistics.visible_keys;
    memcpy(user, visible, (size_t)(o->shape->H * o->shape->Lq) * sizeof *visible);
    return ATTN_OK;
}

/* A window of 2 keys beside the first one; then a layout of one block, hidden or not. */
static void heads_see_what_window_sink_keys_and_layout_show(void **state)
{
    (void)state;
    static const int64_t of_window[TOKENS] = {1, 2, 3, 3, 3, 1, 1, 2, 3};
    static const int64_t of_all[TOKENS] = {1, 2, 3, 4, 5, 1, 1, 2, 3};
    uint8_t block = 1;
    float x[TOKENS * WIDTH];
    int64_t visible[TOKENS];
    attn_tape *const tape = test_tape_create(NULL);
    const attn_observer observer = {visible, count_visible};
    const attn_pass pass = {.tape = tape, .observer = &observer};
    test_fill(x, TOKENS * WIDTH, 3);
    for (int layout = 0; layout < 3; layout++) {
        attn_heads heads = {.heads = 1, .key_heads = 1, .causal = true};
        block = layout == 1;
        if (layout > 0)
            heads.blocks.data = &block, heads.block_size = 16;
        else
            heads.window = 2, heads.sink_keys = 1;
        attn_tape_begin(tape, false, 0);
        attn_tensor *const t =
            attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){TOKENS, WIDTH});
        const attn_memory memory = {.key = t, .value = t, .packing = packing};
        assert_non_null(attn_heads_forward(&heads, &pass, t, packing, &memory));
        for (size_t n = 0; n < TOKENS; n++)
            assert_int_equal(visible[n], layout == 0   ? of_window[n]
                                         : layout == 1 ? of_all[n]
                                                       : 0);
    }
    test_tape_destroy(tape);
}

/* ---- The operations under it
 * ------------------------------------------------------------
 */

static attn_tensor *build_log_sigmoid(attn_tape *tape, attn_tensor *const *leaves,
                                      void *user)
{
    (void)user;
    return attn_add(tape, attn_log_sigmoid(tape, leaves[0]), leaves[0]);
}

static void log_sigmoid_neither_overflows_nor_loses_small_gates(void **state)
{
    (void)state;
    float x[] = {-200.0f, -3.0f, 0.0f, 0.5f, 20.0f, 200.0f};
    attn_tape *const tape = test_tape_create(NULL);
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const y =
        attn_log_sigmoid(tape, attn_tape_leaf(tape, x, NULL, 1, (const int64_t[]){6}));
    for (size_t n = 0; n < 6; n++) {
        const double z = (double)x[n];
        const double expected = fmin(z, 0.0) - log1p(exp(-fabs(z)));
        assert_true(fabs((double)y->data[n] - expected) <= 2e-7 * fabs(expected) + 1e-38);
    }
    x[0] = -4.0f, x[5] = 3.0f, x[4] = 5.0f;
    const test_leaf leaf = {x, 1, {6}, false};
    test_gradients(tape, build_log_sigmoid, NULL, &leaf, 1, 0.01f, 1e-3);
    test_tape_destroy(tape);
}

static void gates_of_another_shape_are_named(void **state)
{
    (void)state;
    float zeros[TOKENS * WIDTH] = {0};
    attn_tape *const tape = test_tape_create(NULL);
    attn_tape_begin(tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){TOKENS, WIDTH});
    attn_packed_attention attention = {.H = 2, .Hk = 2, .log_forget = x};
    attn_options_init(&attention.options, &(attn_shape){.D = WIDTH / 2});
    assert_null(attn_attend(tape, x, x, x, &attention, NULL, NULL));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(
        strstr(attn_context_message(attn_tape_context(tape)), "attn_attend: log_forget"));
    test_tape_destroy(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_score_has_the_gradients_of_differences),
        cmocka_unit_test(forget_gates_have_the_gradients_of_differences),
        cmocka_unit_test(every_score_is_what_the_reference_says),
        cmocka_unit_test(a_general_score_leads_from_one_width_to_another),
        cmocka_unit_test(heads_see_what_window_sink_keys_and_layout_show),
        cmocka_unit_test(log_sigmoid_neither_overflows_nor_loses_small_gates),
        cmocka_unit_test(gates_of_another_shape_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
