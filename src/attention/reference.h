/* The meaning of attention, in double precision, for tests and students: reference.c is
 * the forward pass and its statistics, reference_backward.c the gradients.  Neither
 * checks its arguments, which are as attn_forward and attn_backward want them. */
#ifndef ATTN_ATTENTION_REFERENCE_H
#define ATTN_ATTENTION_REFERENCE_H

#include "attn/attention.h"

/* All there is to know about one query.  Keys count within its sequence: key j is row
 * first_key + j of the tensors.  Arrays have `keys` elements, output has Dv. */
struct attn_reference_row {
    bool padding;         /* beyond its sequence's length: sees nothing */
    int64_t query;        /* within its sequence */
    int64_t position;     /* among the keys */
    int64_t first_key;    /* of its sequence, in the tensors */
    int64_t keys;         /* of its sequence */
    int64_t visible_keys; /* of these */

    bool *visible;
    double *score;     /* final; −∞ where hidden */
    double *slope;     /* of the final score over the scaled one: 1 but for softcap */
    double *forgotten; /* the sum of the logarithms of forget gates up to the key */
    double *weight;    /* before dropout; 0 where hidden */
    double *kept;      /* what dropout multiplies the weight by */
    double *output;    /* Σ weight · kept · value */
    double *query_row, *key_row, *value_row; /* as doubles: its own, and those at hand */
    double lse;                              /* ln Σ exp(score), with the sink */
    double sink_weight;                      /* 0 without a sink */
};

/* Room for the row of any query.  False when memory is refused. */
ATTN_CHECKED bool attn_reference_row_create(struct attn_reference_row *row,
                                            const attn_shape *shape);
void attn_reference_row_destroy(struct attn_reference_row *row);

/* Query i of head h, of batch b; i counts in the tensors, packed or not. */
void attn_reference_attend(struct attn_reference_row *row, const attn_shape *shape,
                           const attn_tensors *tensors, const attn_options *options,
                           int64_t b, int64_t h, int64_t i);

/* As attn_forward: writes output, and lse and statistics where asked for.
 * Returns ATTN_OK or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_forward_reference(const attn_shape *shape,
                                                const attn_tensors *tensors,
                                                const attn_options *options);

/* As attn_backward, from query, key and value alone: output and lse are not consulted.
 * Returns ATTN_OK or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_backward_reference(const attn_shape *shape,
                                                 const attn_tensors *tensors,
                                                 const attn_options *options,
                                                 const attn_gradients *gradients);

/* φ of one element. */
double attn_reference_feature(double x, attn_feature feature);

/* Element n of an array of that type, and the way back, rounding to nearest even. */
double attn_reference_load(const void *data, attn_type type, int64_t n);
void attn_reference_store(void *data, attn_type type, int64_t n, double x);

#endif
