/* What the framework asks of kernels that multiply pairs of bfloat16; see pairs.h and
 * tiles.h.  Those of numbers of one part stand in where queries, keys, values and output
 * are all bfloat16: an output of more digits would show that weights are rounded.  Those
 * of three parts, which hold fp32, stand in for all else.  Blocks then hold
 *
 *     key           [keys][key_stride]: pairs of a key's elements.  Rows up to the 15th
 *                   beyond the last can be read, and hold anything
 *
 *     value         groups of keys_together keys, from the one of first_key on: each
 *                   keys_together / 2 · parts · value_stride floats
 *
 *     special       NULL, or rows of the values that are not finite, or too large or too
 *                   small for parts, and 0 elsewhere
 *
 *     weight_pairs  scratch
 *
 *     scale         of the scores; queries of one part take it on only if that is exact
 *
 *     key_rows      the keys themselves, for parts, as the panel's rows are its queries:
 *                   a score that is not finite is found again from these */
#ifndef ATTN_KERNEL_PAIR_TABLE_H
#define ATTN_KERNEL_PAIR_TABLE_H

#include "kernel/table.h"

/* A block as a panel sees it. */
struct attn_show {
    struct attn_panel *panel;
    struct attn_block block;
};

/* What a worker takes from show to show.  attend may leave the last of them undone, until
 * more come or drain is called; so shows, panels and blocks stay where they are so
 * long: those of the last three calls of attend. */
struct attn_pipeline {
    float *scratch; /* as many floats as the kernels say */
    size_t turn;    /* for the kernels; 0: nothing is undone */
};

struct attn_pair_kernels {
    const char *one_pass, *weights_kept, *decoding_too; /* as in struct attn_kernels */

    /* Of a number.  1: weights are rounded, and the output is over their rounded sum. */
    size_t parts;

    size_t scratch; /* floats of weight_pairs, and of a pipeline */

    /* Values are made ready in groups of so many keys, a power of two that divides
     * ATTN_BLOCK_KEYS, which begin at its multiples. */
    int64_t keys_together;

    /* Around all that a thread does with the others; NULL: nothing. */
    void (*open)(void);
    void (*close)(void);

    /* Queries of a panel: to[16 pairs][part][pair][row], 0 for the lanes beyond the rows;
     * filled up with zeros to a multiple of 16 pairs. */
    void (*load)(float *to, size_t width, const struct attn_matrix *from, float scale);

    /* Keys, each filled up with zeros to whole vectors of pairs: [vector][part]. */
    void (*copy_keys)(float *to, const struct attn_matrix *from);

    /* Values, whose row 0 begins a group, filled up to whole vectors and groups.  Where
     * one is special they hold 0; then special is filled, and the result true. */
    bool (*pair_values)(float *to, float *special, const struct attn_matrix *from);

    /* As the same of struct attn_kernels; value of one part adds to the panel's
     * rounded_sum.  Of the output, rows are written up to a multiple of 16. */
    void (*score)(float *scores, struct attn_panel *panel,
                  const struct attn_block *block);
    void (*value)(struct attn_panel *panel, const float *weights,
                  const struct attn_block *block);

    /* Score, softmax and value of a few shows of one block in memory, no two of the same
     * panel.  Of all groups of keys_together keys that any show touches, keys and values
     * are read whole, before its block's first too: keys may hold anything there, values
     * are finite.  No value is special.  NULL: there is none.  attends_plain: only where
     * panels see every key of ATTN_BLOCK_KEYS, scores are as multiplied, and weights are
     * not dropped, with no statistics.  drain NULL: nothing is left undone. */
    void (*attend)(struct attn_pipeline *pipeline, const struct attn_show *shows,
                   size_t count, const struct attn_sweep *sweep);
    void (*drain)(struct attn_pipeline *pipeline, const struct attn_sweep *sweep);
    bool attends_plain;
};

#endif
