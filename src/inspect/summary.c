/* Roles of heads, the alignment and the verdict about it.  Findings are in findings.c. */
#include "inspect/findings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void attn_conventions_init(attn_conventions *conventions)
{
    *conventions = (attn_conventions){
        .clear = 0.50,
        .lead = 0.10,
        .strong = 0.50,
        .weak = 0.30,
        .lift = 1.4,
        .broad = 0.80,
        .faint = 0.05,
        .same_rows = 3,
        .unread = 0.20,
        .unread_share = 0.50,
        .unread_words = 3,
        .far_distance = 2,
    };
}

int attn_hundredths(double value)
{
    return (int)lrint(value * 100);
}

bool attn_prints_as(double value, double threshold)
{
    return attn_hundredths(value) >= threshold * 100 - 1e-6;
}

/* Less than `clear`, or leads by less than `lead`, as printed. */
static bool is_weak(const attn_summary *summary, int64_t row)
{
    const double top = summary->top[row].weight;
    const int lead = attn_hundredths(top) - attn_hundredths(summary->second[row]);
    return !attn_prints_as(top, summary->conventions.clear) ||
           lead < summary->conventions.lead * 100 - 1e-6;
}

bool attn_is_unclear(const attn_summary *summary, int64_t row)
{
    for (int64_t i = 0; i < summary->unclear_count; i++)
        if (summary->unclear[i] == row)
            return true;
    return false;
}

bool attn_record_word_delimits(const attn_record_word *word)
{
    if (word->special)
        return true;
    const utf8proc_uint8_t *text = (const utf8proc_uint8_t *)word->text;
    for (utf8proc_int32_t point; *text != 0;) {
        const utf8proc_ssize_t bytes = utf8proc_iterate(text, -1, &point);
        if (bytes <= 0)
            return false;
        text += bytes;
        const char *kind = utf8proc_category_string(point);
        if (kind[0] != 'P' && kind[0] != 'Z' && kind[0] != 'C')
            return false;
    }
    return true;
}

/* One head under measure. */
typedef struct measure {
    const attn_record_part *part;
    const float *weights;
    const bool *delimits; /* of keys */
    double mass[ATTN_ROLES], even[ATTN_ROLES];
    int64_t rows, same_rows;
} measure;

static bool same_text(const attn_record_word *a, const attn_record_word *b)
{
    return a->special == b->special && strcmp(a->text, b->text) == 0;
}

static void measure_same(measure *m, int64_t row, int64_t visible)
{
    const attn_record_part *part = m->part;
    const bool self = attn_record_is_self(part);
    const attn_record_word *word = &part->rows->list[row];
    if (self && word->occurrence == 0)
        return;
    double mass = 0;
    int64_t same = 0;
    for (int64_t j = 0; j < visible; j++) {
        if ((self && j == row) || !same_text(word, &part->keys->list[j]))
            continue;
        mass += (double)m->weights[row * part->keys->length + j];
        same++;
    }
    if (same == 0)
        return;
    m->mass[ATTN_ROLE_SAME] += mass;
    m->even[ATTN_ROLE_SAME] += (double)same / (double)visible;
    m->same_rows++;
}

static void measure_key(measure *m, attn_role role, int64_t row, int64_t key)
{
    const int64_t visible = attn_record_visible(m->part, row);
    if (key < 0 || key >= visible)
        return;
    m->mass[role] += (double)m->weights[row * m->part->keys->length + key];
    m->even[role] += 1.0 / (double)visible;
}

static void measure_rows(measure *m)
{
    for (int64_t i = 0; i < m->part->rows->length; i++) {
        const int64_t visible = attn_record_visible(m->part, i);
        if (visible < 2)
            continue;
        m->rows++;
        if (attn_record_is_self(m->part)) {
            measure_key(m, ATTN_ROLE_PREVIOUS, i, i - 1);
            measure_key(m, ATTN_ROLE_NEXT, i, i + 1);
            measure_key(m, ATTN_ROLE_OWN, i, i);
        }
        measure_key(m, ATTN_ROLE_FIRST, i, 0);
        for (int64_t j = 0; j < visible; j++)
            if (m->delimits[j])
                measure_key(m, ATTN_ROLE_DELIMITER, i, j);
        measure_same(m, i, visible);
    }
}

/* The largest mass that shows.  A head that is broad by its entropy is called so unless
 * half its weight has one role: in a short text both can be. */
static void choose_role(attn_head_summary *head, const attn_conventions *limits)
{
    head->role = ATTN_ROLE_MIXED;
    for (attn_role role = ATTN_ROLE_PREVIOUS; role <= ATTN_ROLE_SAME; role++) {
        const double mass = head->masses[role], even = head->evens[role];
        if (mass < limits->weak || mass < limits->lift * even || mass <= head->mass)
            continue;
        head->role = role;
        head->mass = mass;
        head->even = even;
    }
    head->strong = head->role != ATTN_ROLE_MIXED && head->mass >= limits->strong;
    if (!head->strong && head->entropy >= 0 &&
        attn_prints_as(head->entropy, limits->broad)) {
        head->role = ATTN_ROLE_BROAD;
        head->mass = head->entropy;
        head->even = 0;
        head->strong = true;
    }
}

static attn_head_summary measure_head(const attn_record_part *part, int64_t index,
                                      const bool *delimits,
                                      const attn_conventions *limits)
{
    measure m = {.part = part,
                 .weights =
                     part->weights + index * part->rows->length * part->keys->length,
                 .delimits = delimits};
    measure_rows(&m);
    attn_head_summary head = {.entropy = (double)part->entropy[index]};
    for (attn_role role = ATTN_ROLE_PREVIOUS; role <= ATTN_ROLE_SAME; role++) {
        const int64_t rows = role == ATTN_ROLE_SAME ? m.same_rows : m.rows;
        if (rows == 0 || (role == ATTN_ROLE_SAME && rows < limits->same_rows))
            continue;
        head.masses[role] = m.mass[role] / (double)rows;
        head.evens[role] = m.even[role] / (double)rows;
    }
    if (head.entropy >= 0)
        head.masses[ATTN_ROLE_BROAD] = head.entropy;
    choose_role(&head, limits);
    return head;
}

static attn_status measure_part(attn_part_summary *out, const attn_record_part *part,
                                const attn_conventions *limits)
{
    const int64_t heads = part->layers * part->heads;
    bool *delimits = calloc((size_t)part->keys->length + 1, sizeof *delimits);
    out->heads = calloc((size_t)heads + 1, sizeof *out->heads);
    out->layer_entropy = calloc((size_t)part->layers + 1, sizeof *out->layer_entropy);
    if (delimits == NULL || out->heads == NULL || out->layer_entropy == NULL) {
        free(delimits);
        return ATTN_ENOMEM;
    }
    for (int64_t j = 0; j < part->keys->length; j++)
        delimits[j] = attn_record_word_delimits(&part->keys->list[j]);
    for (int64_t layer = 0; layer < part->layers; layer++) {
        double sum = 0;
        for (int64_t h = layer * part->heads; h < (layer + 1) * part->heads; h++) {
            out->heads[h] = measure_head(part, h, delimits, limits);
            sum += out->heads[h].entropy;
        }
        out->layer_entropy[layer] = sum / (double)part->heads;
    }
    free(delimits);
    return ATTN_OK;
}

/* The weight on a place of a picture and the eight around it. */
static double mass_around(const attn_record_picture *picture, const float *row,
                          int64_t place)
{
    double mass = 0;
    const int64_t at_row = place / picture->grid_columns;
    const int64_t at_column = place % picture->grid_columns;
    for (int64_t i = at_row - 1; i <= at_row + 1; i++)
        for (int64_t j = at_column - 1; j <= at_column + 1; j++)
            if (i >= 0 && i < picture->grid_rows && j >= 0 && j < picture->grid_columns)
                mass += (double)row[i * picture->grid_columns + j];
    return mass;
}

/* No word stands before it. */
static bool begins(const attn_record_part *part, int64_t row)
{
    for (int64_t i = 0; i < row; i++)
        if (!attn_record_word_delimits(&part->rows->list[i]))
            return false;
    return true;
}

/* A mark of the model is no word: its row is not judged, and who reads it reads none. */
static void judge_row(attn_summary *summary, const attn_record_part *part, int64_t row)
{
    if (part->part != ATTN_PART_CROSS || part->rows->list[row].special)
        return;
    const bool at_special = part->keys->list[summary->top[row].key].special;
    summary->judged_count++;
    if (!is_weak(summary, row) && !at_special)
        summary->clear_count++;
    else
        summary->unclear[summary->unclear_count++] = row;
    if (at_special && !begins(part, row) &&
        !attn_record_word_delimits(&part->rows->list[row]))
        summary->at_special[summary->at_special_count++] = row;
}

static void align_row(attn_summary *summary, const attn_record *record,
                      const attn_record_part *part, int64_t row)
{
    const int64_t rows = part->rows->length, keys = part->keys->length;
    const float *first = attn_record_weights(part, summary->alignment_layer, 0);
    attn_link top = {.row = row, .weight = -1};
    double second = 0;
    for (int64_t j = 0; j < keys; j++) {
        double sum = 0;
        for (int64_t h = 0; h < part->heads; h++)
            sum += (double)first[(h * rows + row) * keys + j];
        const double mean = sum / (double)part->heads;
        summary->alignment[row * keys + j] = (float)mean;
        if (mean > top.weight) {
            second = j > 0 ? top.weight : 0;
            top.key = j;
            top.weight = mean;
        } else if (mean > second) {
            second = mean;
        }
    }
    if (record->picture.grey != NULL)
        top.weight =
            mass_around(&record->picture, summary->alignment + row * keys, top.key);
    summary->top[row] = top;
    summary->second[row] = record->picture.grey != NULL ? 0 : second;
    judge_row(summary, part, row);
}

static attn_status align(attn_summary *summary, const attn_record *record)
{
    summary->alignment_part = -1;
    for (int64_t i = 0; i < record->part_count; i++)
        if (record->parts[i].part == ATTN_PART_CROSS ||
            record->parts[i].part == ATTN_PART_POOL)
            summary->alignment_part = i;
    if (summary->alignment_part < 0)
        return ATTN_OK;
    const attn_record_part *part = &record->parts[summary->alignment_part];
    const double *entropy = summary->parts[summary->alignment_part].layer_entropy;
    for (int64_t layer = 1; layer < part->layers; layer++)
        if (entropy[layer] < entropy[summary->alignment_layer])
            summary->alignment_layer = layer;
    const size_t rows = (size_t)part->rows->length, keys = (size_t)part->keys->length;
    summary->alignment = calloc(rows * keys + 1, sizeof *summary->alignment);
    summary->top = calloc(rows + 1, sizeof *summary->top);
    summary->second = calloc(rows + 1, sizeof *summary->second);
    summary->unclear = calloc(rows + 1, sizeof *summary->unclear);
    summary->at_special = calloc(rows + 1, sizeof *summary->at_special);
    if (summary->alignment == NULL || summary->top == NULL || summary->second == NULL ||
        summary->unclear == NULL || summary->at_special == NULL)
        return ATTN_ENOMEM;
    for (int64_t i = 0; i < part->rows->length; i++)
        align_row(summary, record, part, i);
    return ATTN_OK;
}

attn_status attn_summary_create(attn_summary **summary, const attn_record *record,
                                const attn_conventions *conventions, attn_error *error)
{
    attn_summary *made = calloc(1, sizeof *made);
    attn_status status = made == NULL ? ATTN_ENOMEM : ATTN_OK;
    if (made != NULL && conventions != NULL)
        made->conventions = *conventions;
    else if (made != NULL)
        attn_conventions_init(&made->conventions);
    for (int64_t i = 0; status == ATTN_OK && i < record->part_count; i++)
        status = measure_part(&made->parts[i], &record->parts[i], &made->conventions);
    if (status == ATTN_OK)
        status = align(made, record);
    if (status == ATTN_OK)
        status = attn_find_unread(made, record);
    if (status == ATTN_OK)
        status = attn_find(made, record);
    if (status != ATTN_OK) {
        attn_summary_destroy(made);
        return attn_error_set(error, status, "memory was refused for a summary");
    }
    *summary = made;
    return ATTN_OK;
}

void attn_summary_destroy(attn_summary *summary)
{
    if (summary == NULL)
        return;
    for (int64_t i = 0; i < ATTN_RECORD_PARTS; i++) {
        free(summary->parts[i].heads);
        free(summary->parts[i].layer_entropy);
    }
    free(summary->alignment);
    free(summary->top);
    free(summary->second);
    free(summary->unclear);
    free(summary->at_special);
    free(summary->unread);
    free(summary);
}

const attn_head_summary *attn_summary_head(const attn_summary *summary,
                                           const attn_record *record, int64_t part,
                                           int64_t layer, int64_t head)
{
    return &summary->parts[part].heads[layer * record->parts[part].heads + head];
}

const char *attn_role_name(attn_role role)
{
    static const char *const names[] = {"mixed", "previous",  "next", "own",
                                        "first", "delimiter", "same", "broad"};
    return names[role];
}

char attn_role_letter(const attn_head_summary *head)
{
    static const char letters[] = "\0PNOFDSB";
    const char letter = letters[head->role];
    return letter == 0 || head->strong ? letter : (char)(letter - 'A' + 'a');
}

const char *attn_finding_name(attn_finding_kind kind)
{
    static const char *const names[] = {"sharpest", "far links", "same word",
                                        "delimiters", "broadest"};
    return names[kind];
}
