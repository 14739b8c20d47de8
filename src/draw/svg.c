/* A record as a figure for a paper: the alignment with the words on both sides, the grids
 * of heads, and a caption that says what is shown and how.  It follows light and dark and
 * falls back to light; the same record gives the same bytes. */
#include "draw/svg.h"
#include "base/context.h"
#include "draw/escape.h"
#include "inspect/sentence.h"
#include <string.h>

enum {
    TEXT_LINES = 12,  /* of each text */
    TITLE_BYTES = 200 /* most of an answer in bold */
};

static void put_rgb(attn_buffer *out, const char *class, const char *property, attn_rgb c)
{
    attn_buffer_print(out, ".%s{%s:#%02X%02X%02X}", class, property, c.red, c.green,
                      c.blue);
}

/* The eleven classes of a scale: cells (w or u) and the ink on them (t or v). */
static void put_classes(attn_buffer *out, attn_theme theme, attn_scale scale)
{
    const char *const names = scale == ATTN_SCALE_UNIFORM ? "uv" : "wt";
    for (int i = 0; i < SVG_CLASSES; i++) {
        const attn_rgb fill = attn_ramp(theme, scale, (double)i / (SVG_CLASSES - 1));
        char class[8] = {names[0], (char)(i < 10 ? '0' + i : '1'), i < 10 ? '\0' : '0'};
        put_rgb(out, class, "fill", fill);
        class[0] = names[1];
        put_rgb(out, class, "fill", attn_ink_on(fill));
    }
}

static void put_theme(attn_buffer *out, attn_theme theme, attn_scale scale)
{
    put_rgb(out, "paper", "fill", attn_colour_of(theme, ATTN_COLOUR_PAPER));
    put_rgb(out, "lines", "stroke", attn_colour_of(theme, ATTN_COLOUR_PAPER));
    put_rgb(out, "ink", "fill", attn_colour_of(theme, ATTN_COLOUR_INK));
    put_rgb(out, "soft", "fill", attn_colour_of(theme, ATTN_COLOUR_SOFT));
    put_rgb(out, "hatch", "stroke", attn_colour_of(theme, ATTN_COLOUR_SOFT));
    put_rgb(out, "flow", "stroke", attn_colour_of(theme, ATTN_COLOUR_SOFT));
    put_rgb(out, "amber", "fill", attn_colour_of(theme, ATTN_COLOUR_AMBER));
    put_rgb(out, "frame", "stroke", attn_colour_of(theme, ATTN_COLOUR_AMBER));
    put_classes(out, theme, ATTN_SCALE_LINEAR);
    if (scale == ATTN_SCALE_UNIFORM)
        put_classes(out, theme, scale);
}

void attn_svg_put_style(attn_buffer *out, attn_svg_themes themes, attn_scale scale)
{
    attn_buffer_put(out, "<style>");
    put_theme(out, themes == ATTN_SVG_DARK ? ATTN_THEME_DARK : ATTN_THEME_LIGHT, scale);
    attn_buffer_put(out,
                    ".mid{text-anchor:middle}.end{text-anchor:end}.b{font-weight:600}"
                    ".frame,.flow{fill:none;stroke-width:1.5}.unseen{fill:url(#unseen)}");
    for (int size = 9; size <= 13; size++)
        attn_buffer_print(out, ".s%d{font-size:%dpx}", size, size);
    if (themes == ATTN_SVG_BOTH) {
        attn_buffer_put(out, "@media(prefers-color-scheme:dark){");
        put_theme(out, ATTN_THEME_DARK, scale);
        attn_buffer_put(out, "}");
    }
    attn_buffer_put(out,
                    "</style>\n<defs><pattern id=\"unseen\" width=\"5\" height=\"5\" "
                    "patternUnits=\"userSpaceOnUse\"><path class=\"hatch\" "
                    "stroke-width=\".7\" d=\"M-1 6 6 -1M-1 1 1 -1M4 6 6 4\"/></pattern>"
                    "</defs>\n");
}

void attn_svg_put_start(attn_buffer *out, int64_t width, int64_t height)
{
    attn_buffer_print(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %lld %lld\" "
        "width=\"%lld\" height=\"%lld\" role=\"img\" aria-labelledby=\"t d\" "
        "font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\">\n",
        (long long)width, (long long)height, (long long)width, (long long)height);
}

void attn_svg_put_paper(attn_buffer *out, int64_t width, int64_t height)
{
    attn_buffer_print(out,
                      "<rect class=\"paper\" width=\"%lld\" height=\"%lld\" rx=\"8\"/>\n",
                      (long long)width, (long long)height);
}

/* For those who listen to a picture: its title, and the verdict. */
static void put_description(attn_buffer *out, const attn_figure *figure)
{
    attn_buffer said = {0};
    attn_buffer_put(out, "<title id=\"t\">Where the model looked: ");
    attn_put_text(&said, figure->record->source ? figure->record->source : "",
                  ATTN_SPELL_TERMINAL);
    attn_put_xml(out, attn_buffer_text(&said));
    attn_buffer_put(out, "</title>\n<desc id=\"d\">");
    for (int64_t i = 0; i < attn_verdict_lines(figure->record, figure->summary); i++) {
        attn_buffer_truncate(&said, 0);
        attn_put_verdict(&said, figure->record, figure->summary, i, ATTN_SPELL_TERMINAL,
                         240);
        attn_buffer_put(out, i ? " " : "");
        attn_put_xml(out, attn_buffer_text(&said));
    }
    attn_buffer_put(out, "</desc>\n");
    out->failed = out->failed || said.failed;
    attn_buffer_free(&said);
}

static void put_caption(attn_svg *svg, const attn_figure *figure, int64_t width)
{
    attn_buffer caption = {0};
    attn_put_caption(&caption, figure);
    attn_svg_take_paragraph(svg, SVG_MARGIN, svg->bottom + 28, width, &caption);
}

static attn_svg_label heading_at(int64_t x, int64_t y)
{
    return (attn_svg_label){
        .class = "ink", .type = {13, true}, .half_x = 2 * x, .y = y, .width = -1};
}

static void put_left(attn_svg *svg, const attn_figure *figure)
{
    const attn_record_part *const part = &figure->record->parts[figure->part];
    attn_buffer name = {0};
    if (figure->alignment)
        attn_buffer_put(&name, attn_question(figure->record, part));
    else
        attn_put_map_name(&name, figure->record, figure->summary, figure->part,
                          figure->layer, figure->head);
    const attn_svg_label heading = heading_at(SVG_MARGIN, 24);
    attn_svg_take_label(svg, &heading, &name);
    if (attn_draws_places(figure->record, part, &figure->rows, &figure->keys))
        attn_svg_put_places(svg, figure, SVG_MARGIN, 36);
    else if (attn_draws_words(part))
        attn_svg_put_words(svg, figure, SVG_MARGIN, 36);
    else
        attn_svg_put_matrix(svg, figure, SVG_MARGIN, 36);
}

/* Lines of the text after what it is called ("fr", "label"); returns the y below. */
static int64_t put_text(attn_svg *svg, const char *called, const char *text, bool bold,
                        int64_t indent, int64_t width, int64_t y)
{
    attn_svg_label label = {.class = "soft",
                            .type = {11, false},
                            .half_x = 2 * SVG_MARGIN,
                            .y = y,
                            .width = -1};
    attn_svg_put_label(svg, &label, called);
    label.class = "ink";
    label.type = (attn_typeface){13, bold};
    label.half_x += 2 * indent;
    label.width = width - indent;
    for (int lines = 1; *text; lines++) {
        const bool last = lines == TEXT_LINES; /* cut, with "…" */
        const size_t length =
            last ? strlen(text) : attn_type_line(label.type, text, label.width);
        attn_buffer line = {0};
        attn_buffer_put_bytes(&line, text, length);
        attn_svg_take_label(svg, &label, &line);
        text += length + (text[length] == ' ');
        label.y += 19;
    }
    return label.y;
}

/* What was read and what was made of it, so that the figure stands alone. */
static void put_texts(attn_svg *svg, const attn_figure *figure, int64_t width)
{
    const attn_record *const record = figure->record;
    const bool shown =
        record->picture.grey != NULL || attn_draws_words(&record->parts[figure->part]);
    const char *const source = shown || !record->source ? "" : record->source;
    const char *const target = record->translation ? record->translation : "";
    const attn_typeface type = {11, false};
    const int64_t one = *source ? attn_type_width(type, record->source_language) : 0;
    const int64_t other = *target ? attn_type_width(type, record->target_language) : 0;
    const int64_t longest = one > other ? one : other;
    const int64_t indent = longest > 0 ? longest + 8 : 0;
    int64_t y = 26;
    if (*source)
        y = put_text(svg, record->source_language, source, false, indent, width, y);
    if (*target)
        put_text(svg, record->target_language, target, strlen(target) <= TITLE_BYTES,
                 indent, width, y);
}

void attn_svg_write(attn_buffer *out, const attn_figure *figure, attn_svg_themes themes,
                    bool whole)
{
    attn_svg svg = {0}, texts = {0};
    put_left(&svg, figure);
    if (whole) {
        const int64_t right = svg.right + 36;
        const attn_svg_label heading = heading_at(right, 24);
        const attn_roles roles = attn_roles_of(figure->record, figure->summary, -1);
        attn_svg_put_label(&svg, &heading, attn_roles_title(&roles));
        attn_svg_put_grids(&svg, figure, right, 36);
        const int64_t room = (svg.right > 560 ? svg.right : 560) - SVG_MARGIN;
        put_caption(&svg, figure, room);
        put_texts(&texts, figure, room);
    }
    const int64_t above = texts.bottom > 0 ? texts.bottom + 6 : 0;
    const int64_t right = texts.right > svg.right ? texts.right : svg.right;
    const int64_t width = right + SVG_MARGIN, height = above + svg.bottom + 12;
    attn_svg_put_start(out, width, height);
    put_description(out, figure);
    attn_svg_put_style(out, themes, figure->scale);
    attn_svg_put_paper(out, width, height);
    attn_buffer_put(out, attn_buffer_text(&texts.text));
    if (above > 0)
        attn_buffer_print(out, "<g transform=\"translate(0 %lld)\">\n", (long long)above);
    attn_buffer_put(out, attn_buffer_text(&svg.text));
    attn_buffer_put(out, above > 0 ? "</g>\n</svg>\n" : "</svg>\n");
    out->failed = out->failed || svg.text.failed || texts.text.failed;
    attn_buffer_free(&texts.text);
    attn_buffer_free(&svg.text);
}

attn_status attn_draw_svg(const attn_record *record, const attn_summary *summary,
                          const attn_draw_options *options, char **text, size_t *length,
                          attn_error *error)
{
    attn_figure figure;
    ATTN_TRY(attn_figure_create(&figure, record, summary, options, error));
    attn_buffer buffer = {0};
    attn_svg_write(&buffer, &figure, ATTN_SVG_BOTH, true);
    attn_figure_destroy(&figure);
    const attn_status status = attn_buffer_take(&buffer, text, length, error);
    attn_buffer_free(&buffer);
    return status;
}
