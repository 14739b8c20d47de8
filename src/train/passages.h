/* Texts as token ids, for a language model: each line, or the windows of a long text.
 * What is fed is <s> and the tokens of a text but the last; what is predicted are its
 * tokens.  Every token of the data is predicted exactly once. */
#ifndef ATTN_TRAIN_PASSAGES_H
#define ATTN_TRAIN_PASSAGES_H

#include "text/corpus.h"
#include "text/tokenizer.h"
#include "train/task.h"

typedef struct attn_passages {
    size_t count;
    int32_t *ids; /* of text n: from begin[n] to begin[n + 1] − 1; </s> is the last, but
                   * of a window that does not end its text */
    size_t *begin; /* [count + 1] */
    size_t capacity, ids_capacity;
    size_t split;         /* lines that were longer than the positions */
    int64_t words, bytes; /* of all: words are what white space parts, and the end of a
                           * text (a line, or the long text) counts as one of either */
    uint64_t hash;        /* of everything that is trained on */
} attn_passages;

typedef enum attn_too_long { ATTN_TOO_LONG_REFUSE, ATTN_TOO_LONG_SPLIT } attn_too_long;

/** {0} before: appends a text and its </s>, in windows of `window` tokens.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EFORMAT (not UTF-8). */
ATTN_CHECKED attn_status attn_passages_append(attn_passages *texts, const char *text,
                                              size_t length_bytes,
                                              const attn_tokenizer *tokenizer,
                                              int64_t window, attn_error *error);

/** The texts of a file: where window is 0 its lines, of which blank ones are none, and
 * one of more than `positions` tokens with </s> is refused by number or split; else the
 * windows of the whole.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EIO, or ATTN_EFORMAT: a file that is no text, or
 *         without any; a line that is too long. */
ATTN_CHECKED attn_status attn_passages_load(attn_passages *texts, const char *path,
                                            const attn_tokenizer *tokenizer,
                                            int64_t window, int64_t positions,
                                            attn_too_long too_long, attn_error *error);
void attn_passages_free(attn_passages *texts);

static inline int64_t attn_passages_length(const attn_passages *texts, size_t n)
{
    return (int64_t)(texts->begin[n + 1] - texts->begin[n]);
}

/** What a model is fed: ids, what follows each, and where texts start. */
typedef struct attn_passage_batch {
    int32_t *ids, *targets;
    int64_t *starts; /* [count + 1] */
} attn_passage_batch;

/** Texts list[0] to list[count − 1], in memory of the tape; false after failing it. */
bool attn_passages_pack(attn_passage_batch *batch, const attn_passages *texts,
                        const size_t *list, size_t count, attn_tape *tape);

#endif
