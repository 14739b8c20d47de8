/* A scanner for the one shape of JSON that a safetensors header may have:
 *
 *     {"__metadata__": {"key": "value", …},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
 *
 * A general parser would build a tree, of many times the header's size, before anything
 * could be refused. */
#include "file/header.h"
#include "base/context.h"
#include "file/utf8.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [ATTN_DTYPE_F32] = {"F32", 4},   [ATTN_DTYPE_F16] = {"F16", 2},
    [ATTN_DTYPE_BF16] = {"BF16", 2}, [ATTN_DTYPE_F64] = {"F64", 8},
    [ATTN_DTYPE_I64] = {"I64", 8},   [ATTN_DTYPE_I32] = {"I32", 4},
    [ATTN_DTYPE_I16] = {"I16", 2},   [ATTN_DTYPE_I8] = {"I8", 1},
    [ATTN_DTYPE_U8] = {"U8", 1},     [ATTN_DTYPE_U16] = {"U16", 2},
    [ATTN_DTYPE_U32] = {"U32", 4},   [ATTN_DTYPE_U64] = {"U64", 8},
    [ATTN_DTYPE_BOOL] = {"BOOL", 1},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

size_t attn_dtype_bytes(attn_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *attn_dtype_name(attn_dtype dtype)
{
    return dtypes[dtype].name;
}

struct scanner {
    const char *start, *at, *end;
    const char *file;
    char *strings; /* where the next string goes */
    struct attn_header *header;
    attn_error *error;
};

__attribute__((format(printf, 2, 3))) static attn_status refuse(struct scanner *scanner,
                                                                const char *format, ...)
{
    char reason[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return attn_error_set(scanner->error, ATTN_EFORMAT, "%s: header, byte %zu: %s",
                          scanner->file, (size_t)(scanner->at - scanner->start), reason);
}

/* ---- Characters ------------------------------------------------------------------ */

/* The next character that is not white space, or −1 at the end; it is not taken. */
static int peek(struct scanner *scanner)
{
    while (scanner->at < scanner->end && strchr(" \t\n\r", *scanner->at) && *scanner->at)
        scanner->at++;
    return scanner->at < scanner->end ? (unsigned char)*scanner->at : -1;
}

static attn_status expect(struct scanner *scanner, char character)
{
    const int found = peek(scanner);
    if (found == character) {
        scanner->at++;
        return ATTN_OK;
    }
    if (found < 0)
        return refuse(scanner, "it ends, expected '%c'", character);
    if (found < 0x20 || found > 0x7E)
        return refuse(scanner, "byte 0x%02X, expected '%c'", (unsigned)found, character);
    return refuse(scanner, "'%c', expected '%c'", found, character);
}

/* After an element of a list: takes "," and sets *more, or takes `close`. */
static attn_status next_or_close(struct scanner *scanner, char close, bool *more)
{
    *more = peek(scanner) == ',';
    if (!*more)
        return expect(scanner, close);
    scanner->at++;
    return ATTN_OK;
}

/* ---- Strings and numbers --------------------------------------------------------- */

static attn_status hex_digits(struct scanner *scanner, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++, scanner->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *const digit = scanner->at < scanner->end && *scanner->at
                                      ? strchr(digits, *scanner->at)
                                      : NULL;
        if (!digit)
            return refuse(scanner, "expected four hexadecimal digits after \\u");
        *value = *value << 4 | (uint32_t)((digit - digits) & 15);
    }
    return ATTN_OK;
}

/* \uXXXX, or two of them for a code point beyond U+FFFF; the "\u" is taken already. */
static attn_status unicode_escape(struct scanner *scanner, char **out)
{
    uint32_t value;
    ATTN_TRY(hex_digits(scanner, &value));
    if (value >= 0xD800 && value < 0xDC00 && scanner->end - scanner->at >= 2 &&
        scanner->at[0] == '\\' && scanner->at[1] == 'u') {
        scanner->at += 2;
        uint32_t low;
        ATTN_TRY(hex_digits(scanner, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return refuse(scanner, "\\u%04X after \\u%04X is no pair of surrogates",
                          (unsigned)low, (unsigned)value);
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    if (value >= 0xD800 && value < 0xE000)
        return refuse(scanner, "\\u%04X is half of a pair of surrogates",
                      (unsigned)value);
    if (value == 0)
        return refuse(scanner, "\\u0000 in a string");
    *out += attn_utf8_write(value, *out);
    return ATTN_OK;
}

static attn_status escape(struct scanner *scanner, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    scanner->at++;
    if (scanner->at == scanner->end)
        return refuse(scanner, "it ends inside a string");
    const char kind = *scanner->at++;
    if (kind == 'u')
        return unicode_escape(scanner, out);
    const char *const name = kind ? strchr(names, kind) : NULL;
    if (!name)
        return refuse(scanner, "an unknown escape in a string");
    *(*out)++ = values[name - names];
    return ATTN_OK;
}

static attn_status scan_string(struct scanner *scanner, const char **string)
{
    ATTN_TRY(expect(scanner, '"'));
    *string = scanner->strings;
    char *out = scanner->strings;
    while (scanner->at < scanner->end && *scanner->at != '"') {
        if (*scanner->at == '\\') {
            ATTN_TRY(escape(scanner, &out));
            continue;
        }
        uint32_t code_point;
        size_t used;
        if (!attn_utf8_read(scanner->at, (size_t)(scanner->end - scanner->at),
                            &code_point, &used))
            return refuse(scanner, "a string is not UTF-8");
        if (code_point < 0x20)
            return refuse(scanner, "a control character in a string");
        memcpy(out, scanner->at, used);
        out += used;
        scanner->at += used;
    }
    if (scanner->at == scanner->end)
        return refuse(scanner, "it ends inside a string");
    scanner->at++;
    *out++ = '\0';
    scanner->strings = out;
    return ATTN_OK;
}

/* Digits alone: no sign, fraction, exponent or leading zero. */
static attn_status scan_number(struct scanner *scanner, const char *what,
                               uint64_t *number)
{
    (void)peek(scanner);
    const char *const begin = scanner->at;
    uint64_t value = 0;
    while (scanner->at < scanner->end && *scanner->at >= '0' && *scanner->at <= '9') {
        const unsigned digit = (unsigned)(*scanner->at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return refuse(scanner, "%s holds a number beyond 64 bits", what);
        value = value * 10 + digit;
        scanner->at++;
    }
    const size_t digits = (size_t)(scanner->at - begin);
    const bool goes_on = scanner->at < scanner->end && *scanner->at &&
                         strchr(".eE+-", *scanner->at) != NULL;
    if (digits == 0 || goes_on || (digits > 1 && *begin == '0'))
        return refuse(scanner, "%s holds something that is not a whole number from 0 on",
                      what);
    *number = value;
    return ATTN_OK;
}

/* "[a, b, …]" of at most `most` numbers. */
static attn_status scan_numbers(struct scanner *scanner, const char *what, uint64_t *list,
                                int most, int *count)
{
    *count = 0;
    ATTN_TRY(expect(scanner, '['));
    if (peek(scanner) == ']') {
        scanner->at++;
        return ATTN_OK;
    }
    for (bool more = true; more;) {
        if (*count == most)
            return refuse(scanner, "%s holds more than %d numbers", what, most);
        ATTN_TRY(scan_number(scanner, what, &list[*count]));
        ++*count;
        ATTN_TRY(next_or_close(scanner, ']', &more));
    }
    return ATTN_OK;
}

/* ---- Tensors and metadata -------------------------------------------------------- */

static attn_status no_memory(struct scanner *scanner)
{
    return attn_error_set(scanner->error, ATTN_ENOMEM, "no memory for the header of %s",
                          scanner->file);
}

static bool grow(void **list, size_t *capacity, size_t count, size_t element_bytes)
{
    if (count < *capacity)
        return true;
    const size_t larger = *capacity ? 2 * *capacity : 16;
    void *const memory = realloc(*list, larger * element_bytes);
    if (!memory)
        return false;
    *list = memory;
    *capacity = larger;
    return true;
}

static attn_status scan_dtype(struct scanner *scanner, attn_safetensor *tensor)
{
    const char *name;
    ATTN_TRY(scan_string(scanner, &name));
    for (int i = 0; i < DTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            tensor->dtype = (attn_dtype)i;
            return ATTN_OK;
        }
    return refuse(scanner,
                  "tensor \"%.80s\" has dtype \"%.40s\", which is not known here",
                  tensor->name, name);
}

static attn_status scan_shape(struct scanner *scanner, attn_safetensor *tensor)
{
    uint64_t list[ATTN_SAFETENSORS_RANK];
    char what[128];
    snprintf(what, sizeof what, "shape of \"%.80s\"", tensor->name);
    ATTN_TRY(scan_numbers(scanner, what, list, ATTN_SAFETENSORS_RANK, &tensor->rank));
    tensor->count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        if (list[i] > INT64_MAX ||
            __builtin_mul_overflow(tensor->count, (size_t)list[i], &tensor->count))
            return refuse(scanner, "%s has more elements than 64 bits can count", what);
        tensor->extent[i] = (int64_t)list[i];
    }
    return ATTN_OK;
}

static attn_status scan_offsets(struct scanner *scanner, struct attn_header_tensor *entry)
{
    uint64_t list[2];
    int count;
    char what[128];
    snprintf(what, sizeof what, "data_offsets of \"%.80s\"", entry->tensor.name);
    ATTN_TRY(scan_numbers(scanner, what, list, 2, &count));
    if (count != 2)
        return refuse(scanner, "%s holds %d numbers, expected 2", what, count);
    if (list[0] > list[1])
        return refuse(scanner, "%s begin at %" PRIu64 " and end before it, at %" PRIu64,
                      what, list[0], list[1]);
    entry->begin = list[0];
    entry->end = list[1];
    return ATTN_OK;
}

static attn_status scan_tensor_member(struct scanner *scanner,
                                      struct attn_header_tensor *entry, unsigned *seen)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const char *key;
    ATTN_TRY(scan_string(scanner, &key));
    ATTN_TRY(expect(scanner, ':'));
    unsigned which = 0;
    while (which < 3 && strcmp(key, keys[which]) != 0)
        which++;
    if (which == 3)
        return refuse(scanner,
                      "tensor \"%.80s\" has \"%.40s\", which the format does not "
                      "know",
                      entry->tensor.name, key);
    if (*seen & 1u << which)
        return refuse(scanner, "tensor \"%.80s\" has \"%s\" twice", entry->tensor.name,
                      key);
    *seen |= 1u << which;
    if (which == 0)
        return scan_dtype(scanner, &entry->tensor);
    return which == 1 ? scan_shape(scanner, &entry->tensor)
                      : scan_offsets(scanner, entry);
}

static attn_status scan_tensor(struct scanner *scanner, const char *name)
{
    struct attn_header *const header = scanner->header;
    struct attn_header_tensor entry = {.tensor.name = name};
    unsigned seen = 0;
    ATTN_TRY(expect(scanner, '{'));
    for (bool more = true; more;) {
        ATTN_TRY(scan_tensor_member(scanner, &entry, &seen));
        ATTN_TRY(next_or_close(scanner, '}', &more));
    }
    if (seen != 7)
        return refuse(scanner, "tensor \"%.80s\" lacks its %s", name,
                      !(seen & 1)   ? "dtype"
                      : !(seen & 2) ? "shape"
                                    : "data_offsets");
    attn_safetensor *const tensor = &entry.tensor;
    if (__builtin_mul_overflow(tensor->count, attn_dtype_bytes(tensor->dtype),
                               &tensor->bytes))
        return refuse(scanner, "tensor \"%.80s\" has more bytes than 64 bits can count",
                      name);
    if (tensor->bytes != entry.end - entry.begin)
        return refuse(
            scanner,
            "tensor \"%.80s\" has %" PRIu64 " bytes of data, expected %zu for its "
            "shape and dtype %s",
            name, entry.end - entry.begin, tensor->bytes, attn_dtype_name(tensor->dtype));
    if (!grow((void **)&header->tensors, &header->capacity, header->count,
              sizeof *header->tensors))
        return no_memory(scanner);
    header->tensors[header->count++] = entry;
    return ATTN_OK;
}

static attn_status scan_metadata(struct scanner *scanner)
{
    struct attn_header *const header = scanner->header;
    if (header->notes)
        return refuse(scanner, "__metadata__ comes twice");
    ATTN_TRY(expect(scanner, '{'));
    if (peek(scanner) == '}')
        return expect(scanner, '}');
    for (bool more = true; more;) {
        attn_safetensors_note note;
        ATTN_TRY(scan_string(scanner, &note.key));
        ATTN_TRY(expect(scanner, ':'));
        if (peek(scanner) != '"')
            return refuse(scanner, "__metadata__ has \"%.80s\", which is not a string",
                          note.key);
        ATTN_TRY(scan_string(scanner, &note.value));
        if (!grow((void **)&header->notes, &header->note_capacity, header->note_count,
                  sizeof *header->notes))
            return no_memory(scanner);
        header->notes[header->note_count++] = note;
        ATTN_TRY(next_or_close(scanner, '}', &more));
    }
    return ATTN_OK;
}

static attn_status scan_header(struct scanner *scanner)
{
    if (scanner->at == scanner->end || *scanner->at != '{')
        return refuse(scanner, "it does not begin with '{'");
    scanner->at++;
    bool more = peek(scanner) != '}';
    if (!more)
        scanner->at++;
    while (more) {
        const char *name;
        ATTN_TRY(scan_string(scanner, &name));
        ATTN_TRY(expect(scanner, ':'));
        if (strcmp(name, "__metadata__") == 0)
            ATTN_TRY(scan_metadata(scanner));
        else
            ATTN_TRY(scan_tensor(scanner, name));
        ATTN_TRY(next_or_close(scanner, '}', &more));
    }
    if (peek(scanner) >= 0)
        return refuse(scanner, "something follows the closing '}'");
    return ATTN_OK;
}

attn_status attn_header_read(struct attn_header *header, const char *text, size_t length,
                             const char *name, attn_error *error)
{
    /* A string's two quotes leave room for its NUL, and no escape is shorter than what it
     * stands for: all strings fit into the header's own length. */
    *header = (struct attn_header){.strings = malloc(length + 1)};
    struct scanner scanner = {
        .start = text,
        .at = text,
        .end = text + length,
        .file = name,
        .strings = header->strings,
        .header = header,
        .error = error,
    };
    if (!header->strings)
        return no_memory(&scanner);
    return scan_header(&scanner);
}

void attn_header_free(struct attn_header *header)
{
    free(header->strings);
    free(header->tensors);
    free(header->notes);
    *header = (struct attn_header){0};
}
