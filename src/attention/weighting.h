/* What turns a panel's scores into weights once its rows are known: for all that computes
 * them again. */
#ifndef ATTN_ATTENTION_WEIGHTING_H
#define ATTN_ATTENTION_WEIGHTING_H

#include "attention/panel.h"

/* Whether lse is exact enough for all of these rows. */
bool attn_lse_serves(const float *lse, int64_t rows);

/* Sets the panel's references and inverse, both of each lane: weight = e^(score −
 * reference) · inverse, the latter 0 where the lane sees nothing.  lse is that of the
 * panel's first query, or NULL; block and scores, [ATTN_BLOCK_KEYS][width], are scratch.
 * Where lse serves for all rows, no score is looked at. */
void attn_weighting_find(struct attn_panel *panel, float *inverse, struct attn_walk *walk,
                         const float *lse, struct attn_block *block, float *scores);

#endif
