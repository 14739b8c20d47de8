/* Word pieces joined into words; private to inspect. */
#ifndef ATTN_INSPECT_JOIN_H
#define ATTN_INSPECT_JOIN_H

#include "inspect/record.h"
#include "text/words.h"

/* Which word each token of a sequence belongs to. */
typedef struct attn_joining {
    int64_t tokens;
    int64_t *word; /* [tokens], rising */
} attn_joining;

void attn_joining_free(attn_joining *joining);

/* Words of a tokenised text, after `before` (a mark of the model's, or NULL) and before
 * `after`.  text need not be UTF-8. */
attn_status attn_join_text(attn_record_words *words, attn_joining *joining,
                           const char *before, const char *text, size_t length_bytes,
                           const attn_token *tokens, size_t count, const char *after,
                           attn_error *error);

/* The same where the words are known; each token belongs to one. */
attn_status attn_join_words(attn_record_words *words, attn_joining *joining,
                            const char *before, const char *text, const attn_word *list,
                            size_t count, const char *after, attn_error *error);

/* Adds a head's weights between tokens, [rows->tokens][keys->tokens], to those between
 * words, [words][key_words], which are zero. */
void attn_join_weights(float *joined, int64_t key_words, const float *weights,
                       const attn_joining *rows, const attn_joining *keys);

/* Entropies in nats over `visible` keys, of tokens, become normalised ones of words. */
void attn_join_entropies(float *joined, const float *entropy, const int64_t *visible,
                         const attn_joining *rows, int64_t row_words);

#endif
