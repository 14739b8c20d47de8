/* Reading lines, however long, one at a time. */
#include "cli/lines.h"
#include "base/context.h"
#include "text/words.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 1 << 20 };

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

void cli_lines_open(cli_lines *lines, char **paths, int count)
{
    *lines = (cli_lines){.paths = paths, .count = count};
}

const char *cli_lines_name(const cli_lines *lines)
{
    return strcmp(lines->paths[lines->at], "-") == 0 ? "standard input"
                                                     : lines->paths[lines->at];
}

static attn_status open_next(cli_lines *lines, attn_error *error)
{
    const char *const path = lines->paths[lines->at];
    lines->number = 0;
    lines->stream = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (lines->stream)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EIO, "cannot open %s: %s", path, strerror(errno));
}

static void close_stream(cli_lines *lines)
{
    if (lines->stream && lines->stream != stdin)
        fclose(lines->stream);
    lines->stream = NULL;
}

static bool put(cli_lines *lines, int character)
{
    if (lines->length + 1 >= lines->capacity) {
        const size_t capacity = lines->capacity ? 2 * lines->capacity : 256;
        char *const larger = realloc(lines->line, capacity);
        if (!larger)
            return false;
        lines->line = larger;
        lines->capacity = capacity;
    }
    lines->line[lines->length++] = (char)character;
    lines->line[lines->length] = '\0';
    return true;
}

/* Reads up to the line's end.  *more is false where the file had already ended. */
static attn_status read_line(cli_lines *lines, bool *more, attn_error *error)
{
    lines->length = 0;
    int character = getc(lines->stream);
    *more = character != EOF;
    for (; character != EOF && character != '\n'; character = getc(lines->stream)) {
        if (lines->length == LONGEST_LINE)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s, line %lld: longer than %d bytes, expected a "
                                  "sentence",
                                  cli_lines_name(lines), (long long)lines->number + 1,
                                  LONGEST_LINE);
        if (!put(lines, character))
            return attn_error_set(error, ATTN_ENOMEM, "no memory for a line of %s",
                                  cli_lines_name(lines));
    }
    if (ferror((FILE *)lines->stream))
        return attn_error_set(error, ATTN_EIO, "cannot read %s: %s",
                              cli_lines_name(lines), strerror(errno));
    lines->number += *more;
    if (lines->length > 0 && lines->line[lines->length - 1] == '\r')
        lines->line[--lines->length] = '\0';
    return ATTN_OK;
}

static attn_status check_line(const cli_lines *lines, attn_error *error)
{
    const size_t valid = attn_utf8_valid(lines->line, lines->length);
    if (valid < lines->length)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s, line %lld: not UTF-8 at byte %zu (0x%02X)",
                              cli_lines_name(lines), (long long)lines->number, valid + 1,
                              (unsigned char)lines->line[valid]);
    if (lines->length > 0 && memchr(lines->line, '\0', lines->length))
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s, line %lld: a byte 0 in it, expected text",
                              cli_lines_name(lines), (long long)lines->number);
    return ATTN_OK;
}

attn_status cli_lines_next(cli_lines *lines, bool *more, attn_error *error)
{
    *more = false;
    for (; lines->at < lines->count; lines->at++) {
        if (!lines->stream)
            ATTN_TRY(open_next(lines, error));
        ATTN_TRY(read_line(lines, more, error));
        if (*more) {
            /* An empty line has room for its NUL, too. */
            if (lines->length == 0 && put(lines, ' '))
                lines->line[lines->length = 0] = '\0';
            return check_line(lines, error);
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
