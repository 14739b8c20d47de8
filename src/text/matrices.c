/* Reads the text file of an example worked by hand, line by line. */
#include "text/matrices.h"
#include "base/context.h"
#include "file/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    attn_text_matrices *matrices;
    const char *file;
    const char *const *names;
    int64_t line;
    attn_error *error;
};

static const char separators[] = " \t\r,;";

__attribute__((format(printf, 2, 3))) static attn_status
parse_failure(struct parser *parser, const char *format, ...)
{
    char detail[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    return attn_error_set(parser->error, ATTN_EFORMAT, "%s, line %lld: %s", parser->file,
                          (long long)parser->line, detail);
}

static attn_status parse_words(struct parser *parser, char *rest)
{
    attn_text_matrices *const matrices = parser->matrices;
    if (matrices->words)
        return parse_failure(parser, "tokens are given a second time");
    matrices->words = calloc(ATTN_TEXT_MATRIX_SIDE, sizeof *matrices->words);
    if (!matrices->words)
        return attn_error_set(parser->error, ATTN_ENOMEM, "no memory for tokens");
    for (char *state = NULL, *word = strtok_r(rest, separators, &state); word;
         word = strtok_r(NULL, separators, &state)) {
        if (matrices->word_count == ATTN_TEXT_MATRIX_SIDE)
            return parse_failure(parser, "more than %d tokens", ATTN_TEXT_MATRIX_SIDE);
        matrices->words[matrices->word_count] = strdup(word);
        if (!matrices->words[matrices->word_count++])
            return attn_error_set(parser->error, ATTN_ENOMEM, "no memory for tokens");
    }
    return matrices->word_count > 0 ? ATTN_OK
                                    : parse_failure(parser, "no token after 'tokens'");
}

static attn_status parse_name(struct parser *parser, const char *word)
{
    attn_text_matrices *const matrices = parser->matrices;
    size_t known = 0;
    while (parser->names[known] && strcmp(parser->names[known], word) != 0)
        known++;
    if (!parser->names[known]) {
        char list[128] = "tokens";
        for (size_t i = 0; parser->names[i]; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), ", %s",
                     parser->names[i]);
        return parse_failure(
            parser, "'%.40s' is no number and no name, expected one of %s", word, list);
    }
    if (attn_text_matrices_find(matrices, word))
        return parse_failure(parser, "%s is given a second time", word);
    if (matrices->count == ATTN_TEXT_MATRICES)
        return parse_failure(parser, "more than %d matrices", ATTN_TEXT_MATRICES);
    attn_text_matrix *const matrix = &matrices->list[matrices->count];
    matrix->values =
        calloc(ATTN_TEXT_MATRIX_SIDE * ATTN_TEXT_MATRIX_SIDE, sizeof *matrix->values);
    if (!matrix->values)
        return attn_error_set(parser->error, ATTN_ENOMEM, "no memory for %s", word);
    snprintf(matrix->name, sizeof matrix->name, "%s", word);
    matrix->line = parser->line;
    matrices->count++;
    return ATTN_OK;
}

static attn_status parse_row(struct parser *parser, char *line)
{
    if (parser->matrices->count == 0)
        return parse_failure(parser, "numbers come before the name of a matrix");
    attn_text_matrix *const matrix = &parser->matrices->list[parser->matrices->count - 1];
    if (matrix->rows == ATTN_TEXT_MATRIX_SIDE)
        return parse_failure(parser, "%s has more than %d rows", matrix->name,
                             ATTN_TEXT_MATRIX_SIDE);
    int64_t columns = 0;
    for (char *state = NULL, *word = strtok_r(line, separators, &state); word;
         word = strtok_r(NULL, separators, &state)) {
        char *end = word;
        const float value = strtof(word, &end);
        if (*end || !isfinite(value))
            return parse_failure(parser, "'%.40s' is not a finite number", word);
        if (columns == ATTN_TEXT_MATRIX_SIDE)
            return parse_failure(parser, "%s has more than %d columns", matrix->name,
                                 ATTN_TEXT_MATRIX_SIDE);
        if (matrix->rows == 0)
            matrix->columns = columns + 1;
        else if (columns == matrix->columns)
            return parse_failure(parser,
                                 "the row of %s is longer than %lld, its first row",
                                 matrix->name, (long long)matrix->columns);
        matrix->values[matrix->rows * matrix->columns + columns++] = value;
    }
    if (columns != matrix->columns)
        return parse_failure(
            parser, "a row of %s has %lld number%s, expected %lld as in its first",
            matrix->name, (long long)columns, attn_s(columns),
            (long long)matrix->columns);
    matrix->rows++;
    return ATTN_OK;
}

static attn_status parse_line(struct parser *parser, char *line)
{
    char *const comment = strchr(line, '#');
    if (comment)
        *comment = '\0';
    char *const start = line + strspn(line, separators);
    if (!*start)
        return ATTN_OK;
    char *const end = start + strcspn(start, separators);
    const bool is_number = strchr("+-.0123456789", *start) != NULL;
    if (is_number)
        return parse_row(parser, start);
    char *const rest = *end ? end + 1 : end;
    *end = '\0';
    if (strcmp(start, "tokens") == 0)
        return parse_words(parser, rest);
    if (rest[strspn(rest, separators)])
        return parse_failure(
            parser, "'%.40s' stands after %.40s, expected its rows on lines below", rest,
            start);
    return parse_name(parser, start);
}

/* The first byte that no text has, with its line. */
static attn_status check_bytes(struct parser *parser, const char *text,
                               size_t length_bytes)
{
    const size_t valid = attn_utf8_valid(text, length_bytes), before_zero = strlen(text);
    const size_t place = valid < before_zero ? valid : before_zero;
    if (place >= length_bytes)
        return ATTN_OK;
    size_t line_start = 0;
    parser->line = 1;
    for (size_t i = 0; i < place; i++)
        if (text[i] == '\n') {
            parser->line++;
            line_start = i + 1;
        }
    if (text[place] == '\0')
        return parse_failure(parser, "a byte 0 in it, expected text");
    return parse_failure(parser, "not UTF-8 at byte %zu (0x%02X)", place - line_start + 1,
                         (unsigned char)text[place]);
}

attn_status attn_text_matrices_parse(attn_text_matrices *matrices, const char *text,
                                     size_t length_bytes, const char *name,
                                     const char *const *names, attn_error *error)
{
    *matrices = (attn_text_matrices){0};
    struct parser parser = {matrices, name, names, 0, error};
    ATTN_TRY(check_bytes(&parser, text, length_bytes));
    char *const copy = strdup(text);
    if (!copy)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %s", name);
    attn_status status = ATTN_OK;
    parser.line = 0;
    for (char *line = copy; line && status == ATTN_OK;) {
        char *const newline = strchr(line, '\n');
        if (newline)
            *newline = '\0';
        parser.line++;
        status = parse_line(&parser, line);
        line = newline ? newline + 1 : NULL;
    }
    free(copy);
    if (status != ATTN_OK)
        attn_text_matrices_free(matrices);
    return status;
}

void attn_text_matrices_free(attn_text_matrices *matrices)
{
    for (int64_t i = 0; i < matrices->word_count; i++)
        free(matrices->words[i]);
    free(matrices->words);
    for (int64_t i = 0; i < matrices->count; i++)
        free(matrices->list[i].values);
    *matrices = (attn_text_matrices){0};
}

const attn_text_matrix *attn_text_matrices_find(const attn_text_matrices *matrices,
                                                const char *name)
{
    for (int64_t i = 0; i < matrices->count; i++)
        if (strcmp(matrices->list[i].name, name) == 0)
            return &matrices->list[i];
    return NULL;
}
