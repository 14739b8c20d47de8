/* Recurrent cells, layers of them, and columns: values against loops in double that go
 * token by token, gradients against central differences. */
#include "nn/recurrent.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, TOKENS = 9, IN = 3, WIDTH = 5, GATES = 4 };

/* The third sequence is empty. */
static const int64_t starts[SEQUENCES + 1] = {0, 2, 7, 7, 9};

struct setting {
    attn_cell cell;
    bool backwards, has_bias, has_before;
};

static const struct setting settings[] = {
    {ATTN_CELL_TANH, false, true, true}, {ATTN_CELL_TANH, true, false, false},
    {ATTN_CELL_RELU, false, true, true}, {ATTN_CELL_RELU, true, true, true},
    {ATTN_CELL_GRU, false, true, true},  {ATTN_CELL_GRU, true, false, true},
    {ATTN_CELL_GRU, true, true, false},  {ATTN_CELL_LSTM, false, true, true},
    {ATTN_CELL_LSTM, true, true, true},  {ATTN_CELL_LSTM, false, false, false},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

struct numbers {
    float x[TOKENS * IN], in_weight[GATES * WIDTH * IN], in_bias[GATES * WIDTH];
    float weight[GATES * WIDTH * WIDTH], bias[GATES * WIDTH];
    float state[SEQUENCES * WIDTH], memory[SEQUENCES * WIDTH];
};

static void fill(struct numbers *n)
{
    test_fill(n->x, TOKENS * IN, 1);
    test_fill(n->in_weight, GATES * WIDTH * IN, 13);
    test_fill(n->in_bias, GATES * WIDTH, 14);
    test_fill(n->weight, GATES * WIDTH * WIDTH, 2);
    test_fill(n->bias, GATES * WIDTH, 3);
    test_fill(n->state, SEQUENCES * WIDTH, 4);
    test_fill(n->memory, SEQUENCES * WIDTH, 5);
}

/* ---- Reference ------------------------------------------------------------------------
 */

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The state's part of gate g, element i. */
static double state_part(const struct numbers *n, const struct setting *s,
                         const double *state, int g, int i)
{
    double sum = s->has_bias ? (double)n->bias[g * WIDTH + i] : 0.0;
    for (int k = 0; k < WIDTH; k++)
        sum += (double)n->weight[(g * WIDTH + i) * WIDTH + k] * state[k];
    return sum;
}

/* The input's part of all gates of all tokens. */
static void input_part(const struct numbers *n, const struct setting *s, double *gates)
{
    const int rows = attn_cell_gates(s->cell) * WIDTH;
    for (int i = 0; i < TOKENS * rows; i++) {
        const int token = i / rows, row = i % rows;
        gates[i] = s->has_bias ? (double)n->in_bias[row] : 0.0;
        for (int k = 0; k < IN; k++)
            gates[i] += (double)n->in_weight[row * IN + k] * (double)n->x[token * IN + k];
    }
}

static void reference_step(const struct numbers *n, const struct setting *s,
                           const double *given, double *state, double *memory)
{
    double next[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        double a[GATES], u[GATES];
        for (int g = 0; g < attn_cell_gates(s->cell); g++) {
            a[g] = given[g * WIDTH + i];
            u[g] = state_part(n, s, state, g, i);
        }
        if (s->cell == ATTN_CELL_TANH) {
            next[i] = tanh(a[0] + u[0]);
        } else if (s->cell == ATTN_CELL_RELU) {
            next[i] = fmax(0.0, a[0] + u[0]);
        } else if (s->cell == ATTN_CELL_GRU) {
            const double r = logistic(a[0] + u[0]), z = logistic(a[1] + u[1]);
            const double candidate = tanh(a[2] + r * u[2]);
            next[i] = (1.0 - z) * candidate + z * state[i];
        } else {
            memory[i] = logistic(a[1] + u[1]) * memory[i] +
                        logistic(a[0] + u[0]) * tanh(a[2] + u[2]);
            next[i] = logistic(a[3] + u[3]) * tanh(memory[i]);
        }
    }
    memcpy(state, next, sizeof next);
}

/* y [TOKENS][columns] */
static void reference(const struct numbers *n, const struct setting *s,
                      const double *gates, double *y, int columns)
{
    const int given = attn_cell_gates(s->cell) * WIDTH;
    for (int q = 0; q < SEQUENCES; q++) {
        double state[WIDTH] = {0}, memory[WIDTH] = {0};
        for (int i = 0; i < WIDTH && s->has_before; i++) {
            state[i] = (double)n->state[q * WIDTH + i];
            memory[i] = (double)n->memory[q * WIDTH + i];
        }
        const int64_t length = starts[q + 1] - starts[q];
        for (int64_t step = 0; step < length; step++) {
            const int64_t token =
                s->backwards ? starts[q + 1] - 1 - step : starts[q] + step;
            reference_step(n, s, gates + token * given, state, memory);
            memcpy(y + token * columns, state, sizeof state);
            if (columns > WIDTH)
                memcpy(y + token * columns + WIDTH, memory, sizeof memory);
        }
    }
}

/* ---- Values ---------------------------------------------------------------------------
 */

static attn_tensor *leaf(attn_tape *tape, float *data, int64_t rows, int64_t columns)
{
    return attn_tape_leaf(tape, data, NULL, 2, (const int64_t[]){rows, columns});
}

static attn_cell_weights weights_of(attn_tape *tape, struct numbers *n,
                                    const struct setting *s)
{
    const int64_t out = attn_cell_gates(s->cell) * WIDTH;
    return (attn_cell_weights){
        .in = leaf(tape, n->in_weight, out, IN),
        .state = leaf(tape, n->weight, out, WIDTH),
        .in_bias = attn_tape_leaf(tape, n->in_bias, NULL, 1, &out),
        .state_bias = attn_tape_leaf(tape, n->bias, NULL, 1, &out),
        .has_bias = s->has_bias,
    };
}

static attn_tensor *recur(attn_tape *tape, struct numbers *n, const struct setting *s,
                          bool gives_memory)
{
    const attn_cell_weights weights = weights_of(tape, n, s);
    attn_recurrence recurrence = {s->cell, s->backwards, SEQUENCES,   starts,
                                  NULL,    NULL,         gives_memory};
    if (s->has_before) {
        recurrence.state = leaf(tape, n->state, SEQUENCES, WIDTH);
        recurrence.memory = leaf(tape, n->memory, SEQUENCES, WIDTH);
    }
    return attn_recur(tape, leaf(tape, n->x, TOKENS, IN), &weights, &recurrence);
}

static void every_cell_computes_what_it_is_named_after(void **state)
{
    (void)state;
    struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < SETTINGS; c++)
            for (int n_case = 0; n_case < 4; n_case++) {
                const bool training = n_case % 2, gives_memory = n_case / 2;
                const int columns = settings[c].cell == ATTN_CELL_LSTM && gives_memory
                                        ? 2 * WIDTH
                                        : WIDTH;
                double expected[TOKENS * 2 * WIDTH], gates[TOKENS * GATES * WIDTH];
                input_part(&n, &settings[c], gates);
                reference(&n, &settings[c], gates, expected, columns);
                attn_tape_begin(tape, training, 0);
                const attn_tensor *const y = recur(tape, &n, &settings[c], gives_memory);
                assert_non_null(y);
                assert_int_equal(y->extent[0], TOKENS);
                assert_int_equal(y->extent[1], columns);
                for (size_t i = 0; i < (size_t)(TOKENS * columns); i++)
                    test_close((double)y->data[i], expected[i], 2e-6, "state", i);
            }
    }
}

static void a_sequence_alone_has_the_bits_it_has_in_a_batch(void **state)
{
    (void)state;
    struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < SETTINGS; c++) {
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const together = recur(tape, &n, &settings[c], true);
            const int64_t alone_starts[] = {0, 5};
            const attn_cell_weights weights = weights_of(tape, &n, &settings[c]);
            attn_recurrence recurrence = {settings[c].cell,
                                          settings[c].backwards,
                                          1,
                                          alone_starts,
                                          NULL,
                                          NULL,
                                          true};
            if (settings[c].has_before) {
                recurrence.state = leaf(tape, n.state + WIDTH, 1, WIDTH);
                recurrence.memory = leaf(tape, n.memory + WIDTH, 1, WIDTH);
            }
            const attn_tensor *const alone =
                attn_recur(tape, leaf(tape, n.x + 2 * IN, 5, IN), &weights, &recurrence);
            assert_memory_equal(alone->data, together->data + 2 * together->extent[1],
                                (size_t)(5 * alone->extent[1]) * sizeof(float));
        }
    }
}

/* ---- Gradients ------------------------------------------------------------------------
 */

static attn_tensor *build_recur(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    const struct setting *const s = user;
    const attn_cell_weights weights = {leaves[1], leaves[2], leaves[3], leaves[4],
                                       s->has_bias};
    const attn_cell_weights plain = {.in = leaves[1], .state = leaves[2]};
    attn_recurrence recurrence = {.cell = s->cell,
                                  .backwards = s->backwards,
                                  .sequences = SEQUENCES,
                                  .starts = starts,
                                  .state = s->has_before ? leaves[5] : NULL,
                                  .memory = s->has_before ? leaves[6] : NULL,
                                  .gives_memory = true};
    attn_tensor *const y = attn_recur(tape, leaves[0], &weights, &recurrence);
    /* Input and weights are used twice: gradients are added. */
    recurrence.gives_memory = false;
    return attn_join(tape, y, attn_recur(tape, leaves[0], &plain, &recurrence));
}

static void cells_have_the_gradients_of_differences(void **state)
{
    (void)state;
    struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < SETTINGS; c++) {
            struct setting setting = settings[c];
            const int64_t out = attn_cell_gates(setting.cell) * WIDTH;
            const bool has_memory = setting.cell == ATTN_CELL_LSTM;
            const test_leaf leaves[] = {
                {n.x, 2, {TOKENS, IN}, false},
                {n.in_weight, 2, {out, IN}, false},
                {n.weight, 2, {out, WIDTH}, false},
                {n.in_bias, 1, {out}, !setting.has_bias},
                {n.bias, 1, {out}, !setting.has_bias},
                {n.state, 2, {SEQUENCES, WIDTH}, !setting.has_before},
                {n.memory, 2, {SEQUENCES, WIDTH}, !setting.has_before || !has_memory}};
            /* Small enough a step that no relu bends within it. */
            test_gradients(tape, build_recur, &setting, leaves, 7, 0.002f, 6e-3);
        }
    }
}

/* More tokens than are multiplied at once: sequences of 1 to MANY tokens. */
enum { MANY = 40, MANY_TOKENS = MANY * (MANY + 1) / 2 };

struct many {
    struct numbers n;
    float x[MANY_TOKENS * IN], weights[MANY_TOKENS * WIDTH];
    float y[MANY_TOKENS * WIDTH], dx[MANY_TOKENS * IN];
    float in_weight[GATES * WIDTH * IN], weight[GATES * WIDTH * WIDTH];
    float in_bias[GATES * WIDTH], bias[GATES * WIDTH];
};

/* The sequences with these starts, the first of which begins with that token. */
static void run_many(attn_tape *tape, struct many *m, const struct setting *s,
                     int64_t sequences, const int64_t *some_starts, int64_t first)
{
    const int64_t out = attn_cell_gates(s->cell) * WIDTH, tokens = some_starts[sequences];
    const int64_t x_shape[] = {tokens, IN}, in_shape[] = {out, IN},
                  shape[] = {out, WIDTH};
    attn_tape_begin(tape, true, 0);
    const attn_cell_weights weights = {
        .in = attn_tape_leaf(tape, m->n.in_weight, m->in_weight, 2, in_shape),
        .state = attn_tape_leaf(tape, m->n.weight, m->weight, 2, shape),
        .in_bias = attn_tape_leaf(tape, m->n.in_bias, m->in_bias, 1, &out),
        .state_bias = attn_tape_leaf(tape, m->n.bias, m->bias, 1, &out),
        .has_bias = true,
    };
    const attn_recurrence recurrence = {.cell = s->cell,
                                        .backwards = s->backwards,
                                        .sequences = sequences,
                                        .starts = some_starts};
    attn_tensor *const y = attn_recur(
        tape, attn_tape_leaf(tape, m->x + first * IN, m->dx + first * IN, 2, x_shape),
        &weights, &recurrence);
    assert_non_null(y);
    memcpy(m->y + first * WIDTH, y->data, (size_t)(tokens * WIDTH) * sizeof *m->y);
    attn_tensor *const loss = test_weigh_by(tape, y, m->weights + first * WIDTH);
    assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
}

static void assert_all_close(const float *got, const float *expected, size_t count,
                             const char *what)
{
    for (size_t i = 0; i < count; i++)
        test_close((double)got[i], (double)expected[i], 2e-5, what, i);
}

static void many_sequences_give_what_each_gives_alone(void **state)
{
    (void)state;
    static struct many together, alone;
    int64_t all[MANY + 1] = {0};
    for (int64_t i = 0; i < MANY; i++) /* neither rising nor falling */
        all[i + 1] = all[i] + 1 + i * 7 % MANY;
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < SETTINGS; c++) {
            memset(&together, 0, sizeof together);
            fill(&together.n);
            test_fill(together.x, MANY_TOKENS * IN, 21);
            test_fill(together.weights, MANY_TOKENS * WIDTH, 22);
            for (size_t i = 0; i < GATES * WIDTH * WIDTH; i++)
                together.n.weight[i] *= 0.4f; /* else a relu grows without end */
            alone = together;
            run_many(tape, &together, &settings[c], MANY, all, 0);
            for (int i = 0; i < MANY; i++)
                run_many(tape, &alone, &settings[c], 1,
                         (const int64_t[]){0, all[i + 1] - all[i]}, all[i]);
            assert_memory_equal(together.y, alone.y, sizeof alone.y);
            assert_all_close(together.dx, alone.dx, MANY_TOKENS * IN, "input");
            assert_all_close(together.in_weight, alone.in_weight, GATES * WIDTH * IN,
                             "input weight");
            assert_all_close(together.weight, alone.weight, GATES * WIDTH * WIDTH,
                             "state weight");
            assert_all_close(together.in_bias, alone.in_bias, GATES * WIDTH, "bias");
            assert_all_close(together.bias, alone.bias, GATES * WIDTH, "bias");
        }
    }
}

static attn_tensor *build_columns(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    (void)user;
    attn_tensor *const joined = attn_join(tape, leaves[0], leaves[1]);
    attn_tensor *const middle = attn_columns(tape, joined, 2, 4);
    return attn_join(tape, attn_columns(tape, leaves[0], 0, 1),
                     attn_join(tape, middle, leaves[0]));
}

static void columns_have_the_gradients_of_differences(void **state)
{
    (void)state;
    float a[3 * 4], b[3 * 5];
    test_fill(a, 12, 6), test_fill(b, 15, 7);
    const test_leaf leaves[] = {{a, 2, {3, 4}, false}, {b, 2, {3, 5}, false}};
    EACH_TAPE(tape)
    {
        test_gradients(tape, build_columns, NULL, leaves, 2, 0.01f, 2e-3);
        attn_tape_begin(tape, false, 0);
        const attn_tensor *const y = attn_columns(
            tape, attn_join(tape, leaf(tape, a, 3, 4), leaf(tape, b, 3, 5)), 3, 2);
        for (int row = 0; row < 3; row++) {
            assert_true(y->data[2 * row] == a[4 * row + 3]);
            assert_true(y->data[2 * row + 1] == b[5 * row]);
        }
    }
}

/* ---- Layers ---------------------------------------------------------------------------
 */

enum { LAYERS = 2 };
static const attn_cell cells[] = {ATTN_CELL_TANH, ATTN_CELL_RELU, ATTN_CELL_GRU,
                                  ATTN_CELL_LSTM};
static const attn_packing packing = {SEQUENCES, starts};

struct stack {
    attn_parameters parameters;
    attn_recurrent_layer layer;
    float x[TOKENS * IN];
};

static void stack_create(struct stack *s, attn_cell cell, bool both_ways)
{
    *s = (struct stack){.parameters = {0}};
    const attn_recurrent_options options = {.cell = cell,
                                            .in = IN,
                                            .width = WIDTH,
                                            .layers = LAYERS,
                                            .both_ways = both_ways,
                                            .has_bias = true};
    assert_int_equal(attn_recurrent_layer_add(&s->layer, &s->parameters, "l", &options),
                     ATTN_OK);
    assert_int_equal(attn_parameters_allocate(&s->parameters), ATTN_OK);
    test_fill(s->parameters.values, s->parameters.floats, 8);
    test_fill(s->x, TOKENS * IN, 9);
}

static const float *values_of(const struct stack *s, size_t parameter)
{
    return s->parameters.values + s->parameters.list[parameter].offset;
}

/* One run over x [TOKENS][columns], to y [TOKENS][2·WIDTH] from column way·WIDTH on. */
static void reference_run(const struct stack *s, int run, const double *x, int columns,
                          double *y)
{
    struct numbers n;
    double states[TOKENS * WIDTH], gates[TOKENS * GATES * WIDTH];
    const attn_cell cell = s->layer.options.cell;
    const struct setting setting = {cell, run % 2 == 1, true, false};
    const int rows = (int)attn_cell_gates(cell) * WIDTH;
    const float *const weight = values_of(s, s->layer.runs[run].in_weight);
    for (int token = 0; token < TOKENS; token++)
        for (int row = 0; row < rows; row++) {
            double sum = (double)values_of(s, s->layer.runs[run].in_bias)[row];
            for (int i = 0; i < columns; i++)
                sum += (double)weight[row * columns + i] * x[token * columns + i];
            gates[token * rows + row] = sum;
        }
    memcpy(n.weight, values_of(s, s->layer.runs[run].state_weight),
           (size_t)(rows * WIDTH) * sizeof(float));
    memcpy(n.bias, values_of(s, s->layer.runs[run].state_bias),
           (size_t)rows * sizeof(float));
    reference(&n, &setting, gates, states, WIDTH);
    for (int token = 0; token < TOKENS; token++)
        memcpy(y + (token * 2 + run % 2) * WIDTH, states + token * WIDTH,
               WIDTH * sizeof *y);
}

static void layers_stack_and_run_both_ways(void **state)
{
    (void)state;
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
            struct stack s;
            double x[TOKENS * 2 * WIDTH], y[TOKENS * 2 * WIDTH];
            stack_create(&s, cells[c], true);
            for (size_t i = 0; i < TOKENS * IN; i++)
                x[i] = (double)s.x[i];
            for (int run = 0; run < 2 * LAYERS; run++) {
                reference_run(&s, run, x, run < 2 ? IN : 2 * WIDTH, y);
                if (run % 2 == 1)
                    memcpy(x, y, sizeof x);
            }
            const attn_pass pass = {.tape = tape, .parameters = &s.parameters};
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const got = attn_recurrent_layer_forward(
                &s.layer, &pass, leaf(tape, s.x, TOKENS, IN), packing, NULL, NULL, 0.0f);
            assert_non_null(got);
            assert_int_equal(got->extent[1], 2 * WIDTH);
            for (size_t i = 0; i < TOKENS * 2 * WIDTH; i++)
                test_close((double)got->data[i], y[i], 1e-5, "layers", i);
            attn_parameters_free(&s.parameters);
        }
    }
}

static attn_tensor *build_stack(attn_tape *tape, attn_tensor *const *leaves, void *user)
{
    struct stack *const s = user;
    s->parameters.values = leaves[1]->data;
    const attn_pass pass = {
        .tape = tape, .parameters = &s->parameters, .gradients = leaves[1]->gradient};
    return attn_recurrent_layer_forward(&s->layer, &pass, leaves[0], packing, NULL, NULL,
                                        0.0f);
}

static void layers_have_the_gradients_of_differences(void **state)
{
    (void)state;
    attn_tape *const tape = test_tape_create(NULL);
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        struct stack s;
        stack_create(&s, cells[c], true);
        float *const values = s.parameters.values;
        const test_leaf leaves[] = {{s.x, 2, {TOKENS, IN}, false},
                                    {values, 1, {(int64_t)s.parameters.floats}, false}};
        test_gradients(tape, build_stack, &s, leaves, 2, 0.002f, 6e-3);
        s.parameters.values = values;
        attn_parameters_free(&s.parameters);
    }
    test_tape_destroy(tape);
}

/* What is left after the first tokens is what stands before the others. */
static void a_text_in_two_pieces_is_the_whole(void **state)
{
    (void)state;
    enum { FIRST = 4 };
    static const int64_t all[] = {0, TOKENS}, first[] = {0, FIRST},
                         others[] = {0, TOKENS - FIRST};
    EACH_TAPE(tape)
    {
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
            struct stack s;
            stack_create(&s, cells[c], false);
            const attn_pass pass = {.tape = tape, .parameters = &s.parameters};
            attn_recurrent_states between = {{0}, {0}};
            attn_tape_begin(tape, false, 0);
            const attn_tensor *const whole =
                attn_recurrent_layer_forward(&s.layer, &pass, leaf(tape, s.x, TOKENS, IN),
                                             (attn_packing){1, all}, NULL, NULL, 0.0f);
            assert_non_null(attn_recurrent_layer_forward(
                &s.layer, &pass, leaf(tape, s.x, FIRST, IN), (attn_packing){1, first},
                NULL, &between, 0.0f));
            const attn_tensor *const rest = attn_recurrent_layer_forward(
                &s.layer, &pass, leaf(tape, s.x + FIRST * IN, TOKENS - FIRST, IN),
                (attn_packing){1, others}, &between, NULL, 0.0f);
            assert_non_null(rest);
            for (size_t i = 0; i < (TOKENS - FIRST) * WIDTH; i++)
                test_close((double)rest->data[i], (double)whole->data[FIRST * WIDTH + i],
                           1e-6, "rest", i);
            attn_parameters_free(&s.parameters);
        }
    }
}

/* ---- Errors ---------------------------------------------------------------------------
 */

static void assert_fails(attn_tape *tape, const attn_tensor *y, const char *words)
{
    assert_null(y);
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(strstr(attn_context_message(attn_tape_context(tape)), words));
}

static attn_tensor *recur_leaves(attn_tape *tape, struct numbers *n, int64_t tokens,
                                 int64_t in, const attn_recurrence *recurrence)
{
    const attn_cell_weights weights = {.in = leaf(tape, n->in_weight, 15, 3),
                                       .state = leaf(tape, n->weight, 15, 5)};
    return attn_recur(tape, leaf(tape, n->x, tokens, in), &weights, recurrence);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    struct numbers n;
    fill(&n);
    const int64_t short_starts[] = {0, 8};
    const int64_t falling_starts[] = {0, 9, 5, 9};
    EACH_TAPE(tape)
    {
        attn_recurrence recurrence = {
            .cell = ATTN_CELL_GRU, .sequences = 1, .starts = short_starts};
        attn_tape_begin(tape, true, 0);
        assert_fails(tape, recur_leaves(tape, &n, 9, 3, &recurrence), "the 9 rows");
        recurrence.starts = falling_starts, recurrence.sequences = 3;
        attn_tape_begin(tape, true, 0);
        assert_fails(tape, recur_leaves(tape, &n, 9, 3, &recurrence), "do not rise");
        attn_tape_begin(tape, true, 0);
        assert_fails(tape, recur_leaves(tape, &n, 6, 4, &recurrence),
                     "input weight is [15][3], expected [15][4]");
        attn_tape_begin(tape, true, 0);
        const attn_cell_weights empty = {.in = leaf(tape, n.in_weight, 15, 0),
                                         .state = leaf(tape, n.weight, 15, 5)};
        assert_fails(tape, attn_recur(tape, leaf(tape, n.x, 9, 0), &empty, &recurrence),
                     "x has rows of 0 and states are 5 wide");
        attn_tape_begin(tape, true, 0);
        assert_fails(tape, attn_columns(tape, leaf(tape, n.weight, 9, 10), 6, 5),
                     "5 columns from 6 on, expected them within 10");
        attn_tape_begin(tape, true, 0);
        assert_fails(
            tape, attn_join(tape, leaf(tape, n.weight, 9, 10), leaf(tape, n.bias, 2, 3)),
            "b is [2][3], expected [9][any]");
    }
}

static void layers_that_cannot_be_and_states_of_nothing_are_refused(void **state)
{
    (void)state;
    struct stack s;
    attn_parameters none = {0};
    attn_recurrent_layer layer;
    const attn_recurrent_options options = {
        .cell = ATTN_CELL_GRU, .in = IN, .width = WIDTH, .layers = 9};
    assert_int_equal(attn_recurrent_layer_add(&layer, &none, "l", &options), ATTN_EINVAL);
    attn_tape *const tape = test_tape_create(NULL);
    attn_recurrent_states after = {{0}, {0}};
    stack_create(&s, ATTN_CELL_GRU, true);
    const attn_pass pass = {.tape = tape, .parameters = &s.parameters};
    attn_tape_begin(tape, false, 0);
    attn_recurrent_layer_forward(&s.layer, &pass, leaf(tape, s.x, TOKENS, IN), packing,
                                 NULL, &after, 0.0f);
    assert_int_equal(attn_tape_status(tape), ATTN_EINVAL);
    assert_non_null(strstr(attn_context_message(attn_tape_context(tape)),
                           "recurrent layer: sequence 2 is empty"));
    attn_parameters_free(&s.parameters);
    test_tape_destroy(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_computes_what_it_is_named_after),
        cmocka_unit_test(a_sequence_alone_has_the_bits_it_has_in_a_batch),
        cmocka_unit_test(cells_have_the_gradients_of_differences),
        cmocka_unit_test(many_sequences_give_what_each_gives_alone),
        cmocka_unit_test(columns_have_the_gradients_of_differences),
        cmocka_unit_test(layers_stack_and_run_both_ways),
        cmocka_unit_test(layers_have_the_gradients_of_differences),
        cmocka_unit_test(a_text_in_two_pieces_is_the_whole),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(layers_that_cannot_be_and_states_of_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
