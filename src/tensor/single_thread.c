/* What is OpenBLAS's own. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tensor/single_thread.h"
#include <cblas.h>
#include <stddef.h>
#include <sys/mman.h>

void attn_blas_use_one_thread(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}

/* Version 0.3 maps 32 << 22 bytes for each thread in a product, and two pages. */
enum { BUFFER_BYTES = (32 << 22) + 8192 };

bool attn_blas_has_memory(void)
{
#ifdef OPENBLAS_VERSION
    void *const memory = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    munmap(memory, BUFFER_BYTES);
#endif
    return true;
}
