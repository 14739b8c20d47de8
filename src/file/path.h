/* Paths: joined in this one place, which refuses one that is too long and cuts none. */
#ifndef ATTN_FILE_PATH_H
#define ATTN_FILE_PATH_H

#include "base/error.h"

enum { ATTN_PATH_BYTES = 4096 }; /* with the NUL; Linux opens no longer ones (PATH_MAX) */

/**
 * "folder/name", or name alone where folder is "".
 * @param path  [ATTN_PATH_BYTES], none of what is joined; on failure untouched.
 * @return ATTN_OK, or ATTN_EIO where it does not fit: the message has its length and the
 *         most there may be.
 */
ATTN_CHECKED attn_status attn_path_join(char *path, const char *folder, const char *name,
                                        attn_error *error);
/** The same in the folder of a file: "recipes/a.json" and "b" are "recipes/b". */
ATTN_CHECKED attn_status attn_path_beside(char *path, const char *file, const char *name,
                                          attn_error *error);
/** That a path is none too long, with the same message. */
ATTN_CHECKED attn_status attn_path_check(const char *path, attn_error *error);

#endif
