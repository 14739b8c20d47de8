/* Writing safetensors.  Tensors are laid out from the widest element to the narrowest,
 * and by name among equals, as the format's own library does: each is then aligned to its
 * element.  The header is padded with spaces to 8 bytes. */
#include "base/context.h"
#include "file/file.h"
#include "file/half.h"
#include "file/header.h"
#include "file/safetensors.h"
#include "file/utf8.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header as it grows; `failed` once memory was refused. */
struct text {
    char *bytes;
    size_t length, capacity;
    bool failed;
};

static void append(struct text *text, const char *bytes, size_t length)
{
    if (text->failed)
        return;
    if (text->capacity - text->length <= length) {
        const size_t capacity = 2 * text->capacity + length + 256;
        char *const larger = realloc(text->bytes, capacity);
        if (!larger) {
            text->failed = true;
            return;
        }
        text->bytes = larger;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

__attribute__((format(printf, 2, 3))) static void append_format(struct text *text,
                                                                const char *format, ...)
{
    char piece[96];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    append(text, piece, (size_t)length);
}

static void append_string(struct text *text, const char *string)
{
    append(text, "\"", 1);
    for (; *string; string++) {
        if (*string == '"' || *string == '\\')
            append_format(text, "\\%c", *string);
        else if ((unsigned char)*string < 0x20)
            append_format(text, "\\u%04x", (unsigned)*string);
        else
            append(text, string, 1);
    }
    append(text, "\"", 1);
}

/* ---- Checks ---------------------------------------------------------------------- */

static attn_status entry_bytes(const attn_safetensors_entry *entry, size_t *bytes,
                               attn_error *error)
{
    if (entry->rank < 0 || entry->rank > ATTN_SAFETENSORS_RANK)
        return attn_error_set(error, ATTN_EINVAL,
                              "tensor \"%.80s\" has rank %d, expected 0 to %d",
                              entry->name, entry->rank, ATTN_SAFETENSORS_RANK);
    if (entry->dtype > ATTN_DTYPE_BOOL)
        return attn_error_set(error, ATTN_EINVAL, "tensor \"%.80s\" has an unknown dtype",
                              entry->name);
    *bytes = attn_dtype_bytes(entry->dtype);
    for (int i = 0; i < entry->rank; i++)
        if (entry->extent[i] < 0 ||
            __builtin_mul_overflow(*bytes, (size_t)entry->extent[i], bytes))
            return attn_error_set(error, ATTN_EINVAL,
                                  "tensor \"%.80s\" has extent %" PRId64
                                  " on axis %d, which "
                                  "is no size",
                                  entry->name, entry->extent[i], i);
    if (*bytes > 0 && !entry->data)
        return attn_error_set(error, ATTN_EINVAL, "tensor \"%.80s\" has no data",
                              entry->name);
    return ATTN_OK;
}

static attn_status check_text(const char *text, attn_error *error)
{
    const size_t length = strlen(text);
    if (attn_utf8_valid(text, length) == length)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EINVAL, "a name or note is not UTF-8");
}

static attn_status check_entries(const attn_safetensors_entry *const *entries,
                                 size_t count, attn_error *error)
{
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        ATTN_TRY(check_text(entries[i]->name, error));
        ATTN_TRY(entry_bytes(entries[i], &bytes, error));
        if (__builtin_add_overflow(total, bytes, &total))
            return attn_error_set(error, ATTN_EINVAL,
                                  "the tensors have more bytes than 64 bits can count");
        if (strcmp(entries[i]->name, "__metadata__") == 0)
            return attn_error_set(
                error, ATTN_EINVAL,
                "a tensor is named __metadata__, which the format keeps");
    }
    return ATTN_OK;
}

static attn_status check_notes(const attn_safetensors_note *notes, size_t count,
                               attn_error *error)
{
    for (size_t i = 0; i < count; i++) {
        ATTN_TRY(check_text(notes[i].key, error));
        ATTN_TRY(check_text(notes[i].value, error));
        for (size_t j = 0; j < i; j++)
            if (strcmp(notes[i].key, notes[j].key) == 0)
                return attn_error_set(error, ATTN_EINVAL,
                                      "two notes have the key \"%.80s\"", notes[i].key);
    }
    return ATTN_OK;
}

/* ---- Header and data ------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const attn_safetensors_entry *const *const x = a, *const *const y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_places(const void *a, const void *b)
{
    const attn_safetensors_entry *const *const x = a, *const *const y = b;
    const size_t x_bytes = attn_dtype_bytes((*x)->dtype);
    const size_t y_bytes = attn_dtype_bytes((*y)->dtype);
    if (x_bytes != y_bytes)
        return x_bytes > y_bytes ? -1 : 1;
    return compare_names(a, b);
}

static size_t bytes_of(const attn_safetensors_entry *entry)
{
    attn_error unused;
    size_t bytes = 0;
    const attn_status status = entry_bytes(entry, &bytes, &unused);
    return status == ATTN_OK ? bytes : 0;
}

static void append_tensors(struct text *text,
                           const attn_safetensors_entry *const *entries, size_t count)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (text->length > 1)
            append(text, ",", 1);
        append_string(text, entries[i]->name);
        append_format(text, ":{\"dtype\":\"%s\",\"shape\":[",
                      attn_dtype_name(entries[i]->dtype));
        for (int j = 0; j < entries[i]->rank; j++)
            append_format(text, "%s%" PRId64, j > 0 ? "," : "", entries[i]->extent[j]);
        const size_t bytes = bytes_of(entries[i]);
        append_format(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                      at + bytes);
        at += bytes;
    }
}

/* The whole head of the file, its length included. */
static void write_header(struct text *text, const attn_safetensors_entry *const *entries,
                         size_t count, const attn_safetensors_note *notes,
                         size_t note_count)
{
    append(text, "{", 1);
    if (note_count > 0)
        append_format(text, "\"__metadata__\":{");
    for (size_t i = 0; i < note_count; i++) {
        if (i > 0)
            append(text, ",", 1);
        append_string(text, notes[i].key);
        append(text, ":", 1);
        append_string(text, notes[i].value);
    }
    if (note_count > 0)
        append(text, "}", 1);
    append_tensors(text, entries, count);
    append(text, "}", 1);
    while (text->length % 8 != 0 && !text->failed)
        append(text, " ", 1);
}

/* Floats, rounded to 16 bits in chunks. */
static attn_status put_halves(attn_file_writer *writer,
                              const attn_safetensors_entry *entry, size_t count,
                              attn_error *error)
{
    enum { CHUNK = 4096 };
    uint16_t halves[CHUNK];
    const float *const values = entry->data;
    for (size_t first = 0; first < count; first += CHUNK) {
        const size_t length = count - first < CHUNK ? count - first : CHUNK;
        for (size_t i = 0; i < length; i++)
            halves[i] = entry->dtype == ATTN_DTYPE_F16
                            ? attn_f16_from_float(values[first + i])
                            : attn_bf16_from_float(values[first + i]);
        ATTN_TRY(attn_file_writer_put(writer, halves, length * sizeof *halves, error));
    }
    return ATTN_OK;
}

static attn_status put_all(attn_file_writer *writer, const struct text *header,
                           const attn_safetensors_entry *const *entries, size_t count,
                           attn_error *error)
{
    const uint64_t header_bytes = header->length;
    ATTN_TRY(attn_file_writer_put(writer, &header_bytes, sizeof header_bytes, error));
    ATTN_TRY(attn_file_writer_put(writer, header->bytes, header->length, error));
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = bytes_of(entries[i]);
        if (entries[i]->dtype == ATTN_DTYPE_F16 || entries[i]->dtype == ATTN_DTYPE_BF16)
            ATTN_TRY(put_halves(writer, entries[i], bytes / sizeof(uint16_t), error));
        else
            ATTN_TRY(attn_file_writer_put(writer, entries[i]->data, bytes, error));
    }
    return ATTN_OK;
}

static attn_status write_file(const char *path, const struct text *header,
                              const attn_safetensors_entry *const *entries, size_t count,
                              attn_error *error)
{
    attn_file_writer *writer;
    ATTN_TRY(attn_file_writer_open(&writer, path, error));
    const attn_status status = put_all(writer, header, entries, count, error);
    if (status != ATTN_OK) {
        attn_file_writer_abandon(writer);
        return status;
    }
    return attn_file_writer_close(writer, error);
}

static attn_status sort_entries(const attn_safetensors_entry **sorted, size_t count,
                                attn_error *error)
{
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            return attn_error_set(error, ATTN_EINVAL, "two tensors are named \"%.80s\"",
                                  sorted[i]->name);
    ATTN_TRY(check_entries(sorted, count, error));
    qsort(sorted, count, sizeof *sorted, compare_places);
    return ATTN_OK;
}

attn_status attn_safetensors_write(const char *path,
                                   const attn_safetensors_entry *entries, size_t count,
                                   const attn_safetensors_note *notes, size_t note_count,
                                   attn_error *error)
{
    ATTN_TRY(check_notes(notes, note_count, error));
    const attn_safetensors_entry **const sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to write %s", path);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &entries[i];
    attn_status status = sort_entries(sorted, count, error);
    if (status == ATTN_OK) {
        struct text header = {0};
        write_header(&header, sorted, count, notes, note_count);
        status = header.failed
                     ? attn_error_set(error, ATTN_ENOMEM, "no memory to write %s", path)
                     : write_file(path, &header, sorted, count, error);
        free(header.bytes);
    }
    free(sorted);
    return status;
}
