/* Errors of rooms that work without a context. */
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>

attn_status attn_error_set(attn_error *error, attn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->status = status;
    return status;
}

attn_status attn_error_from_context(attn_error *error, attn_status status,
                                    const attn_context *context)
{
    return attn_error_set(error, status, "%s", attn_context_message(context));
}
