/* Beam search of one sentence, apart from the model that it searches: it is shown the
 * logits that follow its live beams and says how they go on. */
#ifndef ATTN_MODEL_BEAM_H
#define ATTN_MODEL_BEAM_H

#include "base/error.h"

typedef struct attn_hypothesis {
    int32_t *ids; /* [max_length] */
    int64_t length;
    double score; /* Σ log p; of a finished one divided by length^power */
    bool ended;   /* by </s>, and not only by the length */
} attn_hypothesis;

/* One token more for a live beam. */
typedef struct attn_beam_candidate {
    double score;
    int64_t beam;
    int32_t id;
} attn_beam_candidate;

typedef struct attn_beam_search {
    int64_t beams, max_length; /* tokens that are written, </s> included */
    double length_power;
    int64_t length; /* tokens written so far */
    int64_t live_count, finished_count;
    attn_hypothesis *live, *next, *finished; /* [beams] each; finished: best first */
    attn_hypothesis *hypotheses;             /* those of the three lists */
    attn_beam_candidate *candidates;         /* [2·beams] */
    int32_t *ids;                            /* what the hypotheses point into */
    bool done;
} attn_beam_search;

/* Starts with one live beam that has written nothing.  beams and max_length at least 1.
 */
ATTN_CHECKED attn_status attn_beam_search_init(attn_beam_search *search, int64_t beams,
                                               int64_t max_length, double length_power);
void attn_beam_search_free(attn_beam_search *search);

/**
 * @param logits   [live_count][row_stride]: what follows each live beam.
 * @param parents  [beams] out: parents[n] is the beam that live beam n now continues.
 * @return false where a row's logits have no finite sum of exponentials: nothing is done.
 */
bool attn_beam_search_advance(attn_beam_search *search, const float *logits,
                              int64_t row_stride, int64_t vocabulary, int64_t *parents);

#endif
