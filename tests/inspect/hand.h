/* Records made by hand, for the tests of inspect and draw. */
#ifndef ATTN_TESTS_INSPECT_HAND_H
#define ATTN_TESTS_INSPECT_HAND_H

#include "inspect/summary.h"

/* Words between spaces; </s> and <s> are added.  All three parts, weights spread evenly.
 */
attn_record *hand_record(const char *source, const char *written, int64_t layers,
                         int64_t heads);
/* A text and the label that pooling read from it; no marks of the model. */
attn_record *hand_label(const char *source, const char *label);
/* A text whose words look at each other, with one head; no marks of the model. */
attn_record *hand_text(const char *source);
/* What was written about a picture of 4 × 6 points under 2 × 3 places. */
attn_record *hand_picture(const char *written);
attn_record_part *hand_part(attn_record *record, attn_part kind);

/* The row gives key `weight`, and the rest evenly to the others it sees.  Counted from 0.
 */
void hand_look(attn_record *record, attn_part kind, int64_t layer, int64_t head,
               int64_t row, int64_t key, float weight);
/* Every row looks so at its own index plus `offset`, where there is such a key. */
void hand_look_along(attn_record *record, attn_part kind, int64_t layer, int64_t head,
                     int64_t offset, float weight);
/* Entropies from the weights, then the summary. */
attn_summary *hand_summary(attn_record *record);
/* The same with limits of one's own. */
attn_summary *hand_summary_with(attn_record *record, const attn_conventions *conventions);

#endif
