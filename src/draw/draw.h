/* A record becomes a picture: one function a format, all of the same form.  draw knows
 * records and summaries, and nothing of models.  Same record, same options, same bytes.
 */
#ifndef ATTN_DRAW_DRAW_H
#define ATTN_DRAW_DRAW_H

#include "draw/colour.h"
#include "inspect/summary.h"

typedef enum attn_depth { ATTN_DEPTH_NONE, ATTN_DEPTH_256, ATTN_DEPTH_FULL } attn_depth;

/** What to draw; each format reads what concerns it. */
typedef struct attn_draw_options {
    attn_theme theme;
    attn_scale scale;

    /* A selection: parts by kind, the others from 0; −1 is all. */
    int part; /* attn_part, or −1 */
    int64_t layer, head;
    int64_t row; /* a row of `part`, which is then given */

    double zoom; /* of PNG: pixels a unit of the SVG, .125 to 16; 0 is 2 */

    /* Of the terminal. */
    attn_depth depth;
    bool ascii;        /* no UTF-8 */
    const char *asked; /* what "attn look" was given, for the line on what to ask next:
                        * "TEXT --model NAME"; NULL is "TEXT" */
    int64_t width;     /* columns, at least 40 */
} attn_draw_options;

/** Light, scale by the map, everything; no colour, UTF-8, 80 columns. */
void attn_draw_options_init(attn_draw_options *options);

/** The index of the part that options select, in *part, which on entry is the one that is
 * meant where they name none (−1: none is).  ATTN_EINVAL names what the record has not,
 * and what it has. */
ATTN_CHECKED attn_status attn_draw_select(const attn_record *record,
                                          const attn_draw_options *options, int64_t *part,
                                          attn_error *error);

/** *text is the caller's to free, NUL-ended beyond length bytes. */
typedef attn_status attn_draw(const attn_record *record, const attn_summary *summary,
                              const attn_draw_options *options, char **text,
                              size_t *length, attn_error *error);

/** Answer first: translation, verdict, alignment, heads, heads worth a look; with a part,
 * its heads only, and in place of the alignment of another its sharpest head.  With a
 * layer and a head: that matrix in full.  With a row: how each head (of the layer) looks
 * from it; with row, layer and head: that row in full. */
attn_draw attn_draw_terminal;
attn_draw attn_draw_json;
attn_draw attn_draw_svg;
attn_draw attn_draw_png;
attn_draw attn_draw_html;

#endif
