/* PyTorch's RNN and GRU, and its cells, with the gradients of inputs, of the states
 * before and of every parameter.  Each case is one sequence. */
#include "arrays.h"
#include "nn/recurrent.h"
#include "tensor_test.h"
#include <stdlib.h>
#include <string.h>

struct layer_case {
    const char *folder;
    json_t *meta;
    attn_parameters parameters;
    float *gradients;
};

static json_t *constructor(const struct layer_case *c, const char *name)
{
    return json_object_get(json_object_get(c->meta, "ctor"), name);
}

static bool is_given(const struct layer_case *c, const char *argument)
{
    return json_object_get(json_object_get(c->meta, "forward"), argument);
}

/* Floats of FOLDER/<name>.npy, the caller's, and how many. */
static float *load(const struct layer_case *c, const char *name, size_t *count)
{
    char *const file = text_of("%s.npy", name);
    struct array array = array_load(c->folder, file);
    float *const floats = array_floats(&array);
    *count = array.count;
    array_free(&array), free(file);
    return floats;
}

static void check(const struct layer_case *c, const float *got, const char *name)
{
    char *const file = text_of("%s.npy", name);
    struct array expected = array_load(c->folder, file);
    assert_floats_near(got, &expected, 0.0, 1e-5 + 1e-5 * largest_magnitude(&expected),
                       c->folder, name);
    array_free(&expected), free(file);
}

static void load_parameters(struct layer_case *c)
{
    assert_int_equal(attn_parameters_allocate(&c->parameters), ATTN_OK);
    for (size_t n = 0; n < c->parameters.length; n++) {
        const attn_parameter *const p = &c->parameters.list[n];
        size_t count;
        char *const name = text_of("param.%s", p->name);
        float *const values = load(c, name, &count);
        assert_int_equal(count, p->count);
        memcpy(c->parameters.values + p->offset, values, count * sizeof *values);
        free(values), free(name);
    }
    c->gradients = calloc(c->parameters.floats, sizeof *c->gradients);
    assert_non_null(c->gradients);
}

static void check_parameters(const struct layer_case *c)
{
    for (size_t n = 0; n < c->parameters.length; n++) {
        const attn_parameter *const p = &c->parameters.list[n];
        char *const name = text_of("grad_param.%s", p->name);
        check(c, c->gradients + p->offset, name);
        free(name);
    }
}

/* An argument of the case and its gradient, as leaves of some rows each. */
struct argument {
    const char *name; /* NULL: not given */
    float *data, *gradient;
    int64_t width;
};

static struct argument load_argument(const struct layer_case *c, const char *name,
                                     int64_t width)
{
    if (!is_given(c, name))
        return (struct argument){0};
    size_t count;
    float *const data = load(c, name, &count);
    return (struct argument){name, data, calloc(count, sizeof *data), width};
}

static attn_tensor *leaf(attn_tape *tape, const struct argument *a, int64_t first_row,
                         int64_t rows)
{
    if (!a->name)
        return NULL;
    return attn_tape_leaf(tape, a->data + first_row * a->width,
                          a->gradient + first_row * a->width, 2,
                          (const int64_t[]){rows, a->width});
}

static void argument_end(const struct layer_case *c, struct argument *a)
{
    if (!a->name)
        return;
    char *const name = text_of("grad_%s", a->name);
    check(c, a->gradient, name);
    free(name), free(a->data), free(a->gradient);
}

static attn_cell cell_of(const struct layer_case *c)
{
    const char *const module = json_string_value(json_object_get(c->meta, "module"));
    const char *const relu = json_string_value(constructor(c, "nonlinearity"));
    if (strncmp(module, "nn.LSTM", 7) == 0)
        return ATTN_CELL_LSTM;
    if (strncmp(module, "nn.GRU", 6) == 0)
        return ATTN_CELL_GRU;
    return relu && strcmp(relu, "relu") == 0 ? ATTN_CELL_RELU : ATTN_CELL_TANH;
}

/* ---- Layers ---------------------------------------------------------------------------
 */

static void run_layer(attn_tape *tape, struct layer_case *c)
{
    const attn_recurrent_options options = {
        .cell = cell_of(c),
        .in = json_integer_value(constructor(c, "input_size")),
        .width = json_integer_value(constructor(c, "hidden_size")),
        .layers = json_integer_value(constructor(c, "num_layers")),
        .both_ways = json_is_true(constructor(c, "bidirectional")),
        .has_bias = json_is_true(constructor(c, "bias")),
    };
    const int64_t runs = options.layers * (options.both_ways ? 2 : 1);
    attn_recurrent_layer layer;
    assert_int_equal(attn_recurrent_layer_add(&layer, &c->parameters, "", &options),
                     ATTN_OK);
    load_parameters(c);
    struct argument x = load_argument(c, "in.0", options.in);
    struct argument first = load_argument(c, "in.1", options.width);
    size_t outputs, states;
    float *const of_output = load(c, "cot.0", &outputs);
    float *const of_states = load(c, "cot.1", &states);

    attn_tape_begin(tape, true, 0);
    const int64_t tokens =
        (int64_t)outputs / (options.width * (options.both_ways ? 2 : 1));
    const int64_t starts[] = {0, tokens};
    const attn_pass pass = {tape, &c->parameters, c->gradients, NULL};
    attn_recurrent_states before = {0}, after;
    for (int64_t run = 0; run < runs; run++)
        before.state[run] = leaf(tape, &first, run, 1);
    attn_tensor *const y =
        attn_recurrent_layer_forward(&layer, &pass, leaf(tape, &x, 0, tokens),
                                     (attn_packing){1, starts}, &before, &after, 0.0f);
    if (!y)
        fail_msg("%s: %s", c->folder, attn_context_message(attn_tape_context(tape)));
    check(c, y->data, "out.0");
    attn_tensor *loss = test_weigh_by(tape, y, of_output);
    float *const last = malloc(states * sizeof *last);
    for (int64_t run = 0; run < runs; run++) {
        memcpy(last + run * options.width, after.state[run]->data,
               (size_t)options.width * sizeof *last);
        loss = attn_add(
            tape, loss,
            test_weigh_by(tape, after.state[run], of_states + run * options.width));
    }
    check(c, last, "out.1");
    assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
    argument_end(c, &x), argument_end(c, &first);
    check_parameters(c);
    free(of_output), free(of_states), free(last);
}

/* ---- Cells ----------------------------------------------------------------------------
 */

enum { IN_WEIGHT, STATE_WEIGHT, IN_BIAS, STATE_BIAS, CELL_PARAMETERS };

static void add_cell_parameters(struct layer_case *c, int64_t in, int64_t width,
                                size_t index[CELL_PARAMETERS])
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const int64_t out = attn_cell_gates(cell_of(c)) * width;
    const int64_t extent[][2] = {{out, in}, {out, width}, {out}, {out}};
    for (int n = 0; n < CELL_PARAMETERS; n++)
        assert_int_equal(attn_parameters_add(&c->parameters, names[n], n < 2 ? 2 : 1,
                                             extent[n], ATTN_INITIAL_ZEROS, &index[n]),
                         ATTN_OK);
}

static void run_cell(attn_tape *tape, struct layer_case *c)
{
    const int64_t in = json_integer_value(constructor(c, "input_size"));
    const int64_t width = json_integer_value(constructor(c, "hidden_size"));
    const bool is_lstm = cell_of(c) == ATTN_CELL_LSTM;
    size_t index[CELL_PARAMETERS];
    add_cell_parameters(c, in, width, index);
    load_parameters(c);
    struct argument x = load_argument(c, "in.0", in);
    struct argument state = load_argument(c, is_lstm ? "in.1.0" : "in.1", width);
    struct argument memory = load_argument(c, "in.1.1", width);

    attn_tape_begin(tape, true, 0);
    const attn_pass pass = {tape, &c->parameters, c->gradients, NULL};
    const int64_t starts[] = {0, 1};
    const attn_recurrence recurrence = {
        cell_of(c), false, 1, starts, leaf(tape, &state, 0, 1), leaf(tape, &memory, 0, 1),
        true};
    const attn_cell_weights weights = {
        .in = attn_pass_parameter(&pass, index[IN_WEIGHT]),
        .state = attn_pass_parameter(&pass, index[STATE_WEIGHT]),
        .in_bias = attn_pass_parameter(&pass, index[IN_BIAS]),
        .state_bias = attn_pass_parameter(&pass, index[STATE_BIAS]),
        .has_bias = true,
    };
    attn_tensor *const y = attn_recur(tape, leaf(tape, &x, 0, 1), &weights, &recurrence);
    if (!y)
        fail_msg("%s: %s", c->folder, attn_context_message(attn_tape_context(tape)));
    float cotangents[64] = {0};
    for (int n = 0; n < (is_lstm ? 2 : 1); n++) {
        char *const out = is_lstm ? text_of("out.%d", n) : text_of("out");
        char *const cot = is_lstm ? text_of("cot.%d", n) : text_of("cot");
        check(c, y->data + n * width, out);
        size_t count;
        float *const cotangent = load(c, cot, &count);
        memcpy(cotangents + n * width, cotangent, count * sizeof *cotangent);
        free(cotangent), free(out), free(cot);
    }
    attn_tensor *const loss = test_weigh_by(tape, y, cotangents);
    assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
    argument_end(c, &x), argument_end(c, &state), argument_end(c, &memory);
    check_parameters(c);
}

/* ---- All of them ----------------------------------------------------------------------
 */

static int run_folder(const char *folder, void (*run)(attn_tape *, struct layer_case *))
{
    int passed = 0;
    EACH_TAPE(tape)
    {
        passed = 0;
        for (int n = 0; n < 1000; n++) {
            char *const of_case = text_of("%s/%03d", folder, n);
            char *const meta = text_of("%s/meta.json", of_case);
            struct layer_case c = {.folder = of_case,
                                   .meta = json_load_file(meta, 0, NULL)};
            if (c.meta) {
                run(tape, &c);
                passed++;
            }
            attn_parameters_free(&c.parameters);
            json_decref(c.meta);
            free(c.gradients), free(of_case), free(meta);
        }
    }
    return passed;
}

static void recurrent_cases_pass_with_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *below;
        void (*run)(attn_tape *, struct layer_case *);
    } kinds[] = {{"nn.RNN", run_layer},
                 {"nn.GRU", run_layer},
                 {"nn.RNNCell", run_cell},
                 {"nn.GRUCell", run_cell},
                 {"nn.LSTMCell", run_cell}};
    char *const torch =
        shared_folder("conformance/torch", "recurrent_cases_pass_with_gradients");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char *const folder = text_of("%s/%s", torch, kinds[k].below);
        const int passed = run_folder(folder, kinds[k].run);
        print_message("%s: %d passed on each instruction set, 0 skipped\n",
                      kinds[k].below, passed);
        assert_true(passed > 0);
        free(folder);
    }
    free(torch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrent_cases_pass_with_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
