/* Products of the operations: attn_rows.pack and attn_rows.multiply, with memory of the
 * tape. */
#ifndef ATTN_TENSOR_PANELS_H
#define ATTN_TENSOR_PANELS_H

#include "tensor/rows.h"

/* What is given of a matrix, packed in borrowed memory, which is NULL after a failure of
 * the tape. */
struct attn_packed attn_panels_pack(attn_tape *tape, struct attn_packed given);
void attn_panels_return(attn_tape *tape, const struct attn_packed *packed);

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
