/* Paths: joined in this one place, which refuses one that is too long and cuts none; and
 * where data are looked for. */
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
/**
 * Where a data file lies: at first, where there is one, else as file in the folder that
 * the environment's ATTN_DATA names.  One that is there and cannot be read is found: who
 * opens it says why.
 * @param path   [ATTN_PATH_BYTES]; first where there is none either.
 * @param first  a path; of an absolute file the only place.
 * @param place  what first is called in a message: "here".
 * @return ATTN_OK, or ATTN_EIO, which names both places, or one that is too long.
 */
ATTN_CHECKED attn_status attn_path_data(char *path, const char *first, const char *file,
                                        const char *place, attn_error *error);
/** That a path is none too long, with the same message. */
ATTN_CHECKED attn_status attn_path_check(const char *path, attn_error *error);

#endif
