/* What operations ask of their arguments before they compute. */
#ifndef ATTN_TENSOR_CHECKS_H
#define ATTN_TENSOR_CHECKS_H

#include "tensor/rows.h"

typedef struct attn_named_tensor {
    const char *name;
    const attn_tensor *tensor;
} attn_named_tensor;

/* Whether the tape is well and every tensor is there; else the tape has failed. */
bool attn_tensors_given(attn_tape *tape, const char *operation,
                        const attn_named_tensor *list, size_t length);

/* Whether the tensor has this shape, −1 being any extent; else the tape has failed with a
 * message that names both. */
bool attn_tensor_has_shape(attn_tape *tape, const char *operation,
                           attn_named_tensor named, int rank, const int64_t *extent);

/* Whether the starts of packed sequences rise from 0 to the number of rows; else the tape
 * has failed. */
bool attn_starts_fit(attn_tape *tape, const char *operation, const int64_t *starts,
                     int64_t sequences, int64_t rows);

/* Whether the probability is from 0 to 1; else the tape has failed. */
bool attn_probability_fits(attn_tape *tape, const char *operation, float probability);

#endif
