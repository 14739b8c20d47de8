/* Memory called ahead by loops that multiply: a line to a step. */
#ifndef ATTN_KERNEL_CALL_LINES_H
#define ATTN_KERNEL_CALL_LINES_H

#include "kernel/simd.h"
#include "kernel/table.h"

/* Into the second cache. */
INLINE void call_line(uintptr_t address)
{
    __builtin_prefetch((const void *)address, 0, 2);
}

/* Into the first cache. */
INLINE void call_near(const float *x)
{
    __builtin_prefetch(x, 0, 3);
}

/* Takes lines to call, at most so many; false if there are none left. */
INLINE bool take_lines(struct attn_calls *calls, size_t most, struct attn_lines *lines)
{
    if (!calls || calls->first == calls->end)
        return false;
    struct attn_lines *const left = &calls->runs[calls->first];
    *lines = *left;
    if (lines->count > most)
        lines->count = most;
    left->first += lines->count * (uintptr_t)left->stride;
    left->count -= lines->count;
    calls->first += left->count == 0;
    return true;
}

/* Calls lines in a loop whose steps count down to 1: no fewer than lines. */
struct line_caller {
    uintptr_t line, stride;
    size_t last; /* step that goes on to another line */
};

INLINE struct line_caller begin_calling(const struct attn_lines *lines, size_t steps)
{
    if (!lines)
        return (struct line_caller){0, 0, 0};
    return (struct line_caller){lines->first, (uintptr_t)lines->stride,
                                steps - lines->count + 2};
}

INLINE void call_next(struct line_caller *caller, size_t step)
{
    call_line(caller->line);
    caller->line += step >= caller->last ? caller->stride : 0; /* without a branch */
}

#endif
