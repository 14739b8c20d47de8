/* The parts of the page. */
#ifndef ATTN_DRAW_HTML_H
#define ATTN_DRAW_HTML_H

#include "draw/svg_figure.h"

/* 12 × 12 heads in three parts of 256 words take 72 MiB. */
enum { HTML_DATA_LIMIT_BYTES = 96 * 1024 * 1024 };

/** The page's one JSON object: labels, roles, and every map (page.js says how).
 * @return ATTN_EINVAL where the maps would take more than HTML_DATA_LIMIT_BYTES: the
 *         message names the size. */
ATTN_CHECKED attn_status attn_html_put_data(attn_buffer *out, const attn_figure *figure,
                                            attn_error *error);

#endif
