/* Colours of weights and of everything else: one hue, so safe for colour-blind eyes, and
 * a lightness that runs without a turn.  A legend and its cells call the same function.
 */
#ifndef ATTN_DRAW_COLOUR_H
#define ATTN_DRAW_COLOUR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct attn_rgb {
    uint8_t red, green, blue;
} attn_rgb;

typedef enum attn_theme { ATTN_THEME_LIGHT, ATTN_THEME_DARK } attn_theme;

typedef enum attn_scale {
    ATTN_SCALE_LINEAR,  /* p */
    ATTN_SCALE_LOG,     /* 1 + log10(p)/3: .001 and less is empty */
    ATTN_SCALE_UNIFORM, /* (log2(p·V) + 4)/8 for V visible keys: the middle is an even
                           spread */
    ATTN_SCALE_AUTO     /* of a map: linear, or log where no weight reaches .10 and all
                           would look alike; of a single weight: linear */
} attn_scale;

typedef enum attn_colour {
    ATTN_COLOUR_PAPER,
    ATTN_COLOUR_INK,
    ATTN_COLOUR_SOFT, /* second-rank text */
    ATTN_COLOUR_AMBER /* "look here", and nothing else */
} attn_colour;

/** Where on its ramp a weight lies, 0 to 1. */
double attn_scale_position(attn_scale scale, double weight, int64_t visible);

/** The colour at a position of the scale's ramp. */
attn_rgb attn_ramp(attn_theme theme, attn_scale scale, double position);

attn_rgb attn_colour_of(attn_theme theme, attn_colour colour);

/** White or near-black, whichever contrasts more. */
attn_rgb attn_ink_on(attn_rgb background);

/** The nearest of xterm's 256 colours, 16 to 255. */
int attn_colour_256(attn_rgb colour);

#endif
