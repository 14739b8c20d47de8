/* Whole files.  What is written goes to NAME.part beside NAME, is flushed to the disk and
 * renamed over NAME, so that NAME has the old content or the new one at every moment.  A
 * process that is killed leaves at most one NAME.part, which the next writer takes over;
 * a lock on it keeps two writers apart.
 *
 * Devices and pipes cannot be renamed over and are written in place. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "file/file.h"
#include "base/context.h"
#include "file/path.h"
#include "file/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct attn_file_writer {
    FILE *stream;
    char *path;      /* of the file that will be there in the end, links followed */
    char *part_path; /* NULL where the content goes to the place itself */
    bool failed;     /* a put failed: close must not rename */
};

static attn_status cannot(attn_error *error, const char *what, const char *path)
{
    return attn_error_set(error, ATTN_EIO, "cannot %s %s: %s", what, path,
                          strerror(errno));
}

/* ---- Reading --------------------------------------------------------------------- */

static attn_status too_large(attn_error *error, const char *path, size_t limit)
{
    return attn_error_set(error, ATTN_EFORMAT,
                          "%s has more than %zu bytes, the limit here", path, limit);
}

static attn_status read_stream(FILE *stream, const char *path, size_t limit, char **data,
                               size_t *length, attn_error *error)
{
    size_t capacity = limit < 65536 ? limit + 1 : 65536;
    size_t have = 0;
    char *content = malloc(capacity + 1);
    for (;;) {
        if (!content)
            return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu bytes of %s",
                                  capacity, path);
        have += fread(content + have, 1, capacity - have, stream);
        if (ferror(stream)) {
            free(content);
            return cannot(error, "read", path);
        }
        if (have > limit) {
            free(content);
            return too_large(error, path, limit);
        }
        if (feof(stream))
            break;
        if (have < capacity)
            continue;
        capacity = capacity <= limit / 2 ? capacity * 2 : limit + 1;
        char *const larger = realloc(content, capacity + 1);
        if (!larger)
            free(content);
        content = larger;
    }
    content[have] = '\0';
    *data = content;
    *length = have;
    return ATTN_OK;
}

attn_status attn_file_read(const char *path, size_t limit, char **data, size_t *length,
                           attn_error *error)
{
    if (limit > SIZE_MAX / 4)
        limit = SIZE_MAX / 4;
    if (strcmp(path, "-") == 0)
        return read_stream(stdin, "standard input", limit, data, length, error);
    ATTN_TRY(attn_path_check(path, error));
    FILE *const stream = fopen(path, "rb");
    if (!stream)
        return cannot(error, "open", path);
    struct stat about;
    attn_status status = ATTN_OK;
    if (fstat(fileno(stream), &about) != 0)
        status = cannot(error, "look at", path);
    else if (S_ISDIR(about.st_mode))
        status = attn_error_set(error, ATTN_EIO, "%s is a folder, expected a file", path);
    else if (S_ISREG(about.st_mode) && (uint64_t)about.st_size > limit)
        status = too_large(error, path, limit);
    else
        status = read_stream(stream, path, limit, data, length, error);
    fclose(stream);
    return status;
}

attn_status attn_file_read_text(const char *path, size_t limit, char **text,
                                size_t *length, attn_error *error)
{
    ATTN_TRY(attn_file_read(path, limit, text, length, error));
    const size_t mark = attn_utf8_mark(*text, *length);
    *length -= mark;
    memmove(*text, *text + mark, *length + 1);
    return ATTN_OK;
}

bool attn_file_named(const char *path, const char *end)
{
    const size_t length = strlen(path), tail = strlen(end);
    return length >= tail && strcmp(path + length - tail, end) == 0;
}

/* ---- Writing --------------------------------------------------------------------- */

static attn_status no_memory(attn_error *error, const char *path)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory to write %s", path);
}

/* Opens and locks NAME.part.  Between opening and locking, another writer may have
 * renamed the file that was opened; then it is NAME by now, and the next try finds
 * another. */
static int open_part(const char *part_path)
{
    for (;;) {
        const int file = open(part_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (file < 0)
            return -1;
        struct stat opened, named;
        if (flock(file, LOCK_EX | LOCK_NB) != 0 || fstat(file, &opened) != 0) {
            const int reason = errno;
            close(file);
            errno = reason;
            return -1;
        }
        const bool same = stat(part_path, &named) == 0 && named.st_ino == opened.st_ino &&
                          named.st_dev == opened.st_dev;
        if (same && ftruncate(file, 0) == 0)
            return file;
        const int reason = errno;
        close(file);
        if (same) {
            errno = reason;
            return -1;
        }
    }
}

static attn_status open_beside(attn_file_writer *writer, attn_error *error)
{
    const size_t length = strlen(writer->path);
    writer->part_path = malloc(length + sizeof ".part");
    if (!writer->part_path)
        return no_memory(error, writer->path);
    memcpy(writer->part_path, writer->path, length);
    memcpy(writer->part_path + length, ".part", sizeof ".part");

    const int file = open_part(writer->part_path);
    if (file < 0 && errno == EWOULDBLOCK)
        return attn_error_set(error, ATTN_EIO,
                              "cannot write %s: another process is writing it",
                              writer->path);
    if (file < 0)
        return cannot(error, "write", writer->path);
    writer->stream = fdopen(file, "wb");
    if (writer->stream)
        return ATTN_OK;
    unlink(writer->part_path);
    close(file);
    return no_memory(error, writer->path);
}

/* The file itself where path is a link to one; a new name stays as it is. */
static char *without_links(const char *path)
{
    char *const resolved = realpath(path, NULL);
    return resolved ? resolved : strdup(path);
}

static attn_status open_target(attn_file_writer *writer, const char *path,
                               attn_error *error)
{
    if (strcmp(path, "-") == 0) {
        writer->path = strdup("standard output");
        writer->stream = stdout;
        return writer->path ? ATTN_OK : no_memory(error, path);
    }
    struct stat about;
    const bool exists = stat(path, &about) == 0;
    if (exists && S_ISDIR(about.st_mode))
        return attn_error_set(error, ATTN_EIO, "cannot write %s: it is a folder", path);
    if (exists && S_ISREG(about.st_mode) && access(path, W_OK) != 0)
        return cannot(error, "write", path);
    const bool in_place = exists && !S_ISREG(about.st_mode);
    writer->path = in_place ? strdup(path) : without_links(path);
    if (!writer->path)
        return no_memory(error, path);
    if (!in_place)
        return open_beside(writer, error);
    writer->stream = fopen(path, "wb");
    return writer->stream ? ATTN_OK : cannot(error, "write", path);
}

attn_status attn_file_writer_open(attn_file_writer **writer, const char *path,
                                  attn_error *error)
{
    *writer = NULL;
    ATTN_TRY(attn_path_check(path, error));
    attn_file_writer *const opened = calloc(1, sizeof *opened);
    if (!opened)
        return no_memory(error, path);
    const attn_status status = open_target(opened, path, error);
    if (status != ATTN_OK) {
        free(opened->part_path);
        free(opened->path);
        free(opened);
        return status;
    }
    *writer = opened;
    return ATTN_OK;
}

attn_status attn_file_writer_put(attn_file_writer *writer, const void *data,
                                 size_t length, attn_error *error)
{
    if (length == 0 || fwrite(data, 1, length, writer->stream) == length)
        return ATTN_OK;
    writer->failed = true;
    return cannot(error, "write", writer->path);
}

void attn_file_writer_abandon(attn_file_writer *writer)
{
    if (!writer)
        return;
    if (writer->part_path && writer->stream)
        unlink(writer->part_path); /* before the lock goes with the stream */
    if (writer->stream && writer->stream != stdout)
        fclose(writer->stream);
    free(writer->part_path);
    free(writer->path);
    free(writer);
}

/* The new name is on the disk only when its folder is.  A folder that cannot be opened or
 * flushed (some file systems) is no reason to call the written file a failure. */
static void flush_folder(const char *path)
{
    const char *const slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    if (slash) {
        const size_t length = slash == path ? 1 : (size_t)(slash - path);
        if (length >= sizeof folder)
            return;
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return;
    (void)fsync(file);
    close(file);
}

static attn_status finish(attn_file_writer *writer, attn_error *error)
{
    if (writer->failed)
        return attn_error_set(error, ATTN_EIO,
                              "cannot write %s: an earlier part of it failed",
                              writer->path);
    if (fflush(writer->stream) != 0)
        return cannot(error, "write", writer->path);
    if (!writer->part_path)
        return ATTN_OK;
    if (fsync(fileno(writer->stream)) != 0)
        return cannot(error, "write", writer->path);
    if (rename(writer->part_path, writer->path) != 0)
        return cannot(error, "write", writer->path);
    flush_folder(writer->path);
    return ATTN_OK;
}

attn_status attn_file_writer_close(attn_file_writer *writer, attn_error *error)
{
    const attn_status status = finish(writer, error);
    if (status == ATTN_OK) {
        free(writer->part_path); /* renamed: not there any more */
        writer->part_path = NULL;
    }
    attn_file_writer_abandon(writer);
    return status;
}

attn_status attn_file_write(const char *path, const void *data, size_t length,
                            attn_error *error)
{
    attn_file_writer *writer;
    ATTN_TRY(attn_file_writer_open(&writer, path, error));
    const attn_status status = attn_file_writer_put(writer, data, length, error);
    if (status != ATTN_OK) {
        attn_file_writer_abandon(writer);
        return status;
    }
    return attn_file_writer_close(writer, error);
}
