/* What verbs are given to read: files, standard input, or texts themselves. */
#include "cli/lines.h"
#include "base/context.h"
#include "file/file.h"
#include "file/utf8.h"
#include "text/containers.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_LINE = 1 << 20, LONGEST_TEXT = 1 << 24 };

/* ---- One argument ---------------------------------------------------------------- */

static bool looks_like_a_file(const char *argument)
{
    static const char *const ends[] = {
        ".txt", ".tsv",  ".csv",  ".conll", ".conllu",      ".md",  ".json", ".jsonl",
        ".xz",  ".gz",   ".bz2",  ".zip",   ".zst",         ".png", ".jpg",  ".jpeg",
        ".svg", ".html", ".attn", ".idx",   ".safetensors", ".npy", ".gguf", ".xml"};
    if (argument[strcspn(argument, " \t\r\n\v\f")])
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (attn_file_named(argument, ends[i]))
            return true;
    return strchr(argument, '/') != NULL;
}

attn_status cli_is_file(const char *argument, const char *verb, bool *is_file,
                        attn_error *error)
{
    struct stat about;
    const bool is_there = stat(argument, &about) == 0;
    *is_file = strcmp(argument, "-") == 0 || (is_there && !S_ISDIR(about.st_mode));
    if (*is_file || !looks_like_a_file(argument))
        return ATTN_OK;
    return attn_error_set(
        error, ATTN_EIO, "%s: %s (to %s that text itself: echo TEXT | attn %s -)",
        is_there ? "a folder, expected a file" : "no such file", argument,
        strncmp(verb, "look", 4) == 0 ? "look at" : "give", verb);
}

static size_t without_mark(char *text, size_t length_bytes)
{
    const size_t mark = attn_utf8_mark(text, length_bytes);
    memmove(text, text + mark, length_bytes - mark + 1);
    return length_bytes - mark;
}

static attn_status check_text(const char *text, size_t length_bytes, const char *place,
                              attn_error *error)
{
    const size_t valid = attn_utf8_valid(text, length_bytes);
    if (valid < length_bytes)
        return attn_error_set(error, ATTN_EFORMAT, "%s: not UTF-8 at byte %zu (0x%02X)",
                              place, valid + 1, (unsigned char)text[valid]);
    if (strlen(text) < length_bytes)
        return attn_error_set(error, ATTN_EFORMAT, "%s: a byte 0 in it, expected text",
                              place);
    return ATTN_OK;
}

attn_status cli_read_text(const char *argument, const char *verb, char **text,
                          size_t *length_bytes, attn_error *error)
{
    bool is_file;
    *text = NULL;
    ATTN_TRY(cli_is_file(argument, verb, &is_file, error));
    if (is_file) {
        ATTN_TRY(attn_file_read_text(argument, LONGEST_TEXT, text, length_bytes, error));
        if (*length_bytes > 0 && (*text)[*length_bytes - 1] == '\n')
            (*text)[--*length_bytes] = '\0';
    } else {
        *text = strdup(argument);
        if (!*text)
            return attn_error_set(error, ATTN_ENOMEM, "no memory for a text");
        *length_bytes = without_mark(*text, strlen(*text));
    }
    const attn_status status =
        check_text(*text, *length_bytes, is_file ? argument : "the text", error);
    if (status == ATTN_OK)
        return ATTN_OK;
    free(*text);
    *text = NULL;
    return status;
}

attn_status cli_empty_text(attn_error *error)
{
    return attn_error_set(error, ATTN_EINVAL, "the text is empty; expected a sentence");
}

size_t cli_tidy(char *text, size_t length_bytes)
{
    size_t kept = 0;
    for (size_t i = 0; i < length_bytes; i++) {
        const bool space = text[i] != '\0' && strchr(" \t\r\n\v\f", text[i]);
        if (!space)
            text[kept++] = text[i];
        else if (kept > 0 && text[kept - 1] != ' ')
            text[kept++] = ' ';
    }
    if (kept > 0 && text[kept - 1] == ' ')
        kept--;
    text[kept] = '\0';
    return kept;
}

/* ---- Lines ----------------------------------------------------------------------- */

void cli_lines_open(cli_lines *lines, const char *verb, char **arguments, int count)
{
    static char standard_input[] = "-", *only_standard_input[] = {standard_input};
    *lines = (cli_lines){.verb = verb, .arguments = arguments, .count = count};
    if (count == 0) {
        lines->arguments = only_standard_input;
        lines->count = 1;
    }
}

static const char *name_of(const cli_lines *lines)
{
    const char *const argument = lines->arguments[lines->at];
    return strcmp(argument, "-") == 0 ? "standard input" : argument;
}

static attn_status open_next(cli_lines *lines, bool *is_file, attn_error *error)
{
    const char *const argument = lines->arguments[lines->at];
    ATTN_TRY(cli_is_file(argument, lines->verb, is_file, error));
    lines->number = 0;
    if (!*is_file)
        return ATTN_OK;
    lines->stream = strcmp(argument, "-") == 0 ? stdin : fopen(argument, "rb");
    if (lines->stream)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EIO, "cannot open %s: %s", argument,
                          strerror(errno));
}

static void close_stream(cli_lines *lines)
{
    if (lines->stream && lines->stream != stdin)
        fclose(lines->stream);
    lines->stream = NULL;
}

/* Makes room for a line of length bytes and a NUL. */
static attn_status reserve(cli_lines *lines, size_t length, attn_error *error)
{
    if (attn_grow(&lines->line, &lines->capacity, length + 1, 1))
        return ATTN_OK;
    return attn_error_set(error, ATTN_ENOMEM, "no memory for a line of %zu bytes",
                          length);
}

/* Reads up to the line's end.  *more is false where the file had already ended. */
static attn_status read_line(cli_lines *lines, bool *more, attn_error *error)
{
    int character = getc(lines->stream);
    lines->length = 0;
    lines->number++;
    snprintf(lines->place, sizeof lines->place, "%s, line %lld", name_of(lines),
             (long long)lines->number);
    for (; character != EOF && character != '\n'; character = getc(lines->stream)) {
        if (lines->length == LONGEST_LINE)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: longer than %d bytes, expected a sentence",
                                  lines->place, LONGEST_LINE);
        ATTN_TRY(reserve(lines, lines->length + 1, error));
        lines->line[lines->length++] = (char)character;
    }
    if (ferror((FILE *)lines->stream))
        return attn_error_set(error, ATTN_EIO, "cannot read %s: %s", name_of(lines),
                              strerror(errno));
    ATTN_TRY(reserve(lines, lines->length, error));
    lines->line[lines->length] = '\0';
    if (lines->number == 1)
        lines->length = without_mark(lines->line, lines->length);
    *more = lines->length > 0 || character == '\n';
    return ATTN_OK;
}

static attn_status take_text(cli_lines *lines, attn_error *error)
{
    const char *const text = lines->arguments[lines->at++];
    lines->length = strlen(text);
    snprintf(lines->place, sizeof lines->place, "the text");
    ATTN_TRY(reserve(lines, lines->length, error));
    memcpy(lines->line, text, lines->length + 1);
    lines->length = without_mark(lines->line, lines->length);
    ATTN_TRY(check_text(lines->line, lines->length, lines->place, error));
    lines->length = cli_tidy(lines->line, lines->length);
    return lines->length > 0 ? ATTN_OK : cli_empty_text(error);
}

attn_status cli_lines_next(cli_lines *lines, bool *more, attn_error *error)
{
    *more = lines->has_tab = false;
    for (; lines->at < lines->count; lines->at++) {
        bool is_file = true;
        if (!lines->stream)
            ATTN_TRY(open_next(lines, &is_file, error));
        if (!is_file) {
            *more = true;
            return take_text(lines, error);
        }
        ATTN_TRY(read_line(lines, more, error));
        if (*more) {
            ATTN_TRY(check_text(lines->line, lines->length, lines->place, error));
            lines->has_tab = strchr(lines->line, '\t') != NULL;
            lines->length = cli_tidy(lines->line, lines->length);
            return ATTN_OK;
        }
        close_stream(lines);
    }
    return ATTN_OK;
}

void cli_lines_close(cli_lines *lines)
{
    close_stream(lines);
    free(lines->line);
    *lines = (cli_lines){0};
}
