/* The loops of the operations, over rows of floats that lie without gaps.  They are
 * written once over src/kernel/simd.h and compiled for each instruction set, like the
 * kernels of attention.
 *
 * "(+)=" is = or +=, as `add` says.  out may be x where it says in place. */
#ifndef ATTN_TENSOR_ROWS_H
#define ATTN_TENSOR_ROWS_H

#include "tensor/operations.h"
#include <stddef.h>

/* Which elements dropout drops: element i of a draw is dropped when a hash of (seed, i)
 * is below the threshold, so nothing is stored and any loop can ask again. */
struct attn_drop {
    uint64_t seed;
    int32_t threshold; /* of a hash that is uniform over all int32_t */
    float scale;       /* of those that stay; exactly 1 when none is dropped */
};

/* How the elements of a row are turned by rotary positions; see attn_rotary. */
struct attn_turn {
    size_t heads, width; /* of each head */
    size_t turned;       /* elements of a head, the first; even */
    bool interleaved;    /* pairs are neighbours, not turned/2 apart */
    bool back;           /* by the negative angle */
};

/* What a row of the cross-entropy is told and tells; see attn_rows.cross_entropy. */
struct attn_cross_entropy {
    size_t classes;
    float smoothing;
    float scale;            /* of the gradient */
    bool gradient;          /* wanted */
    double smoothed, plain; /* out: losses, in nats */
};

/* What one step of a recurrent cell reads and writes: `rows` sequences, one to a row of
 * `width` floats, or of width for each gate.  The formulas are in rows_recurrent.h. */
struct attn_cell_step {
    attn_cell cell;
    size_t rows, width;
    float *gates;           /* in: what they are given; out: what they give.  Backward:
                             * what they gave, and then the gradient of what they were
                             * given */
    const float *recurrent; /* GRU: the state's part of the gates, [rows][3·width] */
    float *candidate;       /* GRU: the candidate's part of that, for backward, or NULL */
    const float *before, *memory_before;
    float *state, *memory;

    /* Backward.  A relu or tanh reads its state, the LSTM its memory. */
    const float *state_gradient, *memory_gradient;
    float *before_gradient, *memory_before_gradient; /* added to: GRU's and LSTM's */
    float *recurrent_gradient;                       /* GRU: of recurrent */
};

enum {
    ATTN_PANEL_STEPS = 768, /* whose panels stay in a near cache together */
    ATTN_BAND_FLOATS = 96 * 256
};

/* A matrix [inner][columns] on the right of products, or turned one that lies as
 * [columns][inner].  It stays as it is for as long as it is multiplied by, which is done
 * by one thread at a time. */
struct attn_packed {
    const float *matrix;
    size_t inner, columns;
    bool turned;
    bool few_rows; /* at a time, or a small matrix: multiply-adds take them */
    float *memory; /* attn_rows.packed_floats, of any content, aligned to 64 bytes */

    /* Of pack. */
    float *work; /* the part of the memory that products work in */
    bool fits;   /* into parts, as AMX has them; or multiply-adds take it as it lies */
};

/* y[rows][columns] = x[rows][inner] · matrix + bias, or y += x · matrix.  A row's bits
 * depend on no other row.  Processors with AMX multiply in three parts of bfloat16, but
 * few_rows and matrices of less than 48 rows or columns, and of a number below 2⁻¹⁰² up
 * to 3·2⁻¹²⁶ does not count there. */
struct attn_panel_product {
    float *y;
    const float *x;
    const struct attn_packed *matrix;
    const float *bias; /* [columns], or NULL for 0 */
    size_t rows;
    bool add;
    size_t turned; /* not 0: x lies as [inner][turned], and rows are its first columns */
};

struct attn_rows {
    const char *isa;

    /* out = a + b, in place */
    void (*add)(float *out, const float *a, const float *b, size_t n);
    /* out (+)= factor · in, in place */
    void (*scale)(float *out, const float *in, float factor, size_t n, bool add);
    /* out = other + drop(x), other NULL for 0, in place */
    void (*drop)(float *out, const float *x, const float *other, size_t n,
                 const struct attn_drop *drop);
    /* dx (+)= drop(dy) */
    void (*drop_backward)(float *dx, const float *dy, size_t n,
                          const struct attn_drop *drop, bool add);

    /* Elements `first` and on of a draw: out = drop(activation(x)), in place */
    void (*activate)(float *out, const float *x, size_t n, attn_activation activation,
                     const struct attn_drop *drop, size_t first);
    /* dx (+)= activation′(x) · drop(dy); dx may be dy */
    void (*activate_backward)(float *dx, const float *dy, const float *x, size_t n,
                              attn_activation activation, const struct attn_drop *drop,
                              bool add);

    /* y = (x − mean)/√(variance + epsilon)·gain + bias of each row; moments [rows][2]
     * gets mean − x[0] and 1/√(variance + epsilon) */
    void (*norm)(float *y, float *moments, const float *x, const float *gain,
                 const float *bias, size_t rows, size_t columns, float epsilon);
    /* dx (+)= the gradient through norm; gain_bias [2][columns] += that of gain and bias
     */
    void (*norm_backward)(float *dx, float *gain_bias, const float *dy, const float *x,
                          const float *moments, const float *gain, size_t rows,
                          size_t columns, bool add);

    /* y = x/√(mean of squares + epsilon)·gain of each row; inverse [rows] gets 1/√(…) */
    void (*rms_norm)(float *y, float *inverse, const float *x, const float *gain,
                     size_t rows, size_t columns, float epsilon);
    /* dx (+)= the gradient through rms_norm, NULL for none; dgain [columns] += gain's */
    void (*rms_norm_backward)(float *dx, float *dgain, const float *dy, const float *x,
                              const float *inverse, const float *gain, size_t rows,
                              size_t columns, bool add);

    /* out = activation(gate) · up, in place of either */
    void (*gate)(float *out, const float *gate, const float *up, size_t n,
                 attn_activation activation);
    /* dgate (+)= activation′(gate) · up · dy, then dy becomes activation(gate) · dy, the
     * gradient of up; dgate NULL for none */
    void (*gate_backward)(float *dgate, float *dy, const float *gate, const float *up,
                          size_t n, attn_activation activation, bool add);

    /* One row: the turned pairs of every head, by angles whose cosines and sines
     * [turned/2] are given; the others are copied.  In place. */
    void (*turn)(float *y, const float *x, const float *cosine, const float *sine,
                 const struct attn_turn *turn);

    /* sum += Σ of the rows */
    void (*sum)(float *sum, const float *x, size_t rows, size_t columns);

    /* y[rows][out] = x[rows][in] · weight[out][in]ᵀ + bias, bias NULL for 0.  A row's
     * bits depend on no other row: what inference uses. */
    void (*dot)(float *y, const float *x, const float *weight, const float *bias,
                size_t rows, size_t in, size_t out);

    size_t (*packed_floats)(size_t inner, size_t columns, bool few_rows);
    void (*pack)(struct attn_packed *packed);
    void (*multiply)(const struct attn_panel_product *product);

    /* The losses of one row of logits against the target, and the logits overwritten with
     * scale times the gradient of the smoothed one. */
    void (*cross_entropy)(float *logits, size_t target, struct attn_cross_entropy *loss);

    void (*cell_step)(const struct attn_cell_step *step);
    void (*cell_back)(const struct attn_cell_step *step);
};

/* The loops of that instruction set, which is one of attn_context_isa. */
const struct attn_rows *attn_rows_find(const char *isa);

const struct attn_rows *attn_tape_rows(const attn_tape *tape);

/* The draw of a probability from 0 to 1 and a seed. */
struct attn_drop attn_drop_make(float probability, uint64_t seed);

size_t attn_tensor_count(const attn_tensor *tensor);

#endif
