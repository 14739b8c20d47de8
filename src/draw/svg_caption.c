/* What pictures say about themselves: names of maps, captions. */
#include "draw/svg_figure.h"
#include "inspect/sentence.h"

void attn_put_part_title(attn_buffer *buffer, attn_part part)
{
    const char *const name = attn_part_name(part);
    attn_buffer_print(buffer, "%c%s", name[0] - 'a' + 'A', name + 1);
}

static void put_heads(attn_buffer *buffer, int64_t heads)
{
    attn_buffer_print(buffer, heads == 1 ? "%lld head" : "%lld heads", (long long)heads);
}

void attn_put_map_name(attn_buffer *buffer, const attn_record *record,
                       const attn_summary *summary, int64_t part, int64_t layer,
                       int64_t head)
{
    attn_put_part_title(buffer, record->parts[part].part);
    attn_buffer_print(buffer, " layer %lld", (long long)layer + 1);
    if (head < 0) {
        attn_buffer_put(buffer, ", ");
        attn_put_mean(buffer, record->parts[part].heads);
        return;
    }
    attn_buffer_print(buffer, " head %lld: ", (long long)head + 1);
    attn_put_role(buffer, attn_summary_head(summary, record, part, layer, head));
}

void attn_put_model(attn_buffer *buffer, const attn_record *record)
{
    const attn_record_part *const encoder =
        attn_record_find_part(record, ATTN_PART_ENCODER);
    const attn_record_part *const decoder =
        attn_record_find_part(record, ATTN_PART_DECODER);
    const attn_record_part *const any = encoder ? encoder : record->parts;
    attn_buffer_put(buffer, "Model ");
    attn_put_text(buffer,
                  record->model && *record->model ? record->model : "without a name",
                  ATTN_SPELL_TERMINAL);
    if (record->part_count == 0) {
        attn_buffer_put(buffer, ".");
        return;
    }
    attn_buffer_print(buffer, ": %lld", (long long)any->layers);
    if (encoder && decoder)
        attn_buffer_print(buffer, "+%lld", (long long)decoder->layers);
    attn_buffer_put(buffer, encoder && decoder ? " layers of "
                            : any->layers == 1 ? " layer of "
                                               : " layers of ");
    put_heads(buffer, any->heads);
    attn_buffer_put(buffer, ".");
}

static void put_numbers(attn_buffer *buffer, const attn_figure *figure)
{
    static const char *const scales[] = {"linear scale", "log scale, 1 + log10(p)/3",
                                         "scale: times an even spread"};
    attn_buffer_print(buffer, "; %s", scales[figure->scale]);
    const int64_t tile =
        figure->rows.tile > figure->keys.tile ? figure->rows.tile : figure->keys.tile;
    if (attn_draws_words(&figure->record->parts[figure->part]))
        attn_buffer_put(buffer, "; beside a word: its weight, from .10");
    else if (tile > 1)
        attn_buffer_print(buffer,
                          "; each cell is the largest weight of a tile of %lld × "
                          "%lld words",
                          (long long)figure->rows.tile, (long long)figure->keys.tile);
    else
        attn_buffer_put(buffer, "; numbers are hundredths, from 10");
    attn_buffer_put(buffer, ". ");
}

/* The word whose row has a frame: a matrix has one. */
static void put_framed(attn_buffer *buffer, const attn_figure *figure,
                       const attn_record_part *part)
{
    if (figure->row < 0 || attn_draws_words(part) ||
        attn_draws_places(figure->record, part, &figure->rows, &figure->keys))
        return;
    attn_buffer_put(buffer, "; framed: the row of \"");
    attn_put_word(buffer, &part->rows->list[figure->row], ATTN_SPELL_TERMINAL);
    attn_buffer_put(buffer, "\"");
}

void attn_put_caption(attn_buffer *buffer, const attn_figure *figure)
{
    const attn_record_part *const part = &figure->record->parts[figure->part];
    attn_put_model(buffer, figure->record);
    attn_buffer_print(buffer, " Left: %s layer %lld, ", attn_part_name(part->part),
                      (long long)figure->layer + 1);
    if (figure->head < 0)
        attn_put_mean(buffer, part->heads);
    else
        attn_buffer_print(buffer, "head %lld", (long long)figure->head + 1);
    if (figure->sharpest)
        attn_buffer_put(buffer, ", the layer with the lowest entropy");
    put_framed(buffer, figure, part);
    if (figure->record->picture.grey != NULL)
        attn_buffer_put(buffer, "; the darker a place, the nearer its weight to the "
                                "word's largest; beside a word: the weight on its top "
                                "place and right around it. ");
    else
        put_numbers(buffer, figure);
    attn_buffer_put(
        buffer, "Right: entropy over word pieces, divided by the ln of the visible keys. "
                "Pieces joined to words: summed over keys, averaged over queries. ");
    if (figure->record->forced)
        attn_buffer_put(buffer, "The written text was given, not found by the model. ");
    attn_buffer_put(buffer, part->causal
                                ? "Hatched: comes later, cannot be seen. Nothing "
                                  "else is hidden, nothing renormalised."
                                : "Nothing is hidden or renormalised.");
}
