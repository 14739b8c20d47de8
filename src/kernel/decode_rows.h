/* What the kernels of decoding share: rows that are read along their elements, and
 * fetched before. */
#ifndef ATTN_KERNEL_DECODE_ROWS_H
#define ATTN_KERNEL_DECODE_ROWS_H

#include "kernel/convert.h"
#include "kernel/decode_table.h"
#include "kernel/lanes.h"
#include "kernel/simd_types.h"

/* ---- Rows -----------------------------------------------------------------------------
 */

/* How bfloat16 is read where it is multiplied in pairs. */
#define STORED_PAIRS ((enum attn_stored)17)

INLINE size_t bytes_of(const enum attn_stored type)
{
    return type == ATTN_STORED_F32 ? 4 : 2;
}

/* Elements n to n + count − 1 of a row, then 0. */
INLINE vf load_row(const char *row, size_t n, const size_t count,
                   const enum attn_stored type)
{
    char lanes[VF_BYTES] = {0};
    const char *from = row + n * bytes_of(type);
    if (count < LANES)
        from = memcpy(lanes, from, count * bytes_of(type));
    return vf_load_as(from, (attn_type)type);
}

/* ---- Fetching -------------------------------------------------------------------------
 * What will be read is asked for a block before: while a key is read, the value that is
 * its own, and while that is read, a key of the next block; line by line between the
 * multiply-adds, as evenly as these come, into the second cache: the first has too few
 * slots for what is under way.  What the processor foresees by itself is too little: it
 * starts anew with each page of memory and each block. */

INLINE void fetch_line(const char *from)
{
    __builtin_prefetch(from, 0, 2);
}

/* What is left of rows of which only as much as `bytes` has been fetched. */
INLINE void fetch_rests(const char *rows, ptrdiff_t stride, size_t count, size_t bytes,
                        size_t row_bytes)
{
    if (row_bytes <= bytes)
        return;
    for (size_t i = 0; i < count; i++)
        for (size_t n = (bytes + 63) / 64 * 64; n < row_bytes; n += 64)
            fetch_line(rows + (ptrdiff_t)i * stride + n);
}

/* A stretch of memory, line by line. */
struct stretch_ahead {
    const char *from;
    size_t lines;
};

INLINE void fetch_stretch(struct stretch_ahead *a, size_t lines)
{
    for (; lines > 0 && a->lines > 0; lines--) {
        fetch_line(a->from);
        a->from += 64;
        a->lines--;
    }
}

/* ---- Heads ---------------------------------------------------------------------------
 */

/* 4 heads x 4 vectors: 16 accumulators + 4 + 1 of 32 registers; 4 x 2 of 16. */
enum { VALUE_HEADS = 4, VALUE_TILE = VF_REGISTERS == 32 ? 16 : 8 };

#if VF_BYTES == 64
#    define UPPER_EIGHT 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7
#    define UPPER_FOUR 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11
#else
#    define UPPER_FOUR 4, 5, 6, 7, 0, 1, 2, 3
#endif

/* The largest of all lanes of a head, in each of them. */
INLINE vf share_largest(vf x, size_t heads)
{
#if VF_BYTES == 64
    if (heads <= 8)
        x = vf_max(__builtin_shufflevector(x, x, UPPER_EIGHT), x);
#endif
#if VF_BYTES >= 32
    if (heads <= 4)
        x = vf_max(__builtin_shufflevector(x, x, UPPER_FOUR), x);
#endif
    if (heads <= 2)
        x = vf_max(__builtin_shufflevector(x, x, EVERY_128(2, 3, 0, 1)), x);
    if (heads <= 1)
        x = vf_max(__builtin_shufflevector(x, x, EVERY_128(1, 0, 3, 2)), x);
    return x;
}

#endif
