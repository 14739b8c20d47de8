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

#endif
