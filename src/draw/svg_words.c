/* A text whose one row is a label: the text itself, line after line, each word shaded by
 * what the label read of it. */
#include "draw/svg_figure.h"
#include "inspect/sentence.h"

enum {
    LEAST_WIDTH = 560,
    WIDER = 40, /* times the square root of the words: longer texts are wider, too */
    LINE = 25,
    BOX = 20,
    PADDING = 4,
    BETWEEN = 2
};

bool attn_draws_words(const attn_record_part *part)
{
    return part->part == ATTN_PART_POOL && part->rows->length == 1;
}

static int64_t width_for(int64_t words)
{
    int64_t root = 0;
    while (root * root < words)
        root++;
    return WIDER * root > LEAST_WIDTH ? WIDER * root : LEAST_WIDTH;
}

/* One word in its box, at (x, y) or at the start of the next line; x moves on. */
static void put_word(attn_svg *svg, const attn_figure *figure, int64_t key, int64_t left,
                     int64_t right, int64_t *x, int64_t *y)
{
    static const attn_typeface word_type = {13, false}, number_type = {10, false};
    const attn_record_part *const part = &figure->record->parts[figure->part];
    const double weight = attn_map_weight(part, figure->layer, figure->head, 0, key);
    const int class = attn_figure_class(
        attn_scale_position(figure->scale, weight, attn_record_visible(part, 0)));
    const bool even = figure->scale == ATTN_SCALE_UNIFORM;
    attn_buffer word = {0}, number = {0};
    attn_put_word(&word, &part->keys->list[key], ATTN_SPELL_PLAIN);
    if (attn_hundredths(weight) >= 10)
        attn_put_weight(&number, weight);
    const int64_t beside =
        number.length > 0 ? PADDING + attn_type_width(number_type, number.text) : 0;
    const int64_t most = right - left - 2 * PADDING - beside;
    int64_t wide = attn_type_width(word_type, attn_buffer_text(&word));
    wide = wide < most ? wide : most;
    const int64_t box = wide + beside + 2 * PADDING;
    if (*x > left && *x + box > right) {
        *x = left;
        *y += LINE;
    }
    attn_buffer_print(&svg->text,
                      "<rect class=\"%c%d\" x=\"%lld\" y=\"%lld\" width=\"%lld\" "
                      "height=\"%d\" rx=\"2\"/>\n",
                      even ? 'u' : 'w', class, (long long)*x, (long long)*y,
                      (long long)box, BOX);
    attn_svg_reach(svg, *x + box, *y + BOX);
    const char ink[] = {even ? 'v' : 't', (char)(class < 10 ? '0' + class : '1'),
                        class < 10 ? '\0' : '0', '\0'};
    attn_svg_label label = {.class = ink,
                            .type = word_type,
                            .half_x = 2 * (*x + PADDING),
                            .y = *y + 14,
                            .width = wide};
    attn_svg_take_label(svg, &label, &word);
    label.type = number_type;
    label.half_x += 2 * (wide + PADDING);
    label.width = -1;
    if (number.length > 0)
        attn_svg_take_label(svg, &label, &number);
    *x += box + BETWEEN;
}

void attn_svg_put_words(attn_svg *svg, const attn_figure *figure, int64_t x, int64_t y)
{
    const attn_record_part *const part = &figure->record->parts[figure->part];
    const int64_t right = x + width_for(part->keys->length);
    int64_t at = x;
    for (int64_t key = 0; key < part->keys->length; key++)
        put_word(svg, figure, key, x, right, &at, &y);
    attn_svg_put_legend(svg, figure, x, y + BOX + 14);
}
