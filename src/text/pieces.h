/* The pieces of a text inside which byte pairs may be merged: GPT-2's regular expression.
 */
#ifndef ATTN_TEXT_PIECES_H
#define ATTN_TEXT_PIECES_H

#include "base/error.h"

/* The compiled expression; one may be shared by threads. */
typedef struct attn_piece_pattern attn_piece_pattern;
ATTN_CHECKED attn_status attn_piece_pattern_create(attn_piece_pattern **pattern,
                                                   attn_error *error);
void attn_piece_pattern_destroy(attn_piece_pattern *pattern);

/* Walks a text, which has to be UTF-8 and outlive the walk. */
typedef struct attn_piece_walk {
    const attn_piece_pattern *pattern;
    void *match;
    const char *text;
    size_t length_bytes;
    size_t begin, end; /* of the current piece */
} attn_piece_walk;

ATTN_CHECKED attn_status attn_piece_walk_init(attn_piece_walk *walk,
                                              const attn_piece_pattern *pattern,
                                              attn_error *error);
void attn_piece_walk_reset(attn_piece_walk *walk);
void attn_piece_walk_start(attn_piece_walk *walk, const char *text, size_t length_bytes);

/* Moves on to the next piece; *more is false at the end.  Pieces leave no byte out. */
ATTN_CHECKED attn_status attn_piece_walk_next(attn_piece_walk *walk, bool *more,
                                              attn_error *error);

#endif
