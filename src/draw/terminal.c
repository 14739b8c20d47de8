/* The terminal picture, answer first: translation, verdict, alignment, heads, heads worth
 * a look, what to ask next. */
#include "base/context.h"
#include "draw/terminal_canvas.h"
#include "text/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LINES = 4, MOST_ROWS = 24, PICKED_ROWS = 12 };

void attn_draw_options_init(attn_draw_options *options)
{
    *options = (attn_draw_options){
        .theme = ATTN_THEME_LIGHT,
        .scale = ATTN_SCALE_AUTO,
        .part = -1,
        .layer = -1,
        .head = -1,
        .row = -1,
        .width = 80,
    };
}

static void draw_text(canvas *c, const char *language, canvas_style style,
                      const char *text)
{
    const size_t one = strlen(c->record->source_language);
    const size_t other = strlen(c->record->target_language);
    const size_t longest = one > other ? one : other;
    const int64_t indent = longest < 4 ? 4 : (int64_t)longest + 1;
    canvas_print(c, STYLE_DIM, "%-*s", (int)indent, language);
    canvas_wrap(c, style, c->spelling, text, indent, TEXT_LINES);
}

static void draw_verdict(canvas *c)
{
    const int64_t lines = attn_verdict_lines(c->record, c->summary);
    for (int64_t line = 0; line < lines; line++) {
        attn_buffer text = {0};
        attn_put_verdict(&text, c->record, c->summary, line, c->spelling,
                         c->options->width);
        canvas_wrap(c, line == 0 ? STYLE_BOLD : STYLE_AMBER, ATTN_SPELL_PLAIN,
                    attn_buffer_text(&text), 0, TEXT_LINES);
        c->out.failed = c->out.failed || text.failed;
        attn_buffer_free(&text);
    }
    if (lines > 0)
        attn_buffer_put(&c->out, "\n");
}

/* Whether the overview shows a part of the record. */
static bool is_shown(const canvas *c, int64_t p)
{
    return c->options->part < 0 || (int)c->record->parts[p].part == c->options->part;
}

/* The head that heads worth a look begin with, or the only one; NULL without either. */
static const attn_finding *first_finding(const canvas *c)
{
    static const attn_finding only = {.part = 0};
    const attn_record *record = c->record;
    for (int64_t i = 0; i < c->summary->finding_count; i++)
        if (is_shown(c, c->summary->findings[i].part))
            return &c->summary->findings[i];
    const bool is_alone = record->part_count == 1 && record->parts[0].layers == 1 &&
                          record->parts[0].heads == 1;
    return is_alone && record->parts[0].rows->length > 0 ? &only : NULL;
}

/* Without an alignment. */
static void draw_sharpest(canvas *c)
{
    const attn_finding *finding = first_finding(c);
    if (finding == NULL)
        return;
    const attn_record_part *part = &c->record->parts[finding->part];
    char about[96];
    snprintf(about, sizeof about, "%s %lld.%lld, %s", attn_part_name(part->part),
             (long long)finding->layer + 1, (long long)finding->head + 1,
             c->summary->finding_count > 0 ? attn_finding_name(finding->kind)
                                           : "its one head");
    canvas_title(c, attn_question(c->record, part), about);
    canvas_matrix matrix = {.part = part,
                            .weights =
                                attn_record_weights(part, finding->layer, finding->head),
                            .row_count = part->rows->length};
    int64_t rows[PICKED_ROWS];
    if (part->rows->length > MOST_ROWS) {
        matrix.rows = rows;
        matrix.row_count = canvas_pick_rows(&matrix, rows, PICKED_ROWS);
        attn_buffer said = {0};
        attn_buffer_print(&said,
                          "%lld words are too many for a map here: %s %lld with the most "
                          "weight on one word; all: -o look.html",
                          (long long)part->rows->length,
                          part->causal ? "the last, and the" : "the",
                          (long long)matrix.row_count - part->causal);
        canvas_wrap(c, STYLE_DIM, ATTN_SPELL_PLAIN, attn_buffer_text(&said), 0, 4);
        c->out.failed = c->out.failed || said.failed;
        attn_buffer_free(&said);
    }
    canvas_draw_matrix(c, &matrix);
    attn_buffer_put(&c->out, "\n");
}

static void title_of_layer(canvas *c, const attn_record_part *part, int64_t layer)
{
    attn_buffer about = {0};
    attn_buffer_print(&about, "%s layer %lld, ", attn_part_name(part->part),
                      (long long)layer + 1);
    attn_put_mean(&about, part->heads);
    canvas_title(c, attn_question(c->record, part), attn_buffer_text(&about));
    c->out.failed = c->out.failed || about.failed;
    attn_buffer_free(&about);
}

/* Of a long text only the rows that are unclear, and a count of the others. */
static void draw_alignment(canvas *c)
{
    const attn_summary *summary = c->summary;
    if (summary->alignment_part < 0 || !is_shown(c, summary->alignment_part)) {
        draw_sharpest(c);
        return;
    }
    const attn_record_part *part = &c->record->parts[summary->alignment_part];
    title_of_layer(c, part, summary->alignment_layer);
    canvas_matrix matrix = {.part = part,
                            .weights = summary->alignment,
                            .row_count = part->rows->length,
                            .judged = part->part == ATTN_PART_CROSS};
    if (c->record->picture.grey != NULL) {
        canvas_draw_places(c, &matrix);
        return;
    }
    if (part->rows->length > MOST_ROWS) {
        matrix.rows = summary->unclear;
        matrix.row_count =
            summary->unclear_count < MOST_ROWS ? summary->unclear_count : MOST_ROWS;
        canvas_print(c, STYLE_DIM, "not shown: %lld row%s with a clear source",
                     (long long)summary->clear_count, attn_s(summary->clear_count));
        if (summary->unclear_count > MOST_ROWS)
            canvas_print(c, STYLE_DIM, ", %lld of those without",
                         (long long)(summary->unclear_count - MOST_ROWS));
        attn_buffer_put(&c->out, "\n");
    }
    if (matrix.row_count > 0)
        canvas_draw_matrix(c, &matrix);
    attn_buffer_put(&c->out, "\n");
}

static void draw_findings(canvas *c)
{
    const attn_summary *summary = c->summary;
    int64_t shown = 0;
    int names = 3;
    char name[48];
    for (int64_t i = 0; i < summary->finding_count; i++) {
        const attn_finding *finding = &summary->findings[i];
        shown += is_shown(c, finding->part);
        const int length =
            snprintf(name, sizeof name, "%lld.%lld", (long long)finding->layer + 1,
                     (long long)finding->head + 1);
        names = length > names ? length : names;
    }
    if (shown == 0)
        return;
    canvas_put(c, STYLE_BOLD, "Heads worth a look");
    attn_buffer_put(&c->out, "\n");
    for (int64_t i = 0; i < summary->finding_count; i++) {
        const attn_finding *finding = &summary->findings[i];
        if (!is_shown(c, finding->part))
            continue;
        snprintf(name, sizeof name, "%lld.%lld", (long long)finding->layer + 1,
                 (long long)finding->head + 1);
        canvas_print(c, STYLE_PLAIN, "%-8s%-*s",
                     attn_part_name(c->record->parts[finding->part].part), names + 2,
                     name);
        canvas_print(c, STYLE_DIM, "%-10s", attn_finding_name(finding->kind));
        canvas_spaces(c, 2);
        attn_buffer text = {0};
        attn_put_finding(&text, c->record, finding, c->spelling,
                         c->options->width - 8 - names - 2 - 12);
        attn_buffer_put(&c->out, attn_buffer_text(&text));
        attn_buffer_put(&c->out, "\n");
        c->out.failed = c->out.failed || text.failed;
        attn_buffer_free(&text);
    }
    attn_buffer_put(&c->out, "\n");
}

/* A word without a clear source: the first that is not to be expected, which the first
 * word and punctuation are. */
static int64_t unclear_to_ask(const canvas *c)
{
    const attn_summary *summary = c->summary;
    for (int64_t i = 0; i < summary->unclear_count; i++) {
        const int64_t row = summary->unclear[i];
        if (row > 0 && !attn_record_word_delimits(&c->record->written_words.list[row]))
            return row;
    }
    return summary->unclear[0];
}

/* The word that a look at one word starts with: the end of a far link, else one without
 * a clear source, else the first word, or the last of a text that goes on.  NULL where
 * there is none, else its part. */
static const attn_record_part *word_to_ask(const canvas *c, int64_t *row)
{
    const attn_summary *summary = c->summary;
    const attn_record *record = c->record;
    for (int64_t i = 0; i < summary->finding_count; i++) {
        const attn_finding *finding = &summary->findings[i];
        if (finding->kind != ATTN_FINDING_FAR)
            continue;
        *row = finding->links[finding->link_count - 1].row;
        return &record->parts[finding->part];
    }
    if (summary->unclear_count > 0) {
        *row = unclear_to_ask(c);
        return &record->parts[summary->alignment_part];
    }
    if (record->part_count == 0 || record->parts[0].rows->length == 0)
        return NULL;
    /* What comes next was read from the last word. */
    *row = record->parts[0].causal ? record->parts[0].rows->length - 1 : 0;
    return &record->parts[0];
}

/* --at looks in the part first, for numbers and for texts that it has too. */
static bool is_taken(const canvas *c, const attn_record_part *part,
                     const attn_record_word *word, bool typed)
{
    const attn_record_part *const first = &c->record->parts[0];
    bool taken = !typed;
    for (int64_t i = 0; i < first->rows->length; i++)
        taken = taken || strcmp(first->rows->list[i].text, word->text) == 0;
    return part != first && taken;
}

/* As a shell takes it: in quotes where need be, as a number where quotes do not help. */
static void put_argument(canvas *c, attn_buffer *out, const attn_record_part *part,
                         int64_t row)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const attn_record_word *const word = &part->rows->list[row];
    const bool simple =
        word->occurrence == 0 && strspn(word->text, plain) == strlen(word->text);
    attn_buffer spelled = {0};
    attn_put_text(&spelled, word->text, c->spelling);
    const bool typed = strcmp(attn_buffer_text(&spelled), word->text) == 0 &&
                       strchr(word->text, '\'') == NULL &&
                       attn_text_columns(word->text) <= (c->options->width < 80 ? 8 : 16);
    if (is_taken(c, part, word, typed))
        attn_buffer_print(out, "--part %s ", attn_part_name(part->part));
    attn_buffer_put(out, "--at ");
    if (!typed)
        attn_buffer_print(out, "%lld", (long long)row + 1);
    else if (word->occurrence > 0)
        attn_buffer_print(out, "'%s#%lld'", word->text, (long long)word->occurrence);
    else
        attn_buffer_print(out, simple ? "%s" : "'%s'", word->text);
    out->failed = out->failed || spelled.failed;
    attn_buffer_free(&spelled);
}

static void put_command(canvas *c, attn_buffer *out, const attn_record_part *part,
                        int64_t row)
{
    attn_buffer_print(out, "attn look %s ",
                      c->options->asked != NULL ? c->options->asked : "TEXT");
    put_argument(c, out, part, row);
}

static void draw_next(canvas *c)
{
    static const char about[] = "  one word, every head", file[] = "-o look.html  a page";
    int64_t row = 0, column = 6;
    const attn_record_part *part = word_to_ask(c, &row);
    canvas_put(c, STYLE_DIM, "next: ");
    if (part != NULL) {
        attn_buffer command = {0};
        put_command(c, &command, part, row);
        int64_t wide = (int64_t)attn_text_columns(attn_buffer_text(&command));
        if (column + wide > c->options->width && part != &c->record->parts[0]) {
            attn_buffer_truncate(&command, 0); /* a word of the source is shorter said */
            put_command(c, &command, &c->record->parts[0], 0);
            wide = (int64_t)attn_text_columns(attn_buffer_text(&command));
        }
        column += wide;
        attn_buffer_put(&c->out, attn_buffer_text(&command));
        c->out.failed = c->out.failed || command.failed;
        attn_buffer_free(&command);
        const int64_t columns = (int64_t)strlen(about);
        const bool fits = column + columns <= c->options->width;
        canvas_put(c, STYLE_DIM, fits ? about : "");
        column += (fits ? columns : 0) + 4;
        const bool beside = column + (int64_t)strlen(file) <= c->options->width;
        canvas_put(c, STYLE_PLAIN, beside ? "    " : "\n      ");
    }
    attn_buffer_print(&c->out, "%s\n", file);
}

static void draw_overview(canvas *c)
{
    draw_text(c, c->record->source_language, STYLE_PLAIN, c->record->source);
    if (c->record->translation != NULL && c->record->translation[0] != '\0')
        draw_text(c, c->record->target_language, STYLE_BOLD, c->record->translation);
    attn_buffer_put(&c->out, "\n");
    draw_verdict(c);
    draw_alignment(c);
    canvas_draw_heads(c);
    attn_buffer_put(&c->out, "\n");
    draw_findings(c);
    draw_next(c);
}

/* A head's matrix, or the mean of a layer's heads. */
static attn_status draw_matrix(canvas *c, int64_t p, attn_error *error)
{
    const attn_record_part *part = &c->record->parts[p];
    const attn_draw_options *options = c->options;
    const int64_t cells = part->rows->length * part->keys->length;
    const int64_t first = options->head < 0 ? 0 : options->head;
    const int64_t end = options->head < 0 ? part->heads : options->head + 1;
    float *mean = calloc((size_t)cells + 1, sizeof *mean);
    if (mean == NULL)
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for a matrix");
    for (int64_t h = first; h < end; h++)
        for (int64_t i = 0; i < cells; i++)
            mean[i] +=
                attn_record_weights(part, options->layer, h)[i] / (float)(end - first);
    if (options->head < 0) {
        title_of_layer(c, part, options->layer);
    } else {
        attn_buffer about = {0};
        const attn_head_summary *head =
            attn_summary_head(c->summary, c->record, p, options->layer, options->head);
        attn_buffer_print(&about, "%s %lld.%lld, %s", attn_part_name(part->part),
                          (long long)options->layer + 1, (long long)options->head + 1,
                          attn_role_name(head->role));
        if (head->role != ATTN_ROLE_MIXED && head->role != ATTN_ROLE_BROAD) {
            attn_buffer_put(&about, " ");
            attn_put_weight(&about, head->mass);
        }
        if (head->entropy >= 0) {
            attn_buffer_put(&about, ", entropy ");
            attn_put_weight(&about, head->entropy);
        }
        canvas_title(c, attn_question(c->record, part), attn_buffer_text(&about));
        attn_buffer_free(&about);
    }
    const canvas_matrix matrix = {
        .part = part, .weights = mean, .row_count = part->rows->length};
    canvas_draw_matrix(c, &matrix);
    free(mean);
    return ATTN_OK;
}

static attn_status check(const attn_record *record, const attn_draw_options *options,
                         int64_t *p, attn_error *error)
{
    if (options->width < 40)
        return attn_error_set(error, ATTN_EINVAL, "width is %lld columns; at least 40",
                              (long long)options->width);
    ATTN_TRY(attn_draw_select(record, options, p, error));
    if (options->head >= 0 && options->layer < 0)
        return attn_error_set(error, ATTN_EINVAL, "head %lld of which layer?",
                              (long long)options->head + 1);
    return ATTN_OK;
}

attn_status attn_draw_terminal(const attn_record *record, const attn_summary *summary,
                               const attn_draw_options *options, char **text,
                               size_t *length, attn_error *error)
{
    int64_t p = -1;
    attn_status status = check(record, options, &p, error);
    if (status != ATTN_OK)
        return status;
    canvas c = {.record = record,
                .summary = summary,
                .options = options,
                .spelling = options->ascii ? ATTN_SPELL_ASCII : ATTN_SPELL_TERMINAL};
    if (options->row >= 0 && options->head >= 0)
        canvas_draw_row_in_full(&c, p, options->layer, options->head, options->row);
    else if (options->row >= 0)
        canvas_draw_row_of_heads(&c, p, options->layer, options->row);
    else if (options->layer >= 0)
        status = draw_matrix(&c, p, error);
    else
        draw_overview(&c);
    if (status == ATTN_OK)
        return attn_buffer_take(&c.out, text, length, error);
    attn_buffer_free(&c.out);
    return status;
}
