/* Choosing the map of a figure, and putting text into it. */
#include "draw/svg_figure.h"
#include "base/context.h"
#include "draw/escape.h"
#include <math.h>
#include <stdlib.h>

int attn_figure_class(double position)
{
    return (int)lround(fmin(fmax(position, 0), 1) * (SVG_CLASSES - 1));
}

/* The layer whose heads have the lowest mean entropy. */
static int64_t sharpest_layer(const attn_part_summary *summary, int64_t layers)
{
    int64_t best = 0;
    for (int64_t i = 1; i < layers; i++)
        if (summary->layer_entropy[i] < summary->layer_entropy[best])
            best = i;
    return best;
}

static attn_status choose(attn_figure *figure, const attn_draw_options *options,
                          attn_error *error)
{
    const attn_summary *const summary = figure->summary;
    if (figure->record->part_count == 0)
        return attn_error_set(error, ATTN_EINVAL, "the record has no part to draw");
    figure->part = summary->alignment_part < 0 ? 0 : summary->alignment_part;
    ATTN_TRY(attn_draw_select(figure->record, options, &figure->part, error));
    const attn_record_part *const part = &figure->record->parts[figure->part];
    const bool aligns = figure->part == summary->alignment_part;
    figure->head = options->head < 0 ? -1 : options->head;
    figure->row = options->row < 0 ? -1 : options->row;
    if (options->layer >= 0)
        figure->layer = options->layer;
    else if (aligns)
        figure->layer = summary->alignment_layer;
    else
        figure->layer = sharpest_layer(&summary->parts[figure->part], part->layers);
    figure->alignment =
        aligns && figure->head < 0 && figure->layer == summary->alignment_layer;
    figure->sharpest = (figure->alignment || options->layer < 0) && part->layers > 1;
    return ATTN_OK;
}

static attn_scale scale_for(const attn_figure *figure)
{
    const int64_t cells = figure->rows.length * figure->keys.length;
    for (int64_t i = 0; i < cells; i++)
        if (figure->weights[i] >= 0.10f)
            return ATTN_SCALE_LINEAR;
    return ATTN_SCALE_LOG;
}

attn_status attn_figure_create(attn_figure *figure, const attn_record *record,
                               const attn_summary *summary,
                               const attn_draw_options *options, attn_error *error)
{
    *figure =
        (attn_figure){.record = record, .summary = summary, .scale = options->scale};
    ATTN_TRY(choose(figure, options, error));
    const attn_record_part *const part = &record->parts[figure->part];
    attn_status status = attn_map_side_create(&figure->rows, part->rows, error);
    if (status == ATTN_OK)
        status = attn_map_side_create(&figure->keys, part->keys, error);
    if (status == ATTN_OK) {
        figure->weights = calloc((size_t)(figure->rows.length * figure->keys.length) + 1,
                                 sizeof *figure->weights);
        if (!figure->weights)
            status = attn_error_set(
                error, ATTN_ENOMEM, "no memory for a map of %lld × %lld",
                (long long)figure->rows.length, (long long)figure->keys.length);
    }
    if (status != ATTN_OK) {
        attn_figure_destroy(figure);
        return status;
    }
    attn_map_weights(figure->weights, part, figure->layer, figure->head, &figure->rows,
                     &figure->keys);
    if (figure->scale == ATTN_SCALE_AUTO)
        figure->scale = scale_for(figure);
    return ATTN_OK;
}

void attn_figure_destroy(attn_figure *figure)
{
    attn_map_side_destroy(&figure->rows);
    attn_map_side_destroy(&figure->keys);
    free(figure->weights);
    *figure = (attn_figure){0};
}

void attn_svg_reach(attn_svg *svg, int64_t right, int64_t bottom)
{
    svg->right = right > svg->right ? right : svg->right;
    svg->bottom = bottom > svg->bottom ? bottom : svg->bottom;
}

void attn_svg_put_label(attn_svg *svg, const attn_svg_label *label, const char *text)
{
    static const char *const anchors[] = {"", " mid", " end"};
    attn_buffer *const out = &svg->text;
    attn_buffer_print(out, "<text class=\"%s%s%s s%d\" x=\"%lld%s\" y=\"%lld\">",
                      label->class, anchors[label->anchor], label->type.bold ? " b" : "",
                      label->type.size, (long long)label->half_x / 2,
                      label->half_x % 2 ? ".5" : "", (long long)label->y);
    const int64_t width = attn_type_width(label->type, text);
    const int64_t room = label->width < 0 || width < label->width ? width : label->width;
    attn_put_fitted(out, label->type, text, room);
    attn_buffer_put(out, "</text>\n");
    const int64_t after[] = {room, (room + 1) / 2, 0};
    attn_svg_reach(svg, (label->half_x + 1) / 2 + after[label->anchor],
                   label->y + label->type.size / 3);
}

void attn_svg_take_label(attn_svg *svg, const attn_svg_label *label, attn_buffer *text)
{
    attn_svg_put_label(svg, label, attn_buffer_text(text));
    svg->text.failed = svg->text.failed || text->failed;
    attn_buffer_free(text);
}

void attn_svg_take_paragraph(attn_svg *svg, int64_t x, int64_t y, int64_t width,
                             attn_buffer *text)
{
    attn_svg_label label = {
        .class = "soft", .type = {11, false}, .half_x = 2 * x, .y = y, .width = width};
    for (const char *rest = attn_buffer_text(text); *rest; label.y += 15) {
        const size_t length = attn_type_line(label.type, rest, width);
        attn_buffer line = {0};
        attn_buffer_put_bytes(&line, rest, length);
        attn_svg_take_label(svg, &label, &line);
        rest += length + (rest[length] == ' ');
    }
    svg->text.failed = svg->text.failed || text->failed;
    attn_buffer_free(text);
}
