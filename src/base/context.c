/* Life of a context.  Besides caches (attention/cache.c) nothing in the library
 * allocates. */
#include "base/context.h"
#include "base/error.h"
#include "base/pages.h"
#include "kernel/table.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

attn_status attn_context_fail(attn_context *context, attn_status status,
                              const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context->message, sizeof context->message, format, arguments);
    va_end(arguments);
    return status;
}

attn_status attn_context_reserve(attn_context *context, size_t bytes, void **memory)
{
    if (bytes > context->scratch_bytes) {
        if (context->scratch_is_lent)
            return attn_context_fail(context, ATTN_ENOMEM,
                                     "lent scratch has %zu bytes, expected %zu",
                                     context->scratch_bytes, bytes);
        free(context->scratch);
        context->scratch = attn_pages_allocate(bytes);
        context->scratch_bytes = context->scratch ? bytes : 0;
        if (!context->scratch)
            return attn_context_fail(context, ATTN_ENOMEM, "no memory for %zu bytes",
                                     bytes);
    }
    *memory = context->scratch;
    return ATTN_OK;
}

attn_status attn_context_lend_scratch(attn_context *context, void *memory, size_t bytes)
{
    if ((uintptr_t)memory % 64 != 0)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_context_lend_scratch: memory is %p, expected an "
                                 "address that is a multiple of 64",
                                 memory);
    if (bytes > 0 && !memory)
        return attn_context_fail(
            context, ATTN_EINVAL,
            "attn_context_lend_scratch: memory is NULL, expected %zu "
            "bytes",
            bytes);
    if (!context->scratch_is_lent)
        free(context->scratch);
    context->scratch_is_lent = bytes > 0;
    context->scratch = bytes > 0 ? memory : NULL;
    context->scratch_bytes = bytes;
    return ATTN_OK;
}

void attn_context_run(const attn_context *context, size_t workers,
                      void (*task)(void *argument, size_t worker), void *argument)
{
    if (context->parallel_for && workers > 1) {
        context->parallel_for(context->pool, workers, task, argument);
        return;
    }
    for (size_t worker = 0; worker < workers; worker++)
        task(argument, worker);
}

const char *attn_context_isa(const attn_context *context)
{
    return context->kernels->isa;
}

const char *attn_context_message(const attn_context *context)
{
    return context->message;
}

attn_status attn_context_create(attn_context **context,
                                const attn_context_options *options)
{
    static const attn_context_options defaults = {.threads = 1};
    *context = NULL;
    if (!options)
        options = &defaults;
    if (options->threads == 0)
        return ATTN_EINVAL;
    const char *isa = options->isa ? options->isa : getenv("ATTN_ISA");
    const struct attn_kernels *kernels = attn_kernels_find(isa && *isa ? isa : NULL);
    if (!kernels)
        return ATTN_EUNSUPPORTED;
    attn_context *const created = calloc(1, sizeof *created);
    if (!created)
        return ATTN_ENOMEM;
    created->kernels = kernels;
    created->threads = options->parallel_for ? options->threads : 1;
    created->parallel_for = options->parallel_for;
    created->pool = options->pool;
    *context = created;
    return ATTN_OK;
}

attn_status attn_context_open(attn_context **context, const attn_context_options *options,
                              attn_error *error)
{
    char names[96];
    const attn_status status = attn_context_create(context, options);
    if (status == ATTN_OK)
        return ATTN_OK;
    if (status != ATTN_EUNSUPPORTED)
        return attn_error_set(error, status, "cannot create a context: %s",
                              attn_status_name(status));
    attn_kernels_list(names, sizeof names);
    if (options && options->isa)
        return attn_error_set(error, status,
                              "the instruction set is '%.40s', expected one that this "
                              "processor has: %s",
                              options->isa, names);
    return attn_error_set(error, status,
                          "ATTN_ISA is '%.40s', expected an instruction set that this "
                          "processor has: %s",
                          getenv("ATTN_ISA"), names);
}

void attn_context_destroy(attn_context *context)
{
    if (context && !context->scratch_is_lent)
        free(context->scratch);
    free(context);
}
