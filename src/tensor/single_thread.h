/* Training runs a tape on each of its threads, so a product of matrices must not start
 * threads of its own. */
#ifndef ATTN_TENSOR_SINGLE_THREAD_H
#define ATTN_TENSOR_SINGLE_THREAD_H

/* Tells OpenBLAS; with another BLAS the environment must (OMP_NUM_THREADS=1). */
void attn_blas_use_one_thread(void);

#endif
