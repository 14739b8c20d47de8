/* What attn look is asked to show: which word, which heads, which limits. */
#ifndef ATTN_CLI_LOOK_CHOOSE_H
#define ATTN_CLI_LOOK_CHOOSE_H

#include "cli/cli.h"
#include "draw/draw.h"

/* Finds "was", "was#2", "was²" or a number from 1 among the rows of options->part, or,
 * where that is −1, among source words (encoder) and then written words (cross); sets
 * part and row.  A word that is not there is ATTN_EINVAL, with the words that are;
 * *others is how many more occurrences it has when none was named. */
attn_status look_find_word(const attn_record *record, const char *wanted,
                           attn_draw_options *options, int64_t *others,
                           attn_error *error);

/* "3.4", or "4" beside --layer 3, into layer and head from 0. */
attn_status look_read_head(const char *layer, const char *head,
                           attn_draw_options *options, attn_error *error);

/* "encoder", "decoder", "cross" */
attn_status look_read_part(const char *name, attn_draw_options *options,
                           attn_error *error);

/* "weak=.25,clear=.6" */
attn_status look_read_limits(const char *text, attn_conventions *conventions,
                             attn_error *error);

/* Theme, colours and alphabet from the options, else the environment. */
attn_status look_read_screen(const char *theme, const char *colour,
                             attn_draw_options *options, attn_error *error);

#endif
