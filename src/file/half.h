/* The two 16-bit float formats. */
#ifndef ATTN_FILE_HALF_H
#define ATTN_FILE_HALF_H

#include <stdint.h>

float attn_float_from_f16(uint16_t half);
float attn_float_from_bf16(uint16_t half);

/* To nearest, ties to even; too large becomes infinity, NaN stays NaN. */
uint16_t attn_f16_from_float(float value);
uint16_t attn_bf16_from_float(float value);

#endif
