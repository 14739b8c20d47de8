/* Joining paths, and finding data by them. */
#include "file/path.h"
#include "base/context.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static attn_status join(char *path, const char *folder, size_t folder_length,
                        const char *name, attn_error *error)
{
    const char *const slash = folder_length > 0 ? "/" : "";
    if (folder_length > 0 && folder[folder_length - 1] == '/')
        folder_length--;
    const size_t length = folder_length + strlen(slash) + strlen(name);
    if (length >= ATTN_PATH_BYTES)
        return attn_error_set(
            error, ATTN_EIO, "%.*s%s%s: a path of %zu bytes, expected at most %d",
            (int)folder_length, folder, slash, name, length, ATTN_PATH_BYTES - 1);
    snprintf(path, ATTN_PATH_BYTES, "%.*s%s%s", (int)folder_length, folder, slash, name);
    return ATTN_OK;
}

attn_status attn_path_join(char *path, const char *folder, const char *name,
                           attn_error *error)
{
    return join(path, folder, strlen(folder), name, error);
}

attn_status attn_path_beside(char *path, const char *file, const char *name,
                             attn_error *error)
{
    const char *const slash = strrchr(file, '/');
    return join(path, file, slash ? (size_t)(slash - file) + 1 : 0, name, error);
}

attn_status attn_path_data(char *path, const char *first, const char *file,
                           const char *place, attn_error *error)
{
    const char *const data = getenv("ATTN_DATA");
    const bool has_data = data && *data;
    ATTN_TRY(attn_path_join(path, "", first, error));
    if (*file == '/' || *file == '\0' || access(path, F_OK) == 0)
        return ATTN_OK;
    char there[ATTN_PATH_BYTES];
    if (has_data) {
        ATTN_TRY(attn_path_join(there, data, file, error));
        if (access(there, F_OK) == 0)
            return attn_path_join(path, "", there, error);
    }
    return attn_error_set(error, ATTN_EIO, "%s is neither %s nor in ATTN_DATA, %s", file,
                          place, has_data ? data : "which is not set");
}

attn_status attn_path_check(const char *path, attn_error *error)
{
    char whole[ATTN_PATH_BYTES];
    return attn_path_join(whole, "", path, error);
}
