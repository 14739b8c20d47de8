/* The heads worth a look: at most five, each the best of its kind and none twice.  A kind
 * that no head shows is left out.  Of a model's only head: its heaviest links. */
#include "inspect/findings.h"
#include <math.h>
#include <string.h>

/* A head, and what is told of it. */
typedef struct candidate {
    const attn_summary *summary;
    const attn_record_part *part;
    const attn_head_summary *head;
    const float *weights;
    attn_finding finding;
} candidate;

static bool row_delimits(const candidate *c, int64_t row)
{
    return attn_record_word_delimits(&c->part->rows->list[row]);
}

static bool key_delimits(const candidate *c, int64_t key)
{
    return attn_record_word_delimits(&c->part->keys->list[key]);
}

static double weight_of(const candidate *c, int64_t row, int64_t key)
{
    return (double)c->weights[row * c->part->keys->length + key];
}

static attn_link row_top(const candidate *c, int64_t row)
{
    attn_link top = {.row = row, .weight = -1};
    for (int64_t j = 0; j < attn_record_visible(c->part, row); j++) {
        const double weight = weight_of(c, row, j);
        if (weight > top.weight)
            top = (attn_link){.row = row, .key = j, .weight = weight};
    }
    return top;
}

/* Keeps the two heaviest links, the heavier first, the earlier row first on a tie. */
static void keep_link(attn_finding *finding, attn_link link)
{
    if (finding->link_count == 0 || link.weight > finding->links[0].weight) {
        finding->links[1] = finding->links[0];
        finding->links[0] = link;
    } else if (finding->link_count == 1 || link.weight > finding->links[1].weight) {
        finding->links[1] = link;
    }
    if (finding->link_count < 2)
        finding->link_count++;
}

static bool find_sharpest(candidate *c, double *score)
{
    if (c->head->entropy < 0)
        return false;
    for (int marks = 0; marks < 2 && c->finding.link_count == 0; marks++)
        for (int64_t i = 0; i < c->part->rows->length; i++) {
            const attn_link top = row_top(c, i);
            if (attn_record_visible(c->part, i) < 2 || top.weight <= 0)
                continue;
            if (marks || (!row_delimits(c, i) && !key_delimits(c, top.key)))
                keep_link(&c->finding, top);
        }
    c->finding.value = c->head->entropy;
    *score = -c->head->entropy;
    return true;
}

/* Of an encoder: between words that are apart, no delimiters, not from the first row. */
static bool find_far(candidate *c, double *score)
{
    const attn_conventions *limits = &c->summary->conventions;
    if (c->part->part != ATTN_PART_ENCODER)
        return false;
    for (int64_t i = 1; i < c->part->rows->length; i++) {
        attn_link best = {.weight = -1};
        for (int64_t j = 0; j < c->part->keys->length && !row_delimits(c, i); j++) {
            const int64_t distance = i > j ? i - j : j - i;
            if (distance < limits->far_distance || key_delimits(c, j))
                continue;
            if (weight_of(c, i, j) > best.weight)
                best = (attn_link){.row = i, .key = j, .weight = weight_of(c, i, j)};
        }
        if (best.weight >= limits->weak)
            keep_link(&c->finding, best);
    }
    for (int64_t i = 0; i < c->finding.link_count; i++)
        c->finding.value += c->finding.links[i].weight;
    *score = c->finding.value;
    return c->finding.link_count > 0;
}

static bool shows(const candidate *c, attn_role role)
{
    const attn_conventions *limits = &c->summary->conventions;
    return c->head->masses[role] >= limits->weak &&
           c->head->masses[role] >= limits->lift * c->head->evens[role];
}

/* Within one text first; across two texts only where no head does that. */
static bool find_same(candidate *c, double *score)
{
    if (!shows(c, ATTN_ROLE_SAME))
        return false;
    const bool self = attn_record_is_self(c->part);
    for (int64_t i = 0; i < c->part->rows->length; i++) {
        attn_link best = {.weight = -1};
        for (int64_t j = 0; j < attn_record_visible(c->part, i); j++) {
            const attn_record_word *row = &c->part->rows->list[i];
            const attn_record_word *key = &c->part->keys->list[j];
            if ((self && i == j) || row->special || key->special ||
                strcmp(row->text, key->text) != 0)
                continue;
            if (weight_of(c, i, j) > best.weight)
                best = (attn_link){.row = i, .key = j, .weight = weight_of(c, i, j)};
        }
        if (best.weight >= 0)
            keep_link(&c->finding, best);
    }
    if (c->finding.link_count > 1)
        c->finding.link_count = 1;
    c->finding.value = c->head->masses[ATTN_ROLE_SAME];
    *score = c->finding.value + (self ? 1 : 0);
    return true;
}

static bool find_delimiters(candidate *c, double *score)
{
    if (!shows(c, ATTN_ROLE_DELIMITER))
        return false;
    attn_link best = {.weight = -1};
    for (int64_t i = 0; i < c->part->rows->length; i++) {
        double mass = 0;
        for (int64_t j = 0; j < attn_record_visible(c->part, i); j++)
            if (key_delimits(c, j))
                mass += weight_of(c, i, j);
        if (attn_record_visible(c->part, i) > 1 && !row_delimits(c, i) &&
            mass > best.weight)
            best = (attn_link){.row = i, .key = -1, .weight = mass};
    }
    if (best.weight >= 0)
        keep_link(&c->finding, best);
    c->finding.value = c->head->masses[ATTN_ROLE_DELIMITER];
    c->finding.even = c->head->evens[ATTN_ROLE_DELIMITER];
    *score = c->finding.value / c->finding.even;
    return true;
}

static bool find_broadest(candidate *c, double *score)
{
    if (c->head->entropy < 0)
        return false;
    attn_link lowest = {.weight = 2};
    for (int64_t i = 0; i < c->part->rows->length; i++) {
        const attn_link top = row_top(c, i);
        if (attn_record_visible(c->part, i) > 1 && !c->part->rows->list[i].special &&
            top.weight < lowest.weight)
            lowest = top;
    }
    if (lowest.weight <= 1)
        keep_link(&c->finding, lowest);
    c->finding.value = c->head->entropy;
    *score = c->head->entropy;
    return true;
}

static bool taken(const attn_summary *summary, int64_t part, int64_t layer, int64_t head)
{
    for (int64_t i = 0; i < summary->finding_count; i++) {
        const attn_finding *finding = &summary->findings[i];
        if (finding->part == part && finding->layer == layer && finding->head == head)
            return true;
    }
    return false;
}

static int64_t count_heads(const attn_record *record)
{
    int64_t heads = 0;
    for (int64_t p = 0; p < record->part_count; p++)
        heads += record->parts[p].layers * record->parts[p].heads;
    return heads;
}

/* Behind all that are as heavy. */
static void insert_link(attn_summary *summary, attn_link link)
{
    int64_t at = summary->link_count;
    while (at > 0 && summary->links[at - 1].weight < link.weight)
        at--;
    if (at == ATTN_LINKS)
        return;
    if (summary->link_count < ATTN_LINKS)
        summary->link_count++;
    for (int64_t i = summary->link_count - 1; i > at; i--)
        summary->links[i] = summary->links[i - 1];
    summary->links[at] = link;
}

static void find_links(attn_summary *summary, const attn_record *record)
{
    const attn_record_part *part = &record->parts[0];
    const candidate c = {
        .summary = summary, .part = part, .weights = attn_record_weights(part, 0, 0)};
    for (int64_t i = 0; i < part->rows->length; i++) {
        attn_link best = {.row = i, .weight = 0};
        for (int64_t j = 0; j < attn_record_visible(part, i) && !row_delimits(&c, i); j++)
            if (j != i && !key_delimits(&c, j) && weight_of(&c, i, j) > best.weight)
                best = (attn_link){.row = i, .key = j, .weight = weight_of(&c, i, j)};
        if (best.weight > 0)
            insert_link(summary, best);
    }
}

/* A model's only head is neither its sharpest nor its broadest. */
attn_status attn_find(attn_summary *summary, const attn_record *record)
{
    if (count_heads(record) < 2) {
        if (record->part_count > 0 && attn_record_is_self(&record->parts[0]))
            find_links(summary, record);
        return ATTN_OK;
    }
    static bool (*const finders[])(candidate *, double *) = {
        [ATTN_FINDING_SHARPEST] = find_sharpest,
        [ATTN_FINDING_FAR] = find_far,
        [ATTN_FINDING_SAME] = find_same,
        [ATTN_FINDING_DELIMITERS] = find_delimiters,
        [ATTN_FINDING_BROADEST] = find_broadest,
    };
    for (int kind = 0; kind < ATTN_FINDINGS; kind++) {
        attn_finding best = {0};
        double best_score = -HUGE_VAL;
        for (int64_t p = 0; p < record->part_count; p++) {
            const attn_record_part *part = &record->parts[p];
            for (int64_t h = 0; h < part->layers * part->heads; h++) {
                const int64_t layer = h / part->heads, head = h % part->heads;
                candidate c = {.summary = summary, .part = part};
                double score;
                c.head = &summary->parts[p].heads[h];
                c.weights = attn_record_weights(part, layer, head);
                c.finding = (attn_finding){.kind = (attn_finding_kind)kind,
                                           .part = p,
                                           .layer = layer,
                                           .head = head};
                if (taken(summary, p, layer, head) || !finders[kind](&c, &score) ||
                    !(score > best_score))
                    continue;
                best = c.finding;
                best_score = score;
            }
        }
        if (best_score > -HUGE_VAL)
            summary->findings[summary->finding_count++] = best;
    }
    return ATTN_OK;
}
