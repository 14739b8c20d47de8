/* The worked example in a terminal: each step with its shape and its numbers. */
#ifndef ATTN_DRAW_WALK_TEXT_H
#define ATTN_DRAW_WALK_TEXT_H

#include "draw/walk.h"

/**
 * @param text  NUL-ended, the caller's to free.
 * @return ATTN_OK or ATTN_ENOMEM; on failure outputs stay.
 */
ATTN_CHECKED attn_status attn_draw_walk_text(const attn_walk *walk, char **text,
                                             size_t *length_bytes, attn_error *error);

#endif
