/* What the tests of BERT share: a small one of each head, and a packed batch for it. */
#ifndef ATTN_TESTS_MODEL_SMALL_BERT_H
#define ATTN_TESTS_MODEL_SMALL_BERT_H

#include "model/bert.h"
#include "small.h"

enum { BERT_VOCABULARY = 23, BERT_TEXTS = 4, BERT_TOKENS = 20, BERT_LABELS = 5 };
extern const int64_t BERT_STARTS[BERT_TEXTS + 1];
extern const int32_t BERT_IDS[BERT_TOKENS], BERT_TYPES[BERT_TOKENS];

attn_bert_config bert_config(attn_bert_head head);
/* With gains and biases that are not 1 and 0, so that their places matter. */
attn_bert *bert_create(const attn_bert_config *config, uint64_t seed);
attn_bert_input bert_input(void);
/* One text of it; starts[2] is the caller's. */
attn_bert_input bert_input_alone(int64_t text, int64_t *starts);
/* Of one text; see attn_bert_logits. */
int64_t bert_rows_of(attn_bert_head head, int64_t tokens);
/* Of the whole batch. */
int64_t bert_rows(const attn_bert_config *config);
int64_t bert_columns(const attn_bert_config *config);

/* Valid until the tape's next begin. */
const float *bert_logits(attn_bert *bert, attn_tape *tape, const attn_bert_input *input);

#endif
