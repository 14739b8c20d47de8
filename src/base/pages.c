/* Large pages, by advice: where it is refused, the pages are small and all else is the
 * same. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/pages.h"
#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#    include <sys/mman.h>
#endif

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

void *attn_pages_allocate(size_t bytes)
{
    const size_t large = ATTN_LARGE_PAGE_BYTES;
    if (bytes > SIZE_MAX - large)
        return NULL;
    if (bytes < large / 2)
        return aligned_alloc(64, bytes > 0 ? round_up(bytes, 64) : 64);
    void *const memory = aligned_alloc(large, round_up(bytes, large));
#ifdef MADV_HUGEPAGE
    if (memory)
        (void)madvise(memory, round_up(bytes, large), MADV_HUGEPAGE);
#endif
    return memory;
}
