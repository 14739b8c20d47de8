/* Opening safetensors: 8 bytes of header length, the header, the tensors' bytes without
 * gap or overlap to the end of the file.  The file is mapped, so opening a large model
 * costs its header; nobody may shorten it in place meanwhile (attn_file_write never does:
 * it renames). */
#include "file/safetensors.h"
#include "base/context.h"
#include "file/half.h"
#include "file/header.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors are little-endian and are read in place");

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100000000 /* the format's own */ };

struct attn_safetensors {
    struct attn_header header; /* tensors in the order of their data */
    const attn_safetensor **by_name;
    void *map; /* NULL where the caller keeps the bytes */
    size_t map_bytes;
};

/* ---- Checks ---------------------------------------------------------------------- */

static int compare_data(const void *a, const void *b)
{
    const struct attn_header_tensor *const x = a, *const y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

static int compare_names(const void *a, const void *b)
{
    const attn_safetensor *const *const x = a, *const *const y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_keys(const void *a, const void *b)
{
    const attn_safetensors_note *const x = a, *const y = b;
    return strcmp(x->key, y->key);
}

/* Each tensor begins where the one before it ends, and the last ends with the file. */
static attn_status check_data(const struct attn_header *header, const char *name,
                              size_t data_bytes, attn_error *error)
{
    uint64_t at = 0;
    for (size_t i = 0; i < header->count; i++) {
        const struct attn_header_tensor *const entry = &header->tensors[i];
        if (entry->end > data_bytes)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: tensor \"%.80s\" ends at byte %" PRIu64
                                  " of the data, which has %zu",
                                  name, entry->tensor.name, entry->end, data_bytes);
        if (entry->begin < at)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: tensors \"%.80s\" and \"%.80s\" overlap at byte "
                                  "%" PRIu64 " of the data",
                                  name, entry[-1].tensor.name, entry->tensor.name,
                                  entry->begin);
        if (entry->begin > at)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: a hole of %" PRIu64 " bytes before tensor "
                                  "\"%.80s\"",
                                  name, entry->begin - at, entry->tensor.name);
        at = entry->end;
    }
    if (at != data_bytes)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: %" PRIu64 " bytes after the last tensor belong to "
                              "none",
                              name, data_bytes - at);
    return ATTN_OK;
}

static attn_status check_names(const attn_safetensors *file, const char *name,
                               attn_error *error)
{
    for (size_t i = 1; i < file->header.count; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: two tensors are named \"%.80s\"", name,
                                  file->by_name[i]->name);
    for (size_t i = 1; i < file->header.note_count; i++)
        if (compare_keys(&file->header.notes[i - 1], &file->header.notes[i]) == 0)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: __metadata__ has \"%.80s\" twice", name,
                                  file->header.notes[i].key);
    return ATTN_OK;
}

static attn_status header_length(const void *data, size_t bytes, const char *name,
                                 size_t *length, attn_error *error)
{
    if (bytes < LENGTH_BYTES)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s has %zu bytes, expected at least 8: the length of a "
                              "safetensors header",
                              name, bytes);
    uint64_t claimed;
    memcpy(&claimed, data, LENGTH_BYTES);
    if (claimed > bytes - LENGTH_BYTES)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: the header has %" PRIu64 " bytes by its own account, "
                              "the file %zu after that: not safetensors, or cut off",
                              name, claimed, bytes - LENGTH_BYTES);
    if (claimed > HEADER_LIMIT)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: the header has %" PRIu64 " bytes, expected at most "
                              "%d",
                              name, claimed, HEADER_LIMIT);
    *length = (size_t)claimed;
    return ATTN_OK;
}

/* ---- Opening --------------------------------------------------------------------- */

static attn_status parse(attn_safetensors *file, const char *data, size_t bytes,
                         const char *name, attn_error *error)
{
    size_t length;
    ATTN_TRY(header_length(data, bytes, name, &length, error));
    struct attn_header *const header = &file->header;
    ATTN_TRY(attn_header_read(header, data + LENGTH_BYTES, length, name, error));
    const char *const first_byte = data + LENGTH_BYTES + length;
    file->by_name = malloc((header->count + 1) * sizeof *file->by_name);
    if (!file->by_name)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to open %s", name);
    if (header->count > 0)
        qsort(header->tensors, header->count, sizeof *header->tensors, compare_data);
    if (header->note_count > 0)
        qsort(header->notes, header->note_count, sizeof *header->notes, compare_keys);
    for (size_t i = 0; i < header->count; i++)
        file->by_name[i] = &header->tensors[i].tensor;
    qsort(file->by_name, header->count, sizeof *file->by_name, compare_names);
    ATTN_TRY(check_names(file, name, error));
    ATTN_TRY(check_data(header, name, bytes - LENGTH_BYTES - length, error));
    for (size_t i = 0; i < header->count; i++)
        header->tensors[i].tensor.data = first_byte + header->tensors[i].begin;
    return ATTN_OK;
}

attn_status attn_safetensors_parse(attn_safetensors **file, const void *data,
                                   size_t bytes, const char *name, attn_error *error)
{
    *file = NULL;
    attn_safetensors *const opened = calloc(1, sizeof *opened);
    if (!opened)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to open %s", name);
    const attn_status status = parse(opened, data, bytes, name, error);
    if (status != ATTN_OK) {
        attn_safetensors_close(opened);
        return status;
    }
    *file = opened;
    return ATTN_OK;
}

static attn_status map_file(const char *path, void **map, size_t *bytes,
                            attn_error *error)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return attn_error_set(error, ATTN_EIO, "cannot open %s: %s", path,
                              strerror(errno));
    struct stat about;
    attn_status status = ATTN_OK;
    if (fstat(file, &about) != 0)
        status = attn_error_set(error, ATTN_EIO, "cannot look at %s: %s", path,
                                strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = attn_error_set(error, ATTN_EIO, "%s is not a regular file", path);
    else if (about.st_size < LENGTH_BYTES)
        status = header_length("", (size_t)about.st_size, path, bytes, error);
    else {
        *bytes = (size_t)about.st_size;
        *map = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (*map == MAP_FAILED)
            status = attn_error_set(error, ATTN_EIO, "cannot map %s: %s", path,
                                    strerror(errno));
    }
    close(file);
    return status;
}

attn_status attn_safetensors_open(attn_safetensors **file, const char *path,
                                  attn_error *error)
{
    *file = NULL;
    void *map = NULL;
    size_t bytes = 0;
    ATTN_TRY(map_file(path, &map, &bytes, error));
    const attn_status status = attn_safetensors_parse(file, map, bytes, path, error);
    if (status != ATTN_OK) {
        munmap(map, bytes);
        return status;
    }
    (*file)->map = map;
    (*file)->map_bytes = bytes;
    return ATTN_OK;
}

void attn_safetensors_close(attn_safetensors *file)
{
    if (!file)
        return;
    if (file->map)
        munmap(file->map, file->map_bytes);
    attn_header_free(&file->header);
    free(file->by_name);
    free(file);
}

/* ---- What is in it --------------------------------------------------------------- */

size_t attn_safetensors_count(const attn_safetensors *file)
{
    return file->header.count;
}

const attn_safetensor *attn_safetensors_at(const attn_safetensors *file, size_t index)
{
    return index < file->header.count ? &file->header.tensors[index].tensor : NULL;
}

const attn_safetensor *attn_safetensors_find(const attn_safetensors *file,
                                             const char *name)
{
    const attn_safetensor wanted = {.name = name};
    const attn_safetensor *const key = &wanted;
    const attn_safetensor **const found = bsearch(&key, file->by_name, file->header.count,
                                                  sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}

const char *attn_safetensors_metadata(const attn_safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->header.note_count; i++)
        if (strcmp(file->header.notes[i].key, key) == 0)
            return file->header.notes[i].value;
    return NULL;
}

attn_status attn_safetensor_to_float(const attn_safetensor *tensor, float *out,
                                     attn_error *error)
{
    const char *const data = tensor->data;
    switch (tensor->dtype) {
    case ATTN_DTYPE_F32:
        if (tensor->bytes > 0)
            memcpy(out, data, tensor->bytes);
        return ATTN_OK;
    case ATTN_DTYPE_F64:
        for (size_t i = 0; i < tensor->count; i++) {
            double value;
            memcpy(&value, data + i * sizeof value, sizeof value);
            out[i] = (float)value;
        }
        return ATTN_OK;
    case ATTN_DTYPE_F16:
    case ATTN_DTYPE_BF16:
        for (size_t i = 0; i < tensor->count; i++) {
            uint16_t half;
            memcpy(&half, data + i * sizeof half, sizeof half);
            out[i] = tensor->dtype == ATTN_DTYPE_F16 ? attn_float_from_f16(half)
                                                     : attn_float_from_bf16(half);
        }
        return ATTN_OK;
    default:
        return attn_error_set(
            error, ATTN_EFORMAT,
            "tensor \"%.80s\" has dtype %s, expected F32, F16, BF16 or F64", tensor->name,
            attn_dtype_name(tensor->dtype));
    }
}
