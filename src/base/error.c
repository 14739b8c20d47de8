/* Errors of rooms that work without a context. */
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool goes_on(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80; /* a character of UTF-8 */
}

/* What makes a message too long is a path in it.  What it begins with stays, and most of
 * the room is for its end, which has the file's name and the reason. */
static void put_message(attn_error *error, const char *whole)
{
    const size_t room = sizeof error->message, length = strlen(whole);
    if (length < room) {
        memcpy(error->message, whole, length + 1);
        return;
    }
    static const char mark[] = "…";
    size_t head = room / 5;
    const char *tail = whole + length - (room - head - sizeof mark);
    while (head > 0 && goes_on(whole[head]))
        head--;
    while (goes_on(*tail))
        tail++;
    snprintf(error->message, room, "%.*s%s%s", (int)head, whole, mark, tail);
}

attn_status attn_error_set(attn_error *error, attn_status status, const char *format, ...)
{
    char usual[2 * sizeof error->message], *whole = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(usual, sizeof usual, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof usual)
        whole = malloc((size_t)length + 1); /* without memory its end is lost */
    if (whole) {
        va_start(arguments, format);
        vsnprintf(whole, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    put_message(error, whole ? whole : usual);
    free(whole);
    error->status = status;
    return status;
}

attn_status attn_error_from_context(attn_error *error, attn_status status,
                                    const attn_context *context)
{
    return attn_error_set(error, status, "%s", attn_context_message(context));
}
