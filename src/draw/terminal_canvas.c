/* Styles, labels and cells of the terminal picture.  Width is columns, not bytes or code
 * points; whatever is put here keeps to them. */
#include "draw/terminal_canvas.h"
#include "text/words.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_colour(canvas *c, int ground, attn_rgb colour)
{
    if (c->options->depth == ATTN_DEPTH_FULL)
        attn_buffer_print(&c->out, "\x1b[%d;2;%d;%d;%dm", ground, colour.red,
                          colour.green, colour.blue);
    else
        attn_buffer_print(&c->out, "\x1b[%d;5;%dm", ground, attn_colour_256(colour));
}

void canvas_put(canvas *c, canvas_style style, const char *text)
{
    const bool styled = style != STYLE_PLAIN && c->options->depth != ATTN_DEPTH_NONE;
    if (styled && style == STYLE_AMBER)
        put_colour(c, 38, attn_colour_of(c->options->theme, ATTN_COLOUR_AMBER));
    else if (styled)
        attn_buffer_put(&c->out, style == STYLE_BOLD ? "\x1b[1m" : "\x1b[2m");
    attn_buffer_put(&c->out, text);
    if (styled)
        attn_buffer_put(&c->out, "\x1b[0m");
}

void canvas_print(canvas *c, canvas_style style, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    canvas_put(c, style, text);
}

void canvas_spaces(canvas *c, int64_t count)
{
    attn_buffer_put_repeat(&c->out, " ", count);
}

void canvas_flow(canvas *c, canvas_style style, int64_t indent, const char *text)
{
    attn_buffer line = {0};
    attn_buffer_put_repeat(&line, " ", indent);
    while (*text != '\0') {
        const char *gap = strstr(text, "  ");
        const size_t length = gap == NULL ? strlen(text) : (size_t)(gap - text);
        const size_t before = line.length;
        const size_t begin = (size_t)indent;
        if (before > begin)
            attn_buffer_put(&line, "  ");
        attn_buffer_put_bytes(&line, text, length);
        if ((int64_t)attn_text_columns(attn_buffer_text(&line)) > c->options->width &&
            before > begin) {
            attn_buffer_truncate(&line, before);
            canvas_put(c, style, attn_buffer_text(&line));
            attn_buffer_put(&c->out, "\n");
            attn_buffer_truncate(&line, begin);
            attn_buffer_put_bytes(&line, text, length);
        }
        text += length + strspn(text + length, " ");
    }
    canvas_put(c, style, attn_buffer_text(&line));
    attn_buffer_put(&c->out, "\n");
    c->out.failed = c->out.failed || line.failed;
    attn_buffer_free(&line);
}

const char *canvas_mark(const canvas *c, const char *unicode, const char *ascii)
{
    return c->options->ascii ? ascii : unicode;
}

int64_t canvas_label(const canvas *c, attn_buffer *label, const attn_record_word *word,
                     int64_t columns)
{
    return attn_put_label(label, word, c->spelling, columns);
}

static int64_t spelled_columns(attn_spelling spelling, const char *text, size_t length)
{
    attn_buffer part = {0}, spelled = {0};
    attn_buffer_put_bytes(&part, text, length);
    attn_put_text(&spelled, attn_buffer_text(&part), spelling);
    const int64_t columns = (int64_t)attn_text_columns(attn_buffer_text(&spelled));
    attn_buffer_free(&part);
    attn_buffer_free(&spelled);
    return columns;
}

/* Bytes of the first line of text: up to a space where there is one, else whole
 * graphemes. */
static size_t line_length(attn_spelling spelling, const char *text, int64_t columns)
{
    size_t fits = 0, next = 0;
    while (text[next] != '\0') {
        next += strspn(text + next, " ");
        next += strcspn(text + next, " ");
        if (spelled_columns(spelling, text, next) > columns)
            break;
        fits = next;
    }
    if (fits > 0)
        return fits;
    for (int64_t less = columns; less > 0; less--) {
        fits = attn_text_prefix(text, (size_t)less);
        if (fits > 0 && spelled_columns(spelling, text, fits) <= columns)
            return fits;
    }
    return strlen(text);
}

void canvas_wrap(canvas *c, canvas_style style, attn_spelling spelling, const char *text,
                 int64_t indent, int64_t lines)
{
    const int64_t columns = c->options->width - indent;
    for (int64_t line = 0; line == 0 || *text != '\0'; line++) {
        if (line > 0)
            canvas_spaces(c, indent);
        if (line == lines) {
            canvas_print(c, STYLE_DIM, "%s\n", canvas_mark(c, "…", "..."));
            return;
        }
        const size_t length = line_length(spelling, text, columns);
        attn_buffer part = {0}, spelled = {0};
        attn_buffer_put_bytes(&part, text, length);
        attn_put_text(&spelled, attn_buffer_text(&part), spelling);
        canvas_put(c, style, attn_buffer_text(&spelled));
        attn_buffer_put(&c->out, "\n");
        c->out.failed = c->out.failed || part.failed || spelled.failed;
        attn_buffer_free(&part);
        attn_buffer_free(&spelled);
        text += length + strspn(text + length, " ");
    }
}

void canvas_title(canvas *c, const char *title, const char *about)
{
    const size_t columns = attn_text_columns(title) + 2 + attn_text_columns(about);
    canvas_put(c, STYLE_BOLD, title);
    if ((int64_t)columns <= c->options->width) {
        canvas_print(c, STYLE_DIM, "  %s", about);
        attn_buffer_put(&c->out, "\n");
        return;
    }
    attn_buffer_put(&c->out, "\n  ");
    canvas_wrap(c, STYLE_DIM, ATTN_SPELL_PLAIN, about, 2, 4);
}

bool canvas_faint(const canvas *c, double weight)
{
    return weight < c->summary->conventions.faint;
}

void canvas_on_ramp(canvas *c, double position, const char *text)
{
    if (c->options->depth == ATTN_DEPTH_NONE) {
        attn_buffer_put(&c->out, text);
        return;
    }
    const attn_rgb ground = attn_ramp(c->options->theme, c->options->scale, position);
    put_colour(c, 48, ground);
    put_colour(c, 38, attn_ink_on(ground));
    attn_buffer_print(&c->out, "%s\x1b[0m", text);
}

void canvas_cell(canvas *c, double weight, int64_t visible, int width)
{
    static const char *const blocks[] = {"░", "▒", "▓", "█"};
    static const char *const signs[] = {".", ":", "+", "#"};
    if (canvas_faint(c, weight)) {
        canvas_print(c, STYLE_DIM, width == 4 ? " %s  " : " %s ",
                     canvas_mark(c, "·", "-"));
        return;
    }
    const double position = attn_scale_position(c->options->scale, weight, visible);
    const int shade = position < 0.75 ? (int)(position * 4) : 3;
    const bool coloured = c->options->depth != ATTN_DEPTH_NONE;
    const char *side = coloured ? " " : canvas_mark(c, blocks[shade], signs[shade]);
    const int number = attn_hundredths(weight);
    char cell[32];
    if (number >=
        100) /* three digits take the place of a shade, which they do not need */
        snprintf(cell, sizeof cell, "%s100", width == 4 ? side : "");
    else
        snprintf(cell, sizeof cell, "%s%02d%s", side, number, width == 4 ? side : "");
    canvas_on_ramp(c, position, cell);
}

void canvas_hidden_cell(canvas *c, int width)
{
    canvas_print(c, STYLE_DIM, width == 4 ? " %s  " : " %s ", canvas_mark(c, "╱", "/"));
}

void canvas_header(canvas *c, const attn_record_words *keys, int64_t first, int64_t end,
                   int64_t left, int width)
{
    const int lines = 6 - width; /* two over wide cells, three over narrow ones */
    for (int line = 0; line < lines; line++) {
        int64_t column = 0;
        for (int64_t j = first; j < end; j++) {
            const int64_t at = left + (j - first) * width;
            const int turn = (int)((j - first) % lines);
            if (turn > line || (turn < line && column > at))
                continue;
            canvas_spaces(c, at - column);
            column = at + 1;
            if (turn < line) {
                attn_buffer_put(&c->out, canvas_mark(c, "╷", "|"));
                continue;
            }
            attn_buffer label = {0};
            column = at + canvas_label(c, &label, &keys->list[j], lines * width - 1);
            attn_buffer_put(&c->out, attn_buffer_text(&label));
            c->out.failed = c->out.failed || label.failed;
            attn_buffer_free(&label);
        }
        attn_buffer_put(&c->out, "\n");
    }
}
