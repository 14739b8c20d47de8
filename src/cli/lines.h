/* Lines of text from files or standard input, made ready for a model. */
#ifndef ATTN_CLI_LINES_H
#define ATTN_CLI_LINES_H

#include "base/error.h"

/* Line ends and runs of white space become one space, as in what the models were trained
 * on; none stays at the ends.  Returns the length; the text stays NUL-ended. */
size_t cli_tidy(char *text, size_t length_bytes);

/* The lines of several files, one after another. */
typedef struct cli_lines {
    char **paths; /* "-" is standard input */
    int count;
    int at;         /* the path being read */
    void *stream;   /* NULL: the next path is to be opened */
    int64_t number; /* of the line read last, from 1 in each file */
    char *line;     /* read last, without its end; UTF-8 without a byte 0 */
    size_t length, capacity;
} cli_lines;

void cli_lines_open(cli_lines *lines, char **paths, int count);
/* *more is false after the last line of the last file.  ATTN_EFORMAT names the line that
 * is not UTF-8 or is longer than a mebibyte. */
ATTN_CHECKED attn_status cli_lines_next(cli_lines *lines, bool *more, attn_error *error);
void cli_lines_close(cli_lines *lines);
/* The file being read, for messages. */
const char *cli_lines_name(const cli_lines *lines);

#endif
