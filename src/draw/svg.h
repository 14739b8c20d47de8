/* The figure as others use it: PNG in one theme, the page without its grids. */
#ifndef ATTN_DRAW_SVG_H
#define ATTN_DRAW_SVG_H

#include "draw/svg_figure.h"

typedef enum attn_svg_themes {
    ATTN_SVG_BOTH, /* light, and dark where the viewer prefers it */
    ATTN_SVG_LIGHT,
    ATTN_SVG_DARK
} attn_svg_themes;

/** @param whole  with grids and caption; else the matrix and its legend only. */
void attn_svg_write(attn_buffer *out, const attn_figure *figure, attn_svg_themes themes,
                    bool whole);

/** The style of every figure: colours, the classes of the scale, sizes, the hatching. */
void attn_svg_put_style(attn_buffer *out, attn_svg_themes themes, attn_scale scale);

/** The element's start tag, with the size; what follows names itself "t" and "d". */
void attn_svg_put_start(attn_buffer *out, int64_t width, int64_t height);
/** The paper under everything. */
void attn_svg_put_paper(attn_buffer *out, int64_t width, int64_t height);

#endif
