/* AdamW (Loshchilov and Hutter 2019, algorithm 2) over the whole array of parameters,
 * with the gradient clipped by its global norm, and a running average of the weights.
 *
 * At step t, for the sum g of the shards' gradients, scaled down to norm `clip` if
 * longer: m ← β₁m + (1 − β₁)g        v ← β₂v + (1 − β₂)g² w ← w − rate·( m/(1 − β₁ᵗ) /
 * (√(v/(1 − β₂ᵗ)) + ε) + decay·w )     decay: matrices only a ← a + (1 − d)(w − a)      d
 * = min(average, (1 + t)/(10 + t)), so that the average forgets the start of a training
 * quickly
 *
 * The array is worked on in chunks, and what is summed over chunks is summed in their
 * order: the bits do not depend on the number of threads. */
#ifndef ATTN_TRAIN_OPTIMISER_H
#define ATTN_TRAIN_OPTIMISER_H

#include "base/error.h"
#include "nn/parameters.h"
#include <pthreadpool.h>

typedef struct attn_optimiser_options {
    double beta1, beta2, epsilon, weight_decay;
    double clip;    /* 0: never */
    double average; /* 0: none is kept */
} attn_optimiser_options;

typedef struct attn_optimiser {
    attn_optimiser_options options;
    float *first, *second; /* moments, [floats] */
    float *average;        /* of the weights, or NULL */
    size_t floats;
    size_t chunk_count;
    struct attn_optimiser_chunk *chunks;
    double *squares; /* [chunk_count]: what each adds to the squared norm */
} attn_optimiser;

/** Moments are zero, the average is the parameters' values. */
ATTN_CHECKED attn_status attn_optimiser_create(attn_optimiser *optimiser,
                                               const attn_optimiser_options *options,
                                               const attn_parameters *parameters,
                                               attn_error *error);
void attn_optimiser_free(attn_optimiser *optimiser);

/** Memory for an array of parameters, aligned to 64 bytes and zero; free() it. */
float *attn_floats_allocate(size_t floats);

/** Sums count of the shards' gradients from first on, in the shards' order, into
 * gradients[0]; returns where. */
float *attn_gradients_sum(float *const *gradients, size_t shards, size_t first,
                          size_t count);

/**
 * Sums the shards' gradients, in their order, into gradients[0].
 * @param pool  NULL runs on the caller's thread.
 * @return the Euclidean norm of the sum; not finite where the sum is not.
 */
double attn_optimiser_reduce(attn_optimiser *optimiser, pthreadpool_t pool,
                             float *const *gradients, size_t shards);

/** Moves values along the gradient, whose norm attn_optimiser_reduce told.
 * @param step  from 1. */
void attn_optimiser_step(attn_optimiser *optimiser, pthreadpool_t pool, float *values,
                         const float *gradient, double norm, double rate, int64_t step);

#endif
