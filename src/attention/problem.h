/* What attn_forward, attn_backward and attn_weights are given, checked once and then
 * taken apart: a problem is sequences, a sequence has heads, and a query of a sequence
 * sees some of its keys: visibility.h says which.  Padded and packed batches
 * look the same from here on: queries and keys count within their sequence. */
#ifndef ATTN_ATTENTION_PROBLEM_H
#define ATTN_ATTENTION_PROBLEM_H

#include "base/context.h"

struct attn_problem {
    const attn_shape *shape;
    const attn_tensors *tensors;
    const attn_options *options;
    bool packed;
    bool empty;                       /* no queries at all: nothing to do */
    int64_t sequences;                /* B, or the packed ones; 0 if empty */
    const struct attn_cached *cached; /* NULL, or where the keys are: cache.h */
};

/* Whether scores are logarithms of products of features. */
static inline bool attn_problem_is_linear(const struct attn_problem *problem)
{
    return problem->options->score == ATTN_SCORE_LINEAR;
}

/* That an argument, which name and function name in the message, is not NULL. */
ATTN_CHECKED attn_status attn_check_given(attn_context *context, const char *function,
                                          const char *name, const void *argument);

/* What a function needs besides query and key. */
enum attn_needs {
    ATTN_NEEDS_VALUE = 1,
    ATTN_NEEDS_OUTPUT = 2,
    ATTN_NEEDS_LSE = 4,
};

/**
 * Checks every argument; function is the name that messages begin with.  What problem
 * points to stays the caller's.  Statistics are checked by attn_check_statistics.
 */
ATTN_CHECKED attn_status attn_problem_init(struct attn_problem *problem,
                                           attn_context *context, const char *function,
                                           const attn_shape *shape,
                                           const attn_tensors *tensors,
                                           const attn_options *options, unsigned needs);

/* That an element [b][h][l][d] of these extents has an offset that fits an int64_t. */
ATTN_CHECKED attn_status attn_check_strides(attn_context *context, const char *function,
                                            const char *name, const int64_t stride[4],
                                            const int64_t extent[4]);

/* That it is a type there are kernels for. */
ATTN_CHECKED attn_status attn_check_type(attn_context *context, const char *function,
                                         const char *name, attn_type type);

struct attn_sequence {
    int64_t index;                  /* which one; also what dropout counts */
    int64_t b;                      /* along the tensors' axis 0 */
    int64_t first_query, first_key; /* along their axis 2 */
    int64_t Lq, Lk;                 /* without padding */
    int64_t offset;                 /* query i stands at position i + offset */
};

/* 0 ≤ index < problem->sequences */
struct attn_sequence attn_problem_sequence(const struct attn_problem *problem,
                                           int64_t index);

/* How many sequences from there on are alike but for their place: all of them where none
 * has a length or a layout of its own, so that who only counts need not walk over a large
 * B. */
int64_t attn_sequences_alike(const struct attn_problem *problem, int64_t index);

/* One head of one sequence: where its query 0 and key 0 lie.  Use the strides 2 and 3 of
 * the tensors from there. */
struct attn_head {
    int64_t h, hk;                   /* query head, and the key head it reads */
    const void *query, *key, *value; /* of the tensors' types, as are the next two */
    void *output;                    /* NULL if the tensors have none */
    int64_t row;         /* of query 0 in lse and the statistics; the next one follows */
    const uint8_t *keep; /* NULL: none; element [0][0] */
    const uint8_t *blocks; /* NULL: all; element [0][0] of the layout */
    const void *bias;      /* NULL: none; element [0][0] */
    const float *additive; /* [D]; NULL: scores are products */
    float alibi_slope;     /* 0: none */
    float sink;            /* −∞: none */
};

struct attn_head attn_problem_head(const struct attn_problem *problem,
                                   const struct attn_sequence *sequence, int64_t h);

/* Where element n lies, counted from data.  n may be one stride beyond the last element,
 * where nothing is read: it wraps then, and so do these. */
static inline const void *attn_element(const void *data, attn_type type, int64_t n)
{
    return (const void *)((uintptr_t)data + (uintptr_t)n * attn_type_bytes(type));
}

static inline void *attn_place(void *data, attn_type type, int64_t n)
{
    return (void *)((uintptr_t)data + (uintptr_t)n * attn_type_bytes(type));
}

/* How far element [b][h][row][0] lies from element 0; it wraps likewise. */
static inline int64_t attn_row_offset(const int64_t stride[4], int64_t b, int64_t h,
                                      int64_t row)
{
    return (int64_t)((uint64_t)b * (uint64_t)stride[0] +
                     (uint64_t)h * (uint64_t)stride[1] +
                     (uint64_t)row * (uint64_t)stride[2]);
}

/* Where x[b][h][row] lies. */
static inline const void *attn_input_row(const attn_input *x, int64_t b, int64_t h,
                                         int64_t row)
{
    return attn_element(x->data, x->type, attn_row_offset(x->stride, b, h, row));
}

static inline void *attn_output_row(const attn_output *x, int64_t b, int64_t h,
                                    int64_t row)
{
    return attn_place(x->data, x->type, attn_row_offset(x->stride, b, h, row));
}

/* x[b][h][row][·] = 0 for first_row ≤ row < end_row, where there is an x. */
void attn_clear_rows(const attn_output *x, int64_t b, int64_t h, int64_t first_row,
                     int64_t end_row, int64_t size);

static inline int64_t attn_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* size filled up to whole vectors. */
static inline size_t attn_whole(size_t size, size_t lanes)
{
    return (size + lanes - 1) / lanes * lanes;
}

static inline int64_t attn_clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

#endif
