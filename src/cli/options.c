/* Options of a verb, and how it says what is wrong with them. */
#include "cli/cli.h"
#include "file/shown.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say_list(const char *format, va_list arguments)
{
    char text[2 * ATTN_PATH_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    attn_show(stderr, text, strlen(text));
}

void cli_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_list(format, arguments);
    va_end(arguments);
}

void cli_wrote(const char *file)
{
    cli_say("wrote %s\n", file);
}

void cli_note(const char *verb, const char *note)
{
    if (*note)
        cli_say("attn %s: %s\n", verb, note);
}

int cli_fail(const char *verb, const attn_error *error)
{
    cli_say("attn %s: %s\n", verb, error->message);
    return error->status == ATTN_EINVAL ? CLI_MISUSED : CLI_FAILED;
}

int cli_misused(const char *verb, const char *format, ...)
{
    fprintf(stderr, "attn %s: ", verb);
    va_list arguments;
    va_start(arguments, format);
    say_list(format, arguments);
    va_end(arguments);
    fprintf(stderr, " (attn %s --help)\n", verb);
    return CLI_MISUSED;
}

/* The option that an argument names, its value after "=" in *value (or NULL); NULL where
 * none is named so. */
static const cli_option *find_option(const cli_option *options, const char *argument,
                                     const char **value)
{
    *value = NULL;
    if (argument[1] != '-') {
        for (; options->name; options++)
            if (options->letter == argument[1] && argument[2] == '\0')
                return options;
        return NULL;
    }
    const char *const name = argument + 2;
    const size_t length = strcspn(name, "=");
    if (name[length] == '=')
        *value = name + length + 1;
    for (; options->name; options++)
        if (strlen(options->name) == length && strncmp(options->name, name, length) == 0)
            return options;
    return NULL;
}

/* Takes the option at argv[*at], and its value after it where it has one. */
static int take_option(int argc, char **argv, const cli_option *options, int *at)
{
    const char *value;
    const char *const argument = argv[*at];
    const cli_option *const option = find_option(options, argument, &value);
    if (!option)
        return cli_misused(argv[0], "%.*s is not an option", (int)strcspn(argument, "="),
                           argument);
    if (option->flag) {
        if (value)
            return cli_misused(argv[0], "--%s takes no value, got '%s'", option->name,
                               value);
        *option->flag = true;
        return CLI_DONE;
    }
    if (!value && *at + 1 == argc)
        return cli_misused(argv[0], "--%s needs a value", option->name);
    if (!value)
        value = argv[++*at];
    if (option->integer)
        return cli_integer(argv[0], option->name, value, option->low, option->high,
                           option->integer);
    if (option->decimal)
        return cli_decimal(argv[0], option->name, value, option->least, option->most,
                           option->decimal);
    if (option->threads)
        return cli_threads(argv[0], value, option->threads);
    *option->value = value;
    return CLI_DONE;
}

bool cli_parse(int argc, char **argv, const cli_option *options, const char *help,
               int *count, int *code)
{
    bool options_end = false;
    *count = 0;
    *code = CLI_DONE;
    for (const cli_option *option = options; option->name; option++)
        if (option->threads)
            cli_threads(argv[0], NULL, option->threads);
    for (int at = 1; at < argc; at++) {
        if (options_end || argv[at][0] != '-' || argv[at][1] == '\0') {
            argv[++*count] = argv[at];
            continue;
        }
        if (strcmp(argv[at], "--") == 0) {
            options_end = true;
            continue;
        }
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            fputs(help, stdout);
            return false;
        }
        *code = take_option(argc, argv, options, &at);
        if (*code != CLI_DONE)
            return false;
    }
    return true;
}

static const char *without_dashes(const char *option)
{
    return option + strspn(option, "-");
}

int cli_integer(const char *verb, const char *option, const char *text, int64_t low,
                int64_t high, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < low || number > high)
        return cli_misused(verb,
                           "--%s is '%s', expected a whole number from %lld to %lld",
                           without_dashes(option), text, (long long)low, (long long)high);
    *value = number;
    return CLI_DONE;
}

int cli_threads(const char *verb, const char *text, int64_t *threads)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t processors = online > 0 ? online : 1;
    int64_t wanted = processors;
    const int code =
        text ? cli_integer(verb, "threads", text, 1, 1024, &wanted) : CLI_DONE;
    if (code != CLI_DONE)
        return code;
    const int64_t most = processors > 4 ? processors : 4;
    *threads = wanted < most ? wanted : most;
    return CLI_DONE;
}

int cli_decimal(const char *verb, const char *option, const char *text, double low,
                double high, double *value)
{
    char *end;
    const double number = strtod(text, &end);
    if (end == text || *end != '\0' || isnan(number) || number < low || number > high)
        return cli_misused(verb, "--%s is '%s', expected a number from %g to %g",
                           without_dashes(option), text, low, high);
    *value = number;
    return CLI_DONE;
}
