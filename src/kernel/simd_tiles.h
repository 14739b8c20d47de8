/* Tiles: registers of 16 rows of 64 bytes, and their product of pairs of bfloat16,
 *
 *     sum[row][lane] += Σ_p left[row][p] · right[p][lane]        16 pairs p of elements
 *
 * in fp32, pair by pair in rising order; subnormal numbers count as 0.  A register's name
 * is part of the instruction, hence macros.  The compiler's own forget to say that they
 * read memory.  As fast as rows begin at multiples of 64 bytes: 8 cycles to load a tile,
 * 16 to store or to multiply one. */
#ifndef ATTN_KERNEL_SIMD_TILES_H
#define ATTN_KERNEL_SIMD_TILES_H

#include "kernel/simd.h"

enum { TILES = 8, TILE_EDGE = 16, TILE_BYTES = 64 };

/* What ldtilecfg reads. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Before a thread's first tile.  Takes 180 cycles. */
INLINE void tiles_shape(const struct tile_shapes *shapes)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*shapes));
}

/* All tiles whole. */
static void tiles_open(void)
{
    struct tile_shapes shapes = {.palette = 1};
    for (size_t n = 0; n < TILES; n++) {
        shapes.row_bytes[n] = TILE_BYTES;
        shapes.rows[n] = TILE_EDGE;
    }
    tiles_shape(&shapes);
}

/* After its last: or every change of threads saves them. */
static void tiles_close(void)
{
    __asm__ volatile("tilerelease");
}

#define tile_clear(tile) __asm__ volatile("tilezero %%tmm" #tile : :)

#define tile_load(tile, from, row_bytes)                                                 \
    __asm__ volatile("tileloadd (%0,%1), %%tmm" #tile                                    \
                     :                                                                   \
                     : "r"(from), "r"((size_t)(row_bytes))                               \
                     : "memory")

#define tile_store(tile, to, row_bytes)                                                  \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1)"                                \
                     :                                                                   \
                     : "r"(to), "r"((size_t)(row_bytes))                                 \
                     : "memory")

#define tile_add_product(sum, left, right)                                               \
    __asm__ volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sum : :)

/* Of signed bytes on the left and unsigned ones on the right, four to a lane, in whole
 * numbers. */
#define tile_add_bytes(sum, left, right)                                                 \
    __asm__ volatile("tdpbsud %%tmm" #right ", %%tmm" #left ", %%tmm" #sum : :)

#endif
