/* Calls of attention on contiguous memory, of random numbers, and threads to run them on:
 * what tests of one thing at a time need. */
#ifndef ATTN_TESTS_DENSE_H
#define ATTN_TESTS_DENSE_H

#include "attn/attention.h"

struct dense {
    attn_shape shape;
    attn_options options;
    float *query, *key, *value, *output, *lse;
    float *slope, *query_slope, *key_slope, *value_slope;
    float *vector, *vector_slope; /* [H][D], of additive scores; else NULL */
};

/* Options are attn_options_init's, or attn_options_init_additive's. */
struct dense dense_create(attn_shape shape, bool additive);
void dense_destroy(struct dense *dense);
attn_tensors dense_tensors(const struct dense *dense);
attn_gradients dense_gradients(const struct dense *dense);
/* Or the test fails. */
void dense_forward(attn_context *context, const struct dense *dense);
void dense_backward(attn_context *context, const struct dense *dense);

/* The caller's to free. */
float *floats(int64_t count); /* −2 to 2 */
float *copied(const float *x, int64_t count);

/* A context of that instruction set and so many threads; skips the test where the machine
 * has not got it. */
attn_context *context_of(const char *isa, size_t threads);

/* A thread for each index, the worst that a pool can do to the order; *pool, a size_t, or
 * NULL, becomes how many there were. */
void thread_each(void *pool, size_t count, void (*run)(void *argument, size_t index),
                 void *argument);

#endif
