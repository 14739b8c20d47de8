/* One word: how every head looks from it, or one head in full. */
#include "draw/terminal_canvas.h"
#include "text/words.h"
#include <math.h>
#include <stdio.h>

enum { LEFT = 5, CELL = 3, RIGHT = 33, LEAST_RIGHT = 13, TOPS = 3, LABEL = 12 };

static const char *verb(const attn_record_part *part)
{
    return attn_record_is_self(part) ? "looks" : "reads";
}

static void row_title(canvas *c, const attn_record_part *part, int64_t row,
                      const char *about)
{
    attn_buffer title = {0};
    attn_buffer_put(&title, "Where \"");
    canvas_label(c, &title, &part->rows->list[row], 24);
    attn_buffer_print(&title, "\" %s", verb(part));
    canvas_title(c, attn_buffer_text(&title), about);
    attn_buffer_put(&c->out, "\n");
    c->out.failed = c->out.failed || title.failed;
    attn_buffer_free(&title);
}

/* The heaviest key not heavier than what was told last; keys in order on a tie. */
static int64_t next_top(const float *weights, int64_t visible, int64_t last)
{
    int64_t best = -1;
    for (int64_t j = 0; j < visible; j++) {
        const bool told = last >= 0 && (weights[j] > weights[last] ||
                                        (weights[j] == weights[last] && j <= last));
        if (!told && (best < 0 || weights[j] > weights[best]))
            best = j;
    }
    return best;
}

/* ", mat .68" three times, as far as it fits and is not faint. */
static void put_tops(canvas *c, const attn_record_part *part, const float *weights,
                     int64_t visible, int64_t room)
{
    attn_buffer tops = {0};
    int64_t key = -1;
    for (int i = 0; i < TOPS; i++) {
        key = next_top(weights, visible, key);
        if (key < 0 || (i > 0 && canvas_faint(c, (double)weights[key])))
            break;
        const size_t before = tops.length;
        attn_buffer_put(&tops, i > 0 ? ", " : "");
        canvas_label(c, &tops, &part->keys->list[key], i > 0 ? LABEL : LEAST_RIGHT - 6);
        attn_buffer_put(&tops, " ");
        attn_put_weight(&tops, (double)weights[key]);
        if ((int64_t)attn_text_columns(attn_buffer_text(&tops)) > room) {
            attn_buffer_truncate(&tops, before);
            break;
        }
    }
    canvas_put(c, STYLE_DIM, attn_buffer_text(&tops));
    c->out.failed = c->out.failed || tops.failed;
    attn_buffer_free(&tops);
}

static void draw_head(canvas *c, const attn_record_part *part, int64_t index, int64_t row,
                      int64_t first, int64_t end)
{
    const int64_t keys = part->keys->length, visible = attn_record_visible(part, row);
    const float *weights = part->weights + (index * part->rows->length + row) * keys;
    canvas_print(c, STYLE_PLAIN, "%lld.%-3lld", (long long)(index / part->heads) + 1,
                 (long long)(index % part->heads) + 1);
    for (int64_t j = first; j < end; j++) {
        if (j < visible)
            canvas_cell(c, (double)weights[j], visible, CELL);
        else
            canvas_hidden_cell(c, CELL);
    }
    canvas_spaces(c, 2);
    put_tops(c, part, weights, visible,
             c->options->width - LEFT - CELL * (end - first) - 2);
    attn_buffer_put(&c->out, "\n");
}

void canvas_draw_row_of_heads(canvas *c, int64_t p, int64_t layer, int64_t row)
{
    const attn_record_part *part = &c->record->parts[p];
    const int64_t keys = part->keys->length;
    char about[128];
    snprintf(about, sizeof about, "%s, word %lld of %lld; one line a head",
             attn_part_name(part->part), (long long)row + 1,
             (long long)part->rows->length);
    row_title(c, part, row, about);
    /* Blocks leave room for all of the words on the right; a narrow page for one. */
    const int64_t most = (c->options->width - LEFT - 2 - LEAST_RIGHT) / CELL;
    const int64_t roomy = (c->options->width - LEFT - RIGHT) / CELL;
    const int64_t block = keys <= most || roomy < most / 2 ? most : roomy;
    const int64_t first_head = layer < 0 ? 0 : layer * part->heads;
    const int64_t end_head =
        layer < 0 ? part->layers * part->heads : (layer + 1) * part->heads;
    for (int64_t first = 0; first < keys; first += block) {
        const int64_t end = first + block < keys ? first + block : keys;
        if (first > 0)
            attn_buffer_put(&c->out, "\n");
        canvas_header(c, part->keys, first, end, LEFT, CELL);
        for (int64_t h = first_head; h < end_head; h++)
            draw_head(c, part, h, row, first, end);
    }
    canvas_draw_legend(c, part, false, CELL);
}

void canvas_draw_row_in_full(canvas *c, int64_t p, int64_t layer, int64_t head,
                             int64_t row)
{
    const attn_record_part *part = &c->record->parts[p];
    const int64_t visible = attn_record_visible(part, row);
    const float *weights =
        attn_record_weights(part, layer, head) + row * part->keys->length;
    const float entropy =
        part->row_entropy[(layer * part->heads + head) * part->rows->length + row];
    attn_buffer about = {0};
    attn_buffer_print(&about, "%s %lld.%lld, word %lld of %lld",
                      attn_part_name(part->part), (long long)layer + 1,
                      (long long)head + 1, (long long)row + 1,
                      (long long)part->rows->length);
    if (entropy >= 0) {
        attn_buffer_put(&about, "; entropy ");
        attn_put_weight(&about, (double)entropy);
    }
    row_title(c, part, row, attn_buffer_text(&about));
    attn_buffer_free(&about);
    const int64_t room = c->options->width - LABEL - 2 - 5 - 2;
    for (int64_t j = 0; j < visible; j++) {
        attn_buffer label = {0};
        const int64_t columns = canvas_label(c, &label, &part->keys->list[j], LABEL);
        canvas_spaces(c, LABEL - columns);
        attn_buffer_put(&c->out, attn_buffer_text(&label));
        char number[16];
        snprintf(number, sizeof number, "%.4f", (double)weights[j]);
        canvas_print(c, STYLE_PLAIN, "  %s", number[0] == '0' ? number + 1 : number);
        const int64_t bar = llround((double)weights[j] * (double)(room - 2));
        canvas_spaces(c, bar > 0 ? 2 : 0);
        attn_buffer_put_repeat(&c->out, canvas_mark(c, "█", "#"), bar);
        attn_buffer_put(&c->out, "\n");
        c->out.failed = c->out.failed || label.failed;
        attn_buffer_free(&label);
    }
    if (visible < part->keys->length)
        canvas_print(c, STYLE_DIM, "%lld more cannot be seen from here\n",
                     (long long)(part->keys->length - visible));
}
