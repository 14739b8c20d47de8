/* One step of a product of matrices in three parts by tiles (part_table.h): 32 elements
 * of the sums of 16 rows by one or two tiles of columns, which are 6 products of tiles
 * for each, the smallest first.  It is taken in three pieces, so that other work can go
 * between them: what multiplies tiles is a unit of its own, but looks no further ahead
 * than some hundred instructions.
 *
 * A tile's product sums its pairs from 0 and rounds once more when it adds that to the
 * sum. */
#ifndef ATTN_KERNEL_PART_STEP_H
#define ATTN_KERNEL_PART_STEP_H

#include "kernel/part_table.h"
#include "kernel/simd_tiles.h"

enum { STEP_PIECES = 3 };

/* Tiles 0 and 1 are sums, 2 and 3 parts of the left operand, 4 to 7 of the right one. */
INLINE void multiply_piece(const float *left, const float *right, size_t piece,
                           const size_t columns)
{
    const size_t row = TILE_BYTES;
    const float *const second = right + ATTN_PART_FLOATS;
    if (piece == 0) { /* low · high, middle · high */
        tile_load(2, left + 2 * ATTN_TILE_FLOATS, row);
        tile_load(4, right, row);
        tile_add_product(0, 2, 4);
        if (columns == 2) {
            tile_load(5, second, row);
            tile_add_product(1, 2, 5);
        }
        tile_load(3, left + ATTN_TILE_FLOATS, row);
        tile_add_product(0, 3, 4);
        if (columns == 2)
            tile_add_product(1, 3, 5);
    } else if (piece == 1) { /* middle · middle, high · middle */
        tile_load(6, right + ATTN_TILE_FLOATS, row);
        tile_add_product(0, 3, 6);
        if (columns == 2) {
            tile_load(7, second + ATTN_TILE_FLOATS, row);
            tile_add_product(1, 3, 7);
        }
        tile_load(2, left, row);
        tile_add_product(0, 2, 6);
        if (columns == 2)
            tile_add_product(1, 2, 7);
    } else { /* high · low, high · high */
        tile_load(6, right + 2 * ATTN_TILE_FLOATS, row);
        tile_add_product(0, 2, 6);
        if (columns == 2) {
            tile_load(7, second + 2 * ATTN_TILE_FLOATS, row);
            tile_add_product(1, 2, 7);
        }
        tile_add_product(0, 2, 4);
        if (columns == 2)
            tile_add_product(1, 2, 5);
    }
}

/* Tiles 0 and 1, beside each other. */
INLINE void store_pair(float *out, size_t out_row, const size_t columns)
{
    tile_store(0, out, out_row * sizeof *out);
    if (columns == 2)
        tile_store(1, out + VF_LANES, out_row * sizeof *out);
}

#endif
