/* Loading parallel text.  A .xz file is unpacked in memory, with limits on the decoder's
 * memory and on what comes out of it, so that a small hostile file stays small. */
#include "text/corpus.h"
#include "base/context.h"
#include "file/file.h"
#include "file/utf8.h"
#include "text/containers.h"
#include "text/lower.h"
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const size_t FILE_LIMIT = (size_t)1 << 30;
static const size_t TEXT_LIMIT = (size_t)2 << 30;
static const uint64_t DECODER_MEMORY = (uint64_t)128 << 20; /* xz -9 takes 65 MiB */

/* ---- Unpacking ------------------------------------------------------------------- */

static const char *lzma_reason(lzma_ret code)
{
    switch (code) {
    case LZMA_FORMAT_ERROR:
        return "it is not an .xz file";
    case LZMA_DATA_ERROR:
        return "its data is damaged";
    case LZMA_BUF_ERROR:
        return "it ends too early";
    case LZMA_MEMLIMIT_ERROR:
        return "it asks for more than 128 MiB to unpack";
    case LZMA_OPTIONS_ERROR:
        return "it uses options this liblzma does not have";
    default:
        return "liblzma failed";
    }
}

/* Runs the decoder to the end of the stream into *out. */
static attn_status decode(lzma_stream *stream, const char *path, char **out,
                          size_t *out_length, attn_error *error)
{
    size_t capacity = 0, length = 0;
    char *text = NULL;
    lzma_ret code = LZMA_OK;
    while (code == LZMA_OK) {
        if (length > TEXT_LIMIT) {
            free(text);
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s unpacks to more than %zu bytes, the limit here",
                                  path, TEXT_LIMIT);
        }
        if (!attn_grow(&text, &capacity, length + 65536, 1)) {
            free(text);
            return attn_error_set(error, ATTN_ENOMEM, "no memory to unpack %s", path);
        }
        stream->next_out = (uint8_t *)text + length;
        stream->avail_out = capacity - length - 1;
        code = lzma_code(stream, LZMA_FINISH);
        length = capacity - 1 - stream->avail_out;
    }
    if (code != LZMA_STREAM_END) {
        free(text);
        return attn_error_set(error, ATTN_EFORMAT, "cannot unpack %s: %s", path,
                              lzma_reason(code));
    }
    text[length] = '\0';
    *out = text;
    *out_length = length;
    return ATTN_OK;
}

static attn_status unpack(const char *path, char **text, size_t *length,
                          attn_error *error)
{
    lzma_stream stream = LZMA_STREAM_INIT;
    if (lzma_stream_decoder(&stream, DECODER_MEMORY, LZMA_CONCATENATED) != LZMA_OK)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to unpack %s", path);
    stream.next_in = (const uint8_t *)*text;
    stream.avail_in = *length;
    char *unpacked = NULL;
    const attn_status status = decode(&stream, path, &unpacked, length, error);
    lzma_end(&stream);
    ATTN_TRY(status);
    free(*text);
    *text = unpacked;
    return ATTN_OK;
}

static attn_status read_text(const char *path, char **text, size_t *length,
                             attn_error *error)
{
    *text = NULL;
    ATTN_TRY(attn_file_read(path, FILE_LIMIT, text, length, error));
    return attn_file_named(path, ".xz") ? unpack(path, text, length, error) : ATTN_OK;
}

/* ---- A whole file ---------------------------------------------------------------- */

static size_t line_of(const char *text, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

static attn_status check_text(const char *text, size_t length, const char *path,
                              attn_error *error)
{
    const char *const nul = memchr(text, '\0', length);
    const size_t valid = attn_utf8_valid(text, length);
    if (valid < length)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s, line %zu: not UTF-8 (0x%02X), expected text", path,
                              line_of(text, valid), (unsigned char)text[valid]);
    if (nul)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s, line %zu: a byte 0 in it, expected text", path,
                              line_of(text, (size_t)(nul - text)));
    return ATTN_OK;
}

attn_status attn_text_load(char **text, size_t *length_bytes, const char *path,
                           attn_error *error)
{
    char *read;
    size_t length;
    attn_status status = read_text(path, &read, &length, error);
    if (status == ATTN_OK)
        status = check_text(read, length, path, error);
    if (status != ATTN_OK) {
        free(read);
        return status;
    }
    const size_t mark = attn_utf8_mark(read, length);
    memmove(read, read + mark, length - mark + 1);
    *text = read;
    *length_bytes = length - mark;
    return ATTN_OK;
}

/* ---- Lines ----------------------------------------------------------------------- */

struct reader {
    attn_corpus *corpus;
    const char *path;
    size_t columns;
    size_t fields, fields_capacity, starts_capacity;
};

static attn_status no_memory(const struct reader *reader, attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory for the lines of %s",
                          reader->path);
}

/* Cuts the line [line, end), whose end is already a NUL, into fields. */
static attn_status add_line(struct reader *reader, char *line, char *end,
                            attn_error *error)
{
    attn_corpus *const corpus = reader->corpus;
    const size_t number = corpus->lines + 1;
    const size_t length = (size_t)(end - line);
    const size_t valid = attn_utf8_valid(line, length);
    if (valid < length)
        return attn_error_set(
            error, ATTN_EFORMAT, "%s, line %zu: not UTF-8 at byte %zu (0x%02X)",
            reader->path, number, valid + 1, (unsigned char)line[valid]);
    if (memchr(line, '\0', length))
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s, line %zu: a byte 0 in it, expected text", reader->path,
                              number);
    size_t count = 0;
    for (char *field = line; field; count++) {
        char *const tab = strchr(field, '\t');
        if (tab)
            *tab = '\0';
        if (!attn_grow(&corpus->fields, &reader->fields_capacity, reader->fields + 1,
                       sizeof *corpus->fields))
            return no_memory(reader, error);
        corpus->fields[reader->fields++] = field;
        field = tab ? tab + 1 : NULL;
    }
    if (count < reader->columns)
        return attn_error_set(
            error, ATTN_EFORMAT,
            "%s, line %zu: %zu column%s, separated by tabs, expected at "
            "least %zu",
            reader->path, number, count, attn_s((int64_t)count), reader->columns);
    corpus->lines++;
    if (!attn_grow(&corpus->first_field, &reader->starts_capacity, corpus->lines + 1,
                   sizeof *corpus->first_field))
        return no_memory(reader, error);
    corpus->first_field[corpus->lines] = reader->fields;
    return ATTN_OK;
}

static attn_status cut_lines(struct reader *reader, size_t length, attn_error *error)
{
    attn_corpus *const corpus = reader->corpus;
    if (!attn_grow(&corpus->first_field, &reader->starts_capacity, 1,
                   sizeof *corpus->first_field))
        return no_memory(reader, error);
    corpus->first_field[0] = 0;
    char *line = corpus->text + attn_utf8_mark(corpus->text, length);
    char *const text_end = corpus->text + length;
    while (line < text_end) {
        char *const newline = memchr(line, '\n', (size_t)(text_end - line));
        char *const next = newline ? newline + 1 : text_end;
        char *end = newline ? newline : text_end;
        if (end > line && end[-1] == '\r')
            end--;
        *end = '\0';
        ATTN_TRY(add_line(reader, line, end, error));
        line = next;
    }
    return ATTN_OK;
}

attn_status attn_corpus_load(attn_corpus *corpus, const char *path, size_t columns,
                             attn_error *error)
{
    *corpus = (attn_corpus){0};
    size_t length;
    attn_status status = read_text(path, &corpus->text, &length, error);
    struct reader reader = {.corpus = corpus, .path = path, .columns = columns};
    if (status == ATTN_OK)
        status = cut_lines(&reader, length, error);
    if (status != ATTN_OK)
        attn_corpus_free(corpus);
    return status;
}

void attn_corpus_swap(attn_corpus *corpus)
{
    for (size_t n = 0; n < corpus->lines; n++) {
        const char **const fields = corpus->fields + corpus->first_field[n];
        const char *const second = fields[1];
        fields[1] = fields[0];
        fields[0] = second;
    }
}

void attn_corpus_free(attn_corpus *corpus)
{
    free(corpus->first_field);
    free(corpus->fields);
    free(corpus->text);
    *corpus = (attn_corpus){0};
}

attn_status attn_corpus_lower_case(attn_corpus *corpus, attn_error *error)
{
    const size_t count = corpus->lines ? corpus->first_field[corpus->lines] : 0;
    size_t bytes = 1;
    /* The widest step is from two bytes to three. */
    for (size_t n = 0; n < count; n++)
        bytes += strlen(corpus->fields[n]) / 2 * 3 + 4;
    char *const lower = malloc(bytes), *to = lower;
    if (!lower)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu bytes of text",
                              bytes);
    for (size_t n = 0; n < count; n++) {
        const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)corpus->fields[n];
        corpus->fields[n] = to;
        while (*from) {
            utf8proc_int32_t letter;
            from += utf8proc_iterate(from, -1, &letter);
            to += attn_lower_letter((uint32_t)letter, to);
        }
        *to++ = '\0';
    }
    free(corpus->text);
    corpus->text = lower;
    return ATTN_OK;
}
