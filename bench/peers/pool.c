/* attn_parallel_for on pthreadpool, which the attn command uses too: Python cannot put
 * the arguments in another order. */
#include <attn/attention.h>
#include <pthreadpool.h>

void run_on_pool(void *pool, size_t count, void (*task)(void *argument, size_t index),
                 void *argument)
{
    pthreadpool_parallelize_1d(pool, task, argument, count, 0);
}

static void nothing(void *argument, size_t index)
{
    (void)argument;
    (void)index;
}

/* Its threads wait for the next call by spinning, unless they are told to sleep. */
void rest_pool(pthreadpool_t pool)
{
    pthreadpool_parallelize_1d(pool, nothing, NULL, pthreadpool_get_threads_count(pool),
                               PTHREADPOOL_FLAG_YIELD_WORKERS);
}
