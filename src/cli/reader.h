/* A classifier or tagger as a verb wants it: found by name, with its tokenizer; and the
 * texts that a verb was given. */
#ifndef ATTN_CLI_READER_H
#define ATTN_CLI_READER_H

#include "cli/lines.h"
#include "file/path.h"
#include "model/reader.h"
#include "text/tokenizer.h"
#include <jansson.h>

typedef struct cli_reader {
    char folder[ATTN_PATH_BYTES];
    attn_reader *reader;
    attn_tokenizer *tokenizer;
    attn_context *context;
} cli_reader;

/* reader is {0} before.  ATTN_EFORMAT also where tokenizer and model count different
 * tokens, or where the model labels what the verb does not (words, if tags).  Free it
 * whether or not it was loaded. */
ATTN_CHECKED attn_status cli_reader_load(cli_reader *reader, const char *name, bool tags,
                                         attn_error *error);
void cli_reader_free(cli_reader *reader);

/* What a verb does with one text, which is empty where the line of a file is. */
typedef attn_status cli_reader_text(void *user, const char *text, size_t length_bytes,
                                    attn_error *error);

/* The texts of a command line, as cli_lines has them, which name the place of an error.
 * Lines with a tab may be data with labels, which are no part of a text: said once. */
ATTN_CHECKED attn_status cli_reader_each(const char *verb, char **arguments, int count,
                                         cli_reader_text *what, void *user,
                                         attn_error *error);

/* A line of JSON on standard output; takes over the object, NULL for no memory. */
ATTN_CHECKED attn_status cli_reader_print(json_t *object, attn_error *error);
/* With four digits after the point. */
json_t *cli_reader_probability(float probability);

#endif
