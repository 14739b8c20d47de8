/* The worked example as a picture: a few tokens go through one head of attention, from
 * X to softmax(Q Kᵀ · scale) V, with every number in sight. */
#ifndef ATTN_DRAW_WALK_H
#define ATTN_DRAW_WALK_H

#include "base/error.h"

/** The matrices of the way, in its order; n tokens, width d, head sizes D and Dv. */
typedef enum attn_walk_step {
    ATTN_WALK_INPUT,            /* X        [n][d] */
    ATTN_WALK_QUERY_PROJECTION, /* W_Q      [d][D] */
    ATTN_WALK_KEY_PROJECTION,   /* W_K      [d][D] */
    ATTN_WALK_VALUE_PROJECTION, /* W_V      [d][Dv] */
    ATTN_WALK_QUERY,            /* X W_Q    [n][D] */
    ATTN_WALK_KEY,              /* X W_K    [n][D] */
    ATTN_WALK_VALUE,            /* X W_V    [n][Dv] */
    ATTN_WALK_LOGITS,           /* Q Kᵀ     [n][n] */
    ATTN_WALK_SCORES,  /* Q Kᵀ · scale; −INFINITY where the key cannot be seen */
    ATTN_WALK_WEIGHTS, /* softmax of each row */
    ATTN_WALK_OUTPUT,  /* weights · V  [n][Dv] */
    ATTN_WALK_STEPS
} attn_walk_step;

typedef struct attn_walk_matrix {
    int64_t rows, columns;
    const float *values; /* row by row */
} attn_walk_matrix;

typedef struct attn_walk {
    const char *const *words; /* [tokens], as they are to be shown */
    int64_t tokens;           /* n: 1 to 16 */
    double scale;             /* 1/√D unless chosen otherwise */
    attn_walk_matrix steps[ATTN_WALK_STEPS];
} attn_walk;

/**
 * The whole way as SVG, light and dark, the same bytes for the same numbers.
 * @param svg  NUL-ended, the caller's to free.
 * @return ATTN_OK, ATTN_EINVAL (tokens or a width not in 1 to 16, shapes that do not fit
 * one another: the message names the matrix) or ATTN_ENOMEM; on failure outputs stay.
 */
ATTN_CHECKED attn_status attn_draw_walk_svg(const attn_walk *walk, char **svg,
                                            size_t *length_bytes, attn_error *error);

#endif
