/* Runs the attn command in a folder of its own, as a user would. */
#ifndef TESTS_CLI_COMMAND_H
#define TESTS_CLI_COMMAND_H

#include "file/file.h"
#include "tests/folder.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static const char *attn_command; /* its path */

typedef struct run_result {
    int code;
    char *out, *err;
} run_result;

static inline char *run_file(const char *name)
{
    attn_error error;
    char *text;
    size_t length;
    if (attn_file_read(in_folder(name), 1 << 24, &text, &length, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return text;
}

/* attn ARGUMENTS, in the folder; its exit code. */
static inline int run_into(const char *arguments, const char *out)
{
    char command[2048];
    char *const path = realpath(attn_command, NULL); /* the folder changes */
    assert_non_null(path);
    snprintf(command, sizeof command, "cd '%s' && '%s' %s < in > %s 2> err", folder, path,
             arguments, out);
    free(path);
    const int how = system(command);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how);
}

/* With input of length_bytes on its standard input. */
static inline run_result run_bytes(const char *arguments, const char *input,
                                   size_t length_bytes)
{
    attn_error error;
    if (attn_file_write(in_folder("in"), input, length_bytes, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    const int code = run_into(arguments, "out");
    return (run_result){code, run_file("out"), run_file("err")};
}

/* What it writes where its standard output is a terminal, up to 2 KiB, must be this, and
 * be byte for byte the other where it is a file. */
static inline void expect_on_terminal(const char *arguments, const char *shown,
                                      const char *raw)
{
    enum { BYTES = 2048 };
    char text[BYTES];
    size_t length = 0;
    attn_error error;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
        print_message("skipped: attn %s on a terminal (none can be opened)\n", arguments);
        return;
    }
    assert_int_equal(attn_file_write(in_folder("in"), "", 0, &error), ATTN_OK);
    const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY); /* keeps it open */
    assert_true(other_end >= 0);
    assert_int_equal(run_into(arguments, ptsname(terminal)), 0);
    assert_int_equal(fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
    for (ssize_t got; length + 1 < BYTES &&
                      (got = read(terminal, text + length, BYTES - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    close(other_end);
    close(terminal);
    assert_string_equal(text, shown);
    run_result result = run_bytes(arguments, "", 0);
    assert_string_equal(result.out, raw);
    free(result.out);
    free(result.err);
}

static inline run_result run(const char *arguments, const char *input)
{
    return run_bytes(arguments, input, strlen(input));
}

/* Ends a picture before the command it proposes, which is that of a text or a record. */
static inline void cut_proposal(run_result *result, const char *proposed)
{
    char *const at = strstr(result->out, "attn look ");
    if (at == NULL)
        return;
    assert_memory_equal(at, proposed, strlen(proposed));
    *at = '\0';
}

static inline void run_free(run_result *result)
{
    free(result->out);
    free(result->err);
}

/* Runs and compares all of it; NULL compares nothing. */
static inline void expect_run(const char *arguments, const char *input, int code,
                              const char *out, const char *err)
{
    run_result result = run(arguments, input);
    if (result.code != code)
        fail_msg("attn %s gives %d: %s", arguments, result.code, result.err);
    if (out)
        assert_string_equal(result.out, out);
    if (err)
        assert_string_equal(result.err, err);
    run_free(&result);
}

/* A path of length_bytes, folders in each other and `end`, in the file "long": too long
 * for the command here, which reads it as "$(cat long)". */
static inline void write_long_path(size_t length_bytes, const char *end)
{
    enum { NAME = 100 };
    attn_error error;
    char path[8192];
    assert_in_range(length_bytes, strlen(end), sizeof path);
    memset(path, 'a', length_bytes);
    for (size_t n = NAME; n < length_bytes; n += NAME + 1)
        path[n] = '/';
    memcpy(path + length_bytes - strlen(end), end, strlen(end));
    assert_int_equal(attn_file_write(in_folder("long"), path, length_bytes, &error),
                     ATTN_OK);
}

#endif
