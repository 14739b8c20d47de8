/* How wide text will be, without a font at hand: an upper bound, so that no text leaves
 * its box in any renderer.  The widths are DejaVu Sans's, the widest of the usual sans.
 */
#ifndef ATTN_DRAW_SVG_TEXT_H
#define ATTN_DRAW_SVG_TEXT_H

#include "inspect/buffer.h"

typedef struct attn_typeface {
    int size; /* pixels */
    bool bold;
} attn_typeface;

/** Pixels, rounded up. */
int64_t attn_type_width(attn_typeface type, const char *text);

/** The text escaped for XML; of one wider than width, the graphemes that fit and "…". */
void attn_put_fitted(attn_buffer *buffer, attn_typeface type, const char *text,
                     int64_t width);

/** Bytes of the longest start of text that is not wider than width and ends at a space or
 * the end; a word that is too wide is broken between graphemes. */
size_t attn_type_line(attn_typeface type, const char *text, int64_t width);

#endif
