/* A summary in words: labels and numbers, the verdict, the heads worth a look. */
#include "inspect/sentence.h"
#include "file/shown.h"
#include "text/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Right-to-left letters would pull the columns after them along. */
static bool runs_right_to_left(utf8proc_int32_t point)
{
    const utf8proc_bidi_class_t class = utf8proc_get_property(point)->bidi_class;
    return class == UTF8PROC_BIDI_CLASS_R || class == UTF8PROC_BIDI_CLASS_AL;
}

static void put_escape(attn_buffer *buffer, utf8proc_int32_t point)
{
    if (point < 0x100)
        attn_buffer_print(buffer, "\\x%02x", (unsigned)point);
    else
        attn_buffer_print(buffer, "\\u%04x", (unsigned)point);
}

/* Accents are dropped ("était" is "etait"); what has no ASCII letter is a question mark.
 */
static void put_ascii(attn_buffer *buffer, utf8proc_int32_t point)
{
    utf8proc_int32_t letters[32];
    int last_class = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        point, letters, 32, UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE | UTF8PROC_STRIPMARK,
        &last_class);
    bool known = count >= 0 && count <= 32;
    for (utf8proc_ssize_t i = 0; known && i < count; i++)
        known = letters[i] < 0x7f;
    if (point == 0x2018 || point == 0x2019)
        attn_buffer_put(buffer, "'");
    else if (!known)
        attn_buffer_put(buffer, "?");
    for (utf8proc_ssize_t i = 0; known && i < count; i++) {
        const char letter = (char)letters[i];
        attn_buffer_put_bytes(buffer, &letter, 1);
    }
}

void attn_put_text(attn_buffer *buffer, const char *text, attn_spelling spelling)
{
    if (spelling == ATTN_SPELL_PLAIN) {
        attn_buffer_put(buffer, text);
        return;
    }
    const size_t begin = buffer->length;
    bool right_to_left = false;
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text;
    for (utf8proc_int32_t point; *at != 0;) {
        const utf8proc_ssize_t bytes = utf8proc_iterate(at, -1, &point);
        if (bytes <= 0) {
            attn_buffer_put(buffer, "?");
            at++;
            continue;
        }
        right_to_left = right_to_left || runs_right_to_left(point);
        if (attn_is_command((uint32_t)point))
            put_escape(buffer, point);
        else if (spelling == ATTN_SPELL_ASCII && point >= 0x80)
            put_ascii(buffer, point);
        else
            attn_buffer_put_bytes(buffer, (const char *)at, (size_t)bytes);
        at += bytes;
    }
    if (!right_to_left || spelling == ATTN_SPELL_ASCII || buffer->failed)
        return;
    /* First strong isolate … pop: the text keeps its own direction and the line keeps
     * its. */
    char *isolated = malloc(buffer->length - begin + 1);
    if (isolated == NULL) {
        buffer->failed = true;
        return;
    }
    memcpy(isolated, buffer->text + begin, buffer->length - begin + 1);
    attn_buffer_truncate(buffer, begin);
    attn_buffer_print(buffer, "\u2068%s\u2069", isolated);
    free(isolated);
}

void attn_put_word(attn_buffer *buffer, const attn_record_word *word,
                   attn_spelling spelling)
{
    static const char *const raised[] = {"⁰", "¹", "²", "³", "⁴",
                                         "⁵", "⁶", "⁷", "⁸", "⁹"};
    attn_put_text(buffer, word->text, spelling);
    if (word->occurrence == 0)
        return;
    if (spelling == ATTN_SPELL_ASCII) {
        attn_buffer_print(buffer, "#%lld", (long long)word->occurrence);
        return;
    }
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)word->occurrence);
    for (const char *digit = digits; *digit != '\0'; digit++)
        attn_buffer_put(buffer, raised[*digit - '0']);
}

void attn_put_weight(attn_buffer *buffer, double weight)
{
    const int hundredths = attn_hundredths(weight);
    if (hundredths >= 100)
        attn_buffer_put(buffer, "1.0");
    else
        attn_buffer_print(buffer, ".%02d", hundredths < 0 ? 0 : hundredths);
}

void attn_put_mean(attn_buffer *buffer, int64_t heads)
{
    if (heads == 1)
        attn_buffer_put(buffer, "its one head");
    else
        attn_buffer_print(buffer, "mean of %lld heads", (long long)heads);
}

int64_t attn_put_label(attn_buffer *buffer, const attn_record_word *word,
                       attn_spelling spelling, int64_t columns)
{
    const size_t begin = buffer->length;
    attn_put_word(buffer, word, spelling);
    const char *text = attn_buffer_text(buffer) + begin;
    const int64_t whole = (int64_t)attn_text_columns(text);
    if (whole <= columns)
        return whole;
    attn_buffer base = {0}, mark = {0};
    attn_put_text(&base, word->text, spelling);
    attn_buffer_put(&mark,
                    text + (base.length < strlen(text) ? base.length : strlen(text)));
    const int64_t mark_columns = (int64_t)attn_text_columns(attn_buffer_text(&mark));
    const int64_t room = columns > mark_columns + 1 ? columns - mark_columns - 1 : 0;
    const size_t kept = attn_text_prefix(attn_buffer_text(&base), (size_t)room);
    attn_buffer_truncate(buffer, begin);
    attn_buffer_put_bytes(buffer, attn_buffer_text(&base), kept);
    if (strncmp(attn_buffer_text(&base), "\u2068", 3) == 0 && kept > 0)
        attn_buffer_put(buffer, "\u2069"); /* closes what was cut open */
    attn_buffer_put(buffer, spelling == ATTN_SPELL_ASCII ? "~" : "…");
    attn_buffer_put(buffer, attn_buffer_text(&mark));
    buffer->failed = buffer->failed || base.failed || mark.failed;
    attn_buffer_free(&base);
    attn_buffer_free(&mark);
    return (int64_t)attn_text_columns(attn_buffer_text(buffer) + begin);
}

/* Sentences have room for words, not for monsters. */
enum { LONGEST_QUOTED = 24 };

static void put_quoted(attn_buffer *buffer, const attn_record_word *word,
                       attn_spelling spelling)
{
    attn_buffer_put(buffer, "\"");
    attn_put_label(buffer, word, spelling, LONGEST_QUOTED);
    attn_buffer_put(buffer, "\"");
}

int64_t attn_verdict_lines(const attn_record *record, const attn_summary *summary)
{
    if (summary->alignment_part < 0)
        return summary->link_count > 0;
    if (record->parts[summary->alignment_part].part == ATTN_PART_POOL)
        return 1;
    return 1 + (summary->unclear_count > 0) + (summary->at_special_count > 0) +
           (summary->unread_count > 0);
}

const char *attn_question(const attn_record *record, const attn_record_part *part)
{
    if (record->picture.grey != NULL && part->part == ATTN_PART_CROSS)
        return "Where in the picture each written word looked";
    if (part->part == ATTN_PART_POOL)
        return "Which words the label was read from";
    return attn_record_is_self(part) ? "Which word each word looks at"
                                     : "Which source word each written word read";
}

/* "positive" reads "wonderful" .31, "not" .12 and "best" .08. */
static void put_label_count(attn_buffer *buffer, const attn_record *record,
                            const attn_summary *summary, attn_spelling spelling)
{
    enum { SHOWN = 3 };
    const attn_record_part *const part = &record->parts[summary->alignment_part];
    put_quoted(buffer, &part->rows->list[0], spelling);
    attn_buffer_put(buffer, " reads ");
    double below = 2;
    int64_t last = -1;
    for (int shown = 0; shown < SHOWN && shown < part->keys->length; shown++) {
        int64_t best = -1;
        for (int64_t j = 0; j < part->keys->length; j++) {
            const double weight = (double)summary->alignment[j];
            const bool is_next = weight < below || (weight <= below && j > last);
            if (is_next && (best < 0 || weight > (double)summary->alignment[best]))
                best = j;
        }
        below = (double)summary->alignment[best];
        last = best;
        attn_buffer_put(buffer, shown > 0 ? ", " : "");
        put_quoted(buffer, &part->keys->list[best], spelling);
        attn_buffer_put(buffer, " ");
        attn_put_weight(buffer, below);
    }
    attn_buffer_put(buffer, " most.");
}

static void put_count(attn_buffer *buffer, const attn_summary *summary, bool of_picture)
{
    const long long clear = summary->clear_count, all = summary->judged_count;
    const char *const one = of_picture ? "looks at" : "reads";
    const char *const many = of_picture ? "look at" : "read";
    if (all == 0) {
        attn_buffer_put(buffer, "No word was written.");
        return;
    }
    if (clear == all && all == 1)
        attn_buffer_print(buffer, "The one word written %s", one);
    else if (clear == all)
        attn_buffer_print(buffer, "All %lld words written %s", all, many);
    else if (clear == 0 && all == 1)
        attn_buffer_print(buffer, "The one word written does not %s", many);
    else if (clear == 0)
        attn_buffer_print(buffer, "None of the %lld words written %s", all, one);
    else
        attn_buffer_print(buffer, "%lld of the %lld words written %s", clear, all,
                          clear == 1 ? one : many);
    attn_buffer_put(buffer, of_picture ? " one place of the picture (weight "
                                       : " one source word (weight ");
    attn_put_weight(buffer, summary->conventions.clear);
    if (of_picture) {
        attn_buffer_put(buffer, " or more there and right around it).");
        return;
    }
    attn_buffer_put(buffer, " or more, ");
    attn_put_weight(buffer, summary->conventions.lead);
    attn_buffer_put(buffer, " ahead).");
}

/* Columns of what was put since begin. */
static int64_t columns_since(const attn_buffer *buffer, size_t begin)
{
    return (int64_t)attn_text_columns(attn_buffer_text(buffer) + begin);
}

/* Words in a row, each put by put_item, between head and tail; as many as fit into
 * columns, then how many more there are. */
typedef struct listing {
    const attn_record_part *part;
    const attn_summary *summary;
    attn_spelling spelling;
    bool sources;           /* "was" .41 */
    const char *last_comma; /* before the last: ", " or " and " */
} listing;

/* What stands in place of a clear source: " .41", " .50 (next .49)", " (</s>)". */
static void put_source(attn_buffer *buffer, const listing *list, int64_t row)
{
    const attn_link *top = &list->summary->top[row];
    const attn_record_word *key = &list->part->keys->list[top->key];
    if (key->special) {
        attn_buffer_put(buffer, " (");
        attn_put_word(buffer, key, list->spelling);
        attn_buffer_put(buffer, ")");
        return;
    }
    attn_buffer_put(buffer, " ");
    attn_put_weight(buffer, top->weight);
    if (attn_prints_as(top->weight, list->summary->conventions.clear)) {
        attn_buffer_put(buffer, " (next ");
        attn_put_weight(buffer, list->summary->second[row]);
        attn_buffer_put(buffer, ")");
    }
}

static void put_items(attn_buffer *buffer, const listing *list, const int64_t *rows,
                      int64_t shown, int64_t count)
{
    for (int64_t i = 0; i < shown; i++) {
        if (i > 0)
            attn_buffer_put(buffer, i + 1 == count ? list->last_comma : ", ");
        put_quoted(buffer, &list->part->rows->list[rows[i]], list->spelling);
        if (list->sources)
            put_source(buffer, list, rows[i]);
    }
    if (shown < count)
        attn_buffer_print(buffer, "%s%lld %s", shown > 0 ? " and " : "",
                          (long long)(count - shown), shown > 0 ? "more" : "words");
}

static void put_fitting(attn_buffer *buffer, const listing *list, const char *before,
                        const int64_t *rows, int64_t count, const char *after,
                        int64_t columns)
{
    const size_t begin = buffer->length;
    for (int64_t shown = count < 64 || columns == 0 ? count : 64; shown >= 0; shown--) {
        attn_buffer_truncate(buffer, begin);
        attn_buffer_put(buffer, before);
        put_items(buffer, list, rows, shown, count);
        attn_buffer_put(buffer, after);
        if (columns == 0 || columns_since(buffer, begin) <= columns)
            return;
    }
}

/* " look most at the end mark </s>: check the text there." */
static void put_marks(attn_buffer *after, const attn_summary *summary,
                      const attn_record_part *part, attn_spelling spelling)
{
    const int64_t *rows = summary->at_special;
    const int64_t key = summary->top[rows[0]].key;
    bool one_key = true;
    for (int64_t i = 1; i < summary->at_special_count; i++)
        one_key = one_key && summary->top[rows[i]].key == key;
    attn_buffer_print(after, " %s most at ",
                      summary->at_special_count == 1 ? "looks" : "look");
    if (one_key) {
        attn_buffer_put(after,
                        key + 1 == part->keys->length ? "the end mark " : "the mark ");
        attn_put_word(after, &part->keys->list[key], spelling);
    } else {
        attn_buffer_put(after, "marks of the model");
    }
    attn_buffer_put(after, ": check the text there.");
}

/* "one came, and when he", without the words' marks; of a run that takes more than
 * `columns` its beginning. */
static void put_run(attn_buffer *buffer, const attn_record_words *words, attn_run run,
                    attn_spelling spelling, int64_t columns)
{
    attn_buffer plain = {0}, text = {0};
    for (int64_t j = run.first; j < run.end; j++) {
        const attn_record_word *word = &words->list[j];
        const bool apart = j > run.first && !attn_record_word_delimits(word);
        attn_buffer_print(&plain, "%s%s", apart ? " " : "", word->text);
    }
    attn_put_text(&text, attn_buffer_text(&plain), spelling);
    const char *said = attn_buffer_text(&text);
    const bool whole = columns == 0 || (int64_t)attn_text_columns(said) <= columns;
    size_t kept = whole ? strlen(said) : attn_text_prefix(said, (size_t)columns - 1);
    while (kept > 0 && said[kept - 1] == ' ')
        kept--;
    attn_buffer_put(buffer, "\"");
    attn_buffer_put_bytes(buffer, said, kept);
    if (!whole && strncmp(said, "\u2068", 3) == 0)
        attn_buffer_put(buffer, "\u2069");
    attn_buffer_put(buffer, whole ? "\"" : spelling == ATTN_SPELL_ASCII ? "~\"" : "…\"");
    buffer->failed = buffer->failed || plain.failed || text.failed;
    attn_buffer_free(&plain);
    attn_buffer_free(&text);
}

/* As many runs as fit into two lines, at least one. */
static void put_unread(attn_buffer *buffer, const attn_record_words *words,
                       const attn_summary *summary, attn_spelling spelling,
                       int64_t columns)
{
    const size_t begin = buffer->length;
    for (int64_t shown = summary->unread_count; shown > 0; shown--) {
        const int64_t rest = summary->unread_count - shown;
        attn_buffer_truncate(buffer, begin);
        attn_buffer_put(buffer, "Hardly read: ");
        for (int64_t i = 0; i < shown; i++) {
            attn_buffer_put(buffer, i > 0 ? ", " : "");
            put_run(buffer, words, summary->unread[i], spelling, columns);
        }
        if (rest > 0)
            attn_buffer_print(buffer, " and %lld more", (long long)rest);
        attn_buffer_put(buffer, ".");
        if (columns == 0 || columns_since(buffer, begin) <= 2 * columns)
            return;
    }
}

static void put_link(attn_buffer *buffer, const attn_record_part *part,
                     const attn_link *link, attn_spelling spelling)
{
    put_quoted(buffer, &part->rows->list[link->row], spelling);
    attn_buffer_put(buffer, attn_record_is_self(part) ? " looks at " : " reads ");
    put_quoted(buffer, &part->keys->list[link->key], spelling);
    attn_buffer_put(buffer, " ");
    attn_put_weight(buffer, link->weight);
}

/* Between words, "man" looks at "telescope" .48, "saw" looks at "man" .20 most. */
static void put_links(attn_buffer *buffer, const attn_record_part *part,
                      const attn_summary *summary, attn_spelling spelling)
{
    for (int64_t i = 0; i < summary->link_count; i++) {
        attn_buffer_put(buffer, i > 0 ? ", " : "Between words, ");
        put_link(buffer, part, &summary->links[i], spelling);
    }
    attn_buffer_put(buffer, " most.");
}

void attn_put_verdict(attn_buffer *buffer, const attn_record *record,
                      const attn_summary *summary, int64_t line, attn_spelling spelling,
                      int64_t columns)
{
    if (summary->alignment_part < 0) {
        put_links(buffer, &record->parts[0], summary, spelling);
        return;
    }
    const attn_record_part *part = &record->parts[summary->alignment_part];
    listing list = {
        .part = part, .summary = summary, .spelling = spelling, .last_comma = " and "};
    if (part->part == ATTN_PART_POOL) {
        put_label_count(buffer, record, summary, spelling);
        return;
    }
    if (line == 0) {
        put_count(buffer, summary, record->picture.grey != NULL);
        return;
    }
    if (summary->unread_count > 0 && line-- == 1) {
        put_unread(buffer, part->keys, summary, spelling, columns);
        return;
    }
    if (line == 1 && summary->unclear_count > 0) {
        list.sources = true;
        list.last_comma = ", ";
        put_fitting(buffer, &list, "No clear source: ", summary->unclear,
                    summary->unclear_count, ".", columns);
        return;
    }
    attn_buffer after = {0};
    put_marks(&after, summary, part, spelling);
    put_fitting(buffer, &list, "", summary->at_special, summary->at_special_count,
                attn_buffer_text(&after), columns);
    buffer->failed = buffer->failed || after.failed;
    attn_buffer_free(&after);
}

/* The clause `index` of a finding; false beyond the last. */
static bool put_clause(attn_buffer *buffer, const attn_record_part *part,
                       const attn_finding *finding, int64_t index, attn_spelling spelling)
{
    const bool number_first = finding->kind != ATTN_FINDING_FAR;
    const int64_t link = index - (number_first ? 1 : 0);
    if (link >= finding->link_count)
        return false;
    if (link >= 0 && finding->kind == ATTN_FINDING_DELIMITERS) {
        put_quoted(buffer, &part->rows->list[finding->links[link].row], spelling);
        attn_buffer_put(buffer, " gives them ");
        attn_put_weight(buffer, finding->links[link].weight);
    } else if (link >= 0 && finding->kind == ATTN_FINDING_BROADEST) {
        put_quoted(buffer, &part->rows->list[finding->links[link].row], spelling);
        attn_buffer_put(buffer, " gives no word more than ");
        attn_put_weight(buffer, finding->links[link].weight);
    } else if (link >= 0) {
        put_link(buffer, part, &finding->links[link], spelling);
    } else if (finding->kind == ATTN_FINDING_SAME) {
        attn_put_weight(buffer, finding->value);
        attn_buffer_put(buffer, attn_record_is_self(part) ? " where words repeat"
                                                          : " on the same word");
    } else if (finding->kind == ATTN_FINDING_DELIMITERS) {
        attn_put_weight(buffer, finding->value);
        attn_buffer_put(buffer, " of its weight (even: ");
        attn_put_weight(buffer, finding->even);
        attn_buffer_put(buffer, ")");
    } else {
        attn_buffer_put(buffer, "entropy ");
        attn_put_weight(buffer, finding->value);
    }
    return true;
}

void attn_put_finding(attn_buffer *buffer, const attn_record *record,
                      const attn_finding *finding, attn_spelling spelling,
                      int64_t columns)
{
    const attn_record_part *part = &record->parts[finding->part];
    const size_t begin = buffer->length;
    for (int64_t index = 0;; index++) {
        const size_t before = buffer->length;
        if (index > 0) /* "; " after a number, ", " between pairs */
            attn_buffer_put(
                buffer, index == 1 && finding->kind != ATTN_FINDING_FAR ? "; " : ", ");
        const bool more = put_clause(buffer, part, finding, index, spelling);
        const bool fits =
            index == 0 || columns == 0 || columns_since(buffer, begin) <= columns;
        if (!more || !fits) {
            attn_buffer_truncate(buffer, before);
            return;
        }
    }
}
