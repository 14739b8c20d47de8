/* OpenBLAS: its threads, and the memory that it waits for. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "train/blas.h"
#include <cblas.h>
#include <stddef.h>
#include <sys/mman.h>

void attn_blas_use_one_thread(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}

/* Version 0.3 maps 32 << 22 bytes for each thread in a product, and two pages; and as
 * much for threads of its own, which may be about to take it.  Four together are asked
 * for: on more cores a limit that leaves enough is not told from one that does not. */
static const size_t BUFFERS_BYTES = 4 * (((size_t)32 << 22) + 8192);

bool attn_blas_has_memory(void)
{
#ifdef OPENBLAS_VERSION
    void *const memory = mmap(NULL, BUFFERS_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    munmap(memory, BUFFERS_BYTES);
#endif
    return true;
}
