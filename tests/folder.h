/* A folder of a test's own, gone when the test is. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[96];

/* folder/name; the last few results stay valid. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned turn;
    char *const path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* For cmocka_run_group_tests. */
static inline int folder_make(void **state)
{
    (void)state;
    const char *const root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.64s/attn-test-XXXXXX", root ? root : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_remove_entry(const char *path, const struct stat *about,
                                      int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

static inline int folder_remove(void **state)
{
    (void)state;
    return nftw(folder, folder_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
