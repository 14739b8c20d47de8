/* What the framework asks of kernels that multiply pairs of bfloat16; see pairs.h.  They
 * stand in where queries, keys, values and output are all bfloat16: an output of more
 * digits would show that weights are rounded.  Blocks then hold
 *
 *     key           [keys][key_stride]: pairs of a key's elements
 *
 *     value         [pairs][value_stride]: element by element, pairs of keys; pair 0 is
 *                   of first_key and its neighbour, the even one first
 *
 *     special       NULL, or rows of the values that are not finite, and 0 elsewhere
 *
 *     weight_pairs  scratch, [ATTN_BLOCK_KEYS / 2 + 1][width]
 *
 *     scale         of the scores; queries take it on only if that is exact */
#ifndef ATTN_KERNEL_PAIR_TABLE_H
#define ATTN_KERNEL_PAIR_TABLE_H

#include "kernel/table.h"

struct attn_pair_kernels {
    const char *one_pass, *weights_kept, *decoding_too; /* as in struct attn_kernels */

    /* Queries of a panel: to[pair][row], 0 for the lanes beyond the rows. */
    void (*load)(float *to, size_t width, const struct attn_matrix *from, float scale);

    /* Keys, each filled up with zeros to whole vectors of pairs. */
    void (*copy_keys)(float *to, const struct attn_matrix *from);

    /* Values, of which row 0 is of an even key, filled up to whole vectors.  Where one is
     * not finite the pair holds 0; then special is filled, and the result true. */
    bool (*pair_values)(float *to, float *special, const struct attn_matrix *from);

    /* As the same of struct attn_kernels; value adds to the panel's rounded_sum. */
    void (*score)(float *scores, struct attn_panel *panel,
                  const struct attn_block *block);
    void (*value)(struct attn_panel *panel, const float *weights,
                  const struct attn_block *block);
};

#endif
