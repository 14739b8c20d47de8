/* Whether the threads can be had is tried with as many, all there at the same time; their
 * stacks stay for those of the pool. */
#include "train/pool.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *wait_at(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many of `wanted` threads start. */
static size_t try_threads(pthread_t *threads, size_t wanted)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    size_t started = 0;
    pthread_mutex_lock(&gate);
    while (started < wanted &&
           pthread_create(&threads[started], NULL, wait_at, &gate) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    for (size_t t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
    return started;
}

attn_status attn_pool_create(pthreadpool_t *pool, size_t threads, attn_error *error)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads == 0)
        threads = online > 0 ? (size_t)online : 1;
    const size_t others = threads - 1; /* beside the thread that calls */
    pthread_t *const tried = calloc(threads, sizeof *tried);
    const size_t started = tried ? try_threads(tried, others) : 0;
    *pool = tried && started == others ? pthreadpool_create(threads) : NULL;
    free(tried);
    if (*pool)
        return ATTN_OK;
    return attn_error_set(error, ATTN_ENOMEM,
                          "cannot start %zu threads: the system gives %zu (--threads N, "
                          "ulimit -u, ulimit -v)",
                          threads, started + 1);
}
