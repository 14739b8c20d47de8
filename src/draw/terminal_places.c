/* Where in a picture each word looked: for each word a map of the picture's places, two
 * columns a place, as many maps side by side as fit. */
#include "draw/terminal_canvas.h"

enum { PLACE = 2, GAP = 3 };

static double largest(const float *weights, int64_t places)
{
    double most = 0;
    for (int64_t i = 0; i < places; i++)
        most = (double)weights[i] > most ? (double)weights[i] : most;
    return most;
}

/* "seven .87" over its map, cut to the map's columns. */
static void put_heading(canvas *c, const canvas_matrix *matrix, int64_t row,
                        int64_t columns)
{
    enum { WEIGHT = 4 };
    attn_buffer label = {0};
    const bool weak = matrix->judged && attn_is_unclear(c->summary, row);
    int64_t used = canvas_label(c, &label, &matrix->part->rows->list[row],
                                columns > WEIGHT ? columns - WEIGHT : columns);
    if (columns > WEIGHT) {
        attn_buffer_put(&label, " ");
        attn_put_weight(&label, c->summary->top[row].weight);
        used += WEIGHT;
    }
    canvas_put(c, weak ? STYLE_AMBER : STYLE_BOLD, attn_buffer_text(&label));
    canvas_spaces(c, columns - used);
    c->out.failed = c->out.failed || label.failed;
    attn_buffer_free(&label);
}

static void put_place(canvas *c, double share)
{
    static const char *const blocks[] = {"··", "░░", "▒▒", "▓▓", "██"};
    static const char *const signs[] = {"..", "::", "++", "##", "@@"};
    if (c->options->depth != ATTN_DEPTH_NONE) {
        canvas_on_ramp(c, share, "  ");
        return;
    }
    const int shade = share < 0.125  ? 0
                      : share < 0.25 ? 1
                      : share < 0.5  ? 2
                      : share < 0.75 ? 3
                                     : 4;
    canvas_put(c, STYLE_PLAIN, canvas_mark(c, blocks[shade], signs[shade]));
}

/* Rows first to end − 1, beside each other. */
static void draw_line(canvas *c, const canvas_matrix *matrix, int64_t first, int64_t end)
{
    const attn_record_picture *const picture = &c->record->picture;
    const int64_t columns = picture->grid_columns * PLACE;
    const int64_t places = picture->grid_rows * picture->grid_columns;
    for (int64_t row = first; row < end; row++) {
        canvas_spaces(c, row > first ? GAP : 0);
        put_heading(c, matrix, row, columns);
    }
    attn_buffer_put(&c->out, "\n");
    for (int64_t line = 0; line < picture->grid_rows; line++) {
        for (int64_t row = first; row < end; row++) {
            const float *const weights = matrix->weights + row * places;
            const double most = largest(weights, places);
            canvas_spaces(c, row > first ? GAP : 0);
            for (int64_t place = 0; place < picture->grid_columns; place++) {
                const double weight =
                    (double)weights[line * picture->grid_columns + place];
                put_place(c, most > 0 ? weight / most : 0);
            }
        }
        attn_buffer_put(&c->out, "\n");
    }
}

void canvas_draw_places(canvas *c, const canvas_matrix *matrix)
{
    const int64_t columns = c->record->picture.grid_columns * PLACE + GAP;
    const int64_t fitting = (c->options->width + GAP) / columns;
    const int64_t beside = fitting > 0 ? fitting : 1;
    for (int64_t first = 0; first < matrix->row_count; first += beside) {
        const int64_t end =
            first + beside < matrix->row_count ? first + beside : matrix->row_count;
        draw_line(c, matrix, first, end);
        attn_buffer_put(&c->out, "\n");
    }
    canvas_wrap(
        c, STYLE_DIM, ATTN_SPELL_PLAIN,
        "beside a word: weight on its top place and right around it; shade: weight "
        "divided by the word's largest",
        0, 4);
    attn_buffer_put(&c->out, "\n");
}
