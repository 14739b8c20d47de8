/* Text that grows. */
#include "inspect/buffer.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool buffer_reserve(attn_buffer *buffer, size_t more)
{
    if (buffer->failed)
        return false;
    if (more < buffer->capacity - buffer->length)
        return true;
    size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
    while (capacity - buffer->length <= more && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    char *text =
        capacity - buffer->length > more ? realloc(buffer->text, capacity) : NULL;
    if (text == NULL) {
        buffer->failed = true;
        return false;
    }
    buffer->text = text;
    buffer->capacity = capacity;
    return true;
}

void attn_buffer_put_bytes(attn_buffer *buffer, const char *bytes, size_t length)
{
    if (!buffer_reserve(buffer, length))
        return;
    if (length > 0)
        memcpy(buffer->text + buffer->length, bytes, length);
    buffer->length += length;
    buffer->text[buffer->length] = '\0';
}

void attn_buffer_put(attn_buffer *buffer, const char *text)
{
    attn_buffer_put_bytes(buffer, text, strlen(text));
}

void attn_buffer_put_repeat(attn_buffer *buffer, const char *text, int64_t times)
{
    for (int64_t i = 0; i < times; i++)
        attn_buffer_put(buffer, text);
}

void attn_buffer_print(attn_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0) {
        buffer->failed = true;
    } else if (buffer_reserve(buffer, (size_t)length)) {
        vsnprintf(buffer->text + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

void attn_buffer_truncate(attn_buffer *buffer, size_t length)
{
    if (length >= buffer->length)
        return;
    buffer->length = length;
    buffer->text[length] = '\0';
}

const char *attn_buffer_text(const attn_buffer *buffer)
{
    return buffer->text == NULL ? "" : buffer->text;
}

attn_status attn_buffer_take(attn_buffer *buffer, char **text, size_t *length,
                             attn_error *error)
{
    attn_buffer_put(buffer, "");
    if (buffer->failed) {
        attn_buffer_free(buffer);
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for a text");
    }
    *text = buffer->text;
    *length = buffer->length;
    *buffer = (attn_buffer){0};
    return ATTN_OK;
}

void attn_buffer_free(attn_buffer *buffer)
{
    free(buffer->text);
    *buffer = (attn_buffer){0};
}
