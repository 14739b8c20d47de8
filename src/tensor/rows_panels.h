/* Products of matrices: the right one is packed into panels of neighbouring columns,
 *
 *     y = x·M        panels[column / PANEL][step][column % PANEL] = M[step][column]
 *
 * and multiplied by any number of rows, few as they may be, at the rate of a large
 * product; x is read in place, along its rows or across.  Each element is one chain of
 * multiply-adds in the order of the steps, so a row has the same bits in any batch. */
#ifndef ATTN_TENSOR_ROWS_PANELS_H
#define ATTN_TENSOR_ROWS_PANELS_H

#include "tensor/rows_norm.h"

enum {
    PANEL_VECTORS = 2,
    PANEL = PANEL_VECTORS * (VF_BYTES / 4),
    /* 16 accumulators + 2 + 1 of 32 registers; 12 + 2 + 1 of 16.  With one multiply-add a
     * cycle 12 rows are no faster, and more than the ways of a first cache: where they
     * lie a power of two apart, 1024 floats, they run at 106 GFLOP/s, 8 at 114.  With
     * two, 8 rows run at .85 to .90 of them, 14 at .88 to .97. */
    PANEL_ROWS = VF_TWO_MULTIPLIERS   ? 14
                 : VF_REGISTERS == 32 ? 8
                                      : 6,
    /* Steps whose panel is called into the first cache ahead, 0 for none. */
    PANEL_AHEAD = VF_TWO_MULTIPLIERS ? 8 : 0,
    LINE_FLOATS = 16 /* of a cache */
};

INLINE size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- Packing --------------------------------------------------------------------------
 */

/* to[step][row] = from[row][step], of four rows and four steps. */
INLINE void turn_four(float *to, const float *from, size_t row_stride)
{
    quarter x[4];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
        memcpy(&x[r], from + r * row_stride, sizeof x[r]);
    const quarter a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
    const quarter b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
    const quarter c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
    const quarter d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    const quarter turned[4] = {__builtin_shufflevector(a, c, 0, 1, 4, 5),
                               __builtin_shufflevector(a, c, 2, 3, 6, 7),
                               __builtin_shufflevector(b, d, 0, 1, 4, 5),
                               __builtin_shufflevector(b, d, 2, 3, 6, 7)};
#pragma GCC unroll 4
    for (size_t step = 0; step < 4; step++)
        memcpy(to + step * PANEL, &turned[step], sizeof turned[step]);
}

/* A panel whose columns are rows of memory, as many at a time as a line of it has. */
INLINE void pack_turned(float *to, const float *from, size_t inner, size_t count)
{
    enum { COLUMNS = LINE_FLOATS < PANEL ? LINE_FLOATS : PANEL };
    size_t column = 0;
    for (; column + COLUMNS <= count; column += COLUMNS) {
        const float *const rows = from + column * inner;
        size_t step = 0;
        for (; step + 4 <= inner; step += 4)
#pragma GCC unroll 4
            for (size_t c = 0; c < COLUMNS; c += 4)
                turn_four(to + step * PANEL + column + c, rows + c * inner + step, inner);
        for (; step < inner; step++)
            for (size_t c = 0; c < COLUMNS; c++)
                to[step * PANEL + column + c] = rows[c * inner + step];
    }
    for (; column < PANEL; column++)
        for (size_t step = 0; step < inner; step++)
            to[step * PANEL + column] = column < count ? from[column * inner + step] : 0;
}

/* One step of all panels: a row of memory, read in one piece. */
INLINE void pack_step(float *to, const float *from, size_t columns, size_t panel_stride)
{
    for (size_t column = 0; column < columns; column += PANEL, to += panel_stride)
        for (size_t v = 0; v < PANEL; v += VF_LANES) {
            const size_t at = column + v;
            vf_store(to + v,
                     at < columns ? load_some(from + at, columns - at) : vf_set1(0.0f));
        }
}

/* Before what products work in. */
static size_t packed_floats(size_t inner, size_t columns)
{
    return inner * ((columns + PANEL - 1) / PANEL * PANEL);
}

static size_t panels_floats(size_t inner, size_t columns, bool few_rows)
{
    (void)few_rows;
    return packed_floats(inner, columns) + ATTN_BAND_FLOATS;
}

static void pack_panels(struct attn_packed *packed)
{
    const size_t inner = packed->inner, columns = packed->columns;
    const float *const matrix = packed->matrix;
    float *const panels = packed->memory;
    packed->work = panels + packed_floats(inner, columns);
    for (size_t step = 0; step < inner && !packed->turned; step++)
        pack_step(panels + step * PANEL, matrix + step * columns, columns, inner * PANEL);
    for (size_t column = 0; column < columns && packed->turned; column += PANEL) {
        const size_t left = columns - column;
        pack_turned(panels + column * inner, matrix + column * inner, inner,
                    left < PANEL ? left : PANEL);
    }
}

/* ---- Multiplying ----------------------------------------------------------------------
 */

struct panel_tile {
    float *y;
    const float *start; /* what sums begin with */
    const float *x, *panel;
    size_t y_stride, start_stride, x_stride, step_stride, inner;
    size_t tile_stride; /* of x, from one whole tile to the next */
    size_t vectors;     /* of the panel that are multiplied: all, or 1 */
    const float *call;  /* into the second cache: a line each step, so far apart */
    size_t call_stride;
};

/* How far a tile is. */
struct tile_walk {
    const float *x[(PANEL_ROWS + 3) / 4]; /* every fourth row: few registers */
    const float *panel, *call;
};

/* next: rows that are called to be written, one each step; or NULL, and a line of x is
 * called.  rows, vectors and whether there is a next are constants at every call. */
INLINE void multiply_steps(vf sum[PANEL_ROWS][PANEL_VECTORS], struct tile_walk *walk,
                           const struct panel_tile *t, size_t steps, const float *next,
                           const size_t rows, const size_t vectors)
{
    const size_t stride = t->x_stride, step_stride = t->step_stride;
    const size_t call_stride = t->call_stride, y_stride = t->y_stride;
    struct tile_walk w = *walk;
    /* Steps are never none: see kernel/product.h on the form of this loop. */
    do {
        vf right[PANEL_VECTORS];
        if (next) {
            __builtin_prefetch(next, 1);
            __builtin_prefetch(next + VF_LANES, 1);
            next += y_stride;
        } else {
            __builtin_prefetch(w.call, 0, 2);
            w.call += call_stride;
        }
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            right[v] = vf_load(w.panel + v * VF_LANES);
            if (PANEL_AHEAD > 0)
                __builtin_prefetch(w.panel + PANEL_AHEAD * PANEL + v * VF_LANES);
        }
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; r++) {
            const vf left = vf_set1(w.x[r / 4][r % 4 * stride]);
#pragma GCC unroll 2
            for (size_t v = 0; v < vectors; v++)
                sum[r][v] = vf_fma(left, right[v], sum[r][v]);
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r += 4)
            w.x[r / 4] += step_stride;
        w.panel += PANEL;
    } while (--steps);
    *walk = w;
}

/* In the first steps the next tile's sums are called, which may lie in no near cache: all
 * at once they would hold up what is multiplied (112.5 in place of 114.5 GFLOP/s). */
INLINE void multiply_some(const struct panel_tile *t, const size_t rows,
                          const size_t vectors)
{
    struct tile_walk walk = {.panel = t->panel, .call = t->call};
    vf sum[PANEL_ROWS][PANEL_VECTORS];
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r += 4)
        walk.x[r / 4] = t->x + r * t->x_stride;
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            sum[r][v] = vf_load(t->start + r * t->start_stride + v * VF_LANES);

    const size_t first = least(rows, t->inner);
    multiply_steps(sum, &walk, t, first, t->y + rows * t->y_stride, rows, vectors);
    if (first < t->inner)
        multiply_steps(sum, &walk, t, t->inner - first, NULL, rows, vectors);

#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            vf_store(t->y + r * t->y_stride + v * VF_LANES, sum[r][v]);
}

INLINE void multiply_tile(const struct panel_tile *t, const size_t rows)
{
    if (t->vectors == PANEL_VECTORS)
        multiply_some(t, rows, PANEL_VECTORS);
    else
        multiply_some(t, rows, 1);
}

#define OWN_TILE static __attribute__((noinline)) void

OWN_TILE tile_most(const struct panel_tile *t)
{
    multiply_tile(t, PANEL_ROWS);
}

OWN_TILE tile_8(const struct panel_tile *t)
{
    multiply_tile(t, PANEL_ROWS < 8 ? PANEL_ROWS : 8);
}

OWN_TILE tile_4(const struct panel_tile *t)
{
    multiply_tile(t, 4);
}

OWN_TILE tile_3(const struct panel_tile *t)
{
    multiply_tile(t, 3);
}

OWN_TILE tile_2(const struct panel_tile *t)
{
    multiply_tile(t, 2);
}

OWN_TILE tile_1(const struct panel_tile *t)
{
    multiply_tile(t, 1);
}

/* A panel of fewer columns: in a tile's memory, and out of it. */
static void multiply_narrow(const struct panel_tile *given, size_t rows, size_t count,
                            void (*tile)(const struct panel_tile *))
{
    float memory[PANEL_ROWS * PANEL] = {0};
    struct panel_tile t = *given;
    t.y = memory;
    t.start = memory;
    t.y_stride = t.start_stride = PANEL;
    for (size_t r = 0; r < rows; r++)
        memcpy(memory + r * PANEL, given->start + r * given->start_stride,
               count * sizeof *memory);
    tile(&t);
    for (size_t r = 0; r < rows; r++)
        memcpy(given->y + r * given->y_stride, memory + r * PANEL,
               count * sizeof *memory);
}

/* All rows with one panel. */
static void multiply_one_panel(struct panel_tile *t, size_t rows, size_t count)
{
    static const struct {
        size_t rows;
        void (*run)(const struct panel_tile *t);
    } tiles[] = {{PANEL_ROWS, tile_most},
                 {8, tile_8},
                 {4, tile_4},
                 {3, tile_3},
                 {2, tile_2},
                 {1, tile_1}};
    for (size_t n = 0; rows > 0; n++)
        for (; rows >= tiles[n].rows; rows -= tiles[n].rows) {
            const size_t taken = tiles[n].rows;
            if (count == t->vectors * VF_LANES)
                tiles[n].run(t);
            else
                multiply_narrow(t, taken, count, tiles[n].run);
            t->y += taken * t->y_stride;
            t->start += taken * t->start_stride;
            t->x += taken == PANEL_ROWS ? t->tile_stride : taken * t->x_stride;
            t->call += taken * t->x_stride;
        }
}

/* What a block reads of x, the panels of as many steps and what it writes share the
 * second cache; across rows, x lies in few of its sets. */
enum { BLOCK_FLOATS = 288 * 256, BLOCK_FLOATS_ACROSS = ATTN_BAND_FLOATS };

/* Steps at a time.  Across rows that lie a power of two apart, 1024 floats, the second
 * cache holds 512, and the panel needs room too. */
enum { STEPS = ATTN_PANEL_STEPS, STEPS_ACROSS = VF_TWO_MULTIPLIERS ? 384 : STEPS };

/* A turned x, so that what a tile reads lies together:
 *
 *     bands[row / PANEL_ROWS][step][row % PANEL_ROWS] = x[step][row]
 *
 * With two multiply-adds a cycle .86 of them in place of .66; with one, a copy is 1 to 4
 * % slower than reading x in place. */
static void copy_bands(float *bands, const float *x, size_t turned, size_t rows,
                       size_t steps)
{
    for (size_t step = 0; step < steps; step++, x += turned) {
        float *to = bands + step * PANEL_ROWS;
        size_t row = 0;
        for (; row + PANEL_ROWS <= rows; row += PANEL_ROWS, to += steps * PANEL_ROWS)
            memcpy(to, x + row, PANEL_ROWS * sizeof *to);
        memcpy(to, x + row, (rows - row) * sizeof *to);
    }
}

/* No prefetcher foresees what is read next of an x that lies in memory: the next tile's
 * rows, of which a line is called each step (of rows longer than two runs of steps, only
 * the first's), or where x is turned the next block's.
 * Without it, 8000 x 256 sums over 256 rows run at 100 GFLOP/s instead of 111. */
static struct panel_tile tile_along(const struct attn_panel_product *p, size_t row,
                                    size_t step)
{
    const float *const x = p->x + row * p->matrix->inner + step;
    return (struct panel_tile){
        .x = x,
        .x_stride = p->matrix->inner,
        .step_stride = 1,
        .tile_stride = PANEL_ROWS * p->matrix->inner,
        .call = x + PANEL_ROWS * p->matrix->inner,
        .call_stride = p->matrix->inner <= 2 * STEPS ? LINE_FLOATS : 1,
    };
}

static struct panel_tile tile_across(const struct attn_panel_product *p, size_t row,
                                     size_t rows, size_t step, size_t steps)
{
    const float *const x = p->x + step * p->turned + row;
    struct panel_tile tile = {
        .x = x,
        .x_stride = 1,
        .step_stride = p->turned,
        .tile_stride = PANEL_ROWS,
        .call = x + rows,
        .call_stride = p->turned,
    };
    if (VF_TWO_MULTIPLIERS) {
        copy_bands(p->matrix->work, x, p->turned, rows, steps);
        tile.x = p->matrix->work;
        tile.step_stride = PANEL_ROWS;
        tile.tile_stride = steps * PANEL_ROWS;
    }
    return tile;
}

static void multiply_block(const struct attn_panel_product *p, size_t row, size_t rows,
                           size_t step, size_t steps)
{
    static const float zeros[PANEL];
    const bool add = p->add || step > 0;
    const struct panel_tile first =
        p->turned ? tile_across(p, row, rows, step, steps) : tile_along(p, row, step);
    for (size_t column = 0; column < p->matrix->columns; column += PANEL) {
        const size_t left = p->matrix->columns - column;
        float *const y = p->y + row * p->matrix->columns + column;
        struct panel_tile tile = first;
        tile.y = y;
        tile.y_stride = p->matrix->columns;
        tile.start = add ? y : p->bias ? p->bias + column : zeros;
        tile.start_stride = add ? p->matrix->columns : 0;
        tile.panel = p->matrix->memory + column * p->matrix->inner + step * PANEL;
        tile.inner = steps;
        tile.vectors = left > VF_LANES ? PANEL_VECTORS : 1;
        multiply_one_panel(&tile, rows, left < PANEL ? left : PANEL);
    }
}

/* What sums begin with. */
static void fill_rows(const struct attn_panel_product *p)
{
    const size_t bytes = p->matrix->columns * sizeof *p->y;
    for (size_t row = 0; row < p->rows; row++)
        if (p->bias)
            memcpy(p->y + row * p->matrix->columns, p->bias, bytes);
        else
            memset(p->y + row * p->matrix->columns, 0, bytes);
}

static void multiply_panels(const struct attn_panel_product *p)
{
    if (p->matrix->inner == 0 && !p->add)
        fill_rows(p);
    const size_t most = p->turned ? STEPS_ACROSS : STEPS;
    const size_t pieces = (p->matrix->inner + most - 1) / most;
    for (size_t piece = 0; piece < pieces; piece++) {
        const size_t step = piece * p->matrix->inner / pieces;
        const size_t steps = (piece + 1) * p->matrix->inner / pieces - step;
        const size_t floats = p->turned ? BLOCK_FLOATS_ACROSS : BLOCK_FLOATS;
        const size_t block = floats / PANEL_ROWS / steps * PANEL_ROWS;
        for (size_t row = 0; row < p->rows; row += block)
            multiply_block(p, row, least(block, p->rows - row), step, steps);
    }
}

#endif
