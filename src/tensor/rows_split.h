/* Matrices in three parts of bfloat16 (kernel/bf16x3.h) as products of tiles read them:
 * the right one, packed once, and blocks of rows of the left one.  Sums of squares tell
 * what may be taken in parts: see rows_parts.h. */
#ifndef ATTN_TENSOR_ROWS_SPLIT_H
#define ATTN_TENSOR_ROWS_SPLIT_H

#include "kernel/bf16x3.h"
#include "kernel/part_table.h"
#include "kernel/square.h"
#include "tensor/rows_vector.h"

enum {
    STEP = ATTN_TILE_STEP,
    PARTS_PANEL = 2 * ATTN_TILE_EDGE, /* columns */
    PANEL_STEP_FLOATS = 2 * ATTN_PART_FLOATS,
    LEFT_TILES = 32, /* of rows of a block, at most */
};

/* ---- What fits ------------------------------------------------------------------------
 * Sums of squares tell it: they take one multiply-add a vector, and find all that is not
 * finite.  They begin above what is slow to compute. */

#define SQUARES_NONE 0x1p-126f
#define ROW_SQUARES_LEAST 0x1p-118f
#define MATRIX_SQUARES_LEAST 0x1p-64f
#define SQUARES_MOST 0x1p100f

INLINE vi too_large(vf squares)
{
    return ~(squares <= SQUARES_MOST);
}

/* ---- Splitting ------------------------------------------------------------------------
 */

/* A square of 16 rows from `row` on by 16 elements, 0 beyond the last of either. */
INLINE void load_square_of(vf x[LANES], const struct attn_matrix *m, size_t row, size_t n)
{
    const float *const first =
        (const float *)m->x + (ptrdiff_t)row * m->row_stride + (ptrdiff_t)n;
    if (row + LANES <= m->rows && n + LANES <= m->size) {
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++)
            x[i] = vf_load(first + (ptrdiff_t)i * m->row_stride);
        return;
    }
    for (size_t i = 0; i < LANES; i++)
        x[i] = row + i < m->rows && n < m->size
                   ? load_some(first + (ptrdiff_t)i * m->row_stride, m->size - n)
                   : vf_set1(0.0f);
}

/* A tile of 32 steps, 16 pairs, by 16 lines: steps are rows of the matrix and lines are
 * elements (`down`), or the other way.  Its rows are pairs of steps, as the right operand
 * has them, or lines, as the left one does.  Adds squares as what is read lies. */
INLINE void split_tile(float *to, const struct attn_matrix *m, size_t step, size_t line,
                       const bool down, const bool is_left, vf *squares)
{
    vf x[2][LANES], own[2] = {vf_set1(SQUARES_NONE), vf_set1(SQUARES_NONE)};
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        const size_t first = step + half * LANES;
        load_square_of(x[half], m, down ? first : line, down ? line : first);
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++)
            own[i % 2] = vf_fma(x[half][i], x[half][i], own[i % 2]);
        if (down == is_left)
            transpose_square(x[half]);
    }
    *squares += own[0] + own[1];
#pragma GCC unroll 4
    for (size_t i = 0; i < LANES; i++)
        store_parts(to + i * LANES, ATTN_TILE_FLOATS, x[0][i], x[1][i]);
}

static struct attn_matrix matrix_of(const struct attn_packed *packed)
{
    const bool turned = packed->turned;
    const size_t rows = turned ? packed->columns : packed->inner;
    const size_t size = turned ? packed->inner : packed->columns;
    return (struct attn_matrix){packed->matrix, (ptrdiff_t)size, 1, rows, size, ATTN_F32};
}

static size_t part_panel_floats(size_t inner, size_t columns)
{
    return attn_tile_steps(inner) * ((columns + PARTS_PANEL - 1) / PARTS_PANEL) *
           PANEL_STEP_FLOATS;
}

/* A step of a panel. */
INLINE void split_panel(const struct attn_packed *packed, const struct attn_matrix *m,
                        size_t step, size_t column, const bool turned, vf *squares)
{
    const size_t panel_floats = attn_tile_steps(packed->inner) * PANEL_STEP_FLOATS;
    float *const to = packed->memory + column / PARTS_PANEL * panel_floats +
                      step / STEP * PANEL_STEP_FLOATS;
    split_tile(to, m, step, column, !turned, false, squares);
    if (column + LANES < packed->columns)
        split_tile(to + ATTN_PART_FLOATS, m, step, column + LANES, !turned, false,
                   squares);
}

static bool is_zero(const float *x, size_t n)
{
    while (n > 0 && x[n - 1] == 0.0f)
        n--;
    return n == 0;
}

/* In the order of memory's rows. */
static void pack_parts(struct attn_packed *packed)
{
    packed->work = packed->memory + part_panel_floats(packed->inner, packed->columns);
    const size_t inner = packed->inner, columns = packed->columns;
    const struct attn_matrix m = matrix_of(packed);
    vf squares = vf_set1(SQUARES_NONE);
    for (size_t column = 0; column < columns && packed->turned; column += PARTS_PANEL)
        for (size_t step = 0; step < inner; step += STEP)
            split_panel(packed, &m, step, column, true, &squares);
    for (size_t step = 0; step < inner && !packed->turned; step += STEP)
        for (size_t column = 0; column < columns; column += PARTS_PANEL)
            split_panel(packed, &m, step, column, false, &squares);
    packed->fits = !vi_any(too_large(squares)) &&
                   (vi_any(squares >= vf_set1(MATRIX_SQUARES_LEAST)) ||
                    is_zero(packed->matrix, inner * columns));
}

/* ---- Blocks of rows -------------------------------------------------------------------
 */

/* Rows of x in parts, [tile][step][part]. */
struct left_block {
    const struct attn_panel_product *product;
    float *parts;
    size_t row, rows; /* of x, at most LEFT_TILES tiles */
    size_t step, steps;
    size_t tile_floats;
    bool has_unfit;
    bool unfit[LEFT_TILES * ATTN_TILE_EDGE];
};

static size_t tile_steps(const struct left_block *block)
{
    return attn_tile_steps(block->steps);
}

/* What the block reads: rows, or where x is turned steps, with the others as elements. */
static struct attn_matrix read_by(const struct left_block *block)
{
    const struct attn_panel_product *const p = block->product;
    if (p->turned)
        return (struct attn_matrix){p->x + block->step * p->turned + block->row,
                                    (ptrdiff_t)p->turned,
                                    1,
                                    block->steps,
                                    block->rows,
                                    ATTN_F32};
    const size_t inner = p->matrix->inner;
    return (struct attn_matrix){p->x + block->row * inner + block->step,
                                (ptrdiff_t)inner,
                                1,
                                block->rows,
                                block->steps,
                                ATTN_F32};
}

/* A row whose squares are too large or too small: unless it is 0, its parts become 0. */
static void look_at_row(struct left_block *block, const struct attn_matrix *m, size_t row)
{
    const bool turned = block->product->turned > 0;
    const ptrdiff_t stride = turned ? m->row_stride : 1;
    const float *const x =
        (const float *)m->x + (ptrdiff_t)row * (turned ? 1 : m->row_stride);
    size_t n = 0;
    while (n < block->steps && x[(ptrdiff_t)n * stride] == 0.0f)
        n++;
    if (n == block->steps)
        return;
    block->has_unfit = block->unfit[row] = true;
    float *to = block->parts + row / ATTN_TILE_EDGE * block->tile_floats +
                row % ATTN_TILE_EDGE * LANES;
    for (size_t i = 0; i < tile_steps(block) * BF16_PARTS; i++, to += ATTN_TILE_FLOATS)
        vf_store(to, vf_set1(0.0f));
}

INLINE void split_step(float *to, vf first, vf second, vf *squares)
{
    *squares = vf_fma(first, first, *squares);
    *squares = vf_fma(second, second, *squares);
    store_parts(to, ATTN_TILE_FLOATS, first, second);
}

INLINE void split_row_of(float *to, const float *x, size_t steps, vf *squares)
{
    size_t n = 0;
    for (; n + STEP <= steps; n += STEP, to += ATTN_PART_FLOATS)
        split_step(to, vf_load(x + n), vf_load(x + n + LANES), squares);
    if (n < steps) {
        const size_t left = steps - n;
        const vf none = vf_set1(0.0f);
        split_step(to, load_some(x + n, left),
                   left > LANES ? load_some(x + n + LANES, left - LANES) : none, squares);
    }
}

static void split_rows_of(struct left_block *block, const struct attn_matrix *m)
{
    for (size_t row = 0; row < block->rows; row++) {
        float *const to = block->parts + row / ATTN_TILE_EDGE * block->tile_floats +
                          row % ATTN_TILE_EDGE * LANES;
        vf squares = vf_set1(SQUARES_NONE);
        split_row_of(to, (const float *)m->x + (ptrdiff_t)row * m->row_stride,
                     block->steps, &squares);
        if (vi_any(too_large(squares)) || !vi_any(squares >= vf_set1(ROW_SQUARES_LEAST)))
            look_at_row(block, m, row);
    }
}

/* Where rows lie side by side. */
static void split_columns_of(struct left_block *block, const struct attn_matrix *m)
{
    vf squares[LEFT_TILES];
    const size_t tiles = attn_tile_edges(block->rows);
    for (size_t tile = 0; tile < tiles; tile++)
        squares[tile] = vf_set1(SQUARES_NONE);
    for (size_t step = 0; step < block->steps; step += STEP)
        for (size_t tile = 0; tile < tiles; tile++)
            split_tile(block->parts + tile * block->tile_floats +
                           step / STEP * ATTN_PART_FLOATS,
                       m, step, tile * ATTN_TILE_EDGE, true, true, &squares[tile]);
    for (size_t row = 0; row < block->rows; row++) {
        const vf own = squares[row / ATTN_TILE_EDGE];
        const vi unfit = too_large(own) | (own < vf_set1(ROW_SQUARES_LEAST));
        if (unfit[row % ATTN_TILE_EDGE])
            look_at_row(block, m, row);
    }
}

static void split_block(struct left_block *block)
{
    const struct attn_matrix m = read_by(block);
    block->tile_floats = tile_steps(block) * ATTN_PART_FLOATS;
    block->has_unfit = false;
    memset(block->unfit, 0, block->rows * sizeof *block->unfit);
    if (block->product->turned)
        split_columns_of(block, &m);
    else
        split_rows_of(block, &m);
}

#endif
