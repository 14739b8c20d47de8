/* Unicode text as readers see it (by utf8proc): words, columns of a terminal. */
#ifndef ATTN_TEXT_WORDS_H
#define ATTN_TEXT_WORDS_H

#include "base/error.h"
#include "file/utf8.h"
#include "text/tokenizer.h"

/** U+FFFD for each maximal subpart that is not UTF-8, as Python's "replace"; *out is
 * NUL-ended and the caller's to free. */
ATTN_CHECKED attn_status attn_utf8_repair(const char *text, size_t length_bytes,
                                          char **out, size_t *out_length,
                                          attn_error *error);

/** Columns in a terminal: wide and emoji 2, combining and joiners 0, one grapheme never
 * split. */
size_t attn_text_columns(const char *text);
/** Bytes of the longest prefix, of whole graphemes, of at most `columns` columns. */
size_t attn_text_prefix(const char *text, size_t columns);

/** A word of a tokenised text: tokens [first_token, end_token), bytes [begin, end) of the
 * text without the surrounding space.  Punctuation is a word of its own; a script without
 * spaces (Han, Kana) has a word for each token.  Every token belongs to exactly one word.
 */
typedef struct attn_word {
    int64_t first_token, end_token;
    int64_t begin, end;
} attn_word;

/** Words of a text that is not tokenised, as attn_words_of_tokens has them, each
 * character a token, and the endings that English writes with an apostrophe as words of
 * their own
 * ("do" "n't", "it" "'s"): how treebanks of Universal Dependencies split.  first_token
 * and end_token are bytes. */
ATTN_CHECKED attn_status attn_words_of_text(const char *text, size_t length_bytes,
                                            attn_word **words, size_t *word_count,
                                            attn_error *error);

/** Tokens of one word as they are within a text, after a space, which is none of the
 * word's bytes that they cover; at least one. */
ATTN_CHECKED attn_status attn_word_encode(const attn_tokenizer *tokenizer,
                                          const char *word, size_t length_bytes,
                                          attn_token **tokens, size_t *count,
                                          attn_error *error);

ATTN_CHECKED attn_status attn_words_of_tokens(const char *text, const attn_token *tokens,
                                              size_t count, attn_word **words,
                                              size_t *word_count, attn_error *error);

#endif
