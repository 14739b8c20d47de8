/* Asks fontconfig, of which Pango chooses, which characters all fonts together have. */
#include "draw/fonts.h"
#include "file/utf8.h"
#include <stdint.h>
#include <string.h>

#include <fontconfig/fontconfig.h>
#include <utf8proc.h>

static bool is_seen(uint32_t point)
{
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_CC: /* controls, marks of direction, joiners */
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZS: /* spaces */
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_MN: /* accents and selectors of variants */
        return false;
    default:
        return true;
    }
}

static bool find_missing(const FcCharSet *all, const char *text, char missing[5])
{
    uint32_t point;
    size_t used;
    for (size_t left = strlen(text); left > 0; left -= used, text += used)
        if (attn_utf8_read(text, left, &point, &used) && is_seen(point) &&
            !FcCharSetHasChar(all, point)) {
            memcpy(missing, text, used);
            missing[used] = '\0';
            return true;
        }
    return false;
}

bool attn_font_misses(const char *text, char missing[5])
{
    FcCharSet *all = NULL;
    FcResult result;
    FcPattern *const pattern = FcPatternCreate();
    if (!pattern)
        return false;
    FcConfigSubstitute(NULL, pattern, FcMatchPattern);
    FcDefaultSubstitute(pattern);
    FcFontSet *const fonts = FcFontSort(NULL, pattern, FcTrue, &all, &result);
    const bool is_missing = fonts && all && find_missing(all, text, missing);
    if (all)
        FcCharSetDestroy(all);
    if (fonts)
        FcFontSetDestroy(fonts);
    FcPatternDestroy(pattern);
    return is_missing;
}
