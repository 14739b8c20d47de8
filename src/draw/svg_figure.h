/* A figure while it is drawn: what is chosen, the text so far, how far it reaches.
 * Coordinates are whole pixels, so that bytes depend on no floating point and no locale.
 */
#ifndef ATTN_DRAW_SVG_FIGURE_H
#define ATTN_DRAW_SVG_FIGURE_H

#include "draw/draw.h"
#include "draw/roles.h"
#include "draw/scale_map.h"
#include "draw/svg_text.h"

enum { SVG_MARGIN = 16, SVG_CLASSES = 11 };

/** The map to be drawn. */
typedef struct attn_figure {
    const attn_record *record;
    const attn_summary *summary;
    attn_scale scale;          /* never ATTN_SCALE_AUTO */
    int64_t part, layer, head; /* part: index into record->parts; head −1: mean */
    int64_t row;               /* framed, or −1 */
    bool alignment;            /* it is the one the verdict speaks of */
    bool sharpest;             /* layer is that with the lowest entropy, of several */
    attn_map_side rows, keys;
    float *weights; /* [rows][keys] */
} attn_figure;

/** The selection of options; where none is made, the alignment, or without a cross part
 * the sharpest layer of the first part.  ATTN_EINVAL names what is not in the record. */
ATTN_CHECKED attn_status attn_figure_create(attn_figure *figure,
                                            const attn_record *record,
                                            const attn_summary *summary,
                                            const attn_draw_options *options,
                                            attn_error *error);
void attn_figure_destroy(attn_figure *figure);

/** Which of the 11 classes w0 to w10 a position on the ramp has. */
int attn_figure_class(double position);

typedef struct attn_svg {
    attn_buffer text;
    int64_t right, bottom; /* of what was drawn */
} attn_svg;

typedef enum attn_anchor {
    ATTN_ANCHOR_START,
    ATTN_ANCHOR_MIDDLE,
    ATTN_ANCHOR_END
} attn_anchor;

/** Text in a class ("ink", "soft", "amber", "t3"), cut to width; x is where it is
 * anchored, in half pixels. */
typedef struct attn_svg_label {
    const char *class;
    attn_typeface type;
    attn_anchor anchor;
    int64_t half_x, y, width; /* width −1: never cut */
} attn_svg_label;

void attn_svg_put_label(attn_svg *svg, const attn_svg_label *label, const char *text);
/** The same for what was built in a buffer, which is then freed. */
void attn_svg_take_label(attn_svg *svg, const attn_svg_label *label, attn_buffer *text);
/** Lines of second-rank text from x, y on, none wider than width; frees the buffer. */
void attn_svg_take_paragraph(attn_svg *svg, int64_t x, int64_t y, int64_t width,
                             attn_buffer *text);
/** Extends what was drawn. */
void attn_svg_reach(attn_svg *svg, int64_t right, int64_t bottom);

/** The matrix with its words and its legend, its left top corner at (x, y). */
void attn_svg_put_matrix(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y);
/** The same over the places of the record's picture: for each row the picture, and over
 * it where the row looked. */
void attn_svg_put_places(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y);
/** The legend of the scale, its left top corner at (x, y). */
void attn_svg_put_legend(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y);
/** A part whose one row is a label; and the same as the text itself, its words shaded. */
bool attn_draws_words(const attn_record_part *part);
void attn_svg_put_words(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y);
/** A part whose keys are the places of the record's picture, and not too many to tell
 * apart. */
bool attn_draws_places(const attn_record *record, const attn_record_part *part,
                       const attn_map_side *rows, const attn_map_side *keys);
/** The picture dark on white, as a data: address. */
void attn_put_picture(attn_buffer *out, const attn_record_picture *picture);
/** Of a place with the row's largest weight, at four fifths of its strength. */
attn_rgb attn_places_shade(void);
/** The grids of heads of every part, and what their letters mean. */
void attn_svg_put_grids(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y);

/** "Encoder layer 3 head 4: leans to previous word .34", "Cross layer 2, mean of 4 heads"
 */
void attn_put_map_name(attn_buffer *buffer, const attn_record *record,
                       const attn_summary *summary, int64_t part, int64_t layer,
                       int64_t head);
/** "Encoder" */
void attn_put_part_title(attn_buffer *buffer, attn_part part);
/** "Model translate-en-fr: 3+3 layers of 4 heads." */
void attn_put_model(attn_buffer *buffer, const attn_record *record);
/** Model, map, scale, what the numbers are, what is hidden. */
void attn_put_caption(attn_buffer *buffer, const attn_figure *figure);

#endif
