/* Memory for what is large. */
#ifndef ATTN_BASE_PAGES_H
#define ATTN_BASE_PAGES_H

#include <stddef.h>

enum { ATTN_LARGE_PAGE_BYTES = 1 << 21 };

/* Aligned to 64 bytes at least, and from half a large page on in large pages of the
 * system where it has them: of small ones the processor looks up many more, foresees
 * nothing across them, and they meet in the second cache by chance.  NULL where there is
 * none; free() it. */
void *attn_pages_allocate(size_t bytes);

#endif
