/* Loading idx files.  What a .gz file unpacks to is bounded, so that a small hostile file
 * stays small. */
#include "file/idx.h"
#include "base/context.h"
#include "file/file.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const size_t FILE_LIMIT = (size_t)1 << 30;
static const size_t UNPACKED_LIMIT = (size_t)1 << 30;

static attn_status no_memory(const char *path, attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory for %s", path);
}

/* ---- Unpacking ------------------------------------------------------------------- */

/* Whether another stream follows the one that ended: a .gz file may be several. */
static bool goes_on(z_stream *stream)
{
    return stream->avail_in > 0 && inflateReset(stream) == Z_OK;
}

/* Runs the decoder to the end of the file. */
static attn_status inflate_all(z_stream *stream, const char *path, char **unpacked,
                               size_t *length, attn_error *error)
{
    size_t capacity = 0, have = 0;
    int code = Z_OK;
    while (code == Z_OK) {
        if (have > UNPACKED_LIMIT)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s unpacks to more than %zu bytes, the limit here",
                                  path, UNPACKED_LIMIT);
        if (have == capacity) {
            capacity = capacity ? 2 * capacity : 65536;
            char *const larger = realloc(*unpacked, capacity);
            if (!larger)
                return no_memory(path, error);
            *unpacked = larger;
        }
        stream->next_out = (Bytef *)*unpacked + have;
        stream->avail_out = (uInt)(capacity - have);
        code = inflate(stream, Z_NO_FLUSH);
        have = capacity - stream->avail_out;
        if (code == Z_STREAM_END && goes_on(stream))
            code = Z_OK;
    }
    *length = have;
    if (code == Z_STREAM_END)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT, "cannot unpack %s: %s", path,
                          code == Z_BUF_ERROR ? "it ends too early"
                          : stream->msg       ? stream->msg
                                              : "it is not a .gz file");
}

static attn_status unpack(const char *path, char **data, size_t *length,
                          attn_error *error)
{
    enum { GZIP = 16 + MAX_WBITS };
    z_stream stream = {.next_in = (Bytef *)*data, .avail_in = (uInt)*length};
    if (inflateInit2(&stream, GZIP) != Z_OK)
        return no_memory(path, error);
    char *unpacked = NULL;
    const attn_status status = inflate_all(&stream, path, &unpacked, length, error);
    inflateEnd(&stream);
    free(*data);
    *data = unpacked;
    return status;
}

/* ---- Content --------------------------------------------------------------------- */

static attn_status read_header(attn_idx *idx, const uint8_t *data, size_t length,
                               const char *path, int rank, attn_error *error)
{
    const size_t header = 4 + 4 * (size_t)rank;
    if (length < 4 || data[0] != 0 || data[1] != 0 || data[2] != 8)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s is no idx file of bytes: expected it to begin with "
                              "00 00 08",
                              path);
    if (data[3] != rank || length < header)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s has rank %d in %zu bytes, expected rank %d", path,
                              data[3], length, rank);
    uint64_t count = 1;
    idx->rank = rank;
    for (int axis = 0; axis < rank; axis++) {
        const uint8_t *const at = data + 4 + 4 * axis;
        const uint32_t extent =
            (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        idx->extent[axis] = extent;
        count = extent && count > UNPACKED_LIMIT / extent ? UINT64_MAX : count * extent;
        if (count == UINT64_MAX)
            break;
    }
    if (count != length - header)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s has %zu bytes of content, expected %llu, as its "
                              "extents say",
                              path, length - header, (unsigned long long)count);
    return ATTN_OK;
}

attn_status attn_idx_load(attn_idx *idx, const char *path, int rank, attn_error *error)
{
    char *data;
    size_t length;
    *idx = (attn_idx){0};
    ATTN_TRY(attn_file_read(path, FILE_LIMIT, &data, &length, error));
    attn_status status = ATTN_OK;
    if (attn_file_named(path, ".gz"))
        status = unpack(path, &data, &length, error);
    if (status == ATTN_OK)
        status = read_header(idx, (const uint8_t *)data, length, path, rank, error);
    if (status != ATTN_OK) {
        free(data);
        *idx = (attn_idx){0};
        return status;
    }
    const size_t header = 4 + 4 * (size_t)rank;
    memmove(data, data + header, length - header);
    idx->bytes = (uint8_t *)data;
    return ATTN_OK;
}

void attn_idx_free(attn_idx *idx)
{
    free(idx->bytes);
    *idx = (attn_idx){0};
}
