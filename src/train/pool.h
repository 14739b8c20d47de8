/* The pool of threads that trainings and verbs run on. */
#ifndef ATTN_TRAIN_POOL_H
#define ATTN_TRAIN_POOL_H

#include "base/error.h"
#include <pthreadpool.h>

/* pthreadpool_create, which waits for ever for a thread that the system does not give: a
 * limit on memory or on processes refuses it here.  No threads mean one for each
 * processor. *pool is for pthreadpool_destroy; NULL on failure.
 * @return ATTN_OK, or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_pool_create(pthreadpool_t *pool, size_t threads,
                                          attn_error *error);

#endif
