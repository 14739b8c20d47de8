/* What verbs are given to read.  An argument that names a file, or "-" for standard
 * input, is read; any other is itself a text.  A byte order mark before a text is no part
 * of it.
 */
#ifndef ATTN_CLI_LINES_H
#define ATTN_CLI_LINES_H

#include "file/path.h"

/* Whether an argument is a file or standard input; verb, with the arguments that stand
 * before a text ("classify MODEL"), is for messages.  One that only looks like the name
 * of a file, without white space but with a '/' or a known ending, and names none is
 * ATTN_EIO: a misspelt name is no text. */
ATTN_CHECKED attn_status cli_is_file(const char *argument, const char *verb,
                                     bool *is_file, attn_error *error);
/* All of an argument as one text, up to 16 MiB, without the line end that a file closes
 * with; the caller's to free.  ATTN_EFORMAT where it is not UTF-8 or has a byte 0. */
ATTN_CHECKED attn_status cli_read_text(const char *argument, const char *verb,
                                       char **text, size_t *length_bytes,
                                       attn_error *error);
/* ATTN_EINVAL, said the same by every verb. */
attn_status cli_empty_text(attn_error *error);

/* Line ends and runs of white space become one space, as in what the models were trained
 * on; none stays at the ends.  Returns the length; the text stays NUL-ended. */
size_t cli_tidy(char *text, size_t length_bytes);

/* The lines of several arguments, one after another; an argument that is a text is one
 * line, however many it has. */
typedef struct cli_lines {
    const char *verb;
    char **arguments;
    int count;
    int at;         /* the argument being read */
    void *stream;   /* NULL: the next argument is to be opened */
    int64_t number; /* of the line read last, from 1 in each file; 0 of a text */
    char *line;     /* read last, tidied; UTF-8 without a byte 0 */
    size_t length, capacity;
    bool has_tab; /* the line did, of a file, before it was tidied */
    char place[ATTN_PATH_BYTES +
               32]; /* of the line, for messages: "mats.txt, line 3", "the text" */
} cli_lines;

/* No argument: standard input. */
void cli_lines_open(cli_lines *lines, const char *verb, char **arguments, int count);
/* *more is false after the last line of the last argument.  ATTN_EFORMAT names the line
 * that is not UTF-8 or is longer than a mebibyte.  An argument that is an empty text is
 * refused; an empty line of a file is a line. */
ATTN_CHECKED attn_status cli_lines_next(cli_lines *lines, bool *more, attn_error *error);
void cli_lines_close(cli_lines *lines);

#endif
