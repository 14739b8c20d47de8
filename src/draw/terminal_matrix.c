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

int64_t canvas_pick_rows(const canvas_matrix *matrix, int64_t *rows, int64_t most)
{
    enum { FEWEST_KEYS = 3 }; /* with fewer to choose from a large weight says little */
    const attn_record_part *part = matrix->part;
    const int64_t last = part->rows->length - 1;
    int64_t count = 0;
    if (part->causal && most > 0)
        rows[count++] = last;
    while (count < most) {
        attn_link best = {.row = -1, .weight = -1};
        for (int64_t row = 0; row <= last; row++) {
            bool picked = attn_record_visible(part, row) < FEWEST_KEYS;
            for (int64_t i = 0; i < count; i++)
                picked = picked || rows[i] == row;
            const attn_link top = top_of(matrix, row);
            if (!picked && top.weight > best.weight)
                best = top;
        }
        if (best.row < 0)
            break;
        int64_t at = count++;
        for (; at > 0 && rows[at - 1] > best.row; at--)
            rows[at] = rows[at - 1];
        rows[at] = best.row;
    }
    return count;
}

void canvas_draw_legend(canvas *c, const attn_record_part *part, bool judged, int width)
{
    static const double samples[] = {0.05, 0.25, 0.50, 0.75, 0.99};
    const attn_conventions *limits = &c->summary->conventions;
    canvas_put(c, STYLE_DIM, "weight in hundredths:");
    attn_buffer_put(&c->out, c->options->width < 46 ? "\n" : " ");
    for (int i = 0; i < 5; i++) {
        attn_buffer_put(&c->out, i > 0 ? " " : "");
        canvas_cell(c, samples[i], part->keys->length, width);
    }
    attn_buffer text = {0};
    const bool narrow = c->options->width < 80;
    attn_buffer_print(&text, "%s%s under %.0f", narrow ? "\n" : "   ",
                      canvas_mark(c, "·", "-"), limits->faint * 100);
    if (judged)
        attn_buffer_put(&text, "   ? no clear source");
    if (part->causal)
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

static bool row_shows(const canvas *c, const canvas_matrix *matrix, int64_t row,
                      int64_t first, int64_t end)
{
    const int64_t keys = matrix->part->keys->length;
    for (int64_t j = first; j < end; j++)
        if (j < attn_record_visible(matrix->part, row) &&
            !canvas_faint(c, (double)matrix->weights[row * keys + j]))
            return true;
    return false;
}

/* A block in which every cell is a dot says nothing. */
static bool block_shows(const canvas *c, const canvas_matrix *matrix, int64_t first,
                        int64_t end)
{
    for (int64_t i = 0; i < matrix->row_count; i++)
        if (row_shows(c, matrix, row_at(matrix, i), first, end))
            return true;
    return false;
}

/* Of rows that were picked, a block draws those that show there, and those that show
 * nowhere. */
static bool left_out(const canvas *c, const canvas_matrix *matrix, int64_t row,
                     int64_t first, int64_t end)
{
    return matrix->rows != NULL && !row_shows(c, matrix, row, first, end) &&
           row_shows(c, matrix, row, 0, matrix->part->keys->length);
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
            if (!left_out(c, matrix, row_at(matrix, i), first, end))
                draw_row(c, matrix, row_at(matrix, i), first, end);
        if (end < keys)
            attn_buffer_put(&c->out, "\n");
    }
    canvas_draw_legend(c, matrix->part, matrix->judged, CELL);
}
