/* What is OpenBLAS's own.  Nothing here computes with it: products of matrices by BLAS
 * are what recurrent layers and short attention are measured against. */
#ifndef ATTN_TRAIN_BLAS_H
#define ATTN_TRAIN_BLAS_H

#include <stdbool.h>

/* Whoever is measured has the threads, so that a product must not start any.  Tells
 * OpenBLAS; with another BLAS the environment must (OMP_NUM_THREADS=1). */
void attn_blas_use_one_thread(void);

/* Whether a thread's first product would get its buffer.  OpenBLAS tries for ever where
 * it is refused, so who is about to multiply asks first. */
bool attn_blas_has_memory(void);

#endif
