/* Ramps of five stops, linear between them in sRGB.  Lightness L* runs 94 to 19 (light)
 * and 13 to 95 (dark) without a turn. */
#include "draw/colour.h"
#include <math.h>
#include <stddef.h>

#define RGB(hex)                                                                         \
    {                                                                                    \
        (hex) >> 16, ((hex) >> 8) & 0xff, (hex)&0xff                                     \
    }

enum { STOPS = 5 };

static const attn_rgb ramps[2][2][STOPS] = {
    [ATTN_THEME_LIGHT] = {{RGB(0xF1EFEA), RGB(0xBFD3E6), RGB(0x6FA1CC), RGB(0x2F6AA6),
                           RGB(0x0B2F5B)},
                          {RGB(0xE8CDAA), RGB(0xF0E3D1), RGB(0xF1EFEA), RGB(0x6FA1CC),
                           RGB(0x0B2F5B)}},
    [ATTN_THEME_DARK] = {{RGB(0x1C2128), RGB(0x1F4366), RGB(0x2F74A8), RGB(0x6DB0DA),
                          RGB(0xE3F3FF)},
                         {RGB(0x7A5326), RGB(0x43372B), RGB(0x1C2128), RGB(0x2F74A8),
                          RGB(0xE3F3FF)}},
};

static const attn_rgb colours[2][4] = {
    [ATTN_THEME_LIGHT] = {RGB(0xFDFCFA), RGB(0x1A2330), RGB(0x5B6573), RGB(0xA8480A)},
    [ATTN_THEME_DARK] = {RGB(0x14171C), RGB(0xE2E8F0), RGB(0x98A3B1), RGB(0xF2B35E)},
};

double attn_scale_position(attn_scale scale, double weight, int64_t visible)
{
    double position = weight;
    if (scale == ATTN_SCALE_LOG)
        position = weight > 0 ? 1 + log10(weight) / 3 : 0;
    else if (scale == ATTN_SCALE_UNIFORM)
        position = weight > 0 ? (log2(weight * (double)visible) + 4) / 8 : 0;
    return position > 0 ? fmin(position, 1) : 0;
}

static uint8_t between(uint8_t a, uint8_t b, double share)
{
    return (uint8_t)lround(a + (b - a) * share);
}

attn_rgb attn_ramp(attn_theme theme, attn_scale scale, double position)
{
    const attn_rgb *stops = ramps[theme][scale == ATTN_SCALE_UNIFORM];
    const double place = (position > 0 ? fmin(position, 1) : 0) * (STOPS - 1);
    const size_t stop = place >= STOPS - 1 ? STOPS - 2 : (size_t)place;
    const double share = place - (double)stop;
    return (attn_rgb){between(stops[stop].red, stops[stop + 1].red, share),
                      between(stops[stop].green, stops[stop + 1].green, share),
                      between(stops[stop].blue, stops[stop + 1].blue, share)};
}

attn_rgb attn_colour_of(attn_theme theme, attn_colour colour)
{
    return colours[theme][colour];
}

static double linear(uint8_t channel)
{
    const double value = channel / 255.0;
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static double luminance(attn_rgb colour)
{
    return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) +
           0.0722 * linear(colour.blue);
}

/* Of two colours, 1 to 21 (WCAG 2.1). */
static double contrast(attn_rgb a, attn_rgb b)
{
    const double one = luminance(a) + 0.05, other = luminance(b) + 0.05;
    return one > other ? one / other : other / one;
}

attn_rgb attn_ink_on(attn_rgb background)
{
    static const attn_rgb black = RGB(0x080E16), white = RGB(0xFFFFFF);
    return contrast(black, background) >= contrast(white, background) ? black : white;
}

static int distance(attn_rgb a, int red, int green, int blue)
{
    return (a.red - red) * (a.red - red) + (a.green - green) * (a.green - green) +
           (a.blue - blue) * (a.blue - blue);
}

int attn_colour_256(attn_rgb colour)
{
    static const int steps[6] = {0, 95, 135, 175, 215, 255};
    int best = 16, least = distance(colour, 0, 0, 0);
    for (int i = 1; i < 216 + 24; i++) {
        const int grey = 8 + 10 * (i - 216);
        const int d =
            i < 216 ? distance(colour, steps[i / 36], steps[i / 6 % 6], steps[i % 6])
                    : distance(colour, grey, grey, grey);
        if (d < least) {
            least = d;
            best = 16 + i;
        }
    }
    return best;
}
