/* The verbs' attention context, on a pool of threads. */
#include "base/context.h"
#include "cli/cli.h"
#include "train/pool.h"

static void run_on_pool(void *pool, size_t count,
                        void (*task)(void *argument, size_t index), void *argument)
{
    pthreadpool_parallelize_1d(pool, task, argument, count, 0);
}

attn_status cli_context_create(cli_context *context, size_t threads, attn_error *error)
{
    *context = (cli_context){0};
    pthreadpool_t pool;
    ATTN_TRY(attn_pool_create(&pool, threads, error));
    context->pool = pool;
    const attn_status status =
        attn_context_open(&context->attention,
                          &(attn_context_options){
                              .threads = pthreadpool_get_threads_count(context->pool),
                              .parallel_for = run_on_pool,
                              .pool = context->pool,
                          },
                          error);
    if (status != ATTN_OK)
        cli_context_destroy(context);
    return status;
}

void cli_context_destroy(cli_context *context)
{
    attn_context_destroy(context->attention);
    pthreadpool_destroy(context->pool);
    *context = (cli_context){0};
}
