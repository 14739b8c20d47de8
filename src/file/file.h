/* Whole files: read with a limit, written whole or not at all. */
#ifndef ATTN_FILE_FILE_H
#define ATTN_FILE_FILE_H

#include "base/error.h"

/** Reads path ("-" is standard input) into memory the caller frees; (*data)[*length] is a
 * NUL beyond the content.  A file larger than limit is ATTN_EFORMAT. */
ATTN_CHECKED attn_status attn_file_read(const char *path, size_t limit, char **data,
                                        size_t *length, attn_error *error);

/** The same of a text, without the mark of byte order that may stand before it. */
ATTN_CHECKED attn_status attn_file_read_text(const char *path, size_t limit, char **text,
                                             size_t *length, attn_error *error);

/** Does the path end so: ".xz"? */
bool attn_file_named(const char *path, const char *end);

/** Writes beside path, flushes to the disk, renames: path has the old content or the new.
 * "-" is standard output. */
ATTN_CHECKED attn_status attn_file_write(const char *path, const void *data,
                                         size_t length, attn_error *error);

/** The same for content that comes in pieces: write calls put until it returns. */
typedef struct attn_file_writer attn_file_writer;
ATTN_CHECKED attn_status attn_file_writer_open(attn_file_writer **writer,
                                               const char *path, attn_error *error);
ATTN_CHECKED attn_status attn_file_writer_put(attn_file_writer *writer, const void *data,
                                              size_t length, attn_error *error);
/** Flushes and renames; frees the writer, also on failure, which leaves path as it was.
 */
ATTN_CHECKED attn_status attn_file_writer_close(attn_file_writer *writer,
                                                attn_error *error);
/** Throws away what was written; NULL is fine. */
void attn_file_writer_abandon(attn_file_writer *writer);

#endif
