/* Training runs a tape on each of its threads, so a product of matrices must not start
 * threads of its own. */
#ifndef ATTN_TENSOR_SINGLE_THREAD_H
#define ATTN_TENSOR_SINGLE_THREAD_H

#include <stdbool.h>

/* Tells OpenBLAS; with another BLAS the environment must (OMP_NUM_THREADS=1). */
void attn_blas_use_one_thread(void);

/* Whether a thread's first product would get its buffer.  OpenBLAS tries for ever where
 * it is refused, so who is about to multiply asks first. */
bool attn_blas_has_memory(void);

#endif
