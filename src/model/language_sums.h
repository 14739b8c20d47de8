/* What linear attention keeps of a text: for each head the state of attn/linear.h, which
 * is of one size however long the text. */
#ifndef ATTN_MODEL_LANGUAGE_SUMS_H
#define ATTN_MODEL_LANGUAGE_SUMS_H

#include "model/language.h"

/* Floats of one layer. */
size_t attn_language_sums_floats(const attn_language_config *config);

/* Rows that follow those in sums, which are 0 at first, attend to them and to each other,
 * and are added.  Outside training.  NULL after failing the tape. */
attn_tensor *attn_language_sums_attend(float *sums, const attn_heads *heads,
                                       attn_tape *tape, const attn_tensor *query,
                                       const attn_memory *memory);

#endif
