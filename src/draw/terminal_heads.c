/* The grid of layers and heads: a letter for the role, the entropy, and its shade. */
#include "draw/roles.h"
#include "draw/terminal_canvas.h"
#include <math.h>
#include <string.h>

enum { LEFT = 9, GAP = 4 };

/* "P.48", "P" */
static void put_head(canvas *c, const attn_head_summary *head, bool number)
{
    attn_buffer text = {0};
    const char letter[2] = {attn_role_letter(head), '\0'};
    attn_buffer_put(&text, letter[0] != '\0' ? letter : canvas_mark(c, "·", "-"));
    if (number && head->entropy >= 0)
        attn_put_weight(&text, head->entropy);
    else if (number)
        attn_buffer_put(&text, "   ");
    canvas_on_ramp(c, head->entropy >= 0 ? 1 - head->entropy : 0,
                   attn_buffer_text(&text));
    c->out.failed = c->out.failed || text.failed;
    attn_buffer_free(&text);
}

/* Columns of a head: letter and number with a gap or without, or the letter alone. */
static int64_t cell_width(int64_t heads, int64_t room)
{
    return heads * 5 - 1 <= room ? 5 : heads * 4 <= room ? 4 : 2;
}

static void put_heads(canvas *c, int64_t p, int64_t layer, int64_t first, int64_t end,
                      int64_t cell)
{
    const attn_record_part *part = &c->record->parts[p];
    for (int64_t h = first; h < end; h++) {
        put_head(c, &c->summary->parts[p].heads[layer * part->heads + h], cell >= 4);
        if (h + 1 < end && cell != 4)
            attn_buffer_put(&c->out, " ");
    }
}

/* Parts [first, end) beside each other, five columns a head. */
static void draw_beside(canvas *c, int64_t first, int64_t end)
{
    const attn_record *record = c->record;
    int64_t layers = 0;
    canvas_spaces(c, LEFT);
    for (int64_t p = first; p < end; p++) {
        const attn_record_part *part = &record->parts[p];
        const char *name = attn_part_name(part->part);
        canvas_put(c, STYLE_BOLD, name);
        if (p + 1 < end)
            canvas_spaces(c, part->heads * 5 - 1 + GAP - (int64_t)strlen(name));
        layers = part->layers > layers ? part->layers : layers;
    }
    attn_buffer_put(&c->out, "\n");
    for (int64_t layer = 0; layer < layers; layer++) {
        int64_t owed = 0; /* spaces, if anything follows */
        canvas_print(c, STYLE_PLAIN, "layer %-3lld", (long long)layer + 1);
        for (int64_t p = first; p < end; p++) {
            const attn_record_part *part = &record->parts[p];
            if (layer < part->layers) {
                canvas_spaces(c, owed);
                owed = 0;
                put_heads(c, p, layer, 0, part->heads, 5);
            } else {
                owed += part->heads * 5 - 1;
            }
            owed += GAP;
        }
        attn_buffer_put(&c->out, "\n");
    }
}

/* A part by itself, as closely as it takes; what still does not fit goes on below. */
static void draw_alone(canvas *c, int64_t p)
{
    const attn_record_part *part = &c->record->parts[p];
    const int64_t room = c->options->width - LEFT;
    const int64_t cell = cell_width(part->heads, room);
    const int64_t block = (room + 1) / cell;
    canvas_spaces(c, LEFT);
    canvas_put(c, STYLE_BOLD, attn_part_name(part->part));
    attn_buffer_put(&c->out, "\n");
    for (int64_t layer = 0; layer < part->layers; layer++)
        for (int64_t first = 0; first < part->heads; first += block) {
            const int64_t end = first + block < part->heads ? first + block : part->heads;
            if (first == 0)
                canvas_print(c, STYLE_PLAIN, "layer %-3lld", (long long)layer + 1);
            else
                canvas_spaces(c, LEFT);
            put_heads(c, p, layer, first, end, cell);
            attn_buffer_put(&c->out, "\n");
        }
}

/* "· mixed; capital: half the weight or more, small: .30 or more" */
static void put_conventions(canvas *c, attn_buffer *text, const attn_roles *roles)
{
    const attn_conventions *limits = &c->summary->conventions;
    const bool mixed = roles->occurs[ATTN_ROLE_MIXED];
    if (mixed)
        attn_buffer_print(text, "%s mixed", canvas_mark(c, "·", "-"));
    if (!roles->sized)
        return;
    attn_buffer_put(text, mixed ? "; capital: " : "capital: ");
    if (fabs(limits->strong - 0.5) < 1e-9) {
        attn_buffer_put(text, "half");
    } else {
        attn_put_weight(text, limits->strong);
        attn_buffer_put(text, " of");
    }
    attn_buffer_put(text, " the weight or more, small: ");
    attn_put_weight(text, limits->weak);
    attn_buffer_put(text, " or more");
}

static void draw_legend(canvas *c, const attn_roles *roles)
{
    attn_buffer text = {0};
    if (roles->only != NULL) {
        const char letter[2] = {attn_role_letter(roles->only), '\0'};
        attn_buffer_print(&text, "%s ", letter[0] ? letter : canvas_mark(c, "·", "-"));
        attn_put_role(&text, roles->only);
    } else {
        attn_buffer names = {0};
        attn_put_role_names(&names, roles, " ", "  ");
        if (names.length > 0)
            canvas_flow(c, STYLE_DIM, LEFT, attn_buffer_text(&names));
        c->out.failed = c->out.failed || names.failed;
        attn_buffer_free(&names);
        put_conventions(c, &text, roles);
    }
    if (text.length > 0) {
        canvas_spaces(c, LEFT);
        canvas_wrap(c, STYLE_DIM, ATTN_SPELL_PLAIN, attn_buffer_text(&text), LEFT, 4);
    }
    c->out.failed = c->out.failed || text.failed;
    attn_buffer_free(&text);
}

void canvas_draw_heads(canvas *c)
{
    const attn_record *record = c->record;
    const attn_roles roles = attn_roles_of(record, c->summary, c->options->part);
    canvas_title(c, attn_roles_title(&roles),
                 "letter: role; number: entropy (0 one word, 1 all)");
    int64_t width = LEFT - GAP;
    for (int64_t p = 0; p < record->part_count; p++)
        width += record->parts[p].heads * 5 - 1 + GAP;
    if (c->options->part < 0 && width <= c->options->width)
        draw_beside(c, 0, record->part_count);
    else
        for (int64_t p = 0; p < record->part_count; p++)
            if (c->options->part < 0 || (int)record->parts[p].part == c->options->part)
                draw_alone(c, p);
    draw_legend(c, &roles);
}
