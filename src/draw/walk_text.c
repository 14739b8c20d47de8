/* The worked example as plain text: a step is a title with the formula and the shape,
 * then the matrix with the token of each row before it. */
#include "draw/walk_text.h"
#include "inspect/sentence.h"
#include "text/words.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBER_COLUMNS = 7, MOST_TOKENS = 16 };

struct step {
    attn_walk_step matrix;
    const char *title;
    int decimals; /* more than a matrix needs is noise: whole numbers show none */
};

static void pad(FILE *out, const char *word, size_t columns)
{
    fputs(word, out);
    for (size_t width = attn_text_columns(word); width < columns; width++)
        fputc(' ', out);
}

static size_t widest_word(const attn_walk *walk)
{
    size_t widest = 0;
    for (int64_t i = 0; i < walk->tokens; i++) {
        const size_t columns = attn_text_columns(walk->words[i]);
        widest = columns > widest ? columns : widest;
    }
    return widest;
}

static bool is_whole(const attn_walk_matrix *matrix)
{
    for (int64_t i = 0; i < matrix->rows * matrix->columns; i++)
        if (isfinite(matrix->values[i]) && matrix->values[i] != rintf(matrix->values[i]))
            return false;
    return true;
}

static void print_number(FILE *out, float value, int decimals)
{
    if (value == -INFINITY)
        fprintf(out, " %*s", NUMBER_COLUMNS, "hidden");
    else if (fabsf(value) >= 1e4f)
        fprintf(out, " %*.*g", NUMBER_COLUMNS, decimals > 0 ? 2 : 7, (double)value);
    else
        fprintf(out, " %*.*f", NUMBER_COLUMNS, decimals, (double)value);
}

/* Over the columns of a matrix of tokens by tokens. */
static void print_keys(FILE *out, const attn_walk *walk)
{
    fputs("    ", out);
    pad(out, "", widest_word(walk));
    for (int64_t j = 0; j < walk->tokens; j++) {
        const char *const word = walk->words[j];
        const size_t shown = attn_text_prefix(word, NUMBER_COLUMNS);
        const size_t columns = attn_text_columns(word) - attn_text_columns(word + shown);
        fprintf(out, "%*s%.*s", (int)(NUMBER_COLUMNS + 1 - columns), "", (int)shown,
                word);
    }
    fputc('\n', out);
}

/* Rows belong to tokens in all steps but the projections, whose rows have no name; the
 * columns of three steps do. */
static void print_matrix(FILE *out, const attn_walk *walk, const struct step *step)
{
    const attn_walk_matrix *const matrix = &walk->steps[step->matrix];
    const bool of_tokens = step->matrix != ATTN_WALK_QUERY_PROJECTION &&
                           step->matrix != ATTN_WALK_KEY_PROJECTION &&
                           step->matrix != ATTN_WALK_VALUE_PROJECTION;
    const bool of_keys = step->matrix == ATTN_WALK_LOGITS ||
                         step->matrix == ATTN_WALK_SCORES ||
                         step->matrix == ATTN_WALK_WEIGHTS;
    const int decimals = is_whole(matrix) ? 0 : step->decimals;
    fprintf(out, "  %s  [%" PRId64 " × %" PRId64 "]\n", step->title, matrix->rows,
            matrix->columns);
    if (of_keys)
        print_keys(out, walk);
    for (int64_t i = 0; i < matrix->rows; i++) {
        fputs("    ", out);
        pad(out, of_tokens ? walk->words[i] : "", widest_word(walk));
        for (int64_t j = 0; j < matrix->columns; j++)
            print_number(out, matrix->values[i * matrix->columns + j], decimals);
        fputc('\n', out);
    }
}

static void print_reading(FILE *out, const attn_walk *walk)
{
    const float *const weights = walk->steps[ATTN_WALK_WEIGHTS].values;
    for (int64_t i = 0; i < walk->tokens; i++) {
        int64_t largest = 0;
        for (int64_t j = 1; j < walk->tokens; j++)
            if (weights[i * walk->tokens + j] > weights[i * walk->tokens + largest])
                largest = j;
        fprintf(out, "  \"%s\" looks most at \"%s\": %.2f of its weight\n",
                walk->words[i], walk->words[largest],
                (double)weights[i * walk->tokens + largest]);
    }
}

static void print_walk(FILE *out, const attn_walk *walk)
{
    const int64_t D = walk->steps[ATTN_WALK_QUERY].columns;
    char scores[64];
    if (walk->scale == 1.0 / sqrt((double)D))
        snprintf(scores, sizeof scores, "Q Kᵀ ÷ √%" PRId64, D);
    else
        snprintf(scores, sizeof scores, "Q Kᵀ × %g", walk->scale);
    fprintf(out, "Attention by hand: %" PRId64 " token%s, head size %" PRId64 "\n",
            walk->tokens, attn_s(walk->tokens), D);
    fputs("\n1. Each token is a vector: a row of X.\n", out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_INPUT, "X", 2});
    fputs("\n2. Three projections are learned, and are the same for every token.\n", out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_QUERY_PROJECTION, "W_Q", 2});
    print_matrix(out, walk, &(struct step){ATTN_WALK_KEY_PROJECTION, "W_K", 2});
    print_matrix(out, walk, &(struct step){ATTN_WALK_VALUE_PROJECTION, "W_V", 2});
    fputs(
        "\n3. They give each token a query (what it looks for), a key (what it is found\n"
        "   by) and a value (what it hands over).\n",
        out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_QUERY, "Q = X W_Q", 2});
    print_matrix(out, walk, &(struct step){ATTN_WALK_KEY, "K = X W_K", 2});
    print_matrix(out, walk, &(struct step){ATTN_WALK_VALUE, "V = X W_V", 2});
    fputs("\n4. Every query meets every key: a row for each query, a column for each "
          "key.\n",
          out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_LOGITS, "Q Kᵀ", 2});
    fputs("\n5. Products of longer vectors are larger, so they are scaled down.\n", out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_SCORES, scores, 2});
    fputs("\n6. Softmax turns each row into weights that sum to 1.\n", out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_WEIGHTS, "A = softmax", 3});
    print_reading(out, walk);
    fputs("\n7. Each token takes the values in these shares: its new vector.\n", out);
    print_matrix(out, walk, &(struct step){ATTN_WALK_OUTPUT, "A V", 2});
}

/* The words as a terminal may show them. */
static attn_status spell_words(const attn_walk *walk, attn_buffer *list,
                               const char *words[MOST_TOKENS], attn_error *error)
{
    size_t starts[MOST_TOKENS];
    for (int64_t i = 0; i < walk->tokens; i++) {
        starts[i] = list->length;
        attn_put_text(list, walk->words[i], ATTN_SPELL_TERMINAL);
        attn_buffer_put_bytes(list, "", 1);
    }
    if (list->failed)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the walk's words");
    for (int64_t i = 0; i < walk->tokens; i++)
        words[i] = attn_buffer_text(list) + starts[i];
    return ATTN_OK;
}

static attn_status print_text(const attn_walk *walk, char **text, size_t *length_bytes,
                              attn_error *error)
{
    char *memory = NULL;
    size_t length = 0;
    FILE *const out = open_memstream(&memory, &length);
    if (!out)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the walk's text");
    print_walk(out, walk);
    const bool failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(memory);
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the walk's text");
    }
    *text = memory;
    *length_bytes = length;
    return ATTN_OK;
}

attn_status attn_draw_walk_text(const attn_walk *walk, char **text, size_t *length_bytes,
                                attn_error *error)
{
    attn_buffer list = {0};
    const char *words[MOST_TOKENS];
    attn_walk shown = *walk;
    shown.words = words;
    attn_status status = spell_words(walk, &list, words, error);
    if (status == ATTN_OK)
        status = print_text(&shown, text, length_bytes, error);
    attn_buffer_free(&list);
    return status;
}
