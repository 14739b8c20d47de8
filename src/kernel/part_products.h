/* Products of matrices in three parts by tiles (part_step.h), a piece at a time, in so
 * many shares as other work has between them. */
#ifndef ATTN_KERNEL_PART_PRODUCTS_H
#define ATTN_KERNEL_PART_PRODUCTS_H

#include "kernel/part_step.h"

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
