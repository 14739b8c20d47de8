/* Reading labelled texts and encoding them. */
#include "train/texts.h"
#include "base/context.h"
#include "base/mix.h"
#include "text/containers.h"
#include "text/words.h"
#include <stdlib.h>
#include <string.h>

/* ---- Files ----------------------------------------------------------------------- */

static attn_status no_memory(const char *path, attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "%s: no memory for its texts", path);
}

static attn_status check_line(const attn_corpus *corpus, size_t line, size_t label,
                              const char *path, attn_error *error)
{
    const size_t first = corpus->first_field[line];
    const size_t columns = corpus->first_field[line + 1] - first;
    if (columns < 2)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s, line %zu: 1 column, expected a tab between text and "
                              "label",
                              path, line + 1);
    if (columns > 2 && label == 0)
        return attn_error_set(
            error, ATTN_EFORMAT,
            "%s, line %zu: %zu columns, expected 2: a label, a tab, and "
            "a text without tabs",
            path, line + 1, columns);
    if (!*corpus->fields[first + label])
        return attn_error_set(error, ATTN_EFORMAT, "%s, line %zu: the label is empty",
                              path, line + 1);
    return ATTN_OK;
}

static bool is_empty(const attn_corpus *corpus, size_t line)
{
    const size_t first = corpus->first_field[line];
    return corpus->first_field[line + 1] - first == 1 && !*corpus->fields[first];
}

/* Items are lines that are not empty; where words are labelled, an empty line, or the
 * end, ends a text of at least one. */
static attn_status list_items(attn_labelled *labelled, const char *path,
                              attn_error *error)
{
    const attn_corpus *const corpus = &labelled->corpus;
    const size_t text = labelled->tags ? 0 : 1, label = 1 - text;
    size_t items = 0;
    for (size_t line = 0; line < corpus->lines; line++) {
        if (labelled->tags && is_empty(corpus, line)) {
            if (items > labelled->first[labelled->count])
                labelled->first[++labelled->count] = items;
            continue;
        }
        ATTN_TRY(check_line(corpus, line, label, path, error));
        const char *const *const fields = corpus->fields + corpus->first_field[line];
        if (labelled->tags && !*fields[text])
            return attn_error_set(error, ATTN_EFORMAT, "%s, line %zu: the word is empty",
                                  path, line + 1);
        labelled->texts[items] = fields[text];
        labelled->labels[items] = fields[label];
        labelled->lines[items++] = line + 1;
        if (!labelled->tags)
            labelled->first[++labelled->count] = items;
    }
    if (labelled->tags && items > labelled->first[labelled->count])
        labelled->first[++labelled->count] = items;
    return items > 0 ? ATTN_OK
                     : attn_error_set(error, ATTN_EFORMAT, "%s has no text", path);
}

attn_status attn_labelled_load(attn_labelled *labelled, const char *path, bool tags,
                               attn_error *error)
{
    *labelled = (attn_labelled){.tags = tags};
    ATTN_TRY(attn_corpus_load(&labelled->corpus, path, 1, error));
    const size_t most = labelled->corpus.lines + 1;
    labelled->first = calloc(most, sizeof *labelled->first);
    labelled->texts = calloc(most, sizeof *labelled->texts);
    labelled->labels = calloc(most, sizeof *labelled->labels);
    labelled->lines = calloc(most, sizeof *labelled->lines);
    attn_status status = ATTN_OK;
    if (!labelled->first || !labelled->texts || !labelled->labels || !labelled->lines)
        status = no_memory(path, error);
    if (status == ATTN_OK)
        status = list_items(labelled, path, error);
    if (status != ATTN_OK)
        attn_labelled_free(labelled);
    return status;
}

void attn_labelled_free(attn_labelled *labelled)
{
    attn_corpus_free(&labelled->corpus);
    free(labelled->first);
    free(labelled->texts);
    free(labelled->labels);
    free(labelled->lines);
    *labelled = (attn_labelled){0};
}

/* ---- Labels ---------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

attn_status attn_label_set_collect(attn_label_set *set, const attn_labelled *labelled,
                                   attn_error *error)
{
    const size_t items = labelled->first[labelled->count];
    *set =
        (attn_label_set){.names = malloc(items * sizeof *set->names), .is_sorted = true};
    if (!set->names)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the labels");
    memcpy(set->names, labelled->labels, items * sizeof *set->names);
    qsort(set->names, items, sizeof *set->names, by_bytes);
    for (size_t n = 0; n < items; n++)
        if (n == 0 || strcmp(set->names[n], set->names[n - 1]) != 0)
            set->names[set->count++] = set->names[n];
    return ATTN_OK;
}

int64_t attn_label_set_find(const attn_label_set *set, const char *name)
{
    int64_t low = 0, high = set->count;
    for (int64_t i = 0; !set->is_sorted && i < set->count; i++)
        if (strcmp(set->names[i], name) == 0)
            return i;
    if (!set->is_sorted)
        return -1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(set->names[middle], name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

void attn_label_set_free(attn_label_set *set)
{
    free(set->names);
    *set = (attn_label_set){0};
}

/* ---- Tokens ---------------------------------------------------------------------- */

struct encoding {
    attn_texts *texts;
    const attn_labelled *labelled;
    const attn_texts_rules *rules;
    size_t tokens_capacity;
    attn_error *error;
};

/* Appends the tokens of an item to ids. */
static attn_status append(struct encoding *e, size_t item)
{
    attn_texts *const texts = e->texts;
    const char *const text = e->labelled->texts[item];
    attn_token *tokens;
    size_t count;
    ATTN_TRY((e->labelled->tags ? attn_word_encode : attn_tokenizer_encode)(
        e->rules->tokenizer, text, strlen(text), &tokens, &count, e->error));
    const size_t used = (size_t)texts->tokens;
    if (!attn_grow(&texts->ids, &e->tokens_capacity, used + count + 1,
                   sizeof *texts->ids)) {
        free(tokens);
        return no_memory(e->rules->name, e->error);
    }
    for (size_t n = 0; n < count; n++)
        texts->ids[used + n] = tokens[n].id;
    texts->tokens += (int64_t)count;
    free(tokens);
    return ATTN_OK;
}

static attn_status find_target(struct encoding *e, size_t item)
{
    const char *const label = e->labelled->labels[item];
    const int64_t target = attn_label_set_find(e->rules->labels, label);
    if (target < 0)
        return attn_error_set(
            e->error, ATTN_EFORMAT,
            "%s, line %zu: the label \"%.60s\" was not seen in training", e->rules->name,
            e->labelled->lines[item], label);
    e->texts->targets[item] = (int32_t)target;
    return ATTN_OK;
}

/* Pointers into arrays that still grow are set at the end: here, the counts. */
static attn_status encode_text(struct encoding *e, size_t n)
{
    attn_texts *const texts = e->texts;
    const size_t first = e->labelled->first[n], end = e->labelled->first[n + 1];
    const int64_t begin = texts->tokens;
    int64_t *const starts = texts->starts + first + n;
    for (size_t item = first; item < end; item++) {
        starts[item - first] = texts->tokens - begin;
        ATTN_TRY(find_target(e, item));
        ATTN_TRY(append(e, item));
    }
    starts[end - first] = texts->tokens - begin;
    texts->texts[n] = (attn_reader_text){.count = texts->tokens - begin,
                                         .starts = e->labelled->tags ? starts : NULL,
                                         .words = (int64_t)(end - first)};
    texts->first_target[n + 1] = end;
    const int64_t chunks = attn_reader_chunks(e->rules->reader, &texts->texts[n]);
    texts->cut += chunks > 1;
    if (chunks == 1 || (chunks > 1 && !e->rules->refuses_long))
        return ATTN_OK;
    return attn_error_set(
        e->error, ATTN_EFORMAT,
        "%s, line %zu: %lld tokens, the model has %lld positions%s", e->rules->name,
        e->labelled->lines[first], (long long)texts->texts[n].count,
        (long long)attn_reader_config_of(e->rules->reader)->max_positions,
        chunks == 0 ? ", which one of its words alone does not fit in"
                    : "; model.too_long \"split\" would cut it");
}

attn_status attn_texts_encode(attn_texts *texts, const attn_labelled *labelled,
                              const attn_texts_rules *rules, attn_error *error)
{
    const size_t count = labelled->count, items = labelled->first[count];
    *texts = (attn_texts){
        .count = count,
        .texts = calloc(count + 1, sizeof *texts->texts),
        .starts = calloc(items + count + 1, sizeof *texts->starts),
        .targets = calloc(items + 1, sizeof *texts->targets),
        .first_target = calloc(count + 1, sizeof *texts->first_target),
    };
    struct encoding e = {texts, labelled, rules, 0, error};
    attn_status status = ATTN_OK;
    if (!texts->texts || !texts->starts || !texts->targets || !texts->first_target ||
        !attn_grow(&texts->ids, &e.tokens_capacity, 1, sizeof *texts->ids))
        status = no_memory(rules->name, error);
    for (size_t n = 0; n < count && status == ATTN_OK; n++)
        status = encode_text(&e, n);
    if (status != ATTN_OK) {
        attn_texts_free(texts);
        return status;
    }
    const int32_t *ids = texts->ids;
    for (size_t n = 0; n < count; n++) {
        texts->texts[n].ids = ids;
        ids += texts->texts[n].count;
    }
    return ATTN_OK;
}

uint64_t attn_texts_hash(const attn_texts *texts)
{
    uint64_t hash = ATTN_MIX_HASH;
    for (size_t n = 0; n < texts->count; n++) {
        const attn_reader_text *const text = &texts->texts[n];
        for (int64_t i = 0; i < text->count; i++)
            hash = attn_mix_hash(hash, (uint64_t)text->ids[i]);
        for (int64_t w = 0; text->starts && w <= text->words; w++)
            hash = attn_mix_hash(hash, (uint64_t)text->starts[w]);
        for (size_t i = texts->first_target[n]; i < texts->first_target[n + 1]; i++)
            hash = attn_mix_hash(hash, (uint64_t)texts->targets[i]);
        hash = attn_mix_hash(hash, (uint64_t)text->count);
    }
    return hash;
}

void attn_texts_free(attn_texts *texts)
{
    free(texts->texts);
    free(texts->ids);
    free(texts->starts);
    free(texts->targets);
    free(texts->first_target);
    *texts = (attn_texts){0};
}
