/* Attention as an operation of the tape, and the multi-head layer: values against the
 * reference, gradients against central differences, what an observer is told. */
#include "attention/reference.h"
#include "nn/layers.h"
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Three sequences (one without keys, one of one query) of 2 heads of 3, values of 2. */
enum { H = 2, D = 3, DV = 2, QUERIES = 6, KEYS = 7, SEQUENCES = 3 };
static const int64_t query_starts[] = {0, 3, 4, QUERIES};
static const int64_t key_starts[] = {0, 4, 4, KEYS};

static attn_packed_attention packed_attention(double dropout)
{
    attn_packed_attention attention = {.H = H, .Hk = H};
    attn_options_init(&attention.options, &(attn_shape){.D = D});
    attention.options.causal = true;
    attention.options.sequences = SEQUENCES;
    attention.options.query_starts = query_starts;
    attention.options.key_starts = key_starts;
    attention.options.dropout = dropout;
    return attention;
}

static attn_tensor *build_attend(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    return attn_attend(tape, leaves[0], leaves[1], leaves[2], user, NULL, NULL);
}

/* One tensor in all three places, twice: gradients meet. */
static attn_tensor *build_attend_self(attn_tape *tape, attn_tensor *const *leaves,
                                      void *user)
{
    attn_packed_attention *const attention = user;
    attention->options.key_starts = query_starts;
    attn_tensor *const y = attn_add(tape, leaves[0], leaves[0]);
    attn_tensor *const once = attn_attend(tape, y, y, y, attention, NULL, NULL);
    return attn_attend(tape, once, y, once, attention, NULL, NULL);
}

/* Of three tensors, and of one in all places. */
static void check_gradients(attn_tape *tape, attn_packed_attention *attention)
{
    float query[QUERIES * H * D], key[KEYS * H * D], value[KEYS * H * DV];
    test_fill(query, QUERIES * H * D, 1), test_fill(key, KEYS * H * D, 2);
    test_fill(value, KEYS * H * DV, 3);
    const test_leaf leaves[] = {{query, 2, {QUERIES, H * D}, false},
                                {key, 2, {KEYS, H * D}, false},
                                {value, 2, {KEYS, H * DV}, false}};
    test_gradients(tape, build_attend, attention, leaves, 3, 0.01f, 2e-3);
    test_gradients(tape, build_attend_self, attention, leaves, 1, 0.01f, 4e-3);
}

static void attend_has_the_gradients_of_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < test_isa_count; i++) {
        attn_tape *const tape = test_tape_create(test_isas[i]);
        for (int dropped = 0; tape && dropped < 2; dropped++) {
            attn_packed_attention attention = packed_attention(dropped ? 0.3 : 0.0);
            check_gradients(tape, &attention);
        }
        if (tape)
            test_tape_destroy(tape);
    }
}

static void linear_attention_has_the_gradients_of_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < test_isa_count; i++) {
        attn_tape *const tape = test_tape_create(test_isas[i]);
        if (!tape)
            continue;
        attn_packed_attention attention = packed_attention(0.0);
        attention.options.score = ATTN_SCORE_LINEAR;
        check_gradients(tape, &attention);
        test_tape_destroy(tape);
    }
}

/* Of queries, keys, values and what attention takes beside them; with and without
 * dropout. */
static void check_fourth_leaf(test_build *build, test_build *build_twice,
                              const attn_packed_attention *plain,
                              const test_leaf leaves[4])
{
    for (size_t i = 0; i < test_isa_count; i++) {
        attn_tape *const tape = test_tape_create(test_isas[i]);
        for (int dropped = 0; tape && dropped < 2; dropped++) {
            attn_packed_attention attention = *plain;
            attention.options.dropout = dropped ? 0.3 : 0.0;
            test_gradients(tape, build, &attention, leaves, 4, 0.01f, 2e-3);
            test_gradients(tape, build_twice, &attention, leaves, 4, 0.01f, 2e-3);
        }
        if (tape)
            test_tape_destroy(tape);
    }
}

static attn_tensor *build_additive(attn_tape *tape, attn_tensor *const *leaves,
                                   void *user)
{
    attn_packed_attention *const attention = user;
    attention->additive = leaves[3];
    return attn_attend(tape, leaves[0], leaves[1], leaves[2], attention, NULL, NULL);
}

/* A vector that serves twice: its gradients meet. */
static attn_tensor *build_additive_twice(attn_tape *tape, attn_tensor *const *leaves,
                                         void *user)
{
    attn_tensor *const query = build_additive(tape, leaves, user);
    attn_packed_attention *const attention = user;
    attn_tensor *const y =
        attn_attend(tape, leaves[0], leaves[1], leaves[2], attention, NULL, NULL);
    return attn_add(tape, query, y);
}

static void additive_scores_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float query[QUERIES * H * D], key[KEYS * D], value[KEYS * DV], vectors[H * D];
    test_fill(query, QUERIES * H * D, 1), test_fill(key, KEYS * D, 2);
    test_fill(value, KEYS * DV, 3), test_fill(vectors, H * D, 4);
    const test_leaf leaves[] = {{query, 2, {QUERIES, H * D}, false},
                                {key, 2, {KEYS, D}, false},
                                {value, 2, {KEYS, DV}, false},
                                {vectors, 2, {H, D}, false}};
    attn_packed_attention attention = packed_attention(0.0);
    attention.Hk = 1;
    attention.options.scale = 1.5f;
    check_fourth_leaf(build_additive, build_additive_twice, &attention, leaves);
}

static attn_tensor *build_sinks(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    attn_packed_attention *const attention = user;
    attention->sinks = leaves[3];
    return attn_attend(tape, leaves[0], leaves[1], leaves[2], attention, NULL, NULL);
}

static attn_tensor *build_sinks_twice(attn_tape *tape, attn_tensor *const *leaves,
                                      void *user)
{
    attn_tensor *const y = build_sinks(tape, leaves, user);
    return attn_add(tape, y, build_sinks(tape, leaves, user));
}

static void sink_logits_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float query[QUERIES * H * D], key[KEYS * H * D], value[KEYS * H * DV];
    float sinks[H] = {0.5f, -1.0f};
    test_fill(query, QUERIES * H * D, 1), test_fill(key, KEYS * H * D, 2);
    test_fill(value, KEYS * H * DV, 3);
    const test_leaf leaves[] = {{query, 2, {QUERIES, H * D}, false},
                                {key, 2, {KEYS, H * D}, false},
                                {value, 2, {KEYS, H * DV}, false},
                                {sinks, 1, {H}, false}};
    const attn_packed_attention attention = packed_attention(0.0);
    check_fourth_leaf(build_sinks, build_sinks_twice, &attention, leaves);
}

static void attend_names_vectors_of_another_shape(void **state)
{
    (void)state;
    float zeros[QUERIES * H * D] = {0};
    attn_tape *const tape = test_tape_create(NULL);
    attn_packed_attention attention = packed_attention(0.0);
    attn_tape_begin(tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){QUERIES, H * D});
    attention.additive = x;
    assert_null(attn_attend(tape, x, x, x, &attention, NULL, NULL));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    const char *const message = attn_context_message(attn_tape_context(tape));
    if (!strstr(message, "attn_attend: additive"))
        fail_msg("message '%s'", message);
    attn_tape_begin(tape, false, 0);
    attn_tensor *const y =
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){QUERIES, H * D});
    attention.additive = NULL, attention.sinks = y;
    assert_null(attn_attend(tape, y, y, y, &attention, NULL, NULL));
    assert_non_null(
        strstr(attn_context_message(attn_tape_context(tape)), "attn_attend: sinks"));
    test_tape_destroy(tape);
}

static void attend_names_heads_that_do_not_divide_the_width(void **state)
{
    (void)state;
    float zeros[QUERIES * H * D] = {0};
    attn_tape *const tape = test_tape_create(NULL);
    attn_packed_attention attention = packed_attention(0.0);
    attention.H = attention.Hk = 4;
    attn_tape_begin(tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){QUERIES, H * D});
    assert_null(attn_attend(tape, x, x, x, &attention, NULL, NULL));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(strstr(attn_context_message(attn_tape_context(tape)),
                           "4 query heads of width 6"));
    test_tape_destroy(tape);
}

static void attend_hands_on_what_attention_says_is_wrong(void **state)
{
    (void)state;
    static const int64_t falling[] = {0, 4, 2, QUERIES};
    float zeros[QUERIES * H * D] = {0};
    attn_tape *const tape = test_tape_create(NULL);
    attn_packed_attention attention = packed_attention(0.0);
    attention.options.query_starts = attention.options.key_starts = falling;
    attn_tape_begin(tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(tape, zeros, NULL, 2, (const int64_t[]){QUERIES, H * D});
    assert_null(attn_attend(tape, x, x, x, &attention, NULL, NULL));
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(
        strstr(attn_context_message(attn_tape_context(tape)), "query_starts"));
    test_tape_destroy(tape);
}

/* ---- the layer ---- */

enum { WIDTH = 8, HEADS = 2, TOKENS = 9 };
static const int64_t token_starts[] = {0, 5, 6, TOKENS};
static const attn_packing packing = {3, token_starts};

struct fixture {
    attn_tape *tape;
    attn_parameters parameters;
    attn_multihead_layer layer;
    float x[TOKENS * WIDTH];
};

static void fixture_create(struct fixture *f)
{
    *f = (struct fixture){.tape = test_tape_create(NULL)};
    assert_int_equal(attn_multihead_layer_add(&f->layer, &f->parameters, "self_attn",
                                              WIDTH, HEADS, ATTN_PART_DECODER, 3),
                     ATTN_OK);
    assert_int_equal(attn_parameters_allocate(&f->parameters), ATTN_OK);
    /* Biases as well, or a lost one would not be seen. */
    test_fill(f->parameters.values, f->parameters.floats, 5);
    test_fill(f->x, TOKENS * WIDTH, 6);
}

static void fixture_destroy(struct fixture *f)
{
    attn_parameters_free(&f->parameters);
    test_tape_destroy(f->tape);
}

static attn_pass fixture_pass(const struct fixture *f, const attn_observer *observer)
{
    return (attn_pass){
        .tape = f->tape, .parameters = &f->parameters, .observer = observer};
}

/* The layer's inference, to memory of the tape: queries of x from `from` on. */
static const float *layer_output(struct fixture *f, const attn_observer *observer,
                                 bool causal)
{
    const attn_pass pass = fixture_pass(f, observer);
    attn_tape_begin(f->tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(f->tape, f->x, NULL, 2, (const int64_t[]){TOKENS, WIDTH});
    const attn_memory memory = attn_multihead_layer_memory(&f->layer, &pass, x, packing);
    const attn_tensor *const y =
        attn_multihead_layer_forward(&f->layer, &pass, x, packing, &memory, causal, 0.0f);
    if (!y)
        fail_msg("%s", attn_context_message(attn_tape_context(f->tape)));
    return y->data;
}

/* out[TOKENS][WIDTH] = x · weightᵀ + bias, in double. */
static void project(const struct fixture *f, const attn_linear_layer *linear,
                    const float *x, float *out)
{
    const attn_parameter *const list = f->parameters.list;
    const float *const weight = f->parameters.values + list[linear->weight].offset;
    const float *const bias = f->parameters.values + list[linear->bias].offset;
    for (size_t n = 0; n < TOKENS; n++) {
        for (size_t o = 0; o < WIDTH; o++) {
            double sum = (double)bias[o];
            for (size_t i = 0; i < WIDTH; i++)
                sum += (double)x[n * WIDTH + i] * (double)weight[o * WIDTH + i];
            out[n * WIDTH + o] = (float)sum;
        }
    }
}

static void multihead_is_the_reference_between_projections(void **state)
{
    (void)state;
    struct fixture f;
    fixture_create(&f);
    float query[TOKENS * WIDTH], key[TOKENS * WIDTH], value[TOKENS * WIDTH];
    float attended[TOKENS * WIDTH], expected[TOKENS * WIDTH];
    project(&f, &f.layer.query, f.x, query);
    project(&f, &f.layer.key, f.x, key);
    project(&f, &f.layer.value, f.x, value);
    const int64_t size = WIDTH / HEADS;
    const attn_shape shape = {1, HEADS, HEADS, TOKENS, TOKENS, size, size};
    const attn_tensors tensors = {.query = {query, {0, size, WIDTH, 1}},
                                  .key = {key, {0, size, WIDTH, 1}},
                                  .value = {value, {0, size, WIDTH, 1}},
                                  .output = {attended, {0, size, WIDTH, 1}}};
    for (int causal = 0; causal < 2; causal++) {
        attn_options options;
        attn_options_init(&options, &shape);
        options.causal = causal;
        options.sequences = packing.sequences;
        options.query_starts = options.key_starts = packing.starts;
        assert_int_equal(attn_forward_reference(&shape, &tensors, &options), ATTN_OK);
        project(&f, &f.layer.out, attended, expected);
        const float *const y = layer_output(&f, NULL, causal);
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            assert_true(fabsf(y[i] - expected[i]) < 5e-6f);
    }
    fixture_destroy(&f);
}

static attn_tensor *build_multihead(attn_tape *tape, attn_tensor *const *leaves,
                                    void *user)
{
    struct fixture *const f = user;
    f->parameters.values = leaves[1]->data;
    const attn_pass pass = {
        .tape = tape, .parameters = &f->parameters, .gradients = leaves[1]->gradient};
    const attn_memory memory =
        attn_multihead_layer_memory(&f->layer, &pass, leaves[0], packing);
    return attn_multihead_layer_forward(&f->layer, &pass, leaves[0], packing, &memory,
                                        true, 0.2f);
}

static void multihead_has_the_gradients_of_differences(void **state)
{
    (void)state;
    struct fixture f;
    fixture_create(&f);
    float *const values = f.parameters.values;
    /* Large weights bend the softmax too much for differences. */
    for (size_t i = 0; i < f.parameters.floats; i++)
        values[i] *= 0.5f;
    const test_leaf leaves[] = {{f.x, 2, {TOKENS, WIDTH}, false},
                                {values, 1, {(int64_t)f.parameters.floats}, false}};
    test_gradients(f.tape, build_multihead, &f, leaves, 2, 0.01f, 3e-3);
    fixture_destroy(&f);
}

static void a_sequence_has_the_same_bits_alone_and_packed(void **state)
{
    (void)state;
    struct fixture f, alone;
    fixture_create(&f);
    const float *const together = layer_output(&f, NULL, true);
    fixture_create(&alone);
    for (int64_t s = 0; s < packing.sequences; s++) {
        const int64_t begin = packing.starts[s], length = packing.starts[s + 1] - begin;
        const int64_t starts[] = {0, length};
        const attn_packing single = {1, starts};
        const attn_pass pass = fixture_pass(&alone, NULL);
        attn_tape_begin(alone.tape, false, 0);
        attn_tensor *const x = attn_tape_leaf(alone.tape, f.x + begin * WIDTH, NULL, 2,
                                              (const int64_t[]){length, WIDTH});
        const attn_memory memory =
            attn_multihead_layer_memory(&alone.layer, &pass, x, single);
        const attn_tensor *const y = attn_multihead_layer_forward(
            &alone.layer, &pass, x, single, &memory, true, 0.0f);
        assert_memory_equal(y->data, together + begin * WIDTH,
                            (size_t)(length * WIDTH) * sizeof(float));
    }
    fixture_destroy(&f), fixture_destroy(&alone);
}

static void
a_last_query_over_the_whole_memory_is_the_last_row_of_the_full_pass(void **state)
{
    (void)state;
    struct fixture f, last;
    fixture_create(&f);
    const float *const full = layer_output(&f, NULL, true);
    fixture_create(&last);
    const attn_pass pass = fixture_pass(&last, NULL);
    static const int64_t one_each[] = {0, 1, 2, 3};
    const attn_packing newest = {3, one_each};
    float rows[3 * WIDTH];
    for (size_t s = 0; s < 3; s++)
        memcpy(rows + s * WIDTH, f.x + (token_starts[s + 1] - 1) * WIDTH,
               WIDTH * sizeof(float));
    attn_tape_begin(last.tape, false, 0);
    attn_tensor *const all =
        attn_tape_leaf(last.tape, f.x, NULL, 2, (const int64_t[]){TOKENS, WIDTH});
    const attn_memory memory =
        attn_multihead_layer_memory(&last.layer, &pass, all, packing);
    const attn_tensor *const y = attn_multihead_layer_forward(
        &last.layer, &pass,
        attn_tape_leaf(last.tape, rows, NULL, 2, (const int64_t[]){3, WIDTH}), newest,
        &memory, true, 0.0f);
    for (size_t s = 0; s < 3; s++)
        for (size_t n = 0; n < WIDTH; n++)
            assert_float_equal(y->data[s * WIDTH + n],
                               full[(token_starts[s + 1] - 1) * WIDTH + (int64_t)n],
                               4e-6);
    fixture_destroy(&f), fixture_destroy(&last);
}

/* ---- the observer ---- */

struct seen {
    int calls;
    attn_status answer;
};

static void check_row(const attn_observation *o, int64_t h, int64_t i)
{
    float weights[TOKENS];
    const attn_rectangle row = {
        .h = h, .first_query = i, .queries = 1, .keys = o->shape->Lk};
    assert_int_equal(
        attn_weights(o->context, o->shape, o->tensors, o->options, &row, weights, TOKENS),
        ATTN_OK);
    double sum = 0.0, entropy = 0.0;
    int64_t largest = 0, visible = 0;
    for (int64_t j = 0; j < o->shape->Lk; j++) {
        const double w = (double)weights[j];
        sum += w;
        entropy -= w > 0.0 ? w * log(w) : 0.0;
        visible += w > 0.0;
        if (weights[j] > weights[largest])
            largest = j;
    }
    const int64_t at = h * o->shape->Lq + i;
    const attn_statistics *const s = &o->tensors->statistics;
    assert_true(fabs(sum - 1.0) < 1e-5);
    assert_true(fabs(entropy - (double)s->entropy[at]) < 2e-5);
    assert_true(fabsf(weights[largest] - s->largest_weight[at]) < 1e-5f);
    assert_int_equal(visible, s->visible_keys[at]);
}

static attn_status look(void *user, const attn_observation *o)
{
    struct seen *const seen = user;
    seen->calls++;
    assert_int_equal(o->part, ATTN_PART_DECODER);
    assert_int_equal(o->layer, 3);
    assert_int_equal(o->shape->H, HEADS);
    assert_int_equal(o->shape->Lq, TOKENS);
    assert_non_null(o->tensors->lse);
    assert_non_null(o->tensors->statistics.largest_key);
    for (int64_t h = 0; h < HEADS; h++) {
        for (int64_t i = 0; i < TOKENS; i++)
            check_row(o, h, i);
    }
    return seen->answer;
}

static void an_observer_is_told_each_head_and_changes_no_bit(void **state)
{
    (void)state;
    struct fixture f;
    struct seen seen = {.answer = ATTN_OK};
    const attn_observer observer = {&seen, look};
    float without[TOKENS * WIDTH];
    fixture_create(&f);
    memcpy(without, layer_output(&f, NULL, true), sizeof without);
    assert_memory_equal(layer_output(&f, &observer, true), without, sizeof without);
    assert_int_equal(seen.calls, 1);
    fixture_destroy(&f);
}

static attn_status refuse(void *user, const attn_observation *observation)
{
    (void)observation;
    return *(attn_status *)user;
}

static void an_observer_that_fails_fails_the_tape(void **state)
{
    (void)state;
    struct fixture f;
    attn_status answer = ATTN_EIO;
    const attn_observer observer = {&answer, refuse};
    fixture_create(&f);
    const attn_pass pass = fixture_pass(&f, &observer);
    attn_tape_begin(f.tape, false, 0);
    attn_tensor *const x =
        attn_tape_leaf(f.tape, f.x, NULL, 2, (const int64_t[]){TOKENS, WIDTH});
    const attn_memory memory = attn_multihead_layer_memory(&f.layer, &pass, x, packing);
    assert_null(
        attn_multihead_layer_forward(&f.layer, &pass, x, packing, &memory, true, 0.0f));
    assert_int_equal(attn_tape_status(f.tape), ATTN_EIO);
    assert_string_equal(attn_context_message(attn_tape_context(f.tape)),
                        "attention of layer 3: the observer returned ATTN_EIO");
    fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attend_has_the_gradients_of_differences),
        cmocka_unit_test(linear_attention_has_the_gradients_of_differences),
        cmocka_unit_test(additive_scores_have_the_gradients_of_differences),
        cmocka_unit_test(sink_logits_have_the_gradients_of_differences),
        cmocka_unit_test(attend_names_vectors_of_another_shape),
        cmocka_unit_test(attend_names_heads_that_do_not_divide_the_width),
        cmocka_unit_test(attend_hands_on_what_attention_says_is_wrong),
        cmocka_unit_test(multihead_is_the_reference_between_projections),
        cmocka_unit_test(multihead_has_the_gradients_of_differences),
        cmocka_unit_test(a_sequence_has_the_same_bits_alone_and_packed),
        cmocka_unit_test(
            a_last_query_over_the_whole_memory_is_the_last_row_of_the_full_pass),
        cmocka_unit_test(an_observer_is_told_each_head_and_changes_no_bit),
        cmocka_unit_test(an_observer_that_fails_fails_the_tape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
