/* Products of many tiles: sums over steps of 32 elements, of numbers of one part, or of
 * three, which are six products in place of one. */
#ifndef ATTN_KERNEL_TILE_PRODUCTS_H
#define ATTN_KERNEL_TILE_PRODUCTS_H

#include "kernel/bf16x3.h"
#include "kernel/part_table.h"
#include "kernel/simd_tiles.h"
#include "kernel/softmax.h"

enum {
    TILE_STEP = ATTN_TILE_STEP,    /* elements or keys of one product of tiles */
    TILE_FLOATS = ATTN_TILE_FLOATS /* room of one */
};

/* ---- Of one part ----------------------------------------------------------------------
 */

enum { TILES_KEPT = 4 };

/* Tiles of the left operand, which follow each other in memory, by one of the right,
 * summed over steps; all distances in floats.  Tiles of the right operand are loaded
 * once for TILES_KEPT steps. */
struct tile_product {
    const float *left, *right;
    float *out;
    size_t left_row, left_part, left_step;
    size_t next_left; /* from one tile to the next */
    size_t right_row, right_part, right_step;
    size_t out_row, next_out;
    size_t steps, tiles;
};

/* For 1 to TILES_KEPT steps; out = the sums, or out += the sums. */
INLINE void multiply_steps(const struct tile_product *p, const size_t steps,
                           const bool adds)
{
    const size_t left_row = p->left_row * sizeof *p->left, left_step = p->left_step;
    const size_t right_row = p->right_row * sizeof *p->right;
    const size_t out_row = p->out_row * sizeof *p->out;
    const float *left = p->left;
    float *out = p->out;
    tile_load(4, p->right, right_row);
    if (steps > 1)
        tile_load(5, p->right + p->right_step, right_row);
    if (steps > 2)
        tile_load(6, p->right + 2 * p->right_step, right_row);
    if (steps > 3)
        tile_load(7, p->right + 3 * p->right_step, right_row);
    for (size_t tile = 0; tile < p->tiles; tile++) {
        if (adds)
            tile_load(0, out, out_row);
        else
            tile_clear(0);
        tile_load(1, left, left_row);
        tile_add_product(0, 1, 4);
        if (steps > 1) {
            tile_load(2, left + left_step, left_row);
            tile_add_product(0, 2, 5);
        }
        if (steps > 2) {
            tile_load(1, left + 2 * left_step, left_row);
            tile_add_product(0, 1, 6);
        }
        if (steps > 3) {
            tile_load(2, left + 3 * left_step, left_row);
            tile_add_product(0, 2, 7);
        }
        tile_store(0, out, out_row);
        left += p->next_left;
        out += p->next_out;
    }
}

/* The same in as many turns as it takes. */
static void multiply_tiles(const struct tile_product *given, bool adds)
{
    struct tile_product p = *given;
    for (; p.steps > 0; adds = true) {
        if (p.steps == 1)
            multiply_steps(&p, 1, adds);
        else if (p.steps == 2)
            multiply_steps(&p, 2, adds);
        else if (p.steps == 3)
            multiply_steps(&p, 3, adds);
        else
            multiply_steps(&p, 4, adds);
        if (p.steps <= TILES_KEPT)
            return;
        p.steps -= TILES_KEPT;
        p.left += TILES_KEPT * p.left_step;
        p.right += TILES_KEPT * p.right_step;
    }
}

/* ---- Products of three parts ---------------------------------------------------------
 * Small ones first. */

/* The places of one step's parts, distances in bytes. */
struct parts_of_step {
    const char *left, *right;
    size_t left_row, left_part, right_row, right_part;
};

/* Work of vectors that goes between products of tiles. */
struct beside {
    void (*do_share)(void *state);
    void *state;
};

INLINE void go_beside(struct beside beside)
{
    if (beside.do_share)
        beside.do_share(beside.state);
}

/* Adds to tile 0 by tiles 1 to 5, in the order of part_step.h: scores of the backward
 * pass have the same bits.  Takes four shares of the work beside. */
INLINE void add_parts_product(const struct parts_of_step *p, const struct beside beside)
{
    const size_t left_row = p->left_row, right_row = p->right_row;
    tile_load(3, p->right, right_row);
    tile_load(1, p->left + 2 * p->left_part, left_row);
    tile_add_product(0, 1, 3);
    tile_load(2, p->left + p->left_part, left_row);
    go_beside(beside);
    tile_add_product(0, 2, 3);
    tile_load(4, p->right + p->right_part, right_row);
    tile_add_product(0, 2, 4);
    go_beside(beside);
    tile_load(1, p->left, left_row);
    tile_add_product(0, 1, 4);
    go_beside(beside);
    tile_load(5, p->right + 2 * p->right_part, right_row);
    tile_add_product(0, 1, 5);
    tile_add_product(0, 1, 3);
    go_beside(beside);
}

/* Tile 2 of the left operand, or 3. */
INLINE void load_left(const bool third, const char *from, size_t row)
{
    if (third)
        tile_load(3, from, row);
    else
        tile_load(2, from, row);
}

/* To tile 0 or 1, by tile 4 or 5, which have large parts, or 6 or 7. */
INLINE void add_left(const size_t sum, const bool third, const bool large)
{
    if (sum == 0 && large && third)
        tile_add_product(0, 3, 4);
    else if (sum == 0 && large)
        tile_add_product(0, 2, 4);
    else if (sum == 0 && third)
        tile_add_product(0, 3, 6);
    else if (sum == 0)
        tile_add_product(0, 2, 6);
    else if (large && third)
        tile_add_product(1, 3, 5);
    else if (large)
        tile_add_product(1, 2, 5);
    else if (third)
        tile_add_product(1, 3, 7);
    else
        tile_add_product(1, 2, 7);
}

/* The same to tiles 0 and 1, of the right operand and of another at some distance; a
 * share goes after every three products.  Left tiles come from the second cache: they are
 * loaded a product and a share before they are wanted, into tiles 2 and 3 by turns, so
 * that steps are `odd` by turns.  Tiles 4 and 5, and 2 or, if odd, 3, have what the step
 * begins with, and are left with what the next one does, if there is one: next may be
 * NULL. */
INLINE void add_two_parts_products(const struct parts_of_step *p,
                                   const struct parts_of_step *next, ptrdiff_t distance,
                                   const bool odd, const struct beside beside)
{
    const size_t left_row = p->left_row, right_row = p->right_row;
    const char *const middle = p->right + p->right_part;
    const char *const small = middle + p->right_part;
    load_left(!odd, p->left + p->left_part, left_row);
    add_left(0, odd, true);
    add_left(1, odd, true);
    load_left(odd, p->left, left_row);
    add_left(0, !odd, true);
    go_beside(beside);
    tile_load(6, middle, right_row);
    tile_load(7, middle + distance, right_row);
    add_left(1, !odd, true);
    add_left(0, !odd, false);
    add_left(1, !odd, false);
    if (next)
        load_left(!odd, next->left + 2 * p->left_part, left_row);
    go_beside(beside);
    add_left(0, odd, false);
    add_left(1, odd, false);
    tile_load(6, small, right_row);
    tile_load(7, small + distance, right_row);
    add_left(0, odd, false);
    go_beside(beside);
    add_left(1, odd, false);
    add_left(0, odd, true);
    add_left(1, odd, true);
    if (next) {
        tile_load(4, next->right, right_row);
        tile_load(5, next->right + distance, right_row);
    }
    go_beside(beside);
}

INLINE struct parts_of_step first_step(const struct tile_product *p, size_t tile)
{
    const size_t bytes = sizeof *p->left;
    return (struct parts_of_step){
        .left = (const char *)(p->left + tile * p->next_left),
        .right = (const char *)p->right,
        .left_row = p->left_row * bytes,
        .left_part = p->left_part * bytes,
        .right_row = p->right_row * bytes,
        .right_part = p->right_part * bytes,
    };
}

INLINE void go_to_next(struct parts_of_step *step, const struct tile_product *p)
{
    step->left += p->left_step * sizeof *p->left;
    step->right += p->right_step * sizeof *p->right;
}

/* Adds them to out: what many short sums come to is more exact than one chain. */
INLINE void add_sums(const float *sums, float *out, size_t out_row)
{
#pragma GCC unroll 16
    for (size_t row = 0; row < TILE_EDGE; row++)
        add_in_place(out + row * out_row, vf_load(sums + row * VF_LANES));
}

INLINE void multiply_parts(const struct tile_product *p, const bool adds)
{
    float sums[TILE_FLOATS] __attribute__((aligned(TILE_BYTES)));
    for (size_t tile = 0; tile < p->tiles; tile++) {
        float *const out = p->out + tile * p->next_out;
        struct parts_of_step step = first_step(p, tile);
        tile_clear(0);
        for (size_t n = 0; n < p->steps; n++, go_to_next(&step, p))
            add_parts_product(&step, (struct beside){.do_share = NULL});
        if (adds) {
            tile_store(0, sums, (size_t)TILE_BYTES);
            add_sums(sums, out, p->out_row);
        } else {
            tile_store(0, out, p->out_row * sizeof *out);
        }
    }
}

#endif
