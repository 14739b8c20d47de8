/* SVG in memory becomes PNG in memory. */
#ifndef ATTN_DRAW_PNG_H
#define ATTN_DRAW_PNG_H

#include "base/error.h"

/**
 * @param zoom  pixels a unit of the SVG.
 * @param png   the caller's to free.
 * @return ATTN_OK, ATTN_EINVAL (the picture would be too large: the message names its
 *         size), ATTN_EFORMAT (not an SVG) or ATTN_ENOMEM; on failure outputs stay.
 */
ATTN_CHECKED attn_status attn_png_of_svg(const char *svg, size_t length_bytes,
                                         double zoom, char **png, size_t *png_bytes,
                                         attn_error *error);

#endif
