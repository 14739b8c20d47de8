/* A matrix of weights: rows with their label on the left and what they look at most on
 * the right, keys in blocks that fit the width, each with its header. */
#include "draw/terminal_canvas.h"

enum { LABEL = 7, LEFT = LABEL + 2, CELL = 4, RIGHT = 15 };

static attn_link top_of(const canvas_matrix *matrix, int64_t row)
{
    const int64_t keys = matrix->part->keys->length;
    attn_link top = {.row = row, .weight = -1};
    for (int64_t j = 0; j < attn_record_visible(matrix->part, row); j++) {
        const double weight = (double)matrix->weights[row * keys + j];
        if (weight > top.weight)
            top = (attn_link){.row = row, .key = j, .weight = weight};
    }
    return top;
}

static void draw_row(canvas *c, const canvas_matrix *matrix, int64_t row, int64_t first,
                     int64_t end)
{
    const attn_record_part *part = matrix->part;
    const int64_t visible = attn_record_visible(part, row);
    const attn_link top = top_of(matrix, row);
    const bool marked = matrix->judged && attn_is_unclear(c->summary, row);
    attn_buffer word = {0}, label = {0};
    const int64_t columns = canvas_label(c, &word, &part->rows->list[row], LABEL);
    attn_buffer_put_repeat(&label, " ", LABEL - columns);
    attn_buffer_put(&label, attn_buffer_text(&word));
    canvas_put(c, marked ? STYLE_AMBER : STYLE_PLAIN, attn_buffer_text(&label));
    canvas_spaces(c, LEFT - LABEL);
    for (int64_t j = first; j < end; j++) {
        if (j < visible)
            canvas_cell(c, (double)matrix->weights[row * part->keys->length + j], visible,
                        CELL);
        else
            canvas_hidden_cell(c, CELL);
    }
    attn_buffer_truncate(&label, 0);
    canvas_label(c, &label, &part->keys->list[top.key], LABEL);
    attn_buffer_put(&label, " ");
    attn_put_weight(&label, top.weight);
    attn_buffer_put(&label, marked ? " ?" : "");
    attn_buffer_put(&c->out, " ");
    canvas_put(c, marked ? STYLE_AMBER : STYLE_DIM, attn_buffer_text(&label));
    attn_buffer_put(&c->out, "\n");
    c->out.failed = c->out.failed || label.failed || word.failed;
    attn_buffer_free(&label);
    attn_buffer_free(&word);
}

static void draw_legend(canvas *c, const canvas_matrix *matrix)
{
    static const double samples[] = {0.05, 0.25, 0.50, 0.75, 0.99};
    const attn_conventions *limits = &c->summary->conventions;
    canvas_put(c, STYLE_DIM, "weight in hundredths:");
    attn_buffer_put(&c->out, c->options->width < 46 ? "\n" : " ");
    for (int i = 0; i < 5; i++) {
        attn_buffer_put(&c->out, i > 0 ? " " : "");
        canvas_cell(c, samples[i], matrix->part->keys->length, CELL);
    }
    attn_buffer text = {0};
    const bool narrow = c->options->width < 80;
    attn_buffer_print(&text, "%s%s under %.0f", narrow ? "\n" : "   ",
                      canvas_mark(c, "·", "-"), limits->faint * 100);
    if (matrix->judged)
        attn_buffer_put(&text, "   ? no clear source");
    if (matrix->part->causal)
        attn_buffer_print(&text, "   %s cannot be seen", canvas_mark(c, "╱", "/"));
    canvas_put(c, STYLE_DIM, attn_buffer_text(&text));
    attn_buffer_put(&c->out, "\n");
    c->out.failed = c->out.failed || text.failed;
    attn_buffer_free(&text);
}

static int64_t row_at(const canvas_matrix *matrix, int64_t index)
{
    return matrix->rows == NULL ? index : matrix->rows[index];
}

/* A block in which every cell is a dot says nothing. */
static bool block_shows(const canvas *c, const canvas_matrix *matrix, int64_t first,
                        int64_t end)
{
    for (int64_t i = 0; i < matrix->row_count; i++)
        for (int64_t j = first; j < end; j++) {
            const int64_t row = row_at(matrix, i);
            if (j < attn_record_visible(matrix->part, row) &&
                !canvas_faint(
                    c, (double)matrix->weights[row * matrix->part->keys->length + j]))
                return true;
        }
    return false;
}

static void say_nothing_there(canvas *c, int64_t first, int64_t end)
{
    attn_buffer weight = {0};
    attn_put_weight(&weight, c->summary->conventions.faint);
    if (end == first + 1)
        canvas_print(c, STYLE_DIM, "word %lld: nothing of ", (long long)end);
    else
        canvas_print(c, STYLE_DIM, "words %lld to %lld: nothing of ",
                     (long long)first + 1, (long long)end);
    canvas_print(c, STYLE_DIM, "%s or more\n", attn_buffer_text(&weight));
    attn_buffer_free(&weight);
}

void canvas_draw_matrix(canvas *c, const canvas_matrix *matrix)
{
    const int64_t keys = matrix->part->keys->length;
    int64_t block = (c->options->width - LEFT - RIGHT) / CELL;
    block = block < 1 ? 1 : block;
    int64_t silent = 0; /* words before first of which nothing was said */
    for (int64_t first = 0; first < keys; first += block) {
        const int64_t end = first + block < keys ? first + block : keys;
        const bool shows = keys <= block || block_shows(c, matrix, first, end);
        silent += shows ? 0 : end - first;
        const int64_t until = shows ? first : end;
        if (silent > 0 && (shows || end == keys)) {
            say_nothing_there(c, until - silent, until);
            silent = 0;
        }
        if (!shows)
            continue;
        canvas_header(c, matrix->part->keys, first, end, LEFT, CELL);
        for (int64_t i = 0; i < matrix->row_count; i++)
            draw_row(c, matrix, row_at(matrix, i), first, end);
        if (end < keys)
            attn_buffer_put(&c->out, "\n");
    }
    draw_legend(c, matrix);
}
