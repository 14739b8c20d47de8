/* The attn command: finds the verb and hands it its arguments. */
#include "cli/cli.h"
#include "train/blas.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} verbs[] = {
    {"look", cli_look,
     "run a model on a text or picture and show where every head looked"},
    {"translate", cli_translate, "lines in, translated lines out"},
    {"generate", cli_generate,
     "a prompt in, the text that a language model goes on with"},
    {"caption", cli_caption, "pictures in, a line about each out"},
    {"classify", cli_classify, "texts in, labels with their probabilities out"},
    {"tag", cli_tag, "texts in, words with their labels out"},
    {"fill", cli_fill, "guess the masked tokens of a text"},
    {"walk", cli_walk, "attention worked by hand, step by step"},
    {"train", cli_train, "train a model from a recipe"},
    {"eval", cli_eval, "score a model on a file"},
    {"bench", cli_bench, "rates on this machine as fractions of its peak"},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static void print_help(FILE *out)
{
    fputs("usage: attn VERB [arguments]\n\nAttention you can look into.\n\n", out);
    for (size_t i = 0; i < VERBS; i++)
        fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].what);
    fputs("\nattn VERB --help says more; attn --version says which this is.\n"
          "\n"
          "A MODEL is a folder, or the name of one in trained/ (where attn train puts "
          "it),\n"
          "in the folder that ATTN_MODELS names, or among those that come with attn.\n"
          "\n"
          "example: attn look \"The cat, which was sitting on the mat, was hungry\"\n",
          out);
}

static int unknown_verb(const char *name)
{
    cli_say("attn: '%s' is not a verb; expected one of", name);
    for (size_t i = 0; i < VERBS; i++)
        fprintf(stderr, "%s %s", i > 0 ? "," : "", verbs[i].name);
    fputs("\n", stderr);
    return CLI_MISUSED;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_MISUSED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("attn " ATTN_VERSION);
        return CLI_DONE;
    }
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    return unknown_verb(argv[1]);
}

/* Where standard output or error was closed, the next file to be opened would take its
 * place and get what is printed.  Their places are taken by what cannot be used. */
static void fill_closed_streams(void)
{
    for (int file = 0; file <= 2; file++)
        if (fcntl(file, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", file == 0 ? O_WRONLY : O_RDONLY) < 0)
            return;
}

/* OpenBLAS has a thread that asks for a buffer as soon as the process starts, for ever
 * where it is refused, and the usual end of a process waits for that thread. */
static _Noreturn void end(int code)
{
    fflush(NULL);
    if (!attn_blas_has_memory())
        _exit(code);
    exit(code);
}

/* What JSON cannot be given memory for is else left out of it without a word. */
static void *allocate_json(size_t bytes)
{
    void *const memory = malloc(bytes);
    if (memory)
        return memory;
    fputs("attn: out of memory\n", stderr);
    end(CLI_FAILED);
}

int main(int argc, char **argv)
{
    json_set_alloc_funcs(allocate_json, free);
    fill_closed_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file over its limit is then an error with a message */
    int code = run(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_DONE) {
        fprintf(stderr, "attn: cannot write standard output%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
        code = CLI_FAILED;
    }
    end(code);
}
