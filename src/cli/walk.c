/* attn walk: attention worked by hand, step by step, with numbers small enough to follow.
 * The steps up to the scores are products of small matrices done here; weights and output
 * are the library's own. */
#include "base/context.h"
#include "cli/cli.h"
#include "draw/walk_text.h"
#include "file/file.h"
#include "text/matrices.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: attn walk [FILE] [options]\n"
    "\n"
    "Attention by hand: X, then Q, K and V, QKᵀ, the scaling, softmax, times V, each\n"
    "with its shape and numbers.  FILE (or - for standard input) gives your own:\n"
    "\n"
    "    tokens the cat sat\n"
    "    X\n"
    "    1 0 0 1\n"
    "    0 2 1 0\n"
    "    1 1 0 2\n"
    "    W_Q\n"
    "    …          (W_Q, W_K, W_V: left out, the identity)\n"
    "\n"
    "  --causal       hide the keys after each token\n"
    "  --scale S      instead of 1/√(head size)\n"
    "  -o FILE.svg    draw the flow from input to output, numbers inside\n"
    "\n"
    "example: attn walk -o walk.svg\n";

static const char default_example[] = "tokens the cat sat\n"
                                      "X\n1 0 0 1\n0 2 1 0\n1 1 0 2\n"
                                      "W_Q\n1 0 0 0\n0 1 0 1\n0 0 1 0\n1 1 0 0\n"
                                      "W_K\n0 1 0 0\n1 1 0 0\n0 0 1 1\n0 0 1 0\n"
                                      "W_V\n1 0 0 0\n0 2 0 1\n0 0 3 0\n1 0 0 1\n";

static const char *const matrix_names[] = {"X", "W_Q", "W_K", "W_V", NULL};

enum { SIDE = ATTN_TEXT_MATRIX_SIDE };

/* All numbers of one walk; the steps of `walk` point into them. */
struct example {
    attn_walk walk;
    char numbers_as_words[SIDE][8];
    const char *words[SIDE];
    float values[ATTN_WALK_STEPS][SIDE * SIDE];
    bool causal;
};

static attn_walk_matrix *step_of(struct example *example, attn_walk_step step,
                                 int64_t rows, int64_t columns)
{
    attn_walk_matrix *const matrix = &example->walk.steps[step];
    *matrix = (attn_walk_matrix){rows, columns, example->values[step]};
    return matrix;
}

/* A projection as given, or the identity. */
static attn_status take_projection(struct example *example, attn_walk_step step,
                                   const attn_text_matrices *given, const char *name,
                                   attn_error *error)
{
    const int64_t d = example->walk.steps[ATTN_WALK_INPUT].columns;
    const attn_text_matrix *const matrix = attn_text_matrices_find(given, name);
    if (!matrix) {
        step_of(example, step, d, d);
        for (int64_t i = 0; i < d; i++)
            example->values[step][i * d + i] = 1.0f;
        return ATTN_OK;
    }
    if (matrix->rows != d)
        return attn_error_set(
            error, ATTN_EFORMAT, "%s has %lld row%s, expected %lld, the columns of X",
            name, (long long)matrix->rows, attn_s(matrix->rows), (long long)d);
    step_of(example, step, matrix->rows, matrix->columns);
    memcpy(example->values[step], matrix->values,
           (size_t)(matrix->rows * matrix->columns) * sizeof(float));
    return ATTN_OK;
}

static attn_status take_input(struct example *example, const attn_text_matrices *given,
                              attn_error *error)
{
    const attn_text_matrix *const x = attn_text_matrices_find(given, "X");
    if (!x || x->rows == 0)
        return attn_error_set(error, ATTN_EFORMAT, "X is missing: a row for each token");
    if (given->words && given->word_count != x->rows)
        return attn_error_set(
            error, ATTN_EFORMAT, "X has %lld row%s, expected %lld, one for each token",
            (long long)x->rows, attn_s(x->rows), (long long)given->word_count);
    step_of(example, ATTN_WALK_INPUT, x->rows, x->columns);
    memcpy(example->values[ATTN_WALK_INPUT], x->values,
           (size_t)(x->rows * x->columns) * sizeof(float));
    example->walk.tokens = x->rows;
    example->walk.words = example->words;
    for (int64_t i = 0; i < x->rows; i++) {
        snprintf(example->numbers_as_words[i], sizeof example->numbers_as_words[i],
                 "x%lld", (long long)i + 1);
        example->words[i] = given->words ? given->words[i] : example->numbers_as_words[i];
    }
    ATTN_TRY(take_projection(example, ATTN_WALK_QUERY_PROJECTION, given, "W_Q", error));
    ATTN_TRY(take_projection(example, ATTN_WALK_KEY_PROJECTION, given, "W_K", error));
    ATTN_TRY(take_projection(example, ATTN_WALK_VALUE_PROJECTION, given, "W_V", error));
    const int64_t of_query = example->walk.steps[ATTN_WALK_QUERY_PROJECTION].columns;
    const int64_t of_key = example->walk.steps[ATTN_WALK_KEY_PROJECTION].columns;
    if (of_query != of_key)
        return attn_error_set(error, ATTN_EFORMAT,
                              "W_K has %lld column%s, expected %lld, as W_Q has",
                              (long long)of_key, attn_s(of_key), (long long)of_query);
    return ATTN_OK;
}

/* to = a · b, or a · bᵀ */
static void multiply(struct example *example, attn_walk_step to, attn_walk_step a,
                     attn_walk_step b, bool transposed)
{
    const attn_walk_matrix *const left = &example->walk.steps[a];
    const attn_walk_matrix *const right = &example->walk.steps[b];
    const int64_t columns = transposed ? right->rows : right->columns;
    step_of(example, to, left->rows, columns);
    for (int64_t i = 0; i < left->rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < left->columns; k++)
                sum +=
                    (double)left->values[i * left->columns + k] *
                    (double)right
                        ->values[transposed ? j * right->columns + k : k * columns + j];
            example->values[to][i * columns + j] = (float)sum;
        }
    }
}

/* Values and logits must be numbers for what follows to mean something. */
static attn_status check_finite(const struct example *example, attn_walk_step step,
                                const char *name, attn_error *error)
{
    const attn_walk_matrix *const matrix = &example->walk.steps[step];
    for (int64_t i = 0; i < matrix->rows * matrix->columns; i++)
        if (!isfinite(matrix->values[i]))
            return attn_error_set(
                error, ATTN_ENOTFINITE,
                "%s has %g at row %lld, column %lld, expected smaller numbers in X and "
                "its projections",
                name, (double)matrix->values[i], (long long)(i / matrix->columns) + 1,
                (long long)(i % matrix->columns) + 1);
    return ATTN_OK;
}

static void scale_logits(struct example *example)
{
    const int64_t n = example->walk.tokens;
    step_of(example, ATTN_WALK_SCORES, n, n);
    for (int64_t i = 0; i < n * n; i++) {
        const bool hidden = example->causal && i % n > i / n;
        const double logit = (double)example->values[ATTN_WALK_LOGITS][i];
        example->values[ATTN_WALK_SCORES][i] =
            hidden ? -INFINITY : (float)(example->walk.scale * logit);
    }
}

static attn_input input_of(const attn_walk_matrix *matrix)
{
    return attn_input_dense(matrix->values, 1, matrix->rows, matrix->columns);
}

/* The library's part: weights and output. */
static attn_status attend(struct example *example, attn_error *error)
{
    attn_walk_matrix *const steps = example->walk.steps;
    const int64_t n = example->walk.tokens, Dv = steps[ATTN_WALK_VALUE].columns;
    const attn_shape shape = {1, 1, 1, n, n, steps[ATTN_WALK_QUERY].columns, Dv};
    const attn_rectangle all = {0, 0, 0, n, 0, n};
    step_of(example, ATTN_WALK_WEIGHTS, n, n);
    step_of(example, ATTN_WALK_OUTPUT, n, Dv);
    attn_tensors tensors = {
        .query = input_of(&steps[ATTN_WALK_QUERY]),
        .key = input_of(&steps[ATTN_WALK_KEY]),
        .value = input_of(&steps[ATTN_WALK_VALUE]),
        .output = attn_output_dense(example->values[ATTN_WALK_OUTPUT], 1, n, Dv),
    };
    attn_options options;
    attn_options_init(&options, &shape);
    options.scale = (float)example->walk.scale;
    options.causal = example->causal;
    cli_context context;
    ATTN_TRY(cli_context_create(&context, 1, error));
    attn_status status = attn_forward(context.attention, &shape, &tensors, &options);
    if (status == ATTN_OK)
        status = attn_weights(context.attention, &shape, &tensors, &options, &all,
                              example->values[ATTN_WALK_WEIGHTS], n);
    if (status != ATTN_OK)
        attn_error_from_context(error, status, context.attention);
    cli_context_destroy(&context);
    return status;
}

static attn_status work_out(struct example *example, const attn_text_matrices *given,
                            double scale, attn_error *error)
{
    ATTN_TRY(take_input(example, given, error));
    multiply(example, ATTN_WALK_QUERY, ATTN_WALK_INPUT, ATTN_WALK_QUERY_PROJECTION,
             false);
    multiply(example, ATTN_WALK_KEY, ATTN_WALK_INPUT, ATTN_WALK_KEY_PROJECTION, false);
    multiply(example, ATTN_WALK_VALUE, ATTN_WALK_INPUT, ATTN_WALK_VALUE_PROJECTION,
             false);
    multiply(example, ATTN_WALK_LOGITS, ATTN_WALK_QUERY, ATTN_WALK_KEY, true);
    ATTN_TRY(check_finite(example, ATTN_WALK_QUERY, "Q", error));
    ATTN_TRY(check_finite(example, ATTN_WALK_KEY, "K", error));
    ATTN_TRY(check_finite(example, ATTN_WALK_VALUE, "V", error));
    ATTN_TRY(check_finite(example, ATTN_WALK_LOGITS, "Q Kᵀ", error));
    const double D = (double)example->walk.steps[ATTN_WALK_QUERY].columns;
    example->walk.scale = isnan(scale) ? 1.0 / sqrt(D) : scale;
    scale_logits(example);
    return attend(example, error);
}

static attn_status show(const struct example *example, const char *path,
                        attn_error *error)
{
    char *text = NULL;
    size_t length_bytes = 0;
    ATTN_TRY(path ? attn_draw_walk_svg(&example->walk, &text, &length_bytes, error)
                  : attn_draw_walk_text(&example->walk, &text, &length_bytes, error));
    const attn_status status =
        attn_file_write(path ? path : "-", text, length_bytes, error);
    free(text);
    if (status == ATTN_OK && path)
        cli_wrote(path);
    return status;
}

int cli_walk(int argc, char **argv)
{
    bool causal = false;
    const char *path = NULL;
    double scale = (double)NAN;
    const cli_option options[] = {
        {"causal", .flag = &causal},
        {"scale", .decimal = &scale, .least = -1e6, .most = 1e6},
        {"output", 'o', .value = &path},
        {0},
    };
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count > 1)
        return cli_misused("walk", "got %d files, expected one at most", count);
    if (path && (strlen(path) < 4 || strcmp(path + strlen(path) - 4, ".svg") != 0))
        return cli_misused("walk", "-o is '%s', expected a name that ends in .svg", path);

    attn_error error;
    char *text = NULL;
    size_t length_bytes = 0;
    if (count == 1 &&
        attn_file_read_text(argv[1], 1 << 20, &text, &length_bytes, &error) != ATTN_OK)
        return cli_fail("walk", &error);
    const bool is_stream = count == 1 && strcmp(argv[1], "-") == 0;
    attn_text_matrices given;
    attn_status status =
        attn_text_matrices_parse(&given, text ? text : default_example,
                                 text ? length_bytes : sizeof default_example - 1,
                                 is_stream    ? "standard input"
                                 : count == 1 ? argv[1]
                                              : "example",
                                 matrix_names, &error);
    if (status == ATTN_OK) {
        struct example example = {.causal = causal};
        status = work_out(&example, &given, scale, &error);
        if (status == ATTN_OK)
            status = show(&example, path, &error);
        attn_text_matrices_free(&given);
    }
    free(text);
    return status == ATTN_OK ? CLI_DONE : cli_fail("walk", &error);
}
