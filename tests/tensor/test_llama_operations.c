/* What Llama's layers are made of beside products and attention: root-mean-square norm,
 * rotary positions and the gate.  Values against loops in double, gradients against
 * central differences, and PyTorch's and ONNX's own cases, on every instruction set. */
#include "arrays.h"
#include "tensor_test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float STEP = 0.01f;
static const double TOLERANCE = 2e-3;

/* ---- root-mean-square norm ---- */

static attn_tensor *build_rms_norm(attn_tape *tape, attn_tensor *const *leaves,
                                   void *user)
{
    const float *const epsilon = user;
    /* x and gain are read twice, so that gradients meet. */
    attn_tensor *const once = attn_rms_norm(tape, leaves[0], leaves[1], *epsilon);
    return attn_add(tape, once, attn_rms_norm(tape, leaves[0], leaves[1], 0.5f));
}

static void rms_norm_is_the_formula(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 69 };
    float x[ROWS * WIDTH], gain[WIDTH];
    test_fill(x, ROWS * WIDTH, 3), test_fill(gain, WIDTH, 1);
    for (size_t i = 0; i < WIDTH; i++)
        x[WIDTH + i] *= 1e6f, x[2 * WIDTH + i] *= 1e-6f;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const y = attn_rms_norm(
            tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){ROWS, WIDTH}),
            attn_tape_leaf(tape, gain, NULL, 1, (const int64_t[]){WIDTH}), 1e-6f);
        for (size_t r = 0; r < ROWS; r++) {
            double squares = 0.0;
            for (size_t i = 0; i < WIDTH; i++)
                squares += pow((double)x[r * WIDTH + i], 2.0) / WIDTH;
            for (size_t i = 0; i < WIDTH; i++)
                test_close((double)y->data[r * WIDTH + i],
                           (double)x[r * WIDTH + i] / sqrt(squares + 1e-6) *
                               (double)gain[i],
                           1e-6, "rms norm", r * WIDTH + i);
        }
    }
}

static void rms_norm_has_the_gradients_of_differences(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 21 };
    float x[ROWS * WIDTH], gain[WIDTH], epsilon = 1e-5f;
    test_fill(x, ROWS * WIDTH, 3), test_fill(gain, WIDTH, 1);
    test_leaf leaves[] = {{x, 2, {ROWS, WIDTH}, false}, {gain, 1, {WIDTH}, false}};
    EACH_TAPE(tape)
    {
        leaves[0].no_gradient = false;
        test_gradients(tape, build_rms_norm, &epsilon, leaves, 2, STEP, TOLERANCE);
        leaves[0].no_gradient = true;
        test_gradients(tape, build_rms_norm, &epsilon, leaves, 2, STEP, TOLERANCE);
    }
}

static void rms_norm_of_zeros_is_zero_and_a_nan_stays_in_its_row(void **state)
{
    (void)state;
    enum { WIDTH = 35 };
    float x[3 * WIDTH] = {0.0f}, gain[WIDTH];
    for (size_t i = 0; i < WIDTH; i++)
        gain[i] = 1.0f, x[2 * WIDTH + i] = 1.0f;
    x[WIDTH] = NAN;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const y = attn_rms_norm(
            tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){3, WIDTH}),
            attn_tape_leaf(tape, gain, NULL, 1, (const int64_t[]){WIDTH}), 1e-6f);
        for (size_t i = 0; i < WIDTH; i++) {
            assert_true(y->data[i] == 0.0f);
            assert_true(isnan(y->data[WIDTH + i]));
            test_close((double)y->data[2 * WIDTH + i], 1.0, 1e-6, "row of ones", i);
        }
    }
}

/* ---- gate ---- */

static attn_tensor *build_gate(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    const attn_activation *const activation = user;
    attn_tensor *const y = attn_gate(tape, leaves[0], leaves[1], *activation);
    return attn_add(tape, attn_gate(tape, y, leaves[0], *activation), y);
}

static void a_gate_has_the_gradients_of_differences(void **state)
{
    (void)state;
    float gate[35], up[35];
    test_fill(up, 35, 2);
    for (size_t i = 0; i < 35; i++) {
        gate[i] = ((float)i - 17.3f) / 12.0f; /* none near 0, where relu bends */
        up[i] += up[i] < 0.0f ? -0.2f : 0.2f;
    }
    const test_leaf leaves[] = {{gate, 2, {5, 7}, false}, {up, 2, {5, 7}, false}};
    EACH_TAPE(tape)
    {
        for (int i = ATTN_RELU; i <= ATTN_TANH; i++) {
            attn_activation activation = (attn_activation)i;
            test_gradients(tape, build_gate, &activation, leaves, 2, STEP, TOLERANCE);
        }
    }
}

static void a_gate_of_silu_is_the_formula(void **state)
{
    (void)state;
    enum { N = 77 };
    float gate[N], up[N];
    test_fill(gate, N, 4), test_fill(up, N, 5);
    for (size_t i = 0; i < N; i++)
        gate[i] *= 20.0f;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const y =
            attn_gate(tape, attn_tape_leaf(tape, gate, NULL, 1, (const int64_t[]){N}),
                      attn_tape_leaf(tape, up, NULL, 1, (const int64_t[]){N}), ATTN_SILU);
        for (size_t i = 0; i < N; i++)
            test_close((double)y->data[i],
                       (double)gate[i] / (1.0 + exp(-(double)gate[i])) * (double)up[i],
                       2e-6, "gate", i);
    }
}

/* ---- rotary positions ---- */

enum { HEADS = 3, WIDTH = 42, TOKENS = 5, POSITIONS = 9 };
static const int32_t PLACES[TOKENS] = {0, 8, 3, 3, 1};

struct angles {
    float cosine[POSITIONS * WIDTH / 2], sine[POSITIONS * WIDTH / 2];
};

static attn_rotation rotation_fill(struct angles *angles, int64_t turned,
                                   bool interleaved)
{
    const size_t half = (size_t)turned / 2;
    for (size_t n = 0; n < POSITIONS * half; n++) {
        const double angle =
            (double)(n / half) * pow(10000.0, -(double)(n % half) / (double)half);
        angles->cosine[n] = (float)cos(angle);
        angles->sine[n] = (float)sin(angle);
    }
    return (attn_rotation){.heads = HEADS,
                           .turned = turned,
                           .interleaved = interleaved,
                           .cosine = angles->cosine,
                           .sine = angles->sine,
                           .positions = POSITIONS};
}

static attn_tensor *build_rotary(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    const attn_rotation *const rotation = user;
    attn_tensor *const once = attn_rotary(tape, leaves[0], PLACES, rotation);
    return attn_add(tape, attn_rotary(tape, once, PLACES, rotation), leaves[0]);
}

static const struct {
    int64_t turned;
    bool interleaved;
} TURNS[] = {{WIDTH, false}, {WIDTH, true}, {10, false}, {10, true}, {0, false}};

static void rotary_positions_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float x[TOKENS * HEADS * WIDTH];
    struct angles angles;
    test_fill(x, TOKENS * HEADS * WIDTH, 3);
    const test_leaf leaf = {x, 2, {TOKENS, HEADS * WIDTH}, false};
    EACH_TAPE(tape)
    {
        for (size_t i = 0; i < sizeof TURNS / sizeof TURNS[0]; i++) {
            attn_rotation rotation =
                rotation_fill(&angles, TURNS[i].turned, TURNS[i].interleaved);
            test_gradients(tape, build_rotary, &rotation, &leaf, 1, STEP, TOLERANCE);
        }
    }
}

/* x = 1 2 3 4 at position 1, of base 10000: angles 1 and 0.01.  Position 0 changes
 * nothing, and its order least of all. */
static void rotary_positions_turn_neighbours_or_halves(void **state)
{
    (void)state;
    enum { D = 4 };
    static const double expected[2][D] = {
        {-1.984110649, 1.959900667, 2.462377902, 4.019799668},
        {-1.142639664, 1.922075597, 2.959850668, 4.029799502},
    };
    const float cosine[] = {1.0f, 1.0f, cosf(1.0f), cosf(0.01f)};
    const float sine[] = {0.0f, 0.0f, sinf(1.0f), sinf(0.01f)};
    float x[2 * D] = {1, 2, 3, 4, 1, 2, 3, 4};
    EACH_TAPE(tape)
    {
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            const attn_rotation rotation = {1, D, interleaved, cosine, sine, 2};
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const y = attn_rotary(
                tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){2, D}),
                (const int32_t[]){0, 1}, &rotation);
            assert_memory_equal(y->data, x, D * sizeof *x);
            double squares = 0.0;
            for (size_t i = 0; i < D; i++) {
                test_close((double)y->data[D + i], expected[interleaved][i], 3e-7,
                           "turned", i);
                squares += pow((double)y->data[D + i], 2.0);
            }
            test_close(squares, 30.0, 1e-6, "squares", 0);
        }
    }
}

/* So that a product of a query and a key depends on how far apart they are, and not on
 * where. */
static void products_of_turned_rows_depend_on_their_distance_alone(void **state)
{
    (void)state;
    float x[2 * HEADS * WIDTH];
    struct angles angles;
    test_fill(x, 2 * HEADS * WIDTH, 3);
    EACH_TAPE(tape)
    {
        for (size_t i = 0; i < sizeof TURNS / sizeof TURNS[0]; i++) {
            const attn_rotation rotation =
                rotation_fill(&angles, TURNS[i].turned, TURNS[i].interleaved);
            double first = 0.0;
            for (int32_t shift = 0; shift < POSITIONS - 2; shift++) {
                const int32_t places[] = {shift, shift + 2};
                attn_tape_begin(tape, false, 0);
                const attn_tensor *const y = attn_rotary(
                    tape,
                    attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){2, HEADS * WIDTH}),
                    places, &rotation);
                double product = 0.0;
                for (size_t n = 0; n < WIDTH; n++)
                    product += (double)y->data[n] * (double)y->data[HEADS * WIDTH + n];
                if (shift == 0)
                    first = product;
                test_close(product, first, 2e-6, "product", (size_t)shift);
            }
        }
    }
}

static void a_position_outside_the_table_is_named(void **state)
{
    (void)state;
    float x[2 * HEADS * WIDTH] = {0.0f};
    struct angles angles;
    const attn_rotation rotation = rotation_fill(&angles, WIDTH, false);
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, false, 0);
        assert_null(attn_rotary(
            tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){2, HEADS * WIDTH}),
            (const int32_t[]){0, POSITIONS}, &rotation));
        assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
        assert_string_equal(attn_context_message(attn_tape_context(tape)),
                            "attn_rotary: position 9 at place 1, expected 0 to 8: the "
                            "table has 9 rows");
        attn_rotation odd = rotation;
        odd.turned = WIDTH + 2;
        attn_tape_begin(tape, false, 0);
        assert_null(attn_rotary(
            tape, attn_tape_leaf(tape, x, NULL, 2, (const int64_t[]){2, HEADS * WIDTH}),
            PLACES, &odd));
        assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    }
}

/* ---- cases of PyTorch and ONNX ---- */

/* Σ cotangent ∘ y: a loss whose gradient at y is the cotangent. */
struct weighing {
    attn_tensor *y, *loss;
    const float *cotangent;
};

static void weigh_backward(attn_tape *tape, void *arguments)
{
    const struct weighing *const w = arguments;
    bool add = false;
    float *const to = attn_tape_gradient(tape, w->y, &add);
    for (int64_t n = 0; to && n < w->y->extent[0] * w->y->extent[1]; n++)
        to[n] = (add ? to[n] : 0.0f) + w->cotangent[n] * w->loss->gradient[0];
}

static void backward_from(attn_tape *tape, attn_tensor *y, const float *cotangent)
{
    struct weighing *const w = attn_tape_allocate(tape, sizeof *w);
    attn_tensor *const loss = attn_tape_tensor(tape, 1, (const int64_t[]){1});
    assert_non_null(w);
    assert_non_null(loss);
    loss->data[0] = 0.0f;
    *w = (struct weighing){y, loss, cotangent};
    attn_tape_record(tape, loss, weigh_backward, w);
    assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
}

/* The names of a case's files, and its epsilon: by default that of float's type. */
struct rms_case {
    const char *folder, *x, *gain, *dx, *dgain;
    double epsilon;
};

static void check_rms_case(attn_tape *tape, const struct rms_case *c)
{
    char path[1024];
    struct array x = array_load(c->folder, c->x), out = array_load(c->folder, "out.npy");
    struct array cotangent = array_load(c->folder, "cot.npy"), gain = {0};
    snprintf(path, sizeof path, "%s/%s", c->folder, c->gain);
    FILE *const has_gain = fopen(path, "rb");
    size_t columns = (size_t)x.extent[x.rank - 1];
    if (has_gain) {
        fclose(has_gain);
        gain = array_load(c->folder, c->gain);
        columns = gain.count;
    } else if (x.rank == 4) {
        columns = x.count / (size_t)x.extent[0]; /* the shape of those without a gain */
    }
    float *const data = array_floats(&x), *const weights = array_floats(&cotangent);
    float *const factor = malloc((columns + 1) * sizeof *factor);
    float *const dx = calloc(x.count + 1, sizeof *dx);
    float *const dfactor = calloc(columns + 1, sizeof *dfactor);
    for (size_t i = 0; i < columns; i++)
        factor[i] = gain.x ? (float)gain.x[i] : 1.0f;
    const int64_t extent[] = {(int64_t)(x.count / columns), (int64_t)columns};
    attn_tape_begin(tape, true, 0);
    attn_tensor *const y = attn_rms_norm(
        tape, attn_tape_leaf(tape, data, dx, 2, extent),
        attn_tape_leaf(tape, factor, dfactor, 1, extent + 1), (float)c->epsilon);
    assert_non_null(y);
    assert_floats_near(y->data, &out, 1e-5, 1e-6, c->folder, "output");
    backward_from(tape, y, weights);
    struct array expected = array_load(c->folder, c->dx);
    assert_floats_near(dx, &expected, 1e-4, 1e-5, c->folder, "gradient of x");
    array_free(&expected);
    if (gain.x) {
        expected = array_load(c->folder, c->dgain);
        assert_floats_near(dfactor, &expected, 1e-4, 1e-5, c->folder, "gradient of gain");
        array_free(&expected);
    }
    array_free(&x), array_free(&out), array_free(&cotangent), array_free(&gain);
    free(data), free(weights), free(factor), free(dx), free(dfactor);
}

static double epsilon_of(const json_t *meta, const char *group, const char *key)
{
    const json_t *const value = json_object_get(json_object_get(meta, group), key);
    return value ? json_number_value(value) : 0x1p-23;
}

static size_t check_rms_folder(const char *below, struct rms_case c, const char *group,
                               const char *key)
{
    char *const folder = shared_folder(below, "rms_norm_cases_of_pytorch_pass");
    size_t count = 0;
    for (size_t n = 0; n < 1000; n++) {
        char path[1024], of_case[900];
        snprintf(of_case, sizeof of_case, "%s/%03zu", folder, n);
        snprintf(path, sizeof path, "%s/meta.json", of_case);
        json_t *const meta = json_load_file(path, 0, NULL);
        if (!meta)
            continue; /* numbers have gaps */
        c.folder = of_case;
        c.epsilon = epsilon_of(meta, group, key);
        EACH_TAPE(tape)
        {
            check_rms_case(tape, &c);
        }
        json_decref(meta);
        count++;
    }
    free(folder);
    return count;
}

static void rms_norm_cases_of_pytorch_pass(void **state)
{
    (void)state;
    const struct rms_case module = {.x = "in.0.npy",
                                    .gain = "param.weight.npy",
                                    .dx = "grad_in.0.npy",
                                    .dgain = "grad_param.weight.npy"};
    const struct rms_case function = {.x = "arg.0.npy",
                                      .gain = "arg.2.npy",
                                      .dx = "grad_arg.0.npy",
                                      .dgain = "grad_arg.2.npy"};
    const size_t count =
        check_rms_folder("conformance/torch/nn.RMSNorm", module, "ctor", "eps") +
        check_rms_folder("conformance/torch/rms_norm", function, "args", "kw.eps");
    assert_true(count >= 12);
    print_message("RMSNorm and rms_norm: %zu passed on each instruction set, 0 skipped\n",
                  count);
}

static struct array load_named(const json_t *list, const char *name, const char *folder)
{
    size_t n;
    json_t *entry;
    json_array_foreach(list, n, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
            return array_load(folder, json_string_value(json_object_get(entry, "file")));
    }
    return (struct array){0};
}

/* A row of the operation for each row of ONNX: [batch][heads][length][width] are rows of
 * one head, [batch][length][heads·width] rows of all. */
static void check_rotary_case(attn_tape *tape, const json_t *entry, const char *folder)
{
    const json_t *const inputs = json_object_get(entry, "inputs");
    const json_t *const attributes = json_object_get(entry, "attributes");
    const json_t *const outputs = json_object_get(entry, "outputs");
    const char *const name = json_string_value(json_object_get(entry, "case"));
    struct array x = load_named(inputs, "input", folder);
    struct array cosine = load_named(inputs, "cos_cache", folder);
    struct array sine = load_named(inputs, "sin_cache", folder);
    struct array given = load_named(inputs, "position_ids", folder);
    struct array out = load_named(outputs, "output", folder);
    const int64_t columns = x.extent[x.rank - 1];
    const int64_t rows = (int64_t)x.count / columns;
    const int64_t length = x.extent[x.rank - 2], of_batch = rows / x.extent[0];
    const int64_t half = cosine.extent[cosine.rank - 1];
    int32_t *const places = malloc((size_t)rows * sizeof *places);
    for (int64_t n = 0; n < rows; n++) {
        const int64_t place = n / of_batch * length + n % length;
        places[n] = (int32_t)(given.x ? given.x[place] : (double)place);
    }
    float *const data = array_floats(&x);
    float *const cosines = array_floats(&cosine), *const sines = array_floats(&sine);
    const attn_rotation rotation = {
        .heads = x.rank == 4
                     ? 1
                     : json_integer_value(json_object_get(attributes, "num_heads")),
        .turned = 2 * half,
        .interleaved =
            json_integer_value(json_object_get(attributes, "interleaved")) != 0,
        .cosine = cosines,
        .sine = sines,
        .positions = (int64_t)cosine.count / half};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const y =
        attn_rotary(tape, attn_tape_leaf(tape, data, NULL, 2, (int64_t[]){rows, columns}),
                    places, &rotation);
    assert_non_null(y);
    assert_floats_near(y->data, &out, 1e-6, 1e-6, name, "output");
    array_free(&x), array_free(&cosine), array_free(&sine), array_free(&given);
    array_free(&out);
    free(data), free(cosines), free(sines), free(places);
}

static void rotary_cases_of_onnx_pass(void **state)
{
    (void)state;
    char *const folder =
        shared_folder("conformance/onnx-attention", "rotary_cases_of_onnx_pass");
    json_t *const index = json_load_or_fail(folder, "index.json");
    size_t n, count = 0;
    json_t *entry;
    json_array_foreach(index, n, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "op_type")),
                   "RotaryEmbedding") != 0)
            continue;
        char *const of_case =
            text_of("%s/%s", folder, json_string_value(json_object_get(entry, "case")));
        EACH_TAPE(tape)
        {
            check_rotary_case(tape, entry, of_case);
        }
        free(of_case);
        count++;
    }
    assert_true(count >= 8);
    print_message("RotaryEmbedding: %zu passed on each instruction set, 0 skipped\n",
                  count);
    json_decref(index);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm_is_the_formula),
        cmocka_unit_test(rms_norm_has_the_gradients_of_differences),
        cmocka_unit_test(rms_norm_of_zeros_is_zero_and_a_nan_stays_in_its_row),
        cmocka_unit_test(a_gate_has_the_gradients_of_differences),
        cmocka_unit_test(a_gate_of_silu_is_the_formula),
        cmocka_unit_test(rotary_positions_have_the_gradients_of_differences),
        cmocka_unit_test(rotary_positions_turn_neighbours_or_halves),
        cmocka_unit_test(products_of_turned_rows_depend_on_their_distance_alone),
        cmocka_unit_test(a_position_outside_the_table_is_named),
        cmocka_unit_test(rms_norm_cases_of_pytorch_pass),
        cmocka_unit_test(rotary_cases_of_onnx_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
