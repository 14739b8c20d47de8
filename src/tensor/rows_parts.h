/* Products of matrices by tiles of bfloat16, every number in three parts: what
 * multiply-adds would give, with smaller errors, in less time.
 *
 * The right matrix is split once, by pack; x a block of rows at a time.  Sums stay in
 * tiles, and leave them to be added to y after FAR_STEPS at most: an element's order
 * depends on the steps alone, and a row has the same bits in any batch.
 *
 * Rows of x that are too large or too small for their parts, or not finite, are left out
 * and multiplied by the matrix as it lies, with multiply-adds; if the matrix does not
 * fit, all rows are. */
#ifndef ATTN_TENSOR_ROWS_PARTS_H
#define ATTN_TENSOR_ROWS_PARTS_H

#include "kernel/part_step.h"
#include "tensor/rows_panels.h"
#include "tensor/rows_split.h"

enum {
    /* Of a panel and a tile of rows, 45 KB: the first cache holds the panel's while tiles
     * of rows pass by.  Products of tiles take 6.0 ns, of 8 steps 6.8. */
    NEAR_STEPS = 5,
    /* Of a block of rows, 256 elements.  With 24 the gradient of a weight takes 5 to 11 %
     * longer, as x is read by shorter rows, others up to 4 % less. */
    FAR_STEPS = 8,
    LEFT_FLOATS = 1 << 17 /* of its parts: a quarter of a second cache */
};

/* ---- Rows that do not fit -------------------------------------------------------------
 */

/* y += x · matrix of some steps, in their order, like rows_panels.h. */
static void add_row_plainly(const struct attn_panel_product *p, size_t row, size_t step,
                            size_t steps)
{
    const struct attn_packed *const packed = p->matrix;
    const struct attn_matrix m = matrix_of(packed);
    const float *const x =
        p->turned ? p->x + step * p->turned + row : p->x + row * packed->inner + step;
    const size_t stride = p->turned ? p->turned : 1;
    for (size_t column = 0; column < packed->columns; column += LANES) {
        float *const y = p->y + row * packed->columns + column;
        vf sum = load_some(y, packed->columns - column);
        for (size_t n = 0; n < steps; n += LANES) {
            vf square[LANES];
            if (packed->turned) {
                load_square_of(square, &m, column, step + n);
                transpose_square(square);
            } else {
                load_square_of(square, &m, step + n, column);
            }
            for (size_t i = 0; i < LANES && n + i < steps; i++)
                sum = vf_fma(vf_set1(x[(n + i) * stride]), square[i], sum);
        }
        store_some(y, sum, packed->columns - column);
    }
}

static void add_unfit_rows(const struct left_block *block)
{
    for (size_t row = 0; row < block->rows && block->has_unfit; row++)
        if (block->unfit[row])
            add_row_plainly(block->product, block->row + row, block->step, block->steps);
}

/* ---- Multiplying ----------------------------------------------------------------------
 */

enum {
    SUMS_ROW = PARTS_PANEL,
    SUMS_FLOATS = ATTN_TILE_EDGE * SUMS_ROW,
    ROWS_AT_ONCE = 2 /* after a piece of a step */
};

/* Sums of a tile of rows by a panel on their way to y, in shares between products of
 * tiles. */
struct sums_way {
    const float *sums;
    float *y;
    const float *start; /* what they are added to */
    size_t y_row, start_row, columns;
    size_t row, rows; /* gone, and all */
    size_t wide_rows; /* that go in shares: none of a panel of fewer columns */
};

INLINE void go_to_next_row(struct sums_way *way)
{
    way->sums += SUMS_ROW;
    way->y += way->y_row;
    way->start += way->start_row;
    way->row++;
}

/* How many depends on nothing but how many are left: branches are foreseen.  One row
 * after a piece, or four, takes 3 % longer, all at the end 8 %. */
INLINE void put_share(struct sums_way *way)
{
    if (way->row + ROWS_AT_ONCE > way->wide_rows)
        return;
#pragma GCC unroll 2
    for (size_t i = 0; i < ROWS_AT_ONCE; i++) {
#pragma GCC unroll 2
        for (size_t n = 0; n < PARTS_PANEL; n += LANES)
            vf_store(way->y + n, vf_load(way->start + n) + vf_load(way->sums + n));
        go_to_next_row(way);
    }
}

static void put_rest(struct sums_way *way)
{
    for (; way->row < way->rows; go_to_next_row(way))
        for (size_t n = 0; n < way->columns; n += LANES) {
            const size_t left = way->columns - n;
            const vf sum = load_some(way->start + n, left) + vf_load(way->sums + n);
            store_some(way->y + n, sum, left);
        }
}

/* A block's products on their way: a panel after the other, and of each some steps with
 * all tiles of rows, whose sums are kept in between. */
struct block_way {
    const struct left_block *block;
    float *kept;      /* [tile of rows][2 of columns] */
    const char *call; /* of the next panel: what is far is called into the second cache */
    size_t calls;     /* after a piece of a step */
    struct sums_way out;
    float sums[2][SUMS_FLOATS] __attribute__((aligned(TILE_BYTES)));
    size_t turn; /* of these */
};

/* Some steps of a panel. */
struct near_panel {
    const float *right;
    size_t first_step, steps;
    bool begins, ends;
    struct sums_way out; /* of the first tile of rows */
};

INLINE void begin_sums(const struct near_panel *near, const float *kept,
                       const size_t columns)
{
    if (near->begins) {
        tile_clear(0);
        tile_clear(1);
        return;
    }
    tile_load(0, kept, (size_t)TILE_BYTES);
    if (columns == 2)
        tile_load(1, kept + ATTN_TILE_FLOATS, (size_t)TILE_BYTES);
}

INLINE void keep_sums(float *kept, const size_t columns)
{
    tile_store(0, kept, (size_t)TILE_BYTES);
    if (columns == 2)
        tile_store(1, kept + ATTN_TILE_FLOATS, (size_t)TILE_BYTES);
}

INLINE void add_steps(struct block_way *way, const struct near_panel *near,
                      const float *left, const size_t columns)
{
    const float *right = near->right;
    for (size_t step = 0; step < near->steps; step++) {
#pragma GCC unroll 3
        for (size_t piece = 0; piece < STEP_PIECES; piece++) {
            multiply_piece(left, right, piece, columns);
            put_share(&way->out);
            for (size_t i = 0; i < way->calls; i++, way->call += TILE_BYTES)
                __builtin_prefetch(way->call, 0, 2);
        }
        left += ATTN_PART_FLOATS;
        right += PANEL_STEP_FLOATS;
    }
    put_rest(&way->out);
}

/* The columns are one tile or two. */
INLINE void multiply_near(struct block_way *way, const struct near_panel *near,
                          const size_t columns)
{
    const struct left_block *const block = way->block;
    const float *left = block->parts + near->first_step * ATTN_PART_FLOATS;
    float *kept = way->kept;
    struct sums_way out = near->out;
    for (size_t row = 0; row < block->rows; row += ATTN_TILE_EDGE) {
        begin_sums(near, kept, columns);
        add_steps(way, near, left, columns);
        if (near->ends) {
            out.sums = way->sums[way->turn ^= 1];
            out.rows = least(ATTN_TILE_EDGE, block->rows - row);
            out.wide_rows = out.columns == PARTS_PANEL ? out.rows : 0;
            store_pair(way->sums[way->turn], SUMS_ROW, columns);
            way->out = out;
        } else {
            keep_sums(kept, columns);
        }
        left += block->tile_floats;
        kept += 2 * ATTN_TILE_FLOATS;
        out.y += ATTN_TILE_EDGE * out.y_row;
        out.start += ATTN_TILE_EDGE * out.start_row;
    }
}

static struct sums_way way_out(const struct left_block *block, size_t column)
{
    static const float zeros[PARTS_PANEL];
    const struct attn_panel_product *const p = block->product;
    const size_t columns = p->matrix->columns;
    const bool add = p->add || block->step > 0;
    float *const y = p->y + block->row * columns + column;
    return (struct sums_way){
        .y = y,
        .start = add       ? y
                 : p->bias ? p->bias + column
                           : zeros,
        .y_row = columns,
        .start_row = add ? columns : 0,
        .columns = least(PARTS_PANEL, columns - column),
    };
}

static void multiply_block_by(struct block_way *way, const float *panel, size_t column)
{
    const size_t steps = tile_steps(way->block);
    const size_t pieces = (steps + NEAR_STEPS - 1) / NEAR_STEPS;
    struct near_panel near = {.out = way_out(way->block, column)};
    for (size_t piece = 0; piece < pieces; piece++) {
        near.first_step = piece * steps / pieces;
        near.steps = (piece + 1) * steps / pieces - near.first_step;
        near.right = panel + near.first_step * PANEL_STEP_FLOATS;
        near.begins = piece == 0;
        near.ends = piece + 1 == pieces;
        if (near.out.columns > ATTN_TILE_EDGE)
            multiply_near(way, &near, 2);
        else
            multiply_near(way, &near, 1);
    }
}

static void multiply_left_block(const struct left_block *block)
{
    const struct attn_packed *const matrix = block->product->matrix;
    const size_t steps = tile_steps(block);
    const size_t panel_floats = attn_tile_steps(matrix->inner) * PANEL_STEP_FLOATS;
    const size_t lines = steps * PANEL_STEP_FLOATS / LINE_FLOATS;
    const size_t pieces = attn_tile_edges(block->rows) * steps * STEP_PIECES;
    struct block_way way = {
        .block = block,
        .kept = matrix->work + LEFT_FLOATS,
        .calls = (lines + pieces - 1) / pieces,
    };
    const float *panel = matrix->memory + block->step / STEP * PANEL_STEP_FLOATS;
    for (size_t column = 0; column < matrix->columns; column += PARTS_PANEL) {
        way.call = (const char *)(panel + panel_floats);
        multiply_block_by(&way, panel, column);
        panel += panel_floats;
    }
    put_rest(&way.out);
}

static void multiply_rows_plainly(const struct attn_panel_product *p)
{
    if (!p->add)
        fill_rows(p);
    for (size_t row = 0; row < p->rows; row++)
        add_row_plainly(p, row, 0, p->matrix->inner);
}

static void multiply_parts(const struct attn_panel_product *p)
{
    if (!p->matrix->fits) {
        multiply_rows_plainly(p);
        return;
    }
    const size_t inner = p->matrix->inner, steps = attn_tile_steps(inner);
    const size_t pieces = (steps + FAR_STEPS - 1) / FAR_STEPS;
    struct left_block block = {.product = p, .parts = p->matrix->work};
    tiles_open();
    for (size_t piece = 0; piece < pieces; piece++) {
        const size_t first = piece * steps / pieces, end = (piece + 1) * steps / pieces;
        const size_t most = LEFT_FLOATS / ATTN_PART_FLOATS / (end - first);
        block.step = first * STEP;
        block.steps = least(end * STEP, inner) - block.step;
        for (block.row = 0; block.row < p->rows; block.row += block.rows) {
            block.rows =
                least(least(most, LEFT_TILES) * ATTN_TILE_EDGE, p->rows - block.row);
            split_block(&block);
            multiply_left_block(&block);
            add_unfit_rows(&block);
        }
    }
    tiles_close();
}

/* ---- Either way -----------------------------------------------------------------------
 */

/* Steps and columns.  Of 1,024 rows, 64 x 48 takes .80 of the time of multiply-adds, 64 x
 * 32 as long, and one step of 32 as long up to 64 columns; of 32 rows 64 x 48 .89, 64 x
 * 32 1.18. */
enum { PARTS_LEAST = 48 };

static bool takes_parts(size_t inner, size_t columns, bool few_rows)
{
    return inner >= PARTS_LEAST && columns >= PARTS_LEAST && !few_rows;
}

static size_t either_floats(size_t inner, size_t columns, bool few_rows)
{
    if (!takes_parts(inner, columns, few_rows))
        return panels_floats(inner, columns, few_rows);
    return part_panel_floats(inner, columns) + LEFT_FLOATS +
           LEFT_TILES * 2 * ATTN_TILE_FLOATS;
}

static void pack_either(struct attn_packed *packed)
{
    if (takes_parts(packed->inner, packed->columns, packed->few_rows))
        pack_parts(packed);
    else
        pack_panels(packed);
}

static void multiply_either(const struct attn_panel_product *p)
{
    const struct attn_packed *const matrix = p->matrix;
    if (takes_parts(matrix->inner, matrix->columns, matrix->few_rows))
        multiply_parts(p);
    else
        multiply_panels(p);
}

#endif
