/* The one call here that is OpenBLAS's own. */
#include "tensor/single_thread.h"
#include <cblas.h>

void attn_blas_use_one_thread(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}
