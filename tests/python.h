/* Checks against PyPI packages: run by the interpreter that ATTN_PYTHON names (python3
 * where it is unset), and skipped, by name, where a package is missing. */
#ifndef TESTS_PYTHON_H
#define TESTS_PYTHON_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs a script; the interpreter's exit status, −1 where it did not start. */
static inline int python_run(const char *script)
{
    const char *const chosen = getenv("ATTN_PYTHON");
    char command[512];
    snprintf(command, sizeof command, "'%s' -", chosen ? chosen : "python3");
    FILE *const python = popen(command, "w");
    if (!python)
        return -1;
    fputs(script, python);
    return pclose(python);
}

/* The same for a script in a file, which gets one argument. */
static inline int python_run_file(const char *path, const char *argument)
{
    const char *const chosen = getenv("ATTN_PYTHON");
    char command[1024];
    snprintf(command, sizeof command, "'%s' '%s' '%s'", chosen ? chosen : "python3", path,
             argument);
    return system(command);
}

/* Whether the packages, "a, b", are there; says which test they are missed by.  To import
 * torch takes seconds. */
static inline bool python_has_for(const char *packages, const char *test)
{
    char script[256];
    snprintf(script, sizeof script,
             "import importlib.util, sys\n"
             "sys.exit(None in map(importlib.util.find_spec, '%s'.split(', ')))\n",
             packages);
    if (python_run(script) == 0)
        return true;
    printf("skipped: %s (python has no %s; see ATTN_PYTHON)\n", test, packages);
    return false;
}
#define python_has(packages) python_has_for(packages, __func__)

#endif
