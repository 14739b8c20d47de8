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
 * starts anew with each page of memory and each block.  Tiles, and all types where two
 * multiply-adds go in a cycle, ask in long blocks for all of the next one, in streams. */
enum { CALLS_STREAMS = VF_TWO_MULTIPLIERS };

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

/* Rows of the next block, four lines at a time: those that follow each other, where the
 * block goes on where this one ends.  Elsewhere those of four streams side by side: what
 * the processor foresees begins anew in each page of memory, and four of them at once
 * keep memory busier. */
enum { STREAMS = 4 };

struct fours_ahead {
    const char *line;     /* the first of four */
    ptrdiff_t apart;      /* bytes from one of them to the next */
    ptrdiff_t step, wrap; /* to the next four, and beside that from a row's last ones */
    size_t row_steps, left_in_row, left;
};

INLINE struct fours_ahead call_rows(const char *rows, ptrdiff_t stride, size_t count,
                                    size_t bytes, bool follows)
{
    const size_t row_lines = (bytes + 63) / 64;
    const bool joined = stride == (ptrdiff_t)bytes;
    const size_t lines = joined ? (count * bytes + 63) / 64 : count;
    const size_t quarter = (lines + STREAMS - 1) / STREAMS;
    if (joined)
        return (struct fours_ahead){
            .line = rows,
            .apart = follows ? 64 : 64 * (ptrdiff_t)quarter,
            .step = follows ? 64 * STREAMS : 64,
            .row_steps = SIZE_MAX,
            .left_in_row = SIZE_MAX,
            .left = quarter,
        };
    return (struct fours_ahead){
        .line = rows,
        .apart = (ptrdiff_t)quarter * stride,
        .step = 64,
        .wrap = stride - 64 * (ptrdiff_t)row_lines,
        .row_steps = row_lines,
        .left_in_row = row_lines,
        .left = quarter * row_lines,
    };
}

INLINE void fetch_fours(struct fours_ahead *a, size_t times)
{
    for (; times > 0 && a->left > 0; times--) {
#pragma GCC unroll 4
        for (size_t i = 0; i < STREAMS; i++)
            fetch_line(a->line + (ptrdiff_t)i * a->apart);
        a->left--;
        a->line += a->step;
        if (--a->left_in_row == 0) {
            a->left_in_row = a->row_steps;
            a->line += a->wrap;
        }
    }
}

INLINE void skip_fours(struct fours_ahead *a, size_t times)
{
    const size_t steps = times < a->left ? times : a->left;
    if (steps == 0)
        return;
    a->left -= steps;
    a->line += a->step * (ptrdiff_t)steps + a->wrap * (ptrdiff_t)(steps / a->row_steps);
    a->left_in_row = a->row_steps - steps % a->row_steps;
}

/* Keys and values of the next block. */
struct block_ahead {
    struct fours_ahead keys, values;
    size_t at_once; /* fours of lines of either */
};

/* What is left is fetched at so many places. */
INLINE void spread_ahead(struct block_ahead *a, size_t places)
{
    const size_t most = a->keys.left > a->values.left ? a->keys.left : a->values.left;
    a->at_once = (most + places - 1) / places;
}

INLINE struct block_ahead block_ahead_of(struct fours_ahead keys,
                                         struct fours_ahead values, size_t places)
{
    struct block_ahead ahead = {keys, values, 0};
    spread_ahead(&ahead, places);
    return ahead;
}

/* The next block, whose elements have so many bytes. */
INLINE struct block_ahead next_block_ahead(const struct attn_decode_panel *panel,
                                           const struct attn_decode_block *block,
                                           size_t bytes, size_t places)
{
    const ptrdiff_t stride = block->key_stride;
    const bool follows = block->next_key == block->key + (ptrdiff_t)block->keys * stride;
    return block_ahead_of(
        call_rows(block->next_key, stride, block->next_keys, bytes * panel->D, follows),
        call_rows(block->next_value, block->value_stride, block->next_keys,
                  bytes * panel->Dv, follows),
        places);
}

INLINE void fetch_ahead(struct block_ahead *a)
{
    fetch_fours(&a->keys, a->at_once);
    fetch_fours(&a->values, a->at_once);
}

/* As if it had been fetched at so many places. */
INLINE void skip_ahead(struct block_ahead *a, size_t places)
{
    skip_fours(&a->keys, places * a->at_once);
    skip_fours(&a->values, places * a->at_once);
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
