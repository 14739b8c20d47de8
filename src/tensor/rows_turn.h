/* Rotary positions of one row. */
#ifndef ATTN_TENSOR_ROWS_TURN_H
#define ATTN_TENSOR_ROWS_TURN_H

#include "tensor/rows_vector.h"

/* Pairs lie half a head apart: whole vectors of first and of second elements. */
INLINE void turn_halves(float *y, const float *x, const float *cosine, const float *sine,
                        size_t half, float sign)
{
    for (size_t i = 0; i < half; i += VF_LANES) {
        const size_t left = half - i;
        const vf a = load_some(x + i, left), b = load_some(x + half + i, left);
        const vf c = load_some(cosine + i, left);
        const vf s = load_some(sine + i, left) * vf_set1(sign);
        store_some(y + i, a * c - b * s, left);
        store_some(y + half + i, b * c + a * s, left);
    }
}

INLINE void turn_neighbours(float *y, const float *x, const float *cosine,
                            const float *sine, size_t half, float sign)
{
    for (size_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1], s = sine[i] * sign;
        y[2 * i] = a * cosine[i] - b * s;
        y[2 * i + 1] = b * cosine[i] + a * s;
    }
}

static void turn(float *y, const float *x, const float *cosine, const float *sine,
                 const struct attn_turn *turn)
{
    const size_t half = turn->turned / 2, stays = turn->width - turn->turned;
    const float sign = turn->back ? -1.0f : 1.0f;
    for (size_t head = 0; head < turn->heads;
         head++, x += turn->width, y += turn->width) {
        if (turn->interleaved)
            turn_neighbours(y, x, cosine, sine, half, sign);
        else
            turn_halves(y, x, cosine, sine, half, sign);
        if (y != x && stays > 0)
            memcpy(y + turn->turned, x + turn->turned, stays * sizeof *y);
    }
}

#endif
