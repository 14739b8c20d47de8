/* Convolutions: neighbours are gathered side by side, and the rest is a linear layer. The
 * weight is [out][taps·in], for each tap the input's channels. */
#ifndef ATTN_NN_CONVOLUTION_H
#define ATTN_NN_CONVOLUTION_H

#include "nn/layers.h"

/** Along packed sequences: token i sees `taps` tokens, from i − taps/2 on (taps odd:
 * itself in the middle), with zeros beyond the ends of its sequence. */
attn_tensor *attn_convolve(const attn_linear_layer *layer, const attn_pass *pass,
                           attn_tensor *x, attn_packing packing, int64_t taps);

/** Pictures, [pictures·rows·columns][channels]. */
typedef struct attn_grid {
    int64_t pictures, rows, columns;
} attn_grid;

/** Each place of the result sees taps × taps places around it, zeros beyond the edge. The
 * result has every `stride`-th row and column, from the first on; *grid becomes its. */
attn_tensor *attn_convolve_grid(const attn_linear_layer *layer, const attn_pass *pass,
                                attn_tensor *x, attn_grid *grid, int64_t taps,
                                int64_t stride);

#endif
