/* A record as one page: the answer, the grids of heads and the heads worth a look are
 * there without a script; with it any map of any head.  The page asks for nothing: its
 * policy allows its own style and the one script whose digest it names. */
#include "draw/html.h"
#include "base/context.h"
#include "draw/escape.h"
#include "draw/page.h"
#include "draw/svg.h"
#include "inspect/sentence.h"
#include <string.h>

enum {
    TITLE_BYTES = 120,     /* most of a title */
    VERDICT_COLUMNS = 240, /* two lines of a wide page: to be read in five seconds */
    GRID_COLUMNS = 16,     /* heads on a line: what 320 pixels hold */
    NUMBER_COLUMNS = 12,   /* most heads on a line with numbers, where lines are tight */
    WIDE_WORDS = 20,       /* most keys of a map beside the heads */
    TIGHT_LAYERS = 18      /* with more, grids are drawn in tight lines */
};

static void put_rgb(attn_buffer *out, attn_rgb colour)
{
    attn_buffer_print(out, "#%02X%02X%02X", colour.red, colour.green, colour.blue);
}

static void put_ramp(attn_buffer *out, const char *name, attn_theme theme,
                     attn_scale scale)
{
    attn_buffer_print(out, "--%s:", name);
    for (int i = 0; i < 5; i++) {
        attn_buffer_put(out, i ? " " : "");
        put_rgb(out, attn_ramp(theme, scale, i / 4.0));
    }
    attn_buffer_put(out, ";");
}

/* The colours of a theme: for the style by name, for the script as ramps, and for cells
 * that are there before any script runs as classes. */
static void put_theme(attn_buffer *out, attn_theme theme, const char *root)
{
    static const char *const names[] = {"paper", "ink", "soft", "amber"};
    attn_buffer_print(out, "%s{", root);
    for (int i = 0; i < 4; i++) {
        attn_buffer_print(out, "--%s:", names[i]);
        put_rgb(out, attn_colour_of(theme, (attn_colour)i));
        attn_buffer_put(out, ";");
    }
    put_ramp(out, "ramp", theme, ATTN_SCALE_LINEAR);
    put_ramp(out, "uniform", theme, ATTN_SCALE_UNIFORM);
    attn_buffer_put(out, "}");
    for (int i = 0; i < SVG_CLASSES; i++) {
        const attn_rgb fill =
            attn_ramp(theme, ATTN_SCALE_LINEAR, (double)i / (SVG_CLASSES - 1));
        attn_buffer_print(out, "%s .w%d{background:", root, i);
        put_rgb(out, fill);
        attn_buffer_put(out, ";color:");
        put_rgb(out, attn_ink_on(fill));
        attn_buffer_put(out, "}");
    }
}

static void put_colours(attn_buffer *out)
{
    put_theme(out, ATTN_THEME_LIGHT, ":root");
    attn_buffer_put(out, "@media screen and (prefers-color-scheme:dark){");
    put_theme(out, ATTN_THEME_DARK, ":root:not(.paper)");
    attn_buffer_put(out, "}\n");
}

/* What a function of sentence.h said, escaped. */
static void put_said(attn_buffer *out, attn_buffer *said)
{
    attn_put_xml(out, attn_buffer_text(said));
    out->failed = out->failed || said->failed;
    attn_buffer_free(said);
}

static void put_head_element(attn_buffer *out, const attn_record *record)
{
    attn_buffer_print(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
        "style-src 'unsafe-inline';img-src data:;script-src '%s'\">"
        "<link rel=\"icon\" href=\"data:,\">\n<title>attn look: ",
        attn_page_script_digest);
    attn_put_xml(out, record->source ? record->source : "");
    attn_buffer_put(out, "</title>\n<style>\n");
    put_colours(out);
    attn_buffer_put(out, attn_page_style);
    attn_buffer_put(out, "\n</style></head>\n");
}

/* A language of two or three letters is the text's own; any other says what the text is:
 * "next", "tags", "label". */
static void put_paragraph(attn_buffer *out, const char *class, const char *language,
                          const char *text)
{
    if (!text || !*text)
        return;
    const size_t letters = strlen(language);
    const bool spoken = letters == 2 || letters == 3;
    const bool listed = strlen(text) > TITLE_BYTES && !spoken; /* tags of a sentence */
    attn_buffer_print(out, "<p class=\"%s%s\" dir=\"auto\"", class,
                      listed ? " list" : "");
    attn_buffer_put(out, spoken ? " lang=\"" : letters > 0 ? "><small>" : ">");
    attn_put_xml(out, language);
    attn_buffer_put(out, spoken ? "\">" : letters > 0 ? "</small> " : "");
    attn_put_xml(out, text);
    attn_buffer_put(out, "</p>\n");
}

static void put_header(attn_buffer *out, const attn_figure *figure)
{
    const attn_record *const record = figure->record;
    attn_buffer_put(out, "<header>\n");
    put_paragraph(out, "source", record->source_language, record->source);
    put_paragraph(out, "target", record->target_language, record->translation);
    if (attn_verdict_lines(figure->record, figure->summary) > 0)
        attn_buffer_put(out, "<ul class=\"verdict\">");
    for (int64_t i = 0; i < attn_verdict_lines(figure->record, figure->summary); i++) {
        attn_buffer said = {0};
        attn_put_verdict(&said, record, figure->summary, i, ATTN_SPELL_TERMINAL,
                         VERDICT_COLUMNS);
        attn_buffer_put(out, "<li>");
        put_said(out, &said);
        attn_buffer_put(out, "</li>\n");
    }
    if (attn_verdict_lines(figure->record, figure->summary) > 0)
        attn_buffer_put(out, "</ul>");
    attn_buffer_put(out, "</header>\n");
}

/* Buttons of which one is pressed; the script finds them by field and value. */
static void put_choice(attn_buffer *out, const char *field, const char *label,
                       const char *const names[3])
{
    attn_buffer_print(out, "<span class=\"choice\" role=\"group\" aria-label=\"%s\">",
                      label);
    for (int i = 0; i < 3; i++)
        attn_buffer_print(out, "<button data-field=\"%s\" data-value=\"%d\">%s</button>",
                          field, i, names[i]);
    attn_buffer_put(out, "</span>");
}

static void put_controls(attn_buffer *out)
{
    attn_buffer_put(out, "<div class=\"bar\">");
    put_choice(out, "scale", "scale",
               (const char *const[]){"linear", "log", "× uniform"});
    attn_buffer_put(out, "<span class=\"named\"><span>special tokens</span>");
    put_choice(out, "special", "special tokens",
               (const char *const[]){"shown", "hidden", "renormalised"});
    attn_buffer_put(out, "</span><input id=\"find\" placeholder=\"find a word  /\" "
                         "aria-label=\"find a word\"></div>\n");
}

static void put_map_section(attn_buffer *out, const attn_figure *figure)
{
    attn_buffer_put(out, "<section class=\"map\" aria-label=\"map\">\n<noscript><h2>");
    attn_buffer name = {0};
    attn_put_map_name(&name, figure->record, figure->summary, figure->part, figure->layer,
                      figure->head);
    put_said(out, &name);
    attn_buffer_put(out, "</h2><figure>\n");
    attn_svg_write(out, figure, ATTN_SVG_BOTH, false);
    attn_buffer_put(out, "</figure></noscript>\n<div id=\"view\" hidden>"
                         "<div class=\"title\"><h2 id=\"name\"></h2>"
                         "<button class=\"link\" id=\"keys\">keys ?</button></div>\n");
    put_controls(out);
    attn_buffer_put(
        out,
        "<div id=\"badge\"></div><canvas id=\"map\" role=\"img\"></canvas>"
        "<div id=\"legend\"></div>"
        "<div id=\"read\" aria-live=\"polite\"></div><div id=\"texts\"></div></div>\n"
        "</section>\n");
}

/* Where a button leads. */
static void put_place(attn_buffer *out, int64_t part, int64_t layer, int64_t head)
{
    attn_buffer_print(out, " data-part=\"%lld\" data-layer=\"%lld\" data-head=\"%lld\"",
                      (long long)part, (long long)layer, (long long)head);
}

static void put_head_button(attn_buffer *out, const attn_figure *figure, int64_t index,
                            int64_t layer, int64_t head)
{
    const attn_head_summary *const summary =
        attn_summary_head(figure->summary, figure->record, index, layer, head);
    const bool known = summary->entropy >= 0;
    attn_buffer title = {0}, letter = {0}, entropy = {0};
    attn_put_map_name(&title, figure->record, figure->summary, index, layer, head);
    attn_put_role_letter(&letter, summary);
    if (known)
        attn_put_weight(&entropy, summary->entropy);
    else
        attn_buffer_put(&entropy, "–");
    attn_buffer_print(out, "<button class=\"head w%d\"",
                      attn_figure_class(known ? 1 - summary->entropy : 0));
    put_place(out, index, layer, head);
    attn_buffer_print(out, " title=\"");
    put_said(out, &title);
    attn_buffer_print(out, ", entropy %s\">", attn_buffer_text(&entropy));
    put_said(out, &letter);
    attn_buffer_put(out, "<small>");
    put_said(out, &entropy);
    attn_buffer_put(out, "</small></button>");
}

/* More than 16 heads of a layer go on over several lines, marked by the first head. */
static void put_grid(attn_buffer *out, const attn_figure *figure, int64_t index)
{
    const attn_record_part *const part = &figure->record->parts[index];
    const int64_t lines = (part->heads + GRID_COLUMNS - 1) / GRID_COLUMNS;
    const int64_t columns = (part->heads + lines - 1) / lines;
    attn_buffer_print(out, "<div class=\"part\" style=\"--columns:%lld\"><h3>",
                      (long long)columns);
    attn_put_part_title(out, part->part);
    attn_buffer_print(out, "</h3><div class=\"grid%s\"><i></i>",
                      lines > 1 ? " lines" : "");
    for (int64_t i = 0; i < columns; i++)
        attn_buffer_print(out, "<i>%lld</i>", (long long)i + 1);
    for (int64_t layer = 0; layer < part->layers; layer++)
        for (int64_t head = 0; head < part->heads; head++) {
            if (head == 0) {
                attn_buffer_put(out, "\n<button class=\"layer\"");
                put_place(out, index, layer, -1);
                attn_buffer_put(out, " aria-label=\"");
                attn_put_map_name(out, figure->record, figure->summary, index, layer, -1);
                attn_buffer_print(out, "\">%lld</button>", (long long)layer + 1);
            } else if (head % columns == 0) {
                for (int64_t i = head - 1; i % columns != columns - 1; i++)
                    attn_buffer_put(out, "<i></i>");
                attn_buffer_print(out, "<i>+%lld</i>", (long long)head);
            }
            put_head_button(out, figure, index, layer, head);
            const bool last = head + 1 == part->heads;
            for (int64_t i = head + 1; last && i % columns != 0; i++)
                attn_buffer_put(out, "<i></i>");
        }
    attn_buffer_put(out, "</div></div>\n");
}

static void put_finding(attn_buffer *out, const attn_figure *figure,
                        const attn_finding *finding)
{
    const attn_record_part *const part = &figure->record->parts[finding->part];
    attn_buffer said = {0};
    attn_buffer_put(out, "<li><button");
    put_place(out, finding->part, finding->layer, finding->head);
    if (finding->link_count > 0 && part->rows->length <= ATTN_MAP_EXACT)
        attn_buffer_print(out, " data-from=\"%lld\"", (long long)finding->links[0].row);
    attn_buffer_put(out, "><b>");
    attn_put_part_title(out, part->part);
    attn_buffer_print(out, " %lld.%lld</b><span><em>%s:</em> ",
                      (long long)finding->layer + 1, (long long)finding->head + 1,
                      attn_finding_name(finding->kind));
    attn_put_finding(&said, figure->record, finding, ATTN_SPELL_TERMINAL, 0);
    put_said(out, &said);
    attn_buffer_put(out, "</span></button></li>\n");
}

/* So that the list of heads worth a look is not far down. */
static void put_tightness(attn_buffer *out, const attn_record *record)
{
    int64_t layers = 0, heads = 0;
    for (int64_t i = 0; i < record->part_count; i++) {
        layers += record->parts[i].layers;
        heads = record->parts[i].heads > heads ? record->parts[i].heads : heads;
    }
    if (layers > TIGHT_LAYERS)
        attn_buffer_put(out, heads > NUMBER_COLUMNS ? " tight plain" : " tight");
}

/* Of one head alone the map is the thumbnail already. */
static bool has_thumbnails(const attn_record *record)
{
    int64_t heads = 0;
    for (int64_t i = 0; i < record->part_count; i++)
        heads += record->parts[i].layers * record->parts[i].heads;
    return heads > 1;
}

/* A layer of one head has no mean of several. */
static bool has_means(const attn_record *record)
{
    for (int64_t i = 0; i < record->part_count; i++)
        if (record->parts[i].heads > 1)
            return true;
    return false;
}

static void put_heads_section(attn_buffer *out, const attn_figure *figure)
{
    const attn_roles roles = attn_roles_of(figure->record, figure->summary, -1);
    attn_buffer_put(out, "<section class=\"heads\" aria-label=\"heads\">\n"
                         "<div class=\"title\"><h2>");
    attn_buffer_put(out, attn_roles_title(&roles));
    attn_buffer_put(out, "</h2>");
    if (has_thumbnails(figure->record))
        attn_buffer_put(out, "<button class=\"link\" id=\"thumbs\"></button>");
    attn_buffer_put(out, "</div>\n<div class=\"grids");
    put_tightness(out, figure->record);
    attn_buffer_put(out, "\">\n");
    for (int64_t i = 0; i < figure->record->part_count; i++)
        put_grid(out, figure, i);
    attn_buffer_put(out, "</div>\n<p class=\"note\">");
    attn_put_letters(out, &roles, &figure->summary->conventions);
    attn_buffer_put(out, " Number: entropy (0 one word, 1 all); the stronger the shade, "
                         "the sharper the head.");
    if (has_means(figure->record))
        attn_buffer_put(out, " A layer's number shows the mean of its heads.");
    attn_buffer_put(out, "</p>\n");
    if (figure->summary->finding_count > 0)
        attn_buffer_put(out, "<h2>Heads worth a look</h2><ul class=\"worth\">\n");
    for (int64_t i = 0; i < figure->summary->finding_count; i++)
        put_finding(out, figure, &figure->summary->findings[i]);
    if (figure->summary->finding_count > 0)
        attn_buffer_put(out, "</ul>");
    attn_buffer_put(out, "</section>\n");
}

static int64_t pieces(const attn_record_words *words)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < words->length; i++)
        sum += words->list[i].tokens;
    return sum;
}

static void put_footer(attn_buffer *out, const attn_figure *figure)
{
    const attn_record *const record = figure->record;
    attn_buffer model = {0};
    attn_buffer_put(out, "<footer>");
    attn_put_model(&model, record);
    put_said(out, &model);
    const int64_t source = pieces(&record->source_words);
    const int64_t read = pieces(&record->read_words);
    if (record->picture.grey)
        attn_buffer_print(out, " %lld places of the picture", (long long)source);
    else if (source > 0)
        attn_buffer_print(out, " %lld source pieces", (long long)source);
    else
        attn_buffer_print(out, " %lld pieces", (long long)read);
    if (attn_record_find_part(record, ATTN_PART_CROSS))
        attn_buffer_print(out, ", %lld written",
                          (long long)pieces(&record->written_words));
    if (record->forced)
        attn_buffer_put(out, "; the written text was given, not found by the model");
    attn_buffer_put(
        out, ". Roles are measured between words; entropy on word pieces, divided by "
             "the ln of the visible keys. Maps show words: weights summed over key "
             "pieces, averaged over query pieces.");
    for (int64_t i = 0; i < record->part_count; i++)
        if (record->parts[i].keys->length > ATTN_MAP_EXACT) {
            attn_buffer_put(out,
                            " Texts of more than 256 words are drawn in tiles: a cell "
                            "is the largest weight in it.");
            break;
        }
    attn_buffer_put(out, " A weight tells what was read, not what caused the output."
                         "</footer>\n");
}

static void put_help(attn_buffer *out, const attn_record *record)
{
    static const char *const keys[][2] = {
        {"← → ↑ ↓", "head, layer, across the parts; before a layer's heads, their mean"},
        {"[ ]", "previous, next row"},
        {", .", "previous, next column"},
        {"/", "find a word; Enter: the next one"},
        {"s", "scale: linear, log, × uniform"},
        {"t", "special tokens: shown, hidden, renormalised"},
        {"m", "roles or thumbnails"},
        {"Esc", "let row and column go"}};
    attn_buffer_put(out, "<dialog id=\"help\" aria-label=\"keys\"><h2>Keys</h2><dl>");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (*keys[i][0] != 'm' || has_thumbnails(record))
            attn_buffer_print(out, "<dt>%s</dt><dd>%s</dd>", keys[i][0], keys[i][1]);
    attn_buffer_put(out,
                    "</dl><p class=\"note\">Point at a cell, a word or a head to look; "
                    "click to keep it. The address holds the state: copy it to share "
                    "the view.</p><form method=\"dialog\"><button class=\"link\">close"
                    "</button></form></dialog>\n");
}

/* With so many words the map takes the page's width, above the heads. */
static bool is_wide(const attn_record *record)
{
    for (int64_t i = 0; i < record->part_count; i++)
        if (record->parts[i].keys->length > WIDE_WORDS && !record->picture.grey)
            return true;
    return false;
}

static attn_status put_page(attn_buffer *out, const attn_figure *figure,
                            attn_error *error)
{
    put_head_element(out, figure->record);
    attn_buffer_put(out, "<body>\n");
    put_header(out, figure);
    attn_buffer_put(out,
                    is_wide(figure->record) ? "<main class=\"wide\">\n" : "<main>\n");
    put_map_section(out, figure);
    put_heads_section(out, figure);
    attn_buffer_put(out, "</main>\n");
    put_footer(out, figure);
    put_help(out, figure->record);
    attn_buffer_put(out, "<script type=\"application/json\" id=\"data\">");
    ATTN_TRY(attn_html_put_data(out, figure, error));
    attn_buffer_print(out, "</script>\n<script>%s</script>\n</body></html>\n",
                      attn_page_script);
    return ATTN_OK;
}

attn_status attn_draw_html(const attn_record *record, const attn_summary *summary,
                           const attn_draw_options *options, char **text, size_t *length,
                           attn_error *error)
{
    attn_figure figure;
    ATTN_TRY(attn_figure_create(&figure, record, summary, options, error));
    attn_buffer buffer = {0};
    attn_status status = put_page(&buffer, &figure, error);
    attn_figure_destroy(&figure);
    if (status == ATTN_OK)
        status = attn_buffer_take(&buffer, text, length, error);
    attn_buffer_free(&buffer);
    return status;
}
