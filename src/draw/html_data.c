/* The record as the page's script reads it.  A weight is a u16, weight × 65535, which is
 * off by at most 1/131070; base64 takes 2.7 bytes a weight. */
#include "base/context.h"
#include "draw/escape.h"
#include "draw/html.h"
#include "inspect/sentence.h"
#include <math.h>
#include <stdlib.h>

static void put_labels(attn_buffer *out, const char *name, const attn_map_side *side)
{
    attn_buffer_print(out, "\"%s\":[", name);
    for (int64_t i = 0; i < side->length; i++) {
        attn_buffer_put(out, i ? "," : "");
        attn_put_json(out, side->labels[i]);
    }
    attn_buffer_print(out, "],\"%sSpecial\":[", name[0] == 'r' ? "row" : "key");
    for (int64_t i = 0; i < side->length; i++)
        attn_buffer_print(out, "%s%d", i ? "," : "", side->special[i]);
    attn_buffer_put(out, "],");
}

static void put_role(attn_buffer *out, const attn_head_summary *head)
{
    attn_buffer role = {0};
    attn_put_role(&role, head);
    attn_put_json(out, attn_buffer_text(&role));
    out->failed = out->failed || role.failed;
    attn_buffer_free(&role);
}

/* In ten-thousandths, without the locale's decimal point. */
static void put_entropy(attn_buffer *out, const attn_head_summary *head)
{
    if (head->entropy < 0) {
        attn_buffer_put(out, "-1");
        return;
    }
    const long shares = lround(head->entropy * 10000);
    attn_buffer_print(out, "%ld.%04ld", shares / 10000, shares % 10000);
}

static void put_heads(attn_buffer *out, const attn_figure *figure, int64_t index,
                      const char *name,
                      void (*put)(attn_buffer *, const attn_head_summary *))
{
    const attn_record_part *const part = &figure->record->parts[index];
    attn_buffer_print(out, "\"%s\":[", name);
    for (int64_t layer = 0; layer < part->layers; layer++) {
        attn_buffer_put(out, layer ? ",[" : "[");
        for (int64_t head = 0; head < part->heads; head++) {
            attn_buffer_put(out, head ? "," : "");
            put(out,
                attn_summary_head(figure->summary, figure->record, index, layer, head));
        }
        attn_buffer_put(out, "]");
    }
    attn_buffer_put(out, "]");
}

/* The sides of every part; made once, as words of long texts become tiles. */
typedef struct sides {
    attn_map_side rows, keys;
} sides;

static void put_part(attn_buffer *out, const attn_figure *figure, int64_t index,
                     const sides *side, int64_t at)
{
    static const char *const row_says[] = {"source words", "the word just written",
                                           "the word being written", "the label"};
    static const char *const key_says[] = {"source words", "words written so far",
                                           "source words", "source words"};
    const attn_record_part *const part = &figure->record->parts[index];
    attn_buffer title = {0};
    attn_put_part_title(&title, part->part);
    attn_buffer_put(out, "{\"name\":");
    attn_put_json(out, attn_buffer_text(&title));
    attn_buffer_print(out, ",\"letter\":\"%c\",", attn_part_name(part->part)[0]);
    put_labels(out, "rows", &side->rows);
    put_labels(out, "keys", &side->keys);
    attn_buffer_print(out,
                      "\"self\":%s,\"causal\":%s,\"layers\":%lld,\"heads\":%lld,"
                      "\"tile\":%lld,\"words\":%lld,\"at\":%lld,",
                      attn_record_is_self(part) ? "true" : "false",
                      part->causal ? "true" : "false", (long long)part->layers,
                      (long long)part->heads, (long long)side->keys.tile,
                      (long long)side->keys.words, (long long)at);
    const bool places = attn_draws_places(figure->record, part, &side->rows, &side->keys);
    attn_buffer_print(
        out, "\"verb\":\"%s\",\"rowSay\":\"%s\",\"keySay\":\"%s\",\"across\":%lld,",
        attn_record_is_self(part) ? "looks at" : "reads", row_says[part->part],
        places ? "places of the picture" : key_says[part->part],
        (long long)(places ? figure->record->picture.grid_columns : 0));
    put_heads(out, figure, index, "roles", put_role);
    attn_buffer_put(out, ",");
    put_heads(out, figure, index, "entropy", put_entropy);
    attn_buffer_put(out, "}");
    out->failed = out->failed || title.failed;
    attn_buffer_free(&title);
}

static int64_t part_weights(const attn_record_part *part, const sides *side)
{
    return part->layers * part->heads * side->rows.length * side->keys.length;
}

/* The maps of one part into bytes, which has room for them. */
static attn_status encode(uint8_t *bytes, const attn_record_part *part, const sides *side,
                          attn_error *error)
{
    const int64_t cells = side->rows.length * side->keys.length;
    float *const map = malloc((size_t)cells * sizeof *map + 1);
    if (!map)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for a map of %lld cells",
                              (long long)cells);
    for (int64_t i = 0; i < part->layers * part->heads; i++) {
        attn_map_weights(map, part, i / part->heads, i % part->heads, &side->rows,
                         &side->keys);
        for (int64_t j = 0; j < cells; j++) {
            const double weight = fmin(fmax((double)map[j], 0), 1);
            const uint32_t level = (uint32_t)lround(weight * 65535);
            *bytes++ = (uint8_t)(level & 0xFF);
            *bytes++ = (uint8_t)(level >> 8);
        }
    }
    free(map);
    return ATTN_OK;
}

static attn_status put_maps(attn_buffer *out, const attn_figure *figure,
                            const sides *side, int64_t weights, attn_error *error)
{
    uint8_t *const bytes = malloc((size_t)weights * 2 + 1);
    if (!bytes)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for maps of %lld weights",
                              (long long)weights);
    attn_status status = ATTN_OK;
    int64_t at = 0;
    for (int64_t i = 0; i < figure->record->part_count && status == ATTN_OK; i++) {
        status = encode(bytes + 2 * at, &figure->record->parts[i], &side[i], error);
        at += part_weights(&figure->record->parts[i], &side[i]);
    }
    if (status == ATTN_OK)
        attn_put_base64(out, bytes, (size_t)weights * 2);
    free(bytes);
    return status;
}

static void put_picture(attn_buffer *out, const attn_record_picture *picture)
{
    const attn_rgb shade = attn_places_shade();
    attn_buffer_put(out, "\"picture\":{\"image\":\"");
    attn_put_picture(out, picture);
    attn_buffer_print(out, "\",\"shade\":\"#%02x%02x%02x\"},", shade.red, shade.green,
                      shade.blue);
}

static void put_weight(attn_buffer *out, double weight)
{
    attn_buffer_put(out, "\"");
    attn_put_weight(out, weight);
    attn_buffer_put(out, "\"");
}

/* Where rows are no tiles of several words: as the figures mark them. */
static void put_verdict(attn_buffer *out, const attn_figure *figure, const sides *side)
{
    const attn_summary *const summary = figure->summary;
    if (summary->alignment_part < 0 || side[summary->alignment_part].rows.tile > 1)
        return;
    attn_buffer_print(out, "\"verdict\":{\"part\":%lld,\"layer\":%lld,\"unclear\":[",
                      (long long)summary->alignment_part,
                      (long long)summary->alignment_layer);
    for (int64_t i = 0; i < summary->unclear_count; i++)
        attn_buffer_print(out, "%s%lld", i ? "," : "", (long long)summary->unclear[i]);
    attn_buffer_put(out, "]");
    if (figure->record->picture.grey != NULL) {
        attn_buffer_put(out, ",\"clear\":");
        put_weight(out, summary->conventions.clear);
        attn_buffer_put(out, ",\"held\":[");
        for (int64_t i = 0; i < side[summary->alignment_part].rows.length; i++) {
            attn_buffer_put(out, i ? "," : "");
            put_weight(out, summary->top[i].weight);
        }
        attn_buffer_put(out, "]");
    }
    attn_buffer_put(out, "},");
}

static attn_status put_all(attn_buffer *out, const attn_figure *figure, const sides *side,
                           attn_error *error)
{
    const attn_record *const record = figure->record;
    int64_t at = 0;
    attn_buffer_put(out, "{\"parts\":[");
    for (int64_t i = 0; i < record->part_count; i++) {
        attn_buffer_put(out, i ? "," : "");
        put_part(out, figure, i, &side[i], at);
        at += part_weights(&record->parts[i], &side[i]);
    }
    if (at > HTML_DATA_LIMIT_BYTES / 8 * 3)
        return attn_error_set(
            error, ATTN_EINVAL,
            "a page with %lld weights would take %lld MB, expected at most %d MB: draw "
            "single heads as SVG, or save the record",
            (long long)at, (long long)(at / 375000), HTML_DATA_LIMIT_BYTES / 1000000);
    attn_buffer_print(
        out,
        "],\"start\":{\"scale\":%d,\"part\":%lld,\"layer\":%lld,\"head\":%lld,"
        "\"row\":%lld},",
        (int)figure->scale, (long long)figure->part, (long long)figure->layer,
        (long long)figure->head,
        (long long)(figure->row < 0 ? -1 : figure->row / figure->rows.tile));
    put_verdict(out, figure, side);
    if (record->picture.grey != NULL)
        put_picture(out, &record->picture);
    attn_buffer_put(out, "\"maps\":\"");
    ATTN_TRY(put_maps(out, figure, side, at, error));
    attn_buffer_put(out, "\"}");
    return ATTN_OK;
}

attn_status attn_html_put_data(attn_buffer *out, const attn_figure *figure,
                               attn_error *error)
{
    sides side[ATTN_RECORD_PARTS] = {0};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < figure->record->part_count && status == ATTN_OK; i++) {
        const attn_record_part *const part = &figure->record->parts[i];
        status = attn_map_side_create(&side[i].rows, part->rows, error);
        if (status == ATTN_OK)
            status = attn_map_side_create(&side[i].keys, part->keys, error);
    }
    if (status == ATTN_OK)
        status = put_all(out, figure, side, error);
    for (int64_t i = 0; i < ATTN_RECORD_PARTS; i++) {
        attn_map_side_destroy(&side[i].rows);
        attn_map_side_destroy(&side[i].keys);
    }
    return status;
}
