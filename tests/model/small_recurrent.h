/* What the tests of the recurrent translator share: small ones of every kind. */
#ifndef ATTN_TESTS_MODEL_SMALL_RECURRENT_H
#define ATTN_TESTS_MODEL_SMALL_RECURRENT_H

#include "model/recurrent_translator.h"
#include "small.h"

/* Every cell, score and place of the context: number 0 to SMALL_RECURRENTS − 1. */
enum { SMALL_RECURRENTS = 2 * ATTN_CROSS_SCORES * 2 };

/* Two layers in the decoder where the number's cell is an LSTM, and then in the encoder
 * too; one direction there where there is no attention. */
attn_recurrent_translator_config small_recurrent_config(int number);
/* "gru, additive, input" */
const char *small_recurrent_name(int number);
/* Biases are not 0, so that their places matter, and matrices are large enough that
 * attention chooses. */
attn_recurrent_translator *
small_recurrent_like(const attn_recurrent_translator_config *config, uint64_t seed);

#endif
