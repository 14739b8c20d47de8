/* What the tests of readers share: small ones, one of each kind, and texts for them. */
#ifndef ATTN_TESTS_MODEL_SMALL_READER_H
#define ATTN_TESTS_MODEL_SMALL_READER_H

#include "model/reader.h"
#include "small.h"

enum { READER_TEXTS = 4, READER_LABELS = 3, READER_VOCABULARY = 29, READER_KINDS = 16 };

/* A configuration of each body, pooling and attention, kind 0 to READER_KINDS − 1; the
 * first nine label texts, the others words.  No dropout. */
attn_reader_config small_reader_config(int kind);
/* "lstm, pooling 3, …", for messages */
const char *small_reader_name(int kind);
attn_reader *small_reader_create(const attn_reader_config *config);

/* Texts of 7, 1, 12 and 4 tokens in words of one to three; the second, where texts are
 * labelled, has none. */
const attn_reader_text *small_reader_texts(bool tags);
/* Rows of logits that text n has, and all have. */
int64_t small_reader_rows(bool tags, int64_t n);
int64_t small_reader_all_rows(bool tags);

/* Logits outside training, in memory of the tape; fails the test where there are none. */
const float *small_reader_logits(attn_reader *reader, attn_tape *tape,
                                 const attn_reader_text *texts, int64_t count);

#endif
