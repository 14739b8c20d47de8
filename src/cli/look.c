/* attn look: where a model looked while it read a text or a picture, and wrote. */
#include "base/context.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/look_choose.h"
#include "cli/look_record.h"
#include "draw/fonts.h"
#include "file/file.h"
#include "inspect/buffer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A screen: 24 lines of at most 80 columns. */
static const char help[] =
    "usage: attn look TEXT|FILE|FILE.attn|- [options]\n"
    "\n"
    "Runs a model and shows where every head looked: a translator translates, a\n"
    "captioner describes a picture (.png), others label the text, fill its <mask> or\n"
    "say what comes next.  A FILE is one text, a .attn a record kept before.\n"
    "\n"
    "  --at WORD|N         one word, every head (-o frames it); was#2 is its second\n"
    "  --layer N           with --head N (or --head 3.4): a head, or one row, in full\n"
    "  --part PART         encoder, decoder, cross or pooling: its heads alone\n"
    "  -o FILE             .svg .png .html .json, or .attn to keep the record\n"
    "  --json              all words, weights and measures on standard output\n"
    "  --model NAME        a folder or a name in models/ (default translate-en-fr)\n"
    "  --translation TEXT  look at this translation (or caption), not the model's own\n"
    "  --beam N            beams of the search (default 4)\n"
    "  --limits A=x,…      clear=.5 lead=.1 strong=.5 weak=.3 lift=1.4 broad=.8\n"
    "                      faint=.05 unread=.2: what verdict and letters go by\n"
    "  --theme dark|light  what the ground is;  --colour none|256|full: of a terminal\n"
    "  --scale linear|log|uniform  what shades show; uniform: against an even spread\n"
    "  --width N           columns to draw in (default 80)\n"
    "\n"
    "Heads: P looks at the previous word, N next, O own, F first, D delimiters, S the\n"
    "same word; B is broad, · mixed.  A .png needs a font with the text's script.\n"
    "\n"
    "example: attn look \"The cat was hungry\"; attn look \"The cat was hungry\" --at "
    "cat\n";

typedef struct arguments {
    const char *model, *at, *layer, *head, *part, *output, *theme, *colour, *scale,
        *translation, *limits;
    int64_t beams, width; /* 0: as usual */
    bool json;
    const char *text; /* or a path, or "-" */
} arguments;

static attn_status read_text(const char *given, char **text, size_t *length,
                             attn_error *error)
{
    ATTN_TRY(cli_read_text(given, "look", text, length, error));
    *length = cli_tidy(*text, *length);
    if (*length > 0)
        return ATTN_OK;
    free(*text);
    *text = NULL;
    return cli_empty_text(error);
}

static attn_status make_record(const arguments *a, attn_record **record,
                               attn_error *error)
{
    bool is_file;
    ATTN_TRY(cli_is_file(a->text, "look", &is_file, error));
    if (is_file && attn_file_named(a->text, ".attn")) {
        if (a->model != NULL || a->beams > 0 || a->translation != NULL)
            return attn_error_set(error, ATTN_EINVAL,
                                  "%s is a record: it has its model and translation; "
                                  "expected no --model, --beam or --translation",
                                  a->text);
        return attn_record_load(record, a->text, error);
    }
    look_request request = {.model = a->model, .beams = a->beams};
    char *text = NULL, *translation = NULL;
    if (is_file && attn_file_named(a->text, ".png")) {
        request.is_picture = true;
        request.text = a->text;
        request.model = a->model != NULL ? a->model : "captioner";
        request.translation = a->translation;
        return look_make_record(&request, record, error);
    }
    attn_status status = read_text(a->text, &text, &request.length, error);
    if (status == ATTN_OK && a->translation != NULL) {
        translation = strdup(a->translation);
        if (translation == NULL)
            status =
                attn_error_set(error, ATTN_ENOMEM, "memory was refused for the text");
        else
            cli_tidy(translation, strlen(translation));
        request.translation = translation;
    }
    request.text = text;
    if (status == ATTN_OK)
        status = look_make_record(&request, record, error);
    free(text);
    free(translation);
    return status;
}

static attn_draw *drawing(const arguments *a)
{
    static const struct {
        const char *end;
        attn_draw *draw;
    } formats[] = {{".svg", attn_draw_svg},
                   {".png", attn_draw_png},
                   {".html", attn_draw_html},
                   {".json", attn_draw_json}};
    for (size_t i = 0; a->output != NULL && i < sizeof formats / sizeof *formats; i++)
        if (attn_file_named(a->output, formats[i].end))
            return formats[i].draw;
    return a->output != NULL ? NULL : a->json ? attn_draw_json : attn_draw_terminal;
}

/* Boxes in the place of characters are no failure of the drawing. */
static void warn_of_boxes(const attn_record *record)
{
    char missing[5];
    const char *const texts[] = {record->source, record->translation};
    for (size_t i = 0; i < 2; i++)
        if (texts[i] != NULL && attn_font_misses(texts[i], missing)) {
            cli_say("attn look: no font has %s, a box stands for it: install a font "
                    "(fonts-noto-cjk for Chinese), or use .svg or .html\n",
                    missing);
            return;
        }
}

static attn_status write_drawing(const arguments *a, const attn_record *record,
                                 const attn_conventions *conventions,
                                 const attn_draw_options *options, attn_error *error)
{
    attn_summary *summary;
    char *text = NULL;
    size_t length = 0;
    attn_status status = attn_summary_create(&summary, record, conventions, error);
    if (status != ATTN_OK)
        return status;
    status = drawing(a)(record, summary, options, &text, &length, error);
    attn_summary_destroy(summary);
    if (status == ATTN_OK)
        status =
            attn_file_write(a->output == NULL ? "-" : a->output, text, length, error);
    if (status == ATTN_OK && a->output != NULL && attn_file_named(a->output, ".png"))
        warn_of_boxes(record);
    free(text);
    return status;
}

static attn_status draw(const arguments *a, const attn_record *record,
                        const attn_conventions *conventions,
                        const attn_draw_options *options, attn_error *error)
{
    const bool keeps = a->output != NULL && attn_file_named(a->output, ".attn");
    const attn_status status =
        keeps ? attn_record_save(record, a->output, error)
              : write_drawing(a, record, conventions, options, error);
    if (status == ATTN_OK && a->output != NULL)
        cli_wrote(a->output);
    return status;
}

static attn_status read_options(const arguments *a, attn_draw_options *options,
                                attn_conventions *conventions, attn_error *error)
{
    static const char *const scales[] = {"linear", "log", "uniform"};
    attn_draw_options_init(options);
    attn_conventions_init(conventions);
    attn_status status = look_read_screen(a->theme, a->colour, options, error);
    if (status == ATTN_OK && a->part != NULL)
        status = look_read_part(a->part, options, error);
    if (status == ATTN_OK)
        status = look_read_head(a->layer, a->head, options, error);
    if (status == ATTN_OK && a->limits != NULL)
        status = look_read_limits(a->limits, conventions, error);
    if (status != ATTN_OK || a->scale == NULL)
        return status;
    for (int scale = 0; scale < 3; scale++)
        if (strcmp(a->scale, scales[scale]) == 0) {
            options->scale = (attn_scale)scale;
            return ATTN_OK;
        }
    return attn_error_set(error, ATTN_EINVAL,
                          "--scale is \"%.40s\"; expected linear, log or uniform",
                          a->scale);
}

/* A name as a shell takes it, or what stands for it. */
static void put_name(attn_buffer *out, const char *name, const char *otherwise)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789./_-";
    attn_buffer_put(out, strspn(name, plain) == strlen(name) ? name : otherwise);
}

/* What was given, for the next look: "TEXT --model language-en", "look.attn". */
static void put_asked(attn_buffer *out, const arguments *a)
{
    if (attn_file_named(a->text, ".attn"))
        put_name(out, a->text, "FILE.attn");
    else if (attn_file_named(a->text, ".png"))
        put_name(out, a->text, "FILE.png");
    else
        attn_buffer_put(out, "TEXT");
    if (a->model != NULL) {
        attn_buffer_put(out, " --model ");
        put_name(out, a->model, "MODEL");
    }
    if (a->beams > 0)
        attn_buffer_print(out, " --beam %lld", (long long)a->beams);
    if (a->translation != NULL)
        attn_buffer_put(out, " --translation TRANSLATION");
}

/* What is asked of the record itself: a word of it. */
static attn_status choose(const arguments *a, const attn_record *record,
                          attn_draw_options *options, attn_error *error)
{
    int64_t others = 0;
    if (a->at == NULL) {
        if (options->layer >= 0 && options->part < 0 && record->part_count > 0)
            options->part = (int)record->parts[0].part;
        return ATTN_OK;
    }
    const attn_status status = look_find_word(record, a->at, options, &others, error);
    if (status == ATTN_OK && others > 0)
        cli_say("attn look: \"%s\" occurs %lld times; this is the first: %s#2 is the "
                "second\n",
                a->at, (long long)others + 1, a->at);
    return status;
}

/* What has everything takes no choice. */
static int check_whole(const arguments *a)
{
    const struct {
        const char *name, *value;
    } choices[] = {
        {"part", a->part}, {"layer", a->layer}, {"head", a->head}, {"at", a->at}};
    const bool is_record = a->output != NULL && attn_file_named(a->output, ".attn");
    const bool is_json =
        a->output != NULL ? attn_file_named(a->output, ".json") : a->json;
    for (size_t i = 0; (is_record || is_json) && i < 4; i++)
        if (choices[i].value != NULL)
            return cli_misused("look",
                               "%s has all parts, layers, heads and words; expected no "
                               "--%s with it",
                               is_record ? "a record" : "JSON", choices[i].name);
    return CLI_DONE;
}

static int check(int argc, char **argv, int count, arguments *a,
                 attn_draw_options *options)
{
    static const char *const ends[] = {".svg", ".png", ".html", ".json", ".attn"};
    (void)argc;
    if (count > 1)
        return cli_misused(
            "look", "one text expected, got %d; put the sentence in quotes", count);
    if (count == 0 && isatty(STDIN_FILENO))
        return cli_misused("look", "which text? attn look \"The cat was hungry\"");
    a->text = count == 1 ? argv[1] : "-";
    if (a->width > 0)
        options->width = a->width;
    const int code = check_whole(a);
    if (code != CLI_DONE || a->output == NULL)
        return code;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (attn_file_named(a->output, ends[i]))
            return CLI_DONE;
    return cli_misused("look",
                       "-o is %s; expected a name in .svg, .png, .html, .json or .attn",
                       a->output);
}

int cli_look(int argc, char **argv)
{
    arguments a = {0};
    const cli_option options[] = {
        {"model", .value = &a.model},
        {"at", .value = &a.at},
        {"layer", .value = &a.layer},
        {"head", .value = &a.head},
        {"part", .value = &a.part},
        {"output", 'o', .value = &a.output},
        {"json", .flag = &a.json},
        {"beam", .integer = &a.beams, .low = 1, .high = 64},
        {"theme", .value = &a.theme},
        {"colour", .value = &a.colour},
        {"scale", .value = &a.scale},
        {"width", .integer = &a.width, .low = 40, .high = 1000},
        {"limits", .value = &a.limits},
        {"translation", .value = &a.translation},
        {0},
    };
    attn_error error = {0};
    attn_draw_options drawn;
    attn_conventions conventions;
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (read_options(&a, &drawn, &conventions, &error) != ATTN_OK)
        return cli_fail("look", &error);
    if (a.output != NULL && a.theme == NULL)
        drawn.theme = ATTN_THEME_LIGHT; /* a file is for paper, not for this terminal */
    code = check(argc, argv, count, &a, &drawn);
    if (code != CLI_DONE)
        return code;
    attn_record *record = NULL;
    attn_status status = make_record(&a, &record, &error);
    if (status == ATTN_OK && !record->finished)
        fprintf(stderr,
                "attn look: the model did not end what it wrote; it was stopped\n");
    if (status == ATTN_OK)
        status = choose(&a, record, &drawn, &error);
    attn_buffer asked = {0};
    put_asked(&asked, &a);
    drawn.asked = attn_buffer_text(&asked);
    if (status == ATTN_OK)
        status = draw(&a, record, &conventions, &drawn, &error);
    attn_buffer_free(&asked);
    attn_record_destroy(record);
    return status == ATTN_OK ? CLI_DONE : cli_fail("look", &error);
}
