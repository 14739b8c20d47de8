/* Memory for what is large. */
#ifndef ATTN_BASE_PAGES_H
#define ATTN_BASE_PAGES_H

#include <stddef.h>

enum { ATTN_LARGE_PAGE_BYTES = 1 << 21 };

/* Aligned to 64 bytes at least, and from 2 MiB on in large pages of the system where
 * it has them: with small ones the processor looks up many more, and foresees nothing
 * across them.  NULL where there is none; free() it. */
void *attn_pages_allocate(size_t bytes);

#endif
