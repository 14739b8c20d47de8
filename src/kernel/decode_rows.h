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

INLINE size_t bytes_of(const enum attn_stored type)
{
    return type == ATTN_STORED_F32 ? 4 : type == ATTN_STORED_I8 ? 1 : 2;
}

/* Elements n to n + count − 1 of a row, then 0. */
INLINE vf load_row(const char *row, size_t n, const size_t count,
                   const enum attn_stored type)
{
    char lanes[VF_BYTES] = {0};
    const char *from = row + n * bytes_of(type);
    if (count < LANES)
        from = memcpy(lanes, from, count * bytes_of(type));
    return type == ATTN_STORED_I8 ? vf_load_i8((const int8_t *)from)
                                  : vf_load_as(from, (attn_type)type);
}

/* Rows that will be wanted, asked for in the order in which they lie.  What the processor
 * foresees by itself is too little: it takes the rows of a few keys at once for no stream
 * at all, and with fewer loads in flight a third of the read rate is left. */
struct ahead {
    const char *row;
    ptrdiff_t stride;
    size_t rows, line, lines; /* 64 bytes each; lines of one row */
};

INLINE struct ahead ahead_of(const char *row, ptrdiff_t stride, size_t rows, size_t bytes)
{
    return (struct ahead){row, stride, rows, 0, (bytes + 63) / 64};
}

/* Into the second cache: the first has too few slots for what is under way. */
INLINE void fetch(struct ahead *a, size_t lines)
{
    for (; lines > 0 && a->rows > 0; lines--) {
        __builtin_prefetch(a->row + 64 * a->line, 0, 2);
        if (++a->line == a->lines) {
            a->line = 0;
            a->row += a->stride;
            a->rows--;
        }
    }
}

/* 4 heads x 4 vectors: 16 accumulators + 4 + 1 of 32 registers; 4 x 2 of 16. */
enum { VALUE_HEADS = 4, VALUE_TILE = VF_REGISTERS == 32 ? 16 : 8 };

/* The largest of all lanes of a head, in each of them. */
INLINE vf share_largest(vf largest, size_t heads)
{
    for (size_t i = heads; i < LANES; i++)
        if (largest[i] > largest[i % heads])
            largest[i % heads] = largest[i];
    for (size_t i = heads; i < LANES; i++)
        largest[i] = largest[i % heads];
    return largest;
}

#endif
