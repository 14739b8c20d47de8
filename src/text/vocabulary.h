/* What a tokenizer is made of, for the files that make one: train.c and tokenizer_file.c.
 */
#ifndef ATTN_TEXT_VOCABULARY_H
#define ATTN_TEXT_VOCABULARY_H

#include "text/containers.h"
#include "text/pieces.h"
#include "text/tokenizer.h"

enum { ATTN_SPECIALS = 4 };
extern const char *const attn_special_names[ATTN_SPECIALS];

extern const char attn_mask_name[]; /* "<mask>" */

struct attn_token_place {
    size_t begin, length; /* in the tokenizer's bytes */
};

struct attn_merge {
    int32_t left, right, result;
};

struct attn_tokenizer {
    attn_piece_pattern *pattern;
    char *bytes;
    size_t bytes_used, bytes_capacity;
    struct attn_token_place *tokens; /* by id; the first ATTN_SPECIALS are special */
    size_t size, tokens_capacity;
    int32_t byte_token[256];
    bool has_mask;             /* the last token is attn_mask_name, and special */
    bool lowers;               /* texts are encoded in small letters */
    attn_text_frame frame;     /* what is saved asks for it */
    struct attn_merge *merges; /* by rank */
    size_t merge_count, merges_capacity;
    attn_pair_map ranks; /* (left, right) → rank */
};

/* A tokenizer without tokens. */
ATTN_CHECKED attn_status attn_tokenizer_begin(attn_tokenizer **tokenizer,
                                              attn_error *error);
/* The next id; a token of one byte after the specials is that byte's. */
ATTN_CHECKED attn_status attn_tokenizer_add_token(attn_tokenizer *tokenizer,
                                                  const char *bytes, size_t length,
                                                  attn_error *error);
/* The next rank; the pair must be new. */
ATTN_CHECKED attn_status attn_tokenizer_add_merge(attn_tokenizer *tokenizer,
                                                  struct attn_merge merge,
                                                  attn_error *error);

/* One of the first, or the mask. */
bool attn_tokenizer_is_special(const attn_tokenizer *tokenizer, int32_t id);

#endif
