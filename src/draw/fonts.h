/* What the fonts of this machine can show in a PNG. */
#ifndef ATTN_DRAW_FONTS_H
#define ATTN_DRAW_FONTS_H

#include <stdbool.h>

/**
 * The first character of a text that no font has, which a PNG shows as a box.
 * @param missing  gets it as UTF-8, NUL-ended.
 * @return false where fonts have all that is seen, or cannot be asked.
 */
bool attn_font_misses(const char *text, char missing[5]);

#endif
