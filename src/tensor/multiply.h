/* Products of matrices in training: c[m][n] (+)= a[m][k] · b[k][n] + bias, each factor as
 * it lies or transposed.
 *
 * b is packed, panels of columns one after the other, each read once for every few rows
 * of c; a is read in place where its rows are (so x and dy never are copied), and a few
 * rows of its transpose at a time where not.  OpenBLAS copies both, always: of its time
 * for these products a tenth.
 *
 * Sums run over k in order, ATTN_PRODUCT_DEPTH elements at a time in registers: the bits
 * of an element depend on its own row of a and column of b alone. */
#ifndef ATTN_TENSOR_MULTIPLY_H
#define ATTN_TENSOR_MULTIPLY_H

#include "tensor/rows.h"

/* b[k][n], packed in memory of the tape. */
struct attn_packed {
    float *x;
    size_t k, n, floats;
};

/* False after the tape has failed.  Give it back with attn_packed_return. */
bool attn_pack(attn_tape *tape, struct attn_packed *packed, const struct attn_factor *b,
               size_t k, size_t n);
void attn_packed_return(attn_tape *tape, struct attn_packed *packed);

/* n, k, packed and work of the product are filled in here; a.column is 1. */
void attn_multiply_packed(attn_tape *tape, const struct attn_product *product,
                          const struct attn_packed *b);

/* k is any; packed and work are filled in here. */
void attn_multiply(attn_tape *tape, const struct attn_product *product,
                   const struct attn_factor *b);

#endif
