/* The product of training: tiles of TILE_ROWS rows by one panel of columns, whose sums
 * stay in registers over all of k.  The panel is packed, so one step of k reads
 * TILE_VECTORS vectors in a row and broadcasts one element of each row of a, in place. */
#ifndef ATTN_TENSOR_ROWS_MULTIPLY_H
#define ATTN_TENSOR_ROWS_MULTIPLY_H

#include "kernel/square.h"
#include "tensor/rows_vector.h"

enum {
    /* 24 sums + 4 + 1 of 32 registers, 12 + 2 + 1 of 16.  On AVX-512 8 x 3 and 12 x 2
     * measured 5 to 10 % slower: 256 columns are not whole panels of 48, and 12 rows are
     * more streams than the first cache has ways. */
    TILE_ROWS = 6,
    TILE_VECTORS = VF_REGISTERS == 32 ? 4 : 2,
    PANEL = TILE_VECTORS * VF_LANES,
    BLOCK_COLUMNS = 512, /* by ATTN_PRODUCT_DEPTH: half a second cache of a megabyte */
    BAND_ROWS = 8 * TILE_ROWS, /* of a transposed a, copied together */
    BLOCK_ROWS = ATTN_PRODUCT_WORK / ATTN_PRODUCT_DEPTH
};

_Static_assert(BLOCK_ROWS % BAND_ROWS == 0, "whole bands in a block");
_Static_assert(ATTN_PRODUCT_PANEL % PANEL == 0, "whole panels");

/* ---- Packing --------------------------------------------------------------------- */

/* Columns of b lie in a row each: squares are turned. */
INLINE void pack_columns(float *to, const struct attn_factor *b, size_t k, size_t columns)
{
    for (size_t j = 0; j < PANEL; j += VF_LANES) {
        const float *const x = b->x + j * b->column;
        const size_t left = columns > j ? columns - j : 0;
        size_t i = 0;
        for (; left >= VF_LANES && i + VF_LANES <= k; i += VF_LANES) {
            vf square[VF_BYTES / 4];
#pragma GCC unroll 16
            for (size_t lane = 0; lane < VF_LANES; lane++)
                square[lane] = vf_load(x + lane * b->column + i);
            transpose_square(square);
#pragma GCC unroll 16
            for (size_t lane = 0; lane < VF_LANES; lane++)
                vf_store(to + (i + lane) * PANEL + j, square[lane]);
        }
        for (; i < k; i++)
            for (size_t lane = 0; lane < VF_LANES; lane++)
                to[i * PANEL + j + lane] = lane < left ? x[lane * b->column + i] : 0.0f;
    }
}

INLINE void pack_rows(float *to, const struct attn_factor *b, size_t k, size_t columns)
{
    for (size_t i = 0; i < k; i++) {
        const float *const x = b->x + i * b->row;
        for (size_t j = 0; j < PANEL; j += VF_LANES)
            vf_store(to + i * PANEL + j,
                     j < columns ? load_some(x + j, columns - j) : vf_set1(0.0f));
    }
}

static void pack(float *to, const struct attn_factor *b, size_t k, size_t n)
{
    for (size_t j = 0; j < n; j += PANEL) {
        const struct attn_factor columns = {b->x + j * b->column, b->row, b->column};
        if (b->column == 1)
            pack_rows(to + j * k, &columns, k, n - j);
        else
            pack_columns(to + j * k, &columns, k, n - j);
    }
}

/* Rows of a that lie in a column each, in bands: element (i, l) of a band is
 * to[l·BAND_ROWS + i].  Step by step of k, as a lies, and ahead of what is needed: band
 * by band measured 4 % slower for the whole product. */
static void pack_bands(float *to, const struct attn_factor *a, size_t rows, size_t k)
{
    enum { AHEAD = 6 };
    for (size_t l = 0; l < k; l++) {
        const float *const x = a->x + l * a->column;
        for (size_t i = 0; i < rows; i += VF_LANES) {
            float *const band = to + i / BAND_ROWS * BAND_ROWS * k;
            if (l + AHEAD < k)
                __builtin_prefetch(x + AHEAD * a->column + i);
            store_some(band + l * BAND_ROWS + i % BAND_ROWS, load_some(x + i, rows - i),
                       rows - i);
        }
    }
}

/* ---- Tiles ----------------------------------------------------------------------- */

struct tile {
    float *c;
    size_t c_row;
    struct attn_factor a;
    const float *b; /* a panel */
    size_t k;
    const float *bias;
    bool add;
};

/* rows × vectors; both are constants at every call. */
INLINE void tile_of(const struct tile *t, const size_t rows, const size_t vectors)
{
    vf sum[TILE_ROWS][TILE_VECTORS];
    const float *a = t->a.x, *b = t->b;
    const size_t a_row = t->a.row, a_column = t->a.column;
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            sum[r][v] = vf_set1(0.0f);
            __builtin_prefetch(t->c + r * t->c_row + v * VF_LANES, 1);
        }
    size_t left = t->k;
    do {
        vf w[TILE_VECTORS];
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            w[v] = vf_load(b + v * VF_LANES);
#pragma GCC unroll 6
        for (size_t r = 0; r < rows; r++) {
            const vf x = vf_set1(a[r * a_row]);
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++)
                sum[r][v] = vf_fma(x, w[v], sum[r][v]);
        }
        a += a_column;
        b += PANEL;
    } while (--left > 0);
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            float *const to = t->c + r * t->c_row + v * VF_LANES;
            if (t->add)
                sum[r][v] = sum[r][v] + vf_load(to);
            else if (t->bias)
                sum[r][v] = sum[r][v] + vf_load(t->bias + v * VF_LANES);
            vf_store(to, sum[r][v]);
        }
}

INLINE void tile_rows(const struct tile *t, const size_t rows, size_t vectors)
{
    switch (vectors) {
    case 1:
        tile_of(t, rows, 1);
        break;
    case 2:
        tile_of(t, rows, 2);
        break;
#if VF_REGISTERS == 32
    case 3:
        tile_of(t, rows, 3);
        break;
    case 4:
        tile_of(t, rows, 4);
        break;
#endif
    }
}

/* TILE_ROWS rows, or the fewer that are left one by one. */
static void tile_run(struct tile t, size_t rows, size_t vectors)
{
    if (rows == TILE_ROWS) {
        tile_rows(&t, TILE_ROWS, vectors);
        return;
    }
    for (; rows > 0; rows--, t.c += t.c_row, t.a.x += t.a.row)
        tile_rows(&t, 1, vectors);
}

/* The last columns, not whole vectors: by way of a tile of its own. */
static void tile_edge(struct tile t, size_t rows, size_t columns)
{
    float edge[TILE_ROWS][PANEL];
    float *const c = t.c;
    for (size_t r = 0; r < rows; r++) {
        const float *const from = t.add ? c + r * t.c_row : t.bias;
        for (size_t j = 0; j < PANEL; j++)
            edge[r][j] = from && j < columns ? from[j] : 0.0f;
    }
    const size_t c_row = t.c_row;
    t.c = edge[0];
    t.c_row = PANEL;
    t.add = true;
    tile_run(t, rows, (columns + VF_LANES - 1) / VF_LANES);
    for (size_t r = 0; r < rows; r++)
        memcpy(c + r * c_row, edge[r], columns * sizeof(float));
}

/* Rows first to end of c, of which a holds row `first` first.  A few rows of a stay in
 * the first cache, a block of panels in the second. */
static void multiply_rows(const struct attn_product *p, struct attn_factor a,
                          size_t first, size_t end, size_t column, size_t column_end)
{
    for (size_t i = first; i < end; i += TILE_ROWS) {
        const size_t rows = end - i < TILE_ROWS ? end - i : TILE_ROWS;
        struct tile t = {.c_row = p->c_row, .a = a, .k = p->k, .add = p->add};
        for (size_t j = column; j < column_end; j += PANEL) {
            const size_t columns = p->n - j < PANEL ? p->n - j : PANEL;
            t.c = p->c + i * p->c_row + j;
            t.b = p->packed + j * p->k;
            t.bias = p->bias ? p->bias + j : NULL;
            if (columns % VF_LANES == 0)
                tile_run(t, rows, columns / VF_LANES);
            else
                tile_edge(t, rows, columns);
        }
        a.x += TILE_ROWS * a.row;
    }
}

static void multiply_bands(const struct attn_product *p, size_t first, size_t end)
{
    const struct attn_factor block = {p->a.x + first, 1, p->a.column};
    pack_bands(p->work, &block, end - first, p->k);
    for (size_t j = 0; j < p->n; j += BLOCK_COLUMNS) {
        const size_t column_end = p->n - j < BLOCK_COLUMNS ? p->n : j + BLOCK_COLUMNS;
        const float *band = p->work;
        for (size_t i = first; i < end; i += BAND_ROWS, band += p->k * BAND_ROWS) {
            const struct attn_factor a = {band, 1, BAND_ROWS};
            multiply_rows(p, a, i, end - i < BAND_ROWS ? end : i + BAND_ROWS, j,
                          column_end);
        }
    }
}

static void multiply(const struct attn_product *p)
{
    if (p->a.column != 1) {
        for (size_t i = 0; i < p->m; i += BLOCK_ROWS)
            multiply_bands(p, i, p->m - i < BLOCK_ROWS ? p->m : i + BLOCK_ROWS);
        return;
    }
    for (size_t j = 0; j < p->n; j += BLOCK_COLUMNS)
        multiply_rows(p, p->a, 0, p->m, j,
                      p->n - j < BLOCK_COLUMNS ? p->n : j + BLOCK_COLUMNS);
}

#endif
