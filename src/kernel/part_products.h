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

struct part_queue {
    struct attn_part_product products[MOST_PRODUCTS];
    size_t count, current, tile, step, piece; /* the next to take */
    size_t left;                              /* pieces to take */
    size_t shares;                            /* in so many shares */
    float sums[ATTN_TILE_EDGE * 2 * ATTN_TILE_EDGE] __attribute__((aligned(TILE_BYTES)));
};

static void queue_product(struct part_queue *queue, const struct attn_part_product *p)
{
    if (p->steps == 0 || p->rows == 0)
        return;
    queue->products[queue->count++] = *p;
    queue->left += STEP_PIECES * p->steps * attn_tile_edges(p->rows);
}

/* The sums of a tile of rows are done. */
static void put_product(struct part_queue *queue, const struct attn_part_product *p)
{
    const size_t first = queue->tile * ATTN_TILE_EDGE;
    float *out = p->out + first * p->out_row;
    if (!p->adds) {
        tile_store(0, out, p->out_row * sizeof *out);
        if (p->columns == 2)
            tile_store(1, out + ATTN_TILE_EDGE, p->out_row * sizeof *out);
        return;
    }
    const size_t sums_row = p->columns * ATTN_TILE_EDGE;
    const size_t rows =
        p->rows - first < ATTN_TILE_EDGE ? p->rows - first : ATTN_TILE_EDGE;
    const float *sum = queue->sums;
    tile_store(0, queue->sums, sums_row * sizeof *sum);
    if (p->columns == 2)
        tile_store(1, queue->sums + ATTN_TILE_EDGE, sums_row * sizeof *sum);
    for (size_t i = 0; i < rows; i++) {
        for (size_t n = 0; n < sums_row; n += VF_LANES)
            vf_store(out + n, vf_load(out + n) + vf_load(sum + n));
        sum += sums_row;
        out += p->out_row;
    }
}

/* There must be one left. */
static void take_piece(struct part_queue *queue)
{
    const struct attn_part_product *const p = &queue->products[queue->current];
    const float *const left =
        p->left + queue->tile * p->left_tile + (ptrdiff_t)queue->step * p->left_step;
    const float *const right = p->right + (ptrdiff_t)queue->step * p->right_step;
    if (queue->step == 0 && queue->piece == 0) {
        tile_clear(0);
        tile_clear(1);
    }
    if (p->columns == 2)
        multiply_piece(left, right, queue->piece, 2);
    else
        multiply_piece(left, right, queue->piece, 1);
    queue->left--;
    if (++queue->piece < STEP_PIECES)
        return;
    queue->piece = 0;
    if (++queue->step < p->steps)
        return;
    queue->step = 0;
    put_product(queue, p);
    if (++queue->tile * ATTN_TILE_EDGE < p->rows)
        return;
    queue->tile = 0;
    queue->current++;
}

static void take_share(struct part_queue *queue)
{
    for (size_t n = queue->left / queue->shares--; n > 0; n--)
        take_piece(queue);
}

static void take_rest(struct part_queue *queue)
{
    while (queue->left > 0)
        take_piece(queue);
}

static void multiply_in_parts(const struct attn_part_product *product)
{
    struct part_queue queue = {.count = 0};
    queue_product(&queue, product);
    take_rest(&queue);
}

#endif
