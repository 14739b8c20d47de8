/* What every operation needs from its context: kernels, threads, scratch memory, a
 * message. */
#ifndef ATTN_BASE_CONTEXT_H
#define ATTN_BASE_CONTEXT_H

#include "attn/attention.h"

struct attn_kernels;

struct attn_context {
    const struct attn_kernels *kernels;
    size_t threads;
    attn_parallel_for *parallel_for;
    void *pool;
    void *scratch;
    size_t scratch_bytes;
    bool scratch_is_lent;
    char message[512];
};

/* Keeps the message and returns the status, so that a failure is one line. */
__attribute__((format(printf, 3, 4))) attn_status
attn_context_fail(attn_context *context, attn_status status, const char *format, ...);

/* Up to whole cache lines, to which scratch is aligned; bytes ≤ SIZE_MAX − 63. */
static inline size_t attn_round_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Memory that stays valid until the next call, aligned to 64 bytes, of any content. Where
 * it fails, the context has none any more, unless it was lent. */
ATTN_CHECKED attn_status attn_context_reserve(attn_context *context, size_t bytes,
                                              void **memory);

/* Runs task(argument, worker) for worker 0 to workers − 1 on the context's threads. */
void attn_context_run(const attn_context *context, size_t workers,
                      void (*task)(void *argument, size_t worker), void *argument);

#define ATTN_TRY(expression)                                                             \
    do {                                                                                 \
        const attn_status attn_try_status = (expression);                                \
        if (attn_try_status != ATTN_OK)                                                  \
            return attn_try_status;                                                      \
    } while (0)

#endif
