/* What the framework asks of kernels that multiply fp32 by tiles of bfloat16, each number
 * in three parts (bf16x3.h).  Matrices lie in tiles: a step is 32 elements of the sum,
 *
 *     left      [tile of 16 rows][step][part], a tile being 16 rows of 32 elements
 *     right     [step][tile of 16 columns][part], a tile being 16 pairs of 16 columns
 *
 * each of ATTN_TILE_FLOATS floats, and elements i and i + 16 of a step are a pair.  Both
 * are filled up with zeros. */
#ifndef ATTN_KERNEL_PART_TABLE_H
#define ATTN_KERNEL_PART_TABLE_H

#include "kernel/backward_table.h"

enum {
    ATTN_TILE_FLOATS = 256,
    ATTN_TILE_EDGE = 16,
    ATTN_TILE_STEP = 32,
    ATTN_PART_FLOATS = 3 * ATTN_TILE_FLOATS, /* of a tile in its three parts */
};

static inline size_t attn_tile_steps(size_t n)
{
    return (n + ATTN_TILE_STEP - 1) / ATTN_TILE_STEP;
}

static inline size_t attn_tile_edges(size_t n)
{
    return (n + ATTN_TILE_EDGE - 1) / ATTN_TILE_EDGE;
}

/* Floats of parts of a matrix; either side is filled up to whole steps. */
static inline size_t attn_floats_in_parts(size_t rows, size_t columns)
{
    return attn_tile_steps(rows) * attn_tile_steps(columns) * 2 * ATTN_PART_FLOATS;
}

/* Whether products of parts of such numbers are as exact as those of fp32, and sums of
 * many stay far from both ends of it: all are 0, or the largest is within 2^±30.  Given
 * its bits. */
static inline bool attn_fits_parts(int32_t largest)
{
    const int32_t least = (127 - 30) << 23, most = (127 + 30) << 23;
    return largest == 0 || (largest >= least && largest <= most);
}

/* out[row][column] (+)= Σ left[row][n] · right[n][column] of one or two tiles of columns,
 * from the first step on; distances in floats.  Each element's sum is taken by itself
 * and then added. */
struct attn_part_product {
    const float *left, *right;
    ptrdiff_t left_step, right_step;
    size_t left_tile; /* from a tile of rows to the next */
    size_t steps;
    float *out;
    size_t out_row;
    size_t rows, columns; /* of out; set: whole tiles of rows are written */
    bool adds;
};

/* A panel of a group, one or two vectors wide, and a block of keys, in a run of keys
 * whose row 0 begins a step. */
struct attn_part_show {
    struct attn_backward_panel *panel;
    struct attn_backward_block block; /* score, slope and gradient are those below, from
                                       * the block's first key on; no weight */
    float *score, *slope;             /* [run's keys][width], as is the next: scratch */
    float *by_weight; /* products of values and output gradients, which gradients of the
                       * scores replace where they are kept */
    const float *query, *output_gradient; /* right, of the panel's lanes */
    size_t first_row;                     /* of the block's first key in the run */
    size_t first_step, end_step;          /* that it touches */
    bool shows_all;                       /* of its steps: no pair is hidden */
    bool plain;       /* scores are as multiplied, but for gates, or hidden */
    float *gate_sums; /* [run's keys][lanes of a vector]: gradients of the scores of plain
                       * ones with gates are added to */
    bool keeps_gradient;      /* of the scores, before the softcap's slope */
    float *weight, *gradient; /* left, of the run's keys: the panel's step of them */
    size_t left_tile;         /* of these */
    float *by_key;            /* gradient as the right operand, steps of keys */
};

/* A run of keys in parts, left: as they are, and turned, elements in rows. */
struct attn_part_keys {
    int64_t first; /* key of row 0 */
    const float *key, *value, *turned_key;
    size_t key_tile, value_tile, turned_tile;
};

struct attn_part_kernels {
    const char *by_heads, *in_turns; /* as in struct attn_kernels */

    /* Around all that a thread does with the others. */
    void (*open)(void);
    void (*close)(void);

    /* The bits of the largest |element|; those of a NaN are above all others. */
    int32_t (*largest)(const struct attn_matrix *matrix);

    /* Rows of fp32 as the left operand, and as the right one, rows being steps and
     * elements columns; with the same result. */
    int32_t (*split_left)(float *to, const struct attn_matrix *from);
    int32_t (*split_right)(float *to, const struct attn_matrix *from);

    /* Rows of fp32 as the left operand, turned: elements are its rows, rows its steps. */
    void (*split_turned)(float *to, const struct attn_matrix *from);

    /* Rows times scale as columns of the right operand, elements being its steps; columns
     * are a multiple of ATTN_TILE_EDGE. */
    void (*split_lanes)(float *to, size_t columns, const struct attn_matrix *from,
                        float scale);

    /* Scores of `next`, and its products of values with output gradients; weights of
     * `now`, and gradients of its scores; query gradients of `before`: a show is each of
     * them in turn.  Any may be NULL. */
    void (*step)(const struct attn_part_keys *keys, struct attn_part_show *next,
                 struct attn_part_show *now, struct attn_part_show *before);

    void (*multiply)(const struct attn_part_product *product);
};

#endif
