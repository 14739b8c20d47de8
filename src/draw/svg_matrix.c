/* The matrix of a figure: words on both sides, a shaded cell for each weight, hundredths
 * from .10 where there is room, and the legend.  Cells of one class are one path. */
#include "draw/escape.h"
#include "draw/svg_figure.h"
#include "inspect/sentence.h"

/* Sizes by the number of words, so that no two labels touch. */
typedef struct matrix_sizes {
    int64_t pitch;      /* from one cell to the next, with the line between them */
    attn_typeface type; /* of labels */
    bool upright;       /* labels of keys: turned by 90°, else by 50° */
    bool numbers;
} matrix_sizes;

typedef struct matrix {
    attn_svg *svg;
    const attn_figure *figure;
    const attn_record_part *part;
    matrix_sizes sizes;
    int64_t x, y; /* of the first cell */
} matrix;

enum { LABEL_LIMIT = 150, LEGEND_SWATCH = 12 };

static matrix_sizes sizes_for(int64_t words)
{
    if (words <= 64)
        return (matrix_sizes){22, {12, false}, false, true};
    if (words <= 128)
        return (matrix_sizes){14, {10, false}, true, false};
    return (matrix_sizes){10, {9, false}, true, false};
}

static int class_at(const matrix *m, int64_t i, int64_t j)
{
    const attn_figure *const figure = m->figure;
    if (attn_map_unseen(m->part, &figure->rows, i, &figure->keys, j))
        return -1;
    const int64_t last = (i + 1) * figure->rows.tile;
    const int64_t row = (last < figure->rows.words ? last : figure->rows.words) - 1;
    return attn_figure_class(attn_scale_position(
        figure->scale, (double)figure->weights[i * figure->keys.length + j],
        attn_record_visible(m->part, row)));
}

/* A path of the cells of one class, −1 for those that cannot be seen; runs of a row are
 * one rectangle.  Lines between cells are drawn over it. */
static void put_class(const matrix *m, int class, const char *name)
{
    attn_buffer *const out = &m->svg->text;
    const int64_t pitch = m->sizes.pitch, keys = m->figure->keys.length;
    bool any = false;
    for (int64_t i = 0; i < m->figure->rows.length; i++)
        for (int64_t j = 0, end; j < keys; j = end + 1) {
            end = j;
            while (end < keys && class_at(m, i, end) == class)
                end++;
            if (end == j)
                continue;
            if (!any)
                attn_buffer_print(out, "<path class=\"%s\" d=\"", name);
            any = true;
            attn_buffer_print(
                out, "M%lld %lldh%lldv%lldh-%lldz", (long long)(m->x + j * pitch),
                (long long)(m->y + i * pitch), (long long)((end - j) * pitch),
                (long long)pitch, (long long)((end - j) * pitch));
        }
    if (any)
        attn_buffer_put(out, "\"/>\n");
}

static void put_lines(const matrix *m)
{
    attn_buffer *const out = &m->svg->text;
    const int64_t pitch = m->sizes.pitch, rows = m->figure->rows.length,
                  keys = m->figure->keys.length;
    attn_buffer_put(out, "<path class=\"lines\" d=\"");
    for (int64_t i = 1; i <= rows; i++)
        attn_buffer_print(out, "M%lld %lld.5h%lld", (long long)m->x,
                          (long long)(m->y + i * pitch - 1), (long long)(keys * pitch));
    for (int64_t j = 1; j <= keys; j++)
        attn_buffer_print(out, "M%lld.5 %lldv%lld", (long long)(m->x + j * pitch - 1),
                          (long long)m->y, (long long)(rows * pitch));
    attn_buffer_put(out, "\"/>\n");
}

static void put_numbers(const matrix *m)
{
    const int64_t pitch = m->sizes.pitch, keys = m->figure->keys.length;
    const char prefix = m->figure->scale == ATTN_SCALE_UNIFORM ? 'v' : 't';
    for (int64_t i = 0; i < m->figure->rows.length; i++)
        for (int64_t j = 0; j < keys; j++) {
            const float weight = m->figure->weights[i * keys + j];
            const int hundredths = (int)(100.0 * (double)weight + 0.5);
            const int class = class_at(m, i, j);
            if (class < 0 || hundredths < 10)
                continue;
            attn_buffer_print(
                &m->svg->text,
                "<text class=\"%c%d mid s9\" x=\"%lld.5\" y=\"%lld\">%d</text>\n", prefix,
                class, (long long)(m->x + j * pitch + pitch / 2 - 1),
                (long long)(m->y + i * pitch + pitch / 2 + 3), hundredths);
        }
}

static void put_cells(const matrix *m)
{
    const char prefix = m->figure->scale == ATTN_SCALE_UNIFORM ? 'u' : 'w';
    for (int class = 0; class < SVG_CLASSES; class ++) {
        char name[8] = {prefix};
        name[1] = (char)(class < 10 ? '0' + class : '1');
        name[2] = class < 10 ? '\0' : '0';
        put_class(m, class, name);
    }
    put_class(m, -1, "unseen");
    put_lines(m);
    if (m->sizes.numbers)
        put_numbers(m);
    attn_svg_reach(m->svg, m->x + m->figure->keys.length * m->sizes.pitch,
                   m->y + m->figure->rows.length * m->sizes.pitch);
}

static bool unclear(const matrix *m, int64_t row)
{
    return m->figure->alignment && m->figure->rows.tile == 1 &&
           attn_is_unclear(m->figure->summary, row);
}

static void put_row_labels(const matrix *m)
{
    const int64_t pitch = m->sizes.pitch;
    for (int64_t i = 0; i < m->figure->rows.length; i++) {
        const bool look_here =
            unclear(m, i) || m->figure->row == i * m->figure->rows.tile;
        const int64_t middle = m->y + i * pitch + pitch / 2;
        attn_svg_put_label(m->svg,
                           &(attn_svg_label){.class = look_here ? "amber" : "ink",
                                             .type = m->sizes.type,
                                             .anchor = ATTN_ANCHOR_END,
                                             .half_x = 2 * (m->x - 7),
                                             .y = middle + m->sizes.type.size / 3,
                                             .width = LABEL_LIMIT},
                           m->figure->rows.labels[i]);
        if (!unclear(m, i))
            continue;
        const int64_t right = m->x + m->figure->keys.length * pitch + 7;
        attn_buffer_print(&m->svg->text,
                          "<circle class=\"amber\" cx=\"%lld\" cy=\"%lld\" r=\"2.5\"/>\n",
                          (long long)right, (long long)middle);
        attn_svg_reach(m->svg, right + 3, middle);
    }
}

/* Width of the widest label of a side. */
static int64_t label_width(const attn_map_side *side, attn_typeface type)
{
    int64_t widest = 0;
    for (int64_t i = 0; i < side->length; i++) {
        const int64_t width = attn_type_width(type, side->labels[i]);
        widest = width > widest ? width : widest;
    }
    return widest < LABEL_LIMIT ? widest : LABEL_LIMIT;
}

static void put_key_labels(const matrix *m)
{
    attn_buffer *const out = &m->svg->text;
    const int64_t pitch = m->sizes.pitch;
    for (int64_t j = 0; j < m->figure->keys.length; j++) {
        const char *const label = m->figure->keys.labels[j];
        const int64_t x = m->x + j * pitch + pitch / 2 + 3;
        int64_t width = attn_type_width(m->sizes.type, label);
        width = width < LABEL_LIMIT ? width : LABEL_LIMIT;
        attn_buffer_print(out,
                          "<text class=\"ink s%d\" transform=\"translate(%lld %lld) "
                          "rotate(-%d)\">",
                          m->sizes.type.size, (long long)x, (long long)(m->y - 7),
                          m->sizes.upright ? 90 : 50);
        attn_put_fitted(out, m->sizes.type, label, width);
        attn_buffer_put(out, "</text>\n");
        if (!m->sizes.upright) /* cos 50° = .643 */
            attn_svg_reach(m->svg, x + width * 643 / 1000 + 3, m->y);
    }
}

static void put_frame(const matrix *m)
{
    if (m->figure->row < 0)
        return;
    const int64_t row = m->figure->row / m->figure->rows.tile, pitch = m->sizes.pitch;
    attn_buffer_print(&m->svg->text,
                      "<rect class=\"frame\" x=\"%lld\" y=\"%lld\" width=\"%lld\" "
                      "height=\"%lld\"/>\n",
                      (long long)m->x - 1, (long long)(m->y + row * pitch - 1),
                      (long long)(m->figure->keys.length * pitch + 1),
                      (long long)pitch + 1);
}

static attn_svg_label soft_at(int64_t x, int64_t y, attn_anchor anchor)
{
    return (attn_svg_label){.class = "soft",
                            .type = {11, false},
                            .anchor = anchor,
                            .half_x = 2 * x,
                            .y = y,
                            .width = -1};
}

/* Eleven swatches with the meaning of three of them, then the marks that occur. */
static void put_legend(const matrix *m, int64_t x, int64_t y)
{
    static const char *const ticks[][3] = {
        [ATTN_SCALE_LINEAR] = {"0", ".5", "1"},
        [ATTN_SCALE_LOG] = {".001", ".03", "1"},
        [ATTN_SCALE_UNIFORM] = {"1/16", "even", "16 ×"}};
    attn_buffer *const out = &m->svg->text;
    const char prefix = m->figure->scale == ATTN_SCALE_UNIFORM ? 'u' : 'w';
    attn_svg_label label = soft_at(x, y + 10, ATTN_ANCHOR_START);
    attn_svg_put_label(m->svg, &label, "weight");
    const int64_t first = x + 48;
    for (int i = 0; i < SVG_CLASSES; i++)
        attn_buffer_print(out,
                          "<rect class=\"%c%d\" x=\"%lld\" y=\"%lld\" width=\"12\" "
                          "height=\"12\"/>\n",
                          prefix, i, (long long)(first + LEGEND_SWATCH * i),
                          (long long)y);
    for (int i = 0; i < 3; i++) {
        label = soft_at(first + 6 + 60 * i, y + 24, ATTN_ANCHOR_MIDDLE);
        attn_svg_put_label(m->svg, &label, ticks[m->figure->scale][i]);
    }
    int64_t next = first + LEGEND_SWATCH * SVG_CLASSES + 24;
    if (m->figure->alignment && m->figure->rows.tile == 1 &&
        m->part->part == ATTN_PART_CROSS && m->figure->summary->unclear_count > 0) {
        attn_buffer text = {0};
        attn_buffer_put(&text, "no clear source");
        attn_buffer_print(out,
                          "<circle class=\"amber\" cx=\"%lld\" cy=\"%lld\" r=\"2.5\"/>\n",
                          (long long)next, (long long)y + 6);
        label = soft_at(next + 8, y + 10, ATTN_ANCHOR_START);
        next += 8 + attn_type_width(label.type, attn_buffer_text(&text)) + 16;
        attn_svg_take_label(m->svg, &label, &text);
    }
    if (m->part->causal) {
        attn_buffer_print(out,
                          "<rect class=\"unseen\" x=\"%lld\" y=\"%lld\" width=\"12\" "
                          "height=\"12\"/>\n",
                          (long long)next, (long long)y);
        label = soft_at(next + 18, y + 10, ATTN_ANCHOR_START);
        attn_svg_put_label(m->svg, &label, "comes later");
    }
}

void attn_svg_put_legend(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y)
{
    const matrix m = {
        .svg = svg, .figure = figure, .part = &figure->record->parts[figure->part]};
    put_legend(&m, x, y);
}

void attn_svg_put_matrix(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y)
{
    const int64_t words = figure->rows.length > figure->keys.length ? figure->rows.length
                                                                    : figure->keys.length;
    matrix m = {.svg = svg,
                .figure = figure,
                .part = &figure->record->parts[figure->part],
                .sizes = sizes_for(words)};
    const int64_t above = label_width(&figure->keys, m.sizes.type);
    m.x = x + label_width(&figure->rows, m.sizes.type) + 7;
    /* sin 50° = .766, and the height of the letters across it */
    m.y = y + (m.sizes.upright ? above : above * 766 / 1000 + 8) + 10;
    put_key_labels(&m);
    put_cells(&m);
    put_row_labels(&m);
    put_frame(&m);
    put_legend(&m, m.x, m.y + figure->rows.length * m.sizes.pitch + 14);
}
