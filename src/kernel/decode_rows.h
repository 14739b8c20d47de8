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
 * What will be read is asked for before, in the order in which it will be, into the
 * second cache: the first has too few slots for what is under way.  What the processor
 * foresees by itself is too little: it takes the rows of a few keys at once for no stream
 * at all, and stops where a page of memory does. */

INLINE void fetch_line(const char *from)
{
    __builtin_prefetch(from, 0, 2);
}

/* Rows line by line, 64 bytes each. */
struct rows_ahead {
    const char *row;
    ptrdiff_t stride;
    size_t rows, line, lines; /* lines of one row */
};

/* Rows, and those that are read after them. */
struct ahead {
    struct rows_ahead now, next;
};

INLINE struct rows_ahead rows_ahead_of(const char *row, ptrdiff_t stride, size_t rows,
                                       size_t bytes)
{
    return (struct rows_ahead){
        .row = row, .stride = stride, .rows = rows, .lines = (bytes + 63) / 64};
}

/* Between what is asked for and what is read: with 4 KB it comes too late. */
enum { AHEAD_BYTES = 8192 };

/* What is to be fetched while `now` is read: the rest of it, and the beginning of what
 * comes next. */
INLINE struct ahead ahead_of(struct rows_ahead now, struct rows_ahead next)
{
    const size_t most = AHEAD_BYTES / 64 / now.lines;
    const size_t most_next = AHEAD_BYTES / 64 / next.lines;
    const size_t fetched = now.rows < most ? now.rows : most;
    now.row += (ptrdiff_t)fetched * now.stride;
    now.rows -= fetched;
    next.rows = next.rows < most_next ? next.rows : most_next;
    return (struct ahead){now, next};
}

INLINE void fetch(struct ahead *a)
{
    if (a->now.rows == 0) {
        if (a->next.rows == 0)
            return;
        a->now = a->next;
        a->next.rows = 0;
    }
    fetch_line(a->now.row + 64 * a->now.line);
    if (++a->now.line == a->now.lines) {
        a->now.line = 0;
        a->now.row += a->now.stride;
        a->now.rows--;
    }
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

/* 4 heads x 4 vectors: 16 accumulators + 4 + 1 of 32 registers; 4 x 2 of 16. */
enum { VALUE_HEADS = 4, VALUE_TILE = VF_REGISTERS == 32 ? 16 : 8 };

#if VF_BYTES == 64
#    define UPPER_FOUR 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11
#else
#    define UPPER_FOUR 4, 5, 6, 7, 0, 1, 2, 3
#endif

/* The largest of all lanes of a head, in each of them. */
INLINE vf share_largest(vf x, size_t heads)
{
#if VF_BYTES == 64
    if (heads <= 8)
        x = vf_max(__builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3,
                                           4, 5, 6, 7),
                   x);
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
