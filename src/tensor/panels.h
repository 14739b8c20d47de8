/* Products of the operations: attn_rows.pack and attn_rows.multiply, with memory of the
 * tape. */
#ifndef ATTN_TENSOR_PANELS_H
#define ATTN_TENSOR_PANELS_H

#include "tensor/rows.h"

/* A matrix [inner][columns], or turned one that lies as [columns][inner], packed in
 * borrowed memory; NULL after a failure of the tape. */
float *attn_panels_pack(attn_tape *tape, const float *matrix, size_t inner,
                        size_t columns, bool turned);

/* The gradient of a weight: to[out][in] (+)= dyᵀ · x of dy [rows][out] and x [rows][in].
 */
struct attn_weight_gradient {
    float *to;
    const float *dy, *x;
    size_t rows, out, in;
    bool add;
};

void attn_weight_gradient_take(attn_tape *tape, const struct attn_weight_gradient *g);

#endif
