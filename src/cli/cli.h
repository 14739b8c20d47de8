/* What the verbs of the attn command share: one file a verb, each a function that gets
 * its own arguments and returns the exit code. */
#ifndef ATTN_CLI_CLI_H
#define ATTN_CLI_CLI_H

#include "file/path.h"

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_MISUSED = 2 };

/* argv[0] is the verb. */
int cli_look(int argc, char **argv);
int cli_translate(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_caption(int argc, char **argv);
int cli_classify(int argc, char **argv);
int cli_tag(int argc, char **argv);
int cli_fill(int argc, char **argv);
int cli_train(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_walk(int argc, char **argv);
int cli_bench(int argc, char **argv);

/* A table of the options a verb knows, ended by a NULL name.  Long ones only, with
 * "--x=v" and "--x v"; `letter` adds "-x v".  flag options take no value. */
typedef struct cli_option {
    const char *name;   /* without dashes */
    char letter;        /* or 0 */
    bool *flag;         /* set to true, or NULL */
    const char **value; /* gets the value, or NULL */
    int64_t *integer;   /* a whole number from low to high, or NULL */
    int64_t low, high;
    double *decimal; /* a number from least to most, or NULL */
    double least, most;
    int64_t *threads; /* see cli_threads, which also says how many without it; or NULL */
} cli_option;

/* Fills options, moves positional arguments to argv[1]… and sets *count to how many there
 * are ("--" ends options; a lone "-" is positional).  --help prints help to stdout.
 * false: the verb returns *code at once, after --help or what was wrong and is said on
 * stderr. */
bool cli_parse(int argc, char **argv, const cli_option *options, const char *help,
               int *count, int *code);

/* On stderr; what could command a terminal (see file/shown.h) is shown as \x1b. */
__attribute__((format(printf, 1, 2))) void cli_say(const char *format, ...);

/* A text of a user or of a model on standard output: byte for byte into a file or a pipe;
 * on a terminal, what could command it is shown as cli_say does.  false where it cannot
 * be written. */
bool cli_print(const char *text, size_t length_bytes);
/* JSON and an end of line: the same value wherever it goes, with \u in place of what
 * could command a terminal. */
bool cli_print_json(const char *text);

/* "wrote FILE" on stderr. */
void cli_wrote(const char *file);

/* What loading a model found worth saying, on stderr; nothing for "". */
void cli_note(const char *verb, const char *note);

/* "attn VERB: message" on stderr; the exit code that suits the status: 2 for ATTN_EINVAL,
 * 1 for the rest. */
int cli_fail(const char *verb, const attn_error *error);
__attribute__((format(printf, 2, 3))) int cli_misused(const char *verb,
                                                      const char *format, ...);

/* Whole number or decimal within bounds, or a message and CLI_MISUSED. */
int cli_integer(const char *verb, const char *option, const char *text, int64_t low,
                int64_t high, int64_t *value);
int cli_decimal(const char *verb, const char *option, const char *text, double low,
                double high, double *value);

/* Whole number of threads in *threads; all processors where text is NULL.  More than the
 * machine has are taken for what it has (4 at least): no result depends on their number,
 * and 64 threads that wait for one another on 2 processors took 10 s for one word. */
int cli_threads(const char *verb, const char *text, int64_t *threads);

/* A context on `threads` threads of a pool (0: as many as the machine has); destroy with
 * cli_context_destroy. */
typedef struct cli_context {
    attn_context *attention;
    void *pool;
} cli_context;
ATTN_CHECKED attn_status cli_context_create(cli_context *context, size_t threads,
                                            attn_error *error);
void cli_context_destroy(cli_context *context);

/* The folder of a model by name: as given where it has a config.json; else trained/NAME,
 * where attn train puts it; else NAME in ATTN_MODELS, in models/ of the sources, and in
 * the installed data folder.  Of one in trained/ that is in another of these too it says
 * so on stderr.  ATTN_EIO names all places that were looked at, and the
 * models that are there.  folder is [ATTN_PATH_BYTES]. */
ATTN_CHECKED attn_status cli_find_model(const char *name, char *folder,
                                        attn_error *error);

/* Where a file of data lies: as given ("-" too), else in the folder that ATTN_DATA names.
 * ATTN_EIO names both.  path is [ATTN_PATH_BYTES]. */
ATTN_CHECKED attn_status cli_find_data(const char *file, char *path, attn_error *error);

#endif
