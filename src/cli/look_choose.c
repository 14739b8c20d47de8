/* What attn look is asked to show. */
#include "cli/look_choose.h"
#include "inspect/sentence.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool read_whole(const char *text, int64_t *number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 9)
        return false;
    *number = strtoll(text, &end, 10);
    return *end == '\0';
}

/* Splits "was#2" and "was²" into the length of "was" and 2; 0 where no number is there.
 */
static size_t split_occurrence(const char *wanted, int64_t *occurrence)
{
    static const char *const raised[] = {"⁰", "¹", "²", "³", "⁴",
                                         "⁵", "⁶", "⁷", "⁸", "⁹"};
    const char *mark = strrchr(wanted, '#');
    *occurrence = 0;
    if (mark != NULL && mark > wanted && read_whole(mark + 1, occurrence))
        return (size_t)(mark - wanted);
    size_t length = strlen(wanted);
    int64_t place = 1;
    for (bool found = true; found;) {
        found = false;
        for (int digit = 0; digit < 10 && place < 1000000; digit++) {
            const size_t bytes = strlen(raised[digit]);
            if (length > bytes &&
                memcmp(wanted + length - bytes, raised[digit], bytes) == 0) {
                *occurrence += digit * place;
                place *= 10;
                length -= bytes;
                found = true;
                break;
            }
        }
    }
    return length;
}

static int64_t find_row(const attn_record_words *words, const char *wanted, bool any_case,
                        int64_t *others)
{
    int64_t occurrence, row = -1;
    const size_t length = split_occurrence(wanted, &occurrence);
    *others = 0;
    for (int64_t i = 0; i < words->length; i++) {
        const char *text = words->list[i].text;
        const bool whole = strcmp(text, wanted) == 0;
        const bool same =
            strlen(text) == length && (any_case ? strncasecmp(text, wanted, length)
                                                : strncmp(text, wanted, length)) == 0;
        if (whole ||
            (same && (occurrence == 0 || words->list[i].occurrence == occurrence ||
                      (occurrence == 1 && words->list[i].occurrence == 0)))) {
            if (row < 0)
                row = i;
            else
                ++*others;
        }
    }
    return row;
}

static void list_words(attn_buffer *list, const attn_record_words *words)
{
    for (int64_t i = 0; i < words->length; i++) {
        attn_buffer_put(list, i > 0 ? " " : "");
        attn_put_text(list, words->list[i].text, ATTN_SPELL_TERMINAL);
        if (words->list[i].occurrence > 0)
            attn_buffer_print(list, "#%lld", (long long)words->list[i].occurrence);
        if (list->length > 200) {
            attn_buffer_put(list, " …");
            return;
        }
    }
}

static attn_status not_found(const attn_record *record, const char *wanted,
                             const attn_part *kinds, int count, attn_error *error)
{
    attn_buffer list = {0}, word = {0};
    attn_put_text(&word, wanted, ATTN_SPELL_TERMINAL);
    for (int i = 0; i < count; i++) {
        const attn_record_part *part = attn_record_find_part(record, kinds[i]);
        if (part == NULL)
            continue;
        attn_buffer_put(&list, list.length > 0 ? "; or " : "");
        list_words(&list, part->rows);
    }
    const attn_status status =
        attn_error_set(error, ATTN_EINVAL, "no word \"%.80s\"; there are: %s",
                       attn_buffer_text(&word), attn_buffer_text(&list));
    attn_buffer_free(&list);
    attn_buffer_free(&word);
    return status;
}

/* Where words are looked for: source and written words, or those of the only text. */
static int kinds_with_words(const attn_record *record, int wanted, attn_part kinds[2])
{
    static const attn_part ORDER[] = {ATTN_PART_ENCODER, ATTN_PART_CROSS};
    int count = 0;
    for (int i = 0; wanted < 0 && i < 2; i++)
        if (attn_record_find_part(record, ORDER[i]))
            kinds[count++] = ORDER[i];
    if (wanted >= 0)
        kinds[count++] = (attn_part)wanted;
    else if (count == 0 && record->part_count > 0)
        kinds[count++] = record->parts[0].part; /* its only one */
    return count;
}

/* A word of the text where its label alone looks: what the label gives it. */
static attn_status only_the_label(const attn_record *record, const char *wanted,
                                  attn_error *error)
{
    const attn_record_part *part = attn_record_find_part(record, ATTN_PART_POOL);
    int64_t others;
    int64_t key = find_row(part->keys, wanted, false, &others);
    if (key < 0)
        key = find_row(part->keys, wanted, true, &others);
    attn_buffer text = {0}, label = {0};
    attn_put_text(&text, wanted, ATTN_SPELL_TERMINAL);
    attn_put_text(&label, part->rows->list[0].text, ATTN_SPELL_TERMINAL);
    if (key < 0) {
        attn_error_set(
            error, ATTN_EINVAL,
            "no word \"%.80s\" in the text, and only the label looks; expected "
            "--at %.80s",
            attn_buffer_text(&text), attn_buffer_text(&label));
    } else {
        attn_buffer weights = {0};
        for (int64_t h = 0; h < part->layers * part->heads; h++) {
            attn_buffer_put(&weights, h > 0 ? ", " : "");
            attn_put_weight(&weights,
                            (double)part->weights[h * part->keys->length + key]);
        }
        attn_error_set(error, ATTN_EINVAL,
                       "only the label looks: \"%.80s\" gives \"%.80s\" %.40s; expected "
                       "--at %.80s",
                       attn_buffer_text(&label), attn_buffer_text(&text),
                       attn_buffer_text(&weights), attn_buffer_text(&label));
        attn_buffer_free(&weights);
    }
    attn_buffer_free(&label);
    attn_buffer_free(&text);
    return ATTN_EINVAL;
}

attn_status look_find_word(const attn_record *record, const char *wanted,
                           attn_draw_options *options, int64_t *others, attn_error *error)
{
    attn_part kinds[2];
    int64_t number = 0;
    const bool numbered = read_whole(wanted, &number);
    const int count = kinds_with_words(record, options->part, kinds);
    *others = 0;
    for (int any_case = 0; any_case < 2; any_case++)
        for (int i = 0; i < count; i++) {
            const attn_record_part *part = attn_record_find_part(record, kinds[i]);
            if (part == NULL)
                continue;
            int64_t row = -1;
            if (numbered && i == 0 && number >= 1 && number <= part->rows->length)
                row = number - 1;
            else
                row = find_row(part->rows, wanted, any_case == 1, others);
            if (row < 0)
                continue;
            options->part = (int)kinds[i];
            options->row = row;
            return ATTN_OK;
        }
    if (count == 1 && kinds[0] == ATTN_PART_POOL &&
        attn_record_find_part(record, ATTN_PART_POOL))
        return only_the_label(record, wanted, error);
    return not_found(record, wanted, kinds, count, error);
}

attn_status look_read_head(const char *layer, const char *head,
                           attn_draw_options *options, attn_error *error)
{
    char before[16] = "";
    const char *in_layer = head;
    const char *const point = head == NULL ? NULL : strchr(head, '.');
    int64_t number;
    if (layer != NULL) {
        if (!read_whole(layer, &number) || number < 1)
            return attn_error_set(error, ATTN_EINVAL,
                                  "--layer is \"%.40s\"; expected a number from 1",
                                  layer);
        options->layer = number - 1;
    } else if (point != NULL && (size_t)(point - head) < sizeof before) {
        memcpy(before, head, (size_t)(point - head));
        in_layer = point + 1;
        number = 0;
        options->layer = read_whole(before, &number) ? number - 1 : -1;
    }
    if (head == NULL)
        return ATTN_OK;
    if (!read_whole(in_layer, &number) || number < 1 ||
        (in_layer != head && options->layer < 0))
        return attn_error_set(error, ATTN_EINVAL,
                              "--head is \"%.40s\"; expected a number from 1, or "
                              "layer.head as in 3.4",
                              head);
    options->head = number - 1;
    if (options->layer < 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "--head %s of which layer? Expected --layer too, or "
                              "layer.head as in 3.4",
                              head);
    return ATTN_OK;
}

attn_status look_read_part(const char *name, attn_draw_options *options,
                           attn_error *error)
{
    for (int kind = 0; kind <= ATTN_PART_POOL; kind++)
        if (strcmp(name, attn_part_name((attn_part)kind)) == 0) {
            options->part = kind;
            return ATTN_OK;
        }
    return attn_error_set(
        error, ATTN_EINVAL,
        "--part is \"%.40s\"; expected encoder, decoder, cross or pooling", name);
}

static bool read_limit(const char *text, size_t length, attn_conventions *limits)
{
    const struct {
        const char *name;
        double *value, most;
    } table[] = {{"clear", &limits->clear, 1},   {"lead", &limits->lead, 1},
                 {"strong", &limits->strong, 1}, {"weak", &limits->weak, 1},
                 {"lift", &limits->lift, 100},   {"broad", &limits->broad, 1},
                 {"faint", &limits->faint, 1},   {"unread", &limits->unread, 1}};
    const char *equals = memchr(text, '=', length);
    char number[24];
    if (equals == NULL)
        return false;
    const size_t digits = length - (size_t)(equals + 1 - text);
    if (digits < 1 || digits >= sizeof number)
        return false;
    memcpy(number, equals + 1, digits);
    number[digits] = '\0';
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strlen(table[i].name) != (size_t)(equals - text) ||
            strncmp(table[i].name, text, strlen(table[i].name)) != 0)
            continue;
        char *end;
        const double value = strtod(number, &end);
        if (*end != '\0' || !(value >= 0 && value <= table[i].most))
            return false;
        *table[i].value = value;
        return true;
    }
    return false;
}

attn_status look_read_limits(const char *text, attn_conventions *conventions,
                             attn_error *error)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, ",");
        if (!read_limit(text, length, conventions))
            return attn_error_set(
                error, ATTN_EINVAL,
                "--limits has \"%.*s\"; expected clear, lead, strong, weak, "
                "broad, faint or unread = 0 to 1, or lift = 0 to 100",
                length < 40 ? (int)length : 40, text);
        text += length + (text[length] == ',');
    }
    return ATTN_OK;
}

/* The terminal says its background's colour as "15;0"; 7 and from 9 up are light. */
static attn_theme theme_of_terminal(void)
{
    const char *colours = getenv("COLORFGBG");
    const char *ground = colours == NULL ? NULL : strrchr(colours, ';');
    int64_t number;
    if (ground == NULL || !read_whole(ground + 1, &number))
        return ATTN_THEME_DARK;
    return number == 7 || (number >= 9 && number <= 15) ? ATTN_THEME_LIGHT
                                                        : ATTN_THEME_DARK;
}

static attn_depth depth_of_terminal(void)
{
    const char *term = getenv("TERM"), *colour = getenv("COLORTERM");
    if (colour != NULL &&
        (strcmp(colour, "truecolor") == 0 || strcmp(colour, "24bit") == 0))
        return ATTN_DEPTH_FULL;
    if (term != NULL && strstr(term, "direct") != NULL)
        return ATTN_DEPTH_FULL;
    return term != NULL && strstr(term, "256") != NULL ? ATTN_DEPTH_256 : ATTN_DEPTH_NONE;
}

static bool names_utf8(const char *locale)
{
    static const char *const spellings[] = {"UTF-8", "utf-8", "UTF8", "utf8"};
    for (int i = 0; i < 4; i++)
        if (strstr(locale, spellings[i]) != NULL)
            return true;
    return false;
}

/* By the names alone: a locale that is asked for but not installed says the same of the
 * terminal. */
static bool no_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return !names_utf8(value);
    }
    return true;
}

attn_status look_read_screen(const char *theme, const char *colour,
                             attn_draw_options *options, attn_error *error)
{
    static const char *const depths[] = {"none", "256", "full"};
    const char *quiet = getenv("NO_COLOR");
    options->theme = theme_of_terminal();
    options->ascii = no_utf8();
    if (theme != NULL && strcmp(theme, "light") != 0 && strcmp(theme, "dark") != 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "--theme is \"%.40s\"; expected light or dark", theme);
    if (theme != NULL)
        options->theme = theme[0] == 'l' ? ATTN_THEME_LIGHT : ATTN_THEME_DARK;
    if (isatty(STDOUT_FILENO) && (quiet == NULL || quiet[0] == '\0'))
        options->depth = depth_of_terminal();
    if (colour == NULL)
        return ATTN_OK;
    for (int depth = 0; depth < 3; depth++)
        if (strcmp(colour, depths[depth]) == 0) {
            options->depth = (attn_depth)depth;
            return ATTN_OK;
        }
    return attn_error_set(error, ATTN_EINVAL,
                          "--colour is \"%.40s\"; expected none, 256 or full", colour);
}
