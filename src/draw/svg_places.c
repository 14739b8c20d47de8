/* Where in a picture each written word looked: the picture once for each word, and over
 * it a shade on every place, as dark as its weight is near the word's largest (after Xu
 * et al. 2015, figure 5).  The picture is drawn dark on white, so that shades show, and
 * stands once in the file. */
#include "draw/escape.h"
#include "draw/svg_figure.h"
#include "file/picture.h"
#include "inspect/sentence.h"
#include <stdlib.h>

enum { ACROSS = 4, GAP = 16, HEADING = 20, LEAST_PLACE = 4, PANEL = 144 };

typedef struct places {
    attn_svg *svg;
    const attn_figure *figure;
    int64_t side;          /* of a place, pixels */
    int64_t width, height; /* of a panel */
} places;

static void put_picture(const places *p)
{
    attn_buffer *const out = &p->svg->text;
    attn_buffer_print(out,
                      "<defs><image id=\"picture\" width=\"%lld\" height=\"%lld\" "
                      "preserveAspectRatio=\"none\" href=\"",
                      (long long)p->width, (long long)p->height);
    attn_put_picture(out, &p->figure->record->picture);
    attn_buffer_put(out, "\"/></defs>\n");
}

void attn_put_picture(attn_buffer *out, const attn_record_picture *picture)
{
    const size_t points = (size_t)(picture->rows * picture->columns);
    attn_picture inverted = {picture->rows, picture->columns, malloc(points)};
    char *png = NULL;
    size_t length;
    attn_error error;
    for (size_t i = 0; inverted.grey != NULL && i < points; i++)
        inverted.grey[i] = (uint8_t)(255 - picture->grey[i]);
    if (inverted.grey == NULL ||
        attn_picture_encode(&inverted, &png, &length, &error) != ATTN_OK) {
        out->failed = true;
    } else {
        attn_buffer_put(out, "data:image/png;base64,");
        attn_put_base64(out, (const uint8_t *)png, length);
    }
    free(png);
    attn_picture_free(&inverted);
}

attn_rgb attn_places_shade(void)
{
    return attn_ramp(ATTN_THEME_LIGHT, ATTN_SCALE_LINEAR, 0.7);
}

bool attn_draws_places(const attn_record *record, const attn_record_part *part,
                       const attn_map_side *rows, const attn_map_side *keys)
{
    return record->picture.grey != NULL && part->part == ATTN_PART_CROSS &&
           rows->tile == 1 && keys->tile == 1;
}

static void put_heading(const places *p, int64_t row, int64_t x, int64_t y)
{
    enum { WEIGHT_WIDTH = 28 };
    const attn_record_part *const part = &p->figure->record->parts[p->figure->part];
    attn_buffer word = {0};
    attn_put_word(&word, &part->rows->list[row], ATTN_SPELL_TERMINAL);
    const attn_svg_label label = {.class = "ink",
                                  .type = {12, true},
                                  .half_x = 2 * x,
                                  .y = y,
                                  .width = p->width - WEIGHT_WIDTH};
    attn_svg_take_label(p->svg, &label, &word);
    if (!p->figure->alignment)
        return;
    const bool weak = attn_is_unclear(p->figure->summary, row);
    attn_buffer weight = {0};
    attn_put_weight(&weight, p->figure->summary->top[row].weight);
    const attn_svg_label beside = {.class = weak ? "amber" : "soft",
                                   .type = {12, false},
                                   .anchor = ATTN_ANCHOR_END,
                                   .half_x = 2 * (x + p->width),
                                   .y = y,
                                   .width = -1};
    attn_svg_take_label(p->svg, &beside, &weight);
}

static void put_panel(const places *p, int64_t row, int64_t x, int64_t y)
{
    const attn_record_picture *const picture = &p->figure->record->picture;
    const int64_t count = picture->grid_rows * picture->grid_columns;
    const float *const weights = p->figure->weights + row * count;
    const attn_rgb shade = attn_places_shade();
    attn_buffer *const out = &p->svg->text;
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = (double)weights[i] > most ? (double)weights[i] : most;
    attn_buffer_print(out, "<use href=\"#picture\" x=\"%lld\" y=\"%lld\"/>", (long long)x,
                      (long long)y);
    attn_buffer_print(out, "<g fill=\"#%02x%02x%02x\">", shade.red, shade.green,
                      shade.blue);
    for (int64_t i = 0; i < count; i++) {
        const int hundredths =
            most > 0 ? attn_hundredths((double)weights[i] / most * 0.8) : 0;
        if (hundredths == 0)
            continue;
        attn_buffer_print(out,
                          "<path fill-opacity=\".%02d\" d=\"M%lld %lldh%lldv%lldh-%lldz"
                          "\"/>",
                          hundredths,
                          (long long)(x + i % picture->grid_columns * p->side),
                          (long long)(y + i / picture->grid_columns * p->side),
                          (long long)p->side, (long long)p->side, (long long)p->side);
    }
    attn_buffer_put(out, "</g>\n");
    attn_svg_reach(p->svg, x + p->width, y + p->height);
}

void attn_svg_put_places(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y)
{
    const attn_record_picture *const picture = &figure->record->picture;
    const int64_t side = PANEL / picture->grid_columns;
    places p = {
        .svg = svg, .figure = figure, .side = side > LEAST_PLACE ? side : LEAST_PLACE};
    p.width = p.side * picture->grid_columns;
    p.height = p.side * picture->grid_rows;
    put_picture(&p);
    const int64_t rows = figure->record->parts[figure->part].rows->length;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t left = x + row % ACROSS * (p.width + GAP);
        const int64_t top = y + row / ACROSS * (p.height + HEADING + GAP);
        put_heading(&p, row, left, top + 12);
        put_panel(&p, row, left, top + HEADING);
    }
}
