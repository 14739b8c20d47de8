/* The grids of heads: for each part layers × heads, a letter for the role, the entropy as
 * a number and, by 1 − entropy, as a shade: a strong cell is a sharp head. */
#include "draw/escape.h"
#include "draw/svg_figure.h"
#include "inspect/sentence.h"
#include <string.h>

/* Sizes by the number of heads: letter beside number, letter over number, letter alone.
 */
typedef struct grid_sizes {
    int64_t width, height, gap;
    int64_t columns; /* heads on a line */
    bool beside, number;
} grid_sizes;

enum { LAYER_COLUMN = 50, NOTE_WIDTH = 250 };

static grid_sizes sizes_for(int64_t heads)
{
    if (heads <= 6)
        return (grid_sizes){44, 28, 2, heads, true, true};
    if (heads <= 16)
        return (grid_sizes){26, 28, 2, heads, false, true};
    return (grid_sizes){16, 16, 2, heads < 32 ? heads : 32, false, false};
}

static attn_svg_label label_at(const char *class, attn_typeface type, attn_anchor anchor,
                               int64_t half_x, int64_t y)
{
    return (attn_svg_label){.class = class,
                            .type = type,
                            .anchor = anchor,
                            .half_x = half_x,
                            .y = y,
                            .width = -1};
}

static void put_head(attn_svg *svg, const attn_head_summary *head, grid_sizes sizes,
                     int64_t x, int64_t y)
{
    const int class = attn_figure_class(head->entropy < 0 ? 0 : 1 - head->entropy);
    attn_buffer_print(&svg->text,
                      "<rect class=\"w%d\" x=\"%lld\" y=\"%lld\" width=\"%lld\" "
                      "height=\"%lld\" rx=\"2\"/>\n",
                      class, (long long)x, (long long)y, (long long)sizes.width,
                      (long long)sizes.height);
    attn_svg_reach(svg, x + sizes.width, y + sizes.height);
    const char ink[] = {'t', (char)(class < 10 ? '0' + class : '1'),
                        class < 10 ? '\0' : '0', '\0'};
    attn_buffer letter = {0}, number = {0};
    attn_put_role_letter(&letter, head);
    if (head->entropy < 0)
        attn_buffer_put(&number, "–");
    else
        attn_put_weight(&number, head->entropy);
    const int64_t middle = 2 * x + sizes.width;
    attn_svg_label label = label_at(ink, (attn_typeface){sizes.number ? 12 : 10, true},
                                    ATTN_ANCHOR_MIDDLE, middle, y + 12);
    if (sizes.beside)
        label = label_at(ink, (attn_typeface){12, true}, ATTN_ANCHOR_START, 2 * (x + 7),
                         y + 18);
    attn_svg_take_label(svg, &label, &letter);
    label = label_at(ink, (attn_typeface){9, false}, ATTN_ANCHOR_MIDDLE, middle, y + 24);
    if (sizes.beside)
        label = label_at(ink, (attn_typeface){11, false}, ATTN_ANCHOR_END,
                         2 * (x + sizes.width - 6), y + 18);
    if (sizes.number)
        attn_svg_take_label(svg, &label, &number);
    attn_buffer_free(&number);
}

/* Every second number where cells are narrow: two digits touch at 18 pixels a cell. */
static void put_head_numbers(attn_svg *svg, grid_sizes sizes, int64_t x, int64_t y)
{
    const int64_t every = sizes.number ? 1 : 2;
    for (int64_t i = 0; i < sizes.columns; i += every) {
        const attn_svg_label label = label_at(
            "soft", (attn_typeface){9, false}, ATTN_ANCHOR_MIDDLE,
            2 * (x + LAYER_COLUMN + i * (sizes.width + sizes.gap)) + sizes.width, y);
        attn_buffer number = {0};
        attn_buffer_print(&number, "%lld", (long long)i + 1);
        attn_svg_take_label(svg, &label, &number);
    }
}

/* One part; returns the y below it. */
static int64_t put_part(attn_svg *svg, const attn_figure *figure, int64_t index,
                        int64_t x, int64_t y)
{
    const attn_record_part *const part = &figure->record->parts[index];
    const grid_sizes sizes = sizes_for(part->heads);
    const int64_t lines = (part->heads + sizes.columns - 1) / sizes.columns;
    attn_buffer text = {0};
    attn_svg_label label =
        label_at("ink", (attn_typeface){12, true}, ATTN_ANCHOR_START, 2 * x, y + 12);
    attn_put_part_title(&text, part->part);
    attn_svg_take_label(svg, &label, &text);
    put_head_numbers(svg, sizes, x, y + 28);
    y += 34;
    for (int64_t layer = 0; layer < part->layers; layer++) {
        label = label_at("soft", (attn_typeface){11, false}, ATTN_ANCHOR_START, 2 * x,
                         y + sizes.height / 2 + 4);
        attn_buffer_print(&text, "layer %lld", (long long)layer + 1);
        attn_svg_take_label(svg, &label, &text);
        for (int64_t head = 0; head < part->heads; head++)
            put_head(
                svg,
                attn_summary_head(figure->summary, figure->record, index, layer, head),
                sizes,
                x + LAYER_COLUMN + head % sizes.columns * (sizes.width + sizes.gap),
                y + head / sizes.columns * (sizes.height + sizes.gap));
        y += lines * (sizes.height + sizes.gap) + (lines > 1 ? 4 : 0);
    }
    return y + 16;
}

/* What the letters and shades mean, under the grids and no wider than they are. */
static void put_note(attn_svg *svg, const attn_figure *figure, const attn_roles *roles,
                     int64_t x, int64_t y, int64_t width)
{
    attn_buffer note = {0};
    attn_put_letters(&note, roles, &figure->summary->conventions);
    attn_buffer_put(&note, " Number: entropy (0 one word, 1 all); shade: 1 − entropy.");
    attn_svg_take_paragraph(svg, x, y, width, &note);
}

void attn_svg_put_grids(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y)
{
    const attn_roles roles = attn_roles_of(figure->record, figure->summary, -1);
    int64_t widest = NOTE_WIDTH;
    for (int64_t i = 0; i < figure->record->part_count; i++) {
        const grid_sizes sizes = sizes_for(figure->record->parts[i].heads);
        const int64_t width = LAYER_COLUMN + sizes.columns * (sizes.width + sizes.gap);
        widest = width > widest ? width : widest;
        y = put_part(svg, figure, i, x, y);
    }
    put_note(svg, figure, &roles, x, y + 8, widest < 460 ? widest : 460);
}
