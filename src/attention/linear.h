/* What forward and backward of linear attention share: one head of one sequence, walked
 * in chunks of queries and keys, with all scratch of a worker. */
#ifndef ATTN_ATTENTION_LINEAR_H
#define ATTN_ATTENTION_LINEAR_H

#include "attention/problem.h"
#include "kernel/backward_table.h"
#include "kernel/linear_table.h"
#include <stdatomic.h>

enum { ATTN_LINEAR_CHUNK = 64 }; /* whole vectors of any width */

struct attn_linear {
    struct attn_problem problem;
    attn_linear_options options;
    const struct attn_kernels *kernels;
    size_t D_whole, E, E_whole; /* E is Dv + 1: a value, and 1 for the denominator */
    size_t workers, worker_bytes;
    char *scratch;
    _Atomic int64_t next; /* unit */
};

/* Checks every argument.  function is the name that messages begin with. */
ATTN_CHECKED attn_status attn_linear_init(struct attn_linear *linear,
                                          attn_context *context, const char *function,
                                          const attn_shape *shape,
                                          const attn_tensors *tensors,
                                          const attn_options *options,
                                          const attn_linear_options *given);

/* One head of one sequence, and how far its queries see: not beyond visible_end(i), which
 * never falls. */
struct attn_linear_head {
    const struct attn_linear *linear;
    struct attn_sequence sequence;
    struct attn_head head;
};

int64_t attn_linear_visible_end(const struct attn_linear_head *head, int64_t query);

/* Rows of a chunk from `first` on, each filled up with zeros to whole vectors. */
void attn_linear_load_queries(const struct attn_linear_head *head, float *to,
                              int64_t first, int64_t rows); /* features */
void attn_linear_load_keys(const struct attn_linear_head *head, float *to, int64_t first,
                           int64_t rows); /* features */
void attn_linear_load_values(const struct attn_linear_head *head, float *to,
                             int64_t first, int64_t rows); /* and a 1 behind each */

/* Rows of an input without anything else. */
void attn_linear_load(const struct attn_linear *linear, float *to, const attn_input *x,
                      const void *origin, int64_t size, int64_t first, int64_t rows);

/* pairs[i][j] = left[i]·right[j] where query i sees key j, else 0; rows of `pairs` are
 * ATTN_LINEAR_CHUNK apart.  transposed is scratch, [size][ATTN_LINEAR_CHUNK]. */
struct attn_linear_pairs {
    float *pairs, *transposed;
    const float *left, *right;
    size_t size, whole_size;
    int64_t first_query, queries, first_key, keys;
};
void attn_linear_pair(const struct attn_linear_head *head,
                      const struct attn_linear_pairs *pairs);

/* out[rows][columns] (+)= left[rows][steps] · right[steps][columns], or with `transposed`
 * left[steps][rows]ᵀ · right.  Rows of out and right have no gaps, those of left lie
 * left_stride apart.  left_hides: a 0 on the left is a hidden pair, and makes 0 of a NaN
 * on the right. */
struct attn_linear_product {
    float *out;
    const float *left, *right;
    size_t left_stride, rows, steps, columns;
    bool transposed, add, left_hides;
};
void attn_linear_multiply(const struct attn_linear *linear,
                          const struct attn_linear_product *product);

/* Takes memory for as many workers as there are units, and no more than threads. */
ATTN_CHECKED attn_status attn_linear_reserve(struct attn_linear *linear,
                                             attn_context *context, int64_t units);

/* Runs task(linear, worker) on that many threads, after taking memory. */
ATTN_CHECKED attn_status attn_linear_run(struct attn_linear *linear,
                                         attn_context *context, int64_t units,
                                         void (*task)(void *linear, size_t worker));

#endif
