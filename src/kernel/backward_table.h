/* What attention/backward asks of the kernels.  As in the forward pass a panel is a few
 * queries, one to a SIMD lane, and a block is a run of keys; panels that share a block
 * are a group, and lie side by side in its two matrices [key][lane].  For each block:
 *
 *     differentiate   weight = e^(score − reference) · inverse,
 *                     gradient = weight · (g·v − g·o)
 *     query           query_gradient[d][lane] += Σ_key  key[key][d] · gradient[key][lane]
 *     gather          value's [key][d] += Σ_lane weight[key][lane]   · g[lane][d]
 *                     key's   [key][d] += Σ_lane gradient[key][lane] · query[lane][d]
 *
 * where g is the gradient of the output o.  Every sum over keys or lanes is taken within
 * the block first and then added, which keeps its error small. */
#ifndef ATTN_KERNEL_BACKWARD_TABLE_H
#define ATTN_KERNEL_BACKWARD_TABLE_H

#include "kernel/table.h"

/* Lanes beyond the panel's queries hold zeros, and what comes of them is nonsense that
 * nobody looks at. */
struct attn_backward_panel {
    struct attn_panel forward;       /* of its running state, the final references */
    size_t column;                   /* of lane 0 in the group's matrices */
    float *output_gradient;          /* [Dv][width] */
    float *query_gradient;           /* [D][width], without the scale */
    float inverse[ATTN_PANEL_LANES]; /* weight = e^(score − reference) · inverse */
    float delta[ATTN_PANEL_LANES];   /* g·o */
    bool has_nan;                    /* among the references */
};

struct attn_backward_block {
    struct attn_block forward;
    float *score;             /* [keys][width], of one panel: scratch */
    float *slope;             /* [keys][width], scratch: the softcap's derivative */
    float *weight, *gradient; /* [keys][row] */
    size_t row;               /* floats from one key to the next: the group's lanes */
    bool dropout;
    int32_t dropout_threshold;
    float dropout_factor;
    bool rounded; /* the output, and delta with it: a weight next to 1, whose score cannot
                   * move it, would get the rounding error for a gradient, and gets 0 */
    bool careful; /* hidden keys may hold what is not finite: 0 times it is 0 */
};

/* out[key][d] += Σ_lane left[key][lane] · right[lane][d], or = scale · the sum.  Key k
 * takes part in lanes lane_begin[k] ≤ lane < lane_end[k]; neither ever falls. */
struct attn_gather {
    float *out;
    ptrdiff_t out_stride;
    const float *left;
    size_t left_stride;
    const float *right;
    ptrdiff_t right_stride; /* of its rows; 0: packed */
    size_t lanes;           /* rows of right */
    size_t keys, size;      /* size: of out's rows, a multiple of the lanes of a vector */
    const int32_t *lane_begin, *lane_end;
    bool careful; /* queries may hold what is not finite: 0 times it is 0 */
    bool sets;    /* and scale counts */
    float scale;
    struct attn_calls *calls; /* NULL: nothing to call */
};

/* Additive scores: what a block of keys and all panels of a group give each other, from
 * the gradients of the scores; see backward_additive.h. */
struct attn_additive_gradients {
    const struct attn_backward_panel *panels; /* adds to their query_gradient */
    size_t count;
    const float *key; /* the first */
    ptrdiff_t key_stride, key_element_stride;
    size_t keys;
    const float *gradient; /* [keys][row] */
    size_t row;
    const int32_t *lane_begin, *lane_end; /* as in attn_gather */
    float *key_sums; /* NULL, or [keys][D rounded up to whole vectors]: added to */
    ptrdiff_t key_sums_stride;
    float *vector_sums; /* NULL, or [D][lanes of a vector]: added to */
};

struct attn_backward_kernels {
    void (*differentiate)(const struct attn_backward_panel *panel,
                          const struct attn_backward_block *block);

    /* Multiplies the gradients by the softcap's slope first, where there is one.  A NULL
     * query_gradient is not wanted, and that of additive scores is left to `additive`. */
    void (*query)(const struct attn_backward_panel *panel,
                  const struct attn_backward_block *block);

    void (*gather)(const struct attn_gather *gather);

    void (*additive)(const struct attn_additive_gradients *gradients);

    /* A matrix as gather wants it on its right: a few vectors of every row, then the next
     * few, the last one filled up with zeros.  Rows a power of two apart would otherwise
     * fall into the same few sets of the cache: 5 % of the whole at head size 128. */
    void (*pack)(float *to, const struct attn_matrix *from);

    /* to[element][row] = from[row][element] · scale, and 0 for from->rows ≤ row < width
     */
    void (*load)(float *to, size_t width, const struct attn_matrix *from, float scale);

    /* to[row][element] = from[element][row] · scale */
    void (*store)(const struct attn_target *to, const float *from, size_t width,
                  float scale);

    /* to[row][element] = from[row · row_stride + element] · scale; from may be read up to
     * whole vectors of every row. */
    void (*put)(const struct attn_target *to, const float *from, size_t row_stride,
                float scale);

    /* The panel's delta, from output [Dv][width]; an output of 0, as an empty row has it,
     * makes 0 of any gradient. */
    void (*delta)(struct attn_backward_panel *panel, const float *output);

    /* to[row][key] += from[key · from_stride + row], where a stride of 0 sums over its
     * axis, in order; from may be read up to whole vectors. */
    void (*add_pairs)(const struct attn_target *to, const float *from,
                      size_t from_stride);

    bool (*is_finite)(const struct attn_matrix *matrix);

    const struct attn_part_kernels *parts; /* part_table.h; NULL: there are none */
};

#endif
