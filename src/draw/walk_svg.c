/* The worked example as a flow from input to output, top to bottom:
 *
 *                X
 *      W_Q      W_K      W_V
 *       Q        K        V ──┐
 *      QKᵀ  →  scaled →   A   │
 *                        A V ─┘
 *
 * Every matrix with its formula, its shape and its numbers; weights are shaded. */
#include "base/context.h"
#include "draw/escape.h"
#include "draw/svg.h"
#include "draw/walk.h"
#include "inspect/sentence.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE_LIMIT = 16,
    CELL_HEIGHT = 22,
    HEAD_HEIGHT = 34, /* formula and what it is for */
    KEYS_HEIGHT = 16, /* the tokens above a matrix of tokens by tokens */
    ROW_GAP = 34,
    COLUMN_GAP = 66, /* an arrow with "softmax" on it */
    LABEL_LIMIT = 90
};

typedef struct walk_block {
    attn_walk_step step;
    int column, row; /* in the drawing above */
    const char *formula, *purpose;
    int64_t x, y; /* of the first cell */
} walk_block;

typedef struct walk_drawing {
    const attn_walk *walk;
    attn_svg svg;
    walk_block blocks[ATTN_WALK_STEPS];
    int64_t cell, label; /* widths */
    char scaled[64];
} walk_drawing;

static const attn_walk_matrix *matrix_of(const walk_drawing *d, attn_walk_step step)
{
    return &d->walk->steps[step];
}

static bool of_tokens(attn_walk_step step)
{
    return step != ATTN_WALK_QUERY_PROJECTION && step != ATTN_WALK_KEY_PROJECTION &&
           step != ATTN_WALK_VALUE_PROJECTION;
}

static bool of_pairs(attn_walk_step step)
{
    return step == ATTN_WALK_LOGITS || step == ATTN_WALK_SCORES ||
           step == ATTN_WALK_WEIGHTS;
}

/* ---- numbers ---- */

static bool is_whole(const attn_walk_matrix *matrix)
{
    for (int64_t i = 0; i < matrix->rows * matrix->columns; i++)
        if (isfinite(matrix->values[i]) && matrix->values[i] != rintf(matrix->values[i]))
            return false;
    return true;
}

/* Two decimals, or none where the whole matrix has none; the point whatever the locale.
 */
static void put_number(attn_buffer *out, double value, bool whole)
{
    if (isnan(value)) {
        attn_buffer_put(out, "NaN");
        return;
    }
    const double size = fabs(value);
    const long long hundredths = size < 1e6 ? llround(size * 100) : 0;
    if (value < 0 && (size >= 1e6 || hundredths > 0))
        attn_buffer_put(out, "−");
    if (isinf(value))
        attn_buffer_put(out, "∞");
    else if (size >= 1e6)
        attn_buffer_print(out, "%llde%d", llround(size / pow(10, floor(log10(size)))),
                          (int)floor(log10(size)));
    else if (whole)
        attn_buffer_print(out, "%lld", hundredths / 100);
    else
        attn_buffer_print(out, "%lld.%02lld", hundredths / 100, hundredths % 100);
}

static int64_t number_width(const attn_walk_matrix *matrix)
{
    int64_t widest = 0;
    for (int64_t i = 0; i < matrix->rows * matrix->columns; i++) {
        attn_buffer number = {0};
        put_number(&number, (double)matrix->values[i], is_whole(matrix));
        const int64_t width =
            attn_type_width((attn_typeface){11, false}, attn_buffer_text(&number));
        widest = width > widest ? width : widest;
        attn_buffer_free(&number);
    }
    return widest;
}

/* ---- one matrix ---- */

static attn_svg_label label_at(const char *class, attn_anchor anchor, int64_t half_x,
                               int64_t y, int64_t width)
{
    return (attn_svg_label){.class = class,
                            .type = {11, false},
                            .anchor = anchor,
                            .half_x = half_x,
                            .y = y,
                            .width = width};
}

/* "X W_Q" with a lowered Q. */
static void put_formula(attn_svg *svg, int64_t x, int64_t y, const char *formula)
{
    attn_buffer *const out = &svg->text;
    attn_buffer_print(out, "<text class=\"ink b s13\" x=\"%lld\" y=\"%lld\">",
                      (long long)x, (long long)y);
    for (const char *at = formula; *at;) {
        const size_t plain = strcspn(at, "_");
        attn_put_xml_bytes(out, at, plain);
        at += plain;
        if (*at == '_') {
            attn_buffer_print(out, "<tspan class=\"s9\" dy=\"3\">%c</tspan>", at[1]);
            at += 2;
            if (*at)
                attn_buffer_put(out, "<tspan dy=\"-3\">");
            attn_put_xml(out, at);
            attn_buffer_put(out, *at ? "</tspan>" : "");
            break;
        }
    }
    attn_buffer_put(out, "</text>\n");
    attn_svg_reach(svg, x + attn_type_width((attn_typeface){13, true}, formula), y + 4);
}

static void put_cell(walk_drawing *d, const walk_block *block, int64_t i, int64_t j)
{
    const attn_walk_matrix *const matrix = matrix_of(d, block->step);
    const double value = (double)matrix->values[i * matrix->columns + j];
    const bool hidden =
        block->step == ATTN_WALK_WEIGHTS
            ? isinf(matrix_of(d, ATTN_WALK_SCORES)->values[i * matrix->columns + j])
            : isinf(value) && value < 0;
    const int64_t x = block->x + j * d->cell, y = block->y + i * CELL_HEIGHT;
    const int class =
        block->step == ATTN_WALK_WEIGHTS && !isnan(value) ? attn_figure_class(value) : 0;
    char name[8] = "unseen", ink[8] = "t0";
    if (!hidden)
        snprintf(name, sizeof name, "w%d", class);
    snprintf(ink, sizeof ink, "t%d", class);
    attn_buffer_print(&d->svg.text,
                      "<rect class=\"%s\" x=\"%lld\" y=\"%lld\" width=\"%lld\" "
                      "height=\"%d\"/>\n",
                      name, (long long)x, (long long)y, (long long)d->cell - 1,
                      CELL_HEIGHT - 1);
    if (hidden)
        return;
    const attn_svg_label label =
        label_at(ink, ATTN_ANCHOR_MIDDLE, 2 * x + d->cell - 1, y + 15, -1);
    attn_buffer number = {0};
    put_number(&number, value, is_whole(matrix));
    attn_svg_take_label(&d->svg, &label, &number);
}

static void put_matrix(walk_drawing *d, const walk_block *block)
{
    const attn_walk_matrix *const matrix = matrix_of(d, block->step);
    const int64_t head =
        block->y - HEAD_HEIGHT - (of_pairs(block->step) ? KEYS_HEIGHT : 0);
    const int64_t left = block->x - (of_tokens(block->step) ? d->label : 0);
    attn_buffer shape = {0};
    attn_svg_label label = label_at("soft", ATTN_ANCHOR_START, 2 * left, head + 27, -1);
    attn_buffer_print(&shape, "%lld × %lld: %s", (long long)matrix->rows,
                      (long long)matrix->columns, block->purpose);
    put_formula(&d->svg, left, head + 12, block->formula);
    attn_svg_take_label(&d->svg, &label, &shape);
    for (int64_t j = 0; of_pairs(block->step) && j < matrix->columns; j++) {
        label = label_at("ink", ATTN_ANCHOR_MIDDLE,
                         2 * (block->x + j * d->cell) + d->cell - 1, block->y - 5,
                         d->cell - 3);
        attn_svg_put_label(&d->svg, &label, d->walk->words[j]);
    }
    for (int64_t i = 0; i < matrix->rows; i++) {
        label = label_at("ink", ATTN_ANCHOR_END, 2 * (block->x - 6),
                         block->y + i * CELL_HEIGHT + 15, d->label - 6);
        if (of_tokens(block->step))
            attn_svg_put_label(&d->svg, &label, d->walk->words[i]);
        for (int64_t j = 0; j < matrix->columns; j++)
            put_cell(d, block, i, j);
    }
    attn_svg_reach(&d->svg, block->x + matrix->columns * d->cell,
                   block->y + matrix->rows * CELL_HEIGHT);
}

/* ---- where everything is ---- */

static int64_t block_width(const walk_drawing *d, const walk_block *block)
{
    attn_buffer text = {0};
    attn_buffer_print(&text, "16 × 16: %s", block->purpose);
    const int64_t purpose =
        attn_type_width((attn_typeface){11, false}, attn_buffer_text(&text));
    attn_buffer_free(&text);
    const int64_t cells = d->label + matrix_of(d, block->step)->columns * d->cell;
    return cells > purpose ? cells : purpose;
}

static int64_t block_height(const walk_drawing *d, const walk_block *block)
{
    return HEAD_HEIGHT + (of_pairs(block->step) ? KEYS_HEIGHT : 0) +
           matrix_of(d, block->step)->rows * CELL_HEIGHT;
}

static void place_blocks(walk_drawing *d)
{
    int64_t widths[3] = {0}, heights[5] = {0};
    for (int i = 0; i < ATTN_WALK_STEPS; i++) {
        const walk_block *const block = &d->blocks[i];
        const int64_t width = block_width(d, block), height = block_height(d, block);
        if (width > widths[block->column])
            widths[block->column] = width;
        if (height > heights[block->row])
            heights[block->row] = height;
    }
    for (int i = 0; i < ATTN_WALK_STEPS; i++) {
        walk_block *const block = &d->blocks[i];
        block->x = SVG_MARGIN + d->label;
        for (int c = 0; c < block->column; c++)
            block->x += widths[c] + COLUMN_GAP;
        block->y = SVG_MARGIN + block_height(d, block) -
                   matrix_of(d, block->step)->rows * CELL_HEIGHT;
        for (int r = 0; r < block->row; r++)
            block->y += heights[r] + ROW_GAP;
    }
}

static void init(walk_drawing *d, const attn_walk *walk)
{
    const int64_t D = walk->steps[ATTN_WALK_QUERY].columns;
    *d = (walk_drawing){
        .walk = walk,
        .cell = 30,
        .blocks = {{ATTN_WALK_INPUT, 1, 0, "X", "a row for each token", 0, 0},
                   {ATTN_WALK_QUERY_PROJECTION, 0, 1, "W_Q", "learned", 0, 0},
                   {ATTN_WALK_KEY_PROJECTION, 1, 1, "W_K", "learned", 0, 0},
                   {ATTN_WALK_VALUE_PROJECTION, 2, 1, "W_V", "learned", 0, 0},
                   {ATTN_WALK_QUERY, 0, 2, "Q = X W_Q", "what each looks for", 0, 0},
                   {ATTN_WALK_KEY, 1, 2, "K = X W_K", "what each is found by", 0, 0},
                   {ATTN_WALK_VALUE, 2, 2, "V = X W_V", "what each hands over", 0, 0},
                   {ATTN_WALK_LOGITS, 0, 3, "Q Kᵀ", "query meets key", 0, 0},
                   {ATTN_WALK_SCORES, 1, 3, d->scaled, "scaled", 0, 0},
                   {ATTN_WALK_WEIGHTS, 2, 3, "A = softmax", "each row sums to 1", 0, 0},
                   {ATTN_WALK_OUTPUT, 2, 4, "A V", "values in these shares", 0, 0}}};
    attn_buffer scaled = {0};
    if (walk->scale == 1.0 / sqrt((double)D)) {
        attn_buffer_print(&scaled, "Q Kᵀ ÷ √%lld", (long long)D);
    } else {
        attn_buffer_put(&scaled, "Q Kᵀ × ");
        put_number(&scaled, walk->scale, false);
    }
    snprintf(d->scaled, sizeof d->scaled, "%s", attn_buffer_text(&scaled));
    attn_buffer_free(&scaled);
    for (int i = 0; i < ATTN_WALK_STEPS; i++) {
        const int64_t width = number_width(&walk->steps[i]) + 10;
        d->cell = width > d->cell ? width : d->cell;
    }
    for (int64_t i = 0; i < walk->tokens; i++) {
        const int64_t width = attn_type_width((attn_typeface){11, false}, walk->words[i]);
        d->label = width > d->label ? width : d->label;
    }
    d->label = (d->label < LABEL_LIMIT ? d->label : LABEL_LIMIT) + 8;
    place_blocks(d);
}

/* ---- arrows ---- */

static int64_t bottom_of(const walk_drawing *d, attn_walk_step step)
{
    return d->blocks[step].y + matrix_of(d, step)->rows * CELL_HEIGHT + 5;
}

static int64_t top_of(const walk_drawing *d, attn_walk_step step)
{
    return d->blocks[step].y - HEAD_HEIGHT - (of_pairs(step) ? KEYS_HEIGHT : 0) - 5;
}

static int64_t middle_of(const walk_drawing *d, attn_walk_step step)
{
    return d->blocks[step].x + matrix_of(d, step)->columns * d->cell / 2;
}

/* Down from one matrix to the next, by corners where they are not above one another. */
static void put_down(walk_drawing *d, attn_walk_step from, attn_walk_step to)
{
    const long long x0 = middle_of(d, from), y0 = bottom_of(d, from),
                    x1 = middle_of(d, to) + (from == ATTN_WALK_KEY ? d->cell : 0),
                    y1 = top_of(d, to);
    attn_buffer_print(&d->svg.text,
                      "<path class=\"flow\" d=\"M%lld %lldV%lldH%lldV%lld\"/><path "
                      "class=\"soft\" d=\"M%lld %lldl-4 -6h8z\"/>\n",
                      x0, y0, y0 + (y1 - y0) / 2 - 2, x1, y1 - 3, x1, y1);
}

static void put_across(walk_drawing *d, attn_walk_step from, attn_walk_step to,
                       const char *what)
{
    const int64_t x0 = d->blocks[from].x + matrix_of(d, from)->columns * d->cell + 6;
    const int64_t x1 = d->blocks[to].x - d->label - 4;
    const long long y = d->blocks[from].y + matrix_of(d, from)->rows * CELL_HEIGHT / 2;
    attn_buffer_print(&d->svg.text,
                      "<path class=\"flow\" d=\"M%lld %lldH%lld\"/><path class=\"soft\" "
                      "d=\"M%lld %lldl-6 -4v8z\"/>\n",
                      (long long)x0, y, (long long)x1 - 3, (long long)x1, y);
    const attn_svg_label label = label_at("soft", ATTN_ANCHOR_MIDDLE, x0 + x1, y - 6, -1);
    attn_svg_put_label(&d->svg, &label, what);
}

/* Values pass the weights by, at the right. */
static void put_around(walk_drawing *d)
{
    const int64_t right = d->svg.right + 14;
    const walk_block *const value = &d->blocks[ATTN_WALK_VALUE];
    const walk_block *const output = &d->blocks[ATTN_WALK_OUTPUT];
    const attn_walk_matrix *const matrix = matrix_of(d, ATTN_WALK_VALUE);
    const long long half = matrix->rows * CELL_HEIGHT / 2,
                    end = value->x + matrix->columns * d->cell + 6;
    attn_buffer_print(&d->svg.text,
                      "<path class=\"flow\" d=\"M%lld %lldH%lldV%lldH%lld\"/><path "
                      "class=\"soft\" d=\"M%lld %lldl6 -4v8z\"/>\n",
                      end, value->y + half, (long long)right, output->y + half, end + 3,
                      end, output->y + half);
    attn_svg_reach(&d->svg, right, 0);
}

/* ---- the example in words ---- */

/* "mat" looks at "cat": 1 × 0 + 2 × 1 = 2; ÷ √4: 1.00; softmax: .42 of its weight. */
static void put_reading(walk_drawing *d)
{
    const int64_t n = d->walk->tokens, D = matrix_of(d, ATTN_WALK_QUERY)->columns;
    const float *const weights = matrix_of(d, ATTN_WALK_WEIGHTS)->values + (n - 1) * n;
    const float *const query = matrix_of(d, ATTN_WALK_QUERY)->values + (n - 1) * D;
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (weights[j] > weights[best])
            best = j;
    const float *const key = matrix_of(d, ATTN_WALK_KEY)->values + best * D;
    const bool whole =
        is_whole(matrix_of(d, ATTN_WALK_QUERY)) && is_whole(matrix_of(d, ATTN_WALK_KEY));
    attn_buffer said = {0};
    attn_buffer_put(&said, "\"");
    attn_put_text(&said, d->walk->words[n - 1], ATTN_SPELL_TERMINAL);
    attn_buffer_put(&said, "\" looks most at \"");
    attn_put_text(&said, d->walk->words[best], ATTN_SPELL_TERMINAL);
    attn_buffer_put(&said, "\": ");
    for (int64_t k = 0; k < D; k++) {
        attn_buffer_put(&said, k ? " + " : "");
        put_number(&said, (double)query[k], whole);
        attn_buffer_put(&said, " × ");
        put_number(&said, (double)key[k], whole);
    }
    attn_buffer_put(&said, " = ");
    put_number(&said, (double)matrix_of(d, ATTN_WALK_LOGITS)->values[(n - 1) * n + best],
               whole);
    attn_buffer_put(&said, "; scaled ");
    put_number(&said, (double)matrix_of(d, ATTN_WALK_SCORES)->values[(n - 1) * n + best],
               false);
    attn_buffer_put(&said, "; softmax over its row ");
    put_number(&said, (double)weights[best], false);
    attn_buffer_put(&said, ".");
    const float *const scores = matrix_of(d, ATTN_WALK_SCORES)->values;
    for (int64_t i = 0; i < n * n; i++)
        if (isinf(scores[i]) && scores[i] < 0) {
            attn_buffer_put(&said, " Hatched: a key that cannot be seen.");
            break;
        }
    attn_svg_take_paragraph(&d->svg, SVG_MARGIN, d->svg.bottom + 28,
                            d->svg.right - SVG_MARGIN, &said);
}

/* ---- the whole ---- */

static attn_status check(const attn_walk *walk, attn_error *error)
{
    const attn_walk_matrix *const steps = walk->steps;
    const int64_t n = walk->tokens, d = steps[ATTN_WALK_INPUT].columns,
                  D = steps[ATTN_WALK_QUERY].columns, Dv = steps[ATTN_WALK_VALUE].columns;
    const struct {
        const char *name;
        int64_t rows, columns;
    } expected[ATTN_WALK_STEPS] = {{"X", n, d},       {"W_Q", d, D},    {"W_K", d, D},
                                   {"W_V", d, Dv},    {"Q", n, D},      {"K", n, D},
                                   {"V", n, Dv},      {"Q Kᵀ", n, n},   {"scores", n, n},
                                   {"weights", n, n}, {"output", n, Dv}};
    if (n < 1 || n > SIDE_LIMIT)
        return attn_error_set(error, ATTN_EINVAL, "tokens is %lld, expected 1 to %d",
                              (long long)n, SIDE_LIMIT);
    for (int i = 0; i < ATTN_WALK_STEPS; i++) {
        const int64_t rows = expected[i].rows, columns = expected[i].columns;
        if (columns < 1 || columns > SIDE_LIMIT || rows > SIDE_LIMIT)
            return attn_error_set(
                error, ATTN_EINVAL, "%s is %lld × %lld, expected 1 to %d columns",
                expected[i].name, (long long)rows, (long long)columns, SIDE_LIMIT);
        if (!steps[i].values || steps[i].rows != rows || steps[i].columns != columns)
            return attn_error_set(
                error, ATTN_EINVAL, "%s is %lld × %lld, expected %lld × %lld with values",
                expected[i].name, (long long)steps[i].rows, (long long)steps[i].columns,
                (long long)rows, (long long)columns);
    }
    return ATTN_OK;
}

static void put_flow(walk_drawing *d)
{
    for (int i = 0; i < ATTN_WALK_STEPS; i++)
        put_matrix(d, &d->blocks[i]);
    for (int i = 0; i < 3; i++) {
        put_down(d, ATTN_WALK_INPUT, (attn_walk_step)(ATTN_WALK_QUERY_PROJECTION + i));
        put_down(d, (attn_walk_step)(ATTN_WALK_QUERY_PROJECTION + i),
                 (attn_walk_step)(ATTN_WALK_QUERY + i));
    }
    put_down(d, ATTN_WALK_QUERY, ATTN_WALK_LOGITS);
    put_down(d, ATTN_WALK_KEY, ATTN_WALK_LOGITS);
    const char *const operation = strpbrk(d->scaled, " ") + strlen(" Kᵀ ");
    put_across(d, ATTN_WALK_LOGITS, ATTN_WALK_SCORES, operation);
    put_across(d, ATTN_WALK_SCORES, ATTN_WALK_WEIGHTS, "softmax");
    put_down(d, ATTN_WALK_WEIGHTS, ATTN_WALK_OUTPUT);
    put_around(d);
    put_reading(d);
}

attn_status attn_draw_walk_svg(const attn_walk *walk, char **svg, size_t *length_bytes,
                               attn_error *error)
{
    ATTN_TRY(check(walk, error));
    walk_drawing d;
    init(&d, walk);
    put_flow(&d);
    const int64_t width = d.svg.right + SVG_MARGIN, height = d.svg.bottom + 14;
    attn_buffer out = {0};
    attn_svg_put_start(&out, width, height);
    attn_buffer_print(
        &out,
        "<title id=\"t\">Attention by hand: %lld token%s, head size %lld"
        "</title>\n<desc id=\"d\">From X through queries, keys and values, "
        "their products, scaling and softmax to the output, with all numbers."
        "</desc>\n",
        (long long)walk->tokens, attn_s(walk->tokens),
        (long long)walk->steps[ATTN_WALK_QUERY].columns);
    attn_svg_put_style(&out, ATTN_SVG_BOTH, ATTN_SCALE_LINEAR);
    attn_svg_put_paper(&out, width, height);
    attn_buffer_put(&out, attn_buffer_text(&d.svg.text));
    attn_buffer_put(&out, "</svg>\n");
    out.failed = out.failed || d.svg.text.failed;
    attn_buffer_free(&d.svg.text);
    return attn_buffer_take(&out, svg, length_bytes, error);
}
