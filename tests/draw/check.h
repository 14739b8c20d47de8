/* What tests of pictures look at. */
#ifndef ATTN_TESTS_DRAW_CHECK_H
#define ATTN_TESTS_DRAW_CHECK_H

#include "draw/draw.h"
#include "sample.h"

/** Words that broke other tools: markup, controls, both directions, wide and joined. */
extern const char *const hostile_words[];
extern const int64_t hostile_count;

/** A picture of the sample; NULL options are the defaults.  Fails where drawing fails. */
char *draw(attn_draw *format, const draw_sample *sample, const attn_draw_options *options,
           size_t *length);

/** How often part occurs in text. */
int64_t occurrences(const char *text, const char *part);

/** Runs a Python program on the text as standard input; fails the test where it fails.
 * Without a Python says so by name and skips. */
void check_with_python(const char *name, const char *program, const char *text);

/** Fails where librsvg does not draw it, or text comes nearer than 4 pixels to its edge.
 */
void assert_draws_within_its_edges(const char *svg, size_t length);

#endif
