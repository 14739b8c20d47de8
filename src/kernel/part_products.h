/* Products of matrices in three parts by tiles (part_table.h), a piece at a time, so that
 * other work can go between the pieces: what multiplies tiles is a unit of its own, but
 * looks no further ahead than some hundred instructions.
 *
 * A step is 6 products of tiles for each of two columns, the smallest first, and is taken
 * in three pieces.  A tile's product sums its pairs from 0 and rounds once more when it
 * adds that to the sum. */
#ifndef ATTN_KERNEL_PART_PRODUCTS_H
#define ATTN_KERNEL_PART_PRODUCTS_H

#include "kernel/bf16x3.h"
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

enum { MOST_PRODUCTS = 3 };

/* Pieces of a few products, one after the other, in so many shares as were asked for. */
struct part_queue {
    struct attn_part_product products[MOST_PRODUCTS];
    const struct attn_part_product *current;
    const float *left, *right; /* of the step at hand, of the tile of rows at hand */
    uint32_t piece, steps;     /* taken of it, and left of the tile's */
    uint32_t tiles, columns;   /* taken of the product's, and at a time */
    size_t count, pieces;      /* of all products */
    size_t taken, due, share;  /* pieces; the last two in 2⁻¹⁶ */
    float sums[ATTN_TILE_EDGE * 2 * ATTN_TILE_EDGE] __attribute__((aligned(TILE_BYTES)));
};

static void begin_tile(struct part_queue *queue)
{
    const struct attn_part_product *const p = queue->current;
    queue->left = p->left + queue->tiles * p->left_tile;
    queue->right = p->right;
    queue->steps = (uint32_t)p->steps;
}

static void begin_product(struct part_queue *queue)
{
    queue->tiles = 0;
    queue->columns = (uint32_t)queue->current->columns;
    begin_tile(queue);
}

static void begin_queue(struct part_queue *queue, size_t shares)
{
    queue->current = queue->products;
    queue->piece = 0;
    queue->taken = queue->due = 0;
    queue->share = shares > 0 ? (queue->pieces << 16) / shares : 0;
    if (queue->count > 0)
        begin_product(queue);
    tile_clear(0);
    tile_clear(1);
}

static void queue_product(struct part_queue *queue, const struct attn_part_product *p)
{
    if (p->steps == 0 || p->rows == 0)
        return;
    queue->products[queue->count++] = *p;
    queue->pieces += STEP_PIECES * p->steps * attn_tile_edges(p->rows);
}

/* Adds the sums of a tile of rows, of which so many are wanted. */
INLINE void add_rows_of(float *out, size_t out_row, const float *sums, size_t rows,
                        const size_t columns)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (size_t n = 0; n < columns * VF_LANES; n += VF_LANES)
            vf_store(out + n, vf_load(out + n) + vf_load(sums + n));
        sums += columns * VF_LANES;
        out += out_row;
    }
}

INLINE void store_pair(float *out, size_t out_row, const size_t columns)
{
    tile_store(0, out, out_row * sizeof *out);
    if (columns == 2)
        tile_store(1, out + VF_LANES, out_row * sizeof *out);
}

/* The sums of a tile of rows are done. */
INLINE void put_product(struct part_queue *queue, const size_t columns)
{
    const struct attn_part_product *const p = queue->current;
    const size_t first = queue->tiles * ATTN_TILE_EDGE;
    float *const out = p->out + first * p->out_row;
    if (!p->adds) {
        store_pair(out, p->out_row, columns);
        return;
    }
    store_pair(queue->sums, columns * VF_LANES, columns);
    if (p->rows - first >= ATTN_TILE_EDGE)
        add_rows_of(out, p->out_row, queue->sums, ATTN_TILE_EDGE, columns);
    else
        add_rows_of(out, p->out_row, queue->sums, p->rows - first, columns);
}

static void end_step(struct part_queue *queue)
{
    const struct attn_part_product *const p = queue->current;
    queue->piece = 0;
    if (--queue->steps > 0) {
        queue->left += p->left_step;
        queue->right += p->right_step;
        return;
    }
    if (queue->columns == 2)
        put_product(queue, 2);
    else
        put_product(queue, 1);
    tile_clear(0);
    tile_clear(1);
    if (++queue->tiles * ATTN_TILE_EDGE < p->rows) {
        begin_tile(queue);
    } else if (++queue->current < queue->products + queue->count) {
        begin_product(queue);
    }
}

/* There must be one left. */
static void take_piece(struct part_queue *queue)
{
    if (queue->columns == 2)
        multiply_piece(queue->left, queue->right, queue->piece, 2);
    else
        multiply_piece(queue->left, queue->right, queue->piece, 1);
    queue->taken++;
    if (++queue->piece == STEP_PIECES)
        end_step(queue);
}

INLINE void take_share(struct part_queue *queue)
{
    queue->due += queue->share;
    while (queue->taken < queue->due >> 16)
        take_piece(queue);
}

static void take_rest(struct part_queue *queue)
{
    while (queue->taken < queue->pieces)
        take_piece(queue);
}

static void multiply_in_parts(const struct attn_part_product *product)
{
    struct part_queue queue;
    queue.count = queue.pieces = 0;
    queue_product(&queue, product);
    begin_queue(&queue, 0);
    take_rest(&queue);
}

#endif
