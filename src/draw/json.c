/* A record and what is measured from it as JSON, for programs: all weights, all numbers,
 * and the sentences of the pictures.  Rows, keys, layers and heads count from 1. */
#include "draw/draw.h"
#include "inspect/sentence.h"

typedef struct writer {
    attn_buffer out;
    const attn_record *record;
    const attn_summary *summary;
} writer;

/* Exact: what a reader gets back is the text, byte for byte (it is UTF-8). */
static void put_string(writer *w, const char *text)
{
    attn_buffer_put(&w->out, "\"");
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < 0x20 || byte == 0x7f)
            attn_buffer_print(&w->out, "\\u%04x", byte);
        else if (byte == '"' || byte == '\\')
            attn_buffer_print(&w->out, "\\%c", byte);
        else
            attn_buffer_put_bytes(&w->out, at, 1);
    }
    attn_buffer_put(&w->out, "\"");
}

static void put_text(writer *w, const char *name, const char *text)
{
    attn_buffer_print(&w->out, "\"%s\":", name);
    put_string(w, text == NULL ? "" : text);
}

static void put_label(writer *w, const attn_record_word *word)
{
    attn_buffer label = {0};
    attn_put_word(&label, word, ATTN_SPELL_PLAIN);
    put_string(w, attn_buffer_text(&label));
    w->out.failed = w->out.failed || label.failed;
    attn_buffer_free(&label);
}

/* Seven digits give the fp32 weights back but for their last bit, so that rows sum to 1.
 */
static void put_numbers(writer *w, const float *numbers, int64_t count)
{
    attn_buffer_put(&w->out, "[");
    for (int64_t i = 0; i < count; i++)
        attn_buffer_print(&w->out, "%s%.7g", i > 0 ? "," : "", (double)numbers[i]);
    attn_buffer_put(&w->out, "]");
}

static void put_matrix(writer *w, const float *numbers, int64_t rows, int64_t columns)
{
    attn_buffer_put(&w->out, "[");
    for (int64_t i = 0; i < rows; i++) {
        attn_buffer_put(&w->out, i > 0 ? ",\n" : "");
        put_numbers(w, numbers + i * columns, columns);
    }
    attn_buffer_put(&w->out, "]");
}

/* null where there is none. */
static void put_entropy(writer *w, double entropy)
{
    if (entropy < 0)
        attn_buffer_put(&w->out, "null");
    else
        attn_buffer_print(&w->out, "%.6g", entropy);
}

static void put_words(writer *w, const char *name, const attn_record_words *words)
{
    attn_buffer_print(&w->out, "\"%s\":[", name);
    for (int64_t i = 0; i < words->length; i++) {
        const attn_record_word *word = &words->list[i];
        attn_buffer_put(&w->out, i > 0 ? ",{" : "{");
        put_text(w, "text", word->text);
        attn_buffer_print(&w->out, ",\"special\":%s,\"occurrence\":%lld,\"tokens\":%lld}",
                          word->special ? "true" : "false", (long long)word->occurrence,
                          (long long)word->tokens);
    }
    attn_buffer_put(&w->out, "]");
}

static void put_labels(writer *w, const char *name, const attn_record_words *words)
{
    attn_buffer_print(&w->out, "\"%s\":[", name);
    for (int64_t i = 0; i < words->length; i++) {
        attn_buffer_put(&w->out, i > 0 ? "," : "");
        put_label(w, &words->list[i]);
    }
    attn_buffer_put(&w->out, "]");
}

static void put_conventions(writer *w)
{
    const attn_conventions *limits = &w->summary->conventions;
    attn_buffer_print(&w->out,
                      "\"conventions\":{\"clear\":%.6g,\"lead\":%.6g,"
                      "\"strong\":%.6g,\"weak\":%.6g,\"lift\":%.6g,\"broad\":%.6g,"
                      "\"faint\":%.6g,\"same_rows\":%lld,"
                      "\"unread\":%.6g,\"unread_share\":%.6g,\"unread_words\":%lld,"
                      "\"far_distance\":%lld}",
                      limits->clear, limits->lead, limits->strong, limits->weak,
                      limits->lift, limits->broad, limits->faint,
                      (long long)limits->same_rows, limits->unread, limits->unread_share,
                      (long long)limits->unread_words, (long long)limits->far_distance);
}

static void put_verdict(writer *w)
{
    const attn_summary *summary = w->summary;
    attn_buffer_put(&w->out, "\"verdict\":[");
    for (int64_t line = 0; line < attn_verdict_lines(w->record, summary); line++) {
        attn_buffer sentence = {0};
        attn_put_verdict(&sentence, w->record, summary, line, ATTN_SPELL_PLAIN, 0);
        attn_buffer_put(&w->out, line > 0 ? "," : "");
        put_string(w, attn_buffer_text(&sentence));
        w->out.failed = w->out.failed || sentence.failed;
        attn_buffer_free(&sentence);
    }
    attn_buffer_put(&w->out, "]");
}

static void put_alignment(writer *w)
{
    const attn_summary *summary = w->summary;
    attn_buffer_put(&w->out, "\"alignment\":");
    if (summary->alignment_part < 0) {
        attn_buffer_put(&w->out, "null");
        return;
    }
    const attn_record_part *part = &w->record->parts[summary->alignment_part];
    attn_buffer_print(&w->out,
                      "{\"layer\":%lld,\"of\":\"mean of the heads\",\"clear\":%lld,"
                      "\"judged\":%lld,\n\"rows\":[",
                      (long long)summary->alignment_layer + 1,
                      (long long)summary->clear_count, (long long)summary->judged_count);
    for (int64_t i = 0; i < part->rows->length; i++) {
        const attn_link *top = &summary->top[i];
        const bool is_judged =
            part->part == ATTN_PART_CROSS && !part->rows->list[i].special;
        const char *const clear = !is_judged                    ? "null"
                                  : attn_is_unclear(summary, i) ? "false"
                                                                : "true";
        attn_buffer_put(&w->out, i > 0 ? ",\n{\"word\":" : "{\"word\":");
        put_label(w, &part->rows->list[i]);
        attn_buffer_print(&w->out, ",\"key\":%lld,\"reads\":", (long long)top->key + 1);
        put_label(w, &part->keys->list[top->key]);
        attn_buffer_print(&w->out, ",\"weight\":%.7g,\"clear\":%s,\"at_special\":%s}",
                          top->weight, clear,
                          part->keys->list[top->key].special ? "true" : "false");
    }
    attn_buffer_put(&w->out, "],\n\"weights\":");
    put_matrix(w, summary->alignment, part->rows->length, part->keys->length);
    attn_buffer_put(&w->out, "}");
}

static void put_head(writer *w, int64_t p, int64_t index)
{
    const attn_record_part *part = &w->record->parts[p];
    const attn_head_summary *head = &w->summary->parts[p].heads[index];
    const int64_t rows = part->rows->length, keys = part->keys->length;
    char letter[2] = {attn_role_letter(head), '\0'};
    attn_buffer_print(&w->out,
                      "{\"layer\":%lld,\"head\":%lld,\"role\":\"%s\",\"letter\":\"%s\","
                      "\"mass\":%.6g,\"even\":%.6g,\"entropy\":",
                      (long long)(index / part->heads) + 1,
                      (long long)(index % part->heads) + 1, attn_role_name(head->role),
                      letter[0] != '\0' ? letter : "·", head->mass, head->even);
    put_entropy(w, head->entropy);
    attn_buffer_put(&w->out, ",\"masses\":{");
    for (attn_role role = ATTN_ROLE_PREVIOUS; role <= ATTN_ROLE_SAME; role++)
        attn_buffer_print(&w->out, "%s\"%s\":%.6g", role > ATTN_ROLE_PREVIOUS ? "," : "",
                          attn_role_name(role), head->masses[role]);
    attn_buffer_put(&w->out, "},\"row_entropy\":[");
    for (int64_t i = 0; i < rows; i++) {
        attn_buffer_put(&w->out, i > 0 ? "," : "");
        put_entropy(w, (double)part->row_entropy[index * rows + i]);
    }
    attn_buffer_put(&w->out, "],\n\"weights\":");
    put_matrix(w, part->weights + index * rows * keys, rows, keys);
    attn_buffer_put(&w->out, "}");
}

static void put_part(writer *w, int64_t p)
{
    const attn_record_part *part = &w->record->parts[p];
    attn_buffer_print(&w->out, "{\"part\":\"%s\",\"causal\":%s,\n",
                      attn_part_name(part->part), part->causal ? "true" : "false");
    put_labels(w, "rows", part->rows);
    attn_buffer_put(&w->out, ",\n");
    put_labels(w, "keys", part->keys);
    attn_buffer_put(&w->out, ",\n\"heads\":[\n");
    for (int64_t h = 0; h < part->layers * part->heads; h++) {
        attn_buffer_put(&w->out, h > 0 ? ",\n" : "");
        put_head(w, p, h);
    }
    attn_buffer_put(&w->out, "]}");
}

static void put_finding(writer *w, const attn_finding *finding)
{
    attn_buffer sentence = {0};
    attn_put_finding(&sentence, w->record, finding, ATTN_SPELL_PLAIN, 0);
    attn_buffer_print(&w->out,
                      "{\"part\":\"%s\",\"layer\":%lld,\"head\":%lld,\"kind\":\"%s\","
                      "\"value\":%.6g,\"even\":%.6g,",
                      attn_part_name(w->record->parts[finding->part].part),
                      (long long)finding->layer + 1, (long long)finding->head + 1,
                      attn_finding_name(finding->kind), finding->value, finding->even);
    put_text(w, "sentence", attn_buffer_text(&sentence));
    attn_buffer_put(&w->out, ",\"links\":[");
    for (int64_t i = 0; i < finding->link_count; i++) {
        const attn_link *link = &finding->links[i];
        attn_buffer_print(&w->out, "%s{\"row\":%lld,\"key\":", i > 0 ? "," : "",
                          (long long)link->row + 1);
        if (link->key < 0)
            attn_buffer_put(&w->out, "null");
        else
            attn_buffer_print(&w->out, "%lld", (long long)link->key + 1);
        attn_buffer_print(&w->out, ",\"weight\":%.7g}", link->weight);
    }
    attn_buffer_put(&w->out, "]}");
    w->out.failed = w->out.failed || sentence.failed;
    attn_buffer_free(&sentence);
}

static void put_header(writer *w)
{
    const attn_record *record = w->record;
    attn_buffer_put(&w->out, "{\"format\":\"attn.look\",\"version\":1,\n");
    put_text(w, "model", record->model);
    attn_buffer_put(&w->out, ",\n");
    put_text(w, "source", record->source);
    attn_buffer_put(&w->out, ",\n");
    put_text(w, "translation", record->translation);
    attn_buffer_put(&w->out, ",\n");
    put_text(w, "source_language", record->source_language);
    attn_buffer_put(&w->out, ",");
    put_text(w, "target_language", record->target_language);
    attn_buffer_print(&w->out, ",\"beams\":%lld,\"forced\":%s,\"finished\":%s,\n",
                      (long long)record->beams, record->forced ? "true" : "false",
                      record->finished ? "true" : "false");
    put_words(w, "source_words", &record->source_words);
    attn_buffer_put(&w->out, ",\n");
    put_words(w, "written_words", &record->written_words);
    attn_buffer_put(&w->out, ",\n");
    put_words(w, "read_words", &record->read_words);
    attn_buffer_put(&w->out, ",\n");
}

attn_status attn_draw_json(const attn_record *record, const attn_summary *summary,
                           const attn_draw_options *options, char **text, size_t *length,
                           attn_error *error)
{
    (void)options;
    writer w = {.record = record, .summary = summary};
    put_header(&w);
    put_conventions(&w);
    attn_buffer_put(&w.out, ",\n");
    put_verdict(&w);
    attn_buffer_put(&w.out, ",\n");
    put_alignment(&w);
    attn_buffer_put(&w.out, ",\n\"notable\":[");
    for (int64_t i = 0; i < summary->finding_count; i++) {
        attn_buffer_put(&w.out, i > 0 ? ",\n" : "\n");
        put_finding(&w, &summary->findings[i]);
    }
    attn_buffer_put(&w.out, "],\n\"parts\":[\n");
    for (int64_t p = 0; p < record->part_count; p++) {
        attn_buffer_put(&w.out, p > 0 ? ",\n" : "");
        put_part(&w, p);
    }
    attn_buffer_put(&w.out, "]}\n");
    return attn_buffer_take(&w.out, text, length, error);
}
