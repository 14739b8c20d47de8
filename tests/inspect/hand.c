/* Records made by hand. */
#include "hand.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put(attn_record_words *words, int64_t index, const char *text, size_t length,
                bool special)
{
    attn_error error;
    assert_int_equal(attn_record_word_set(words, index, text, length, special, &error),
                     ATTN_OK);
}

static void split(attn_record_words *words, const char *before, const char *text,
                  const char *after)
{
    attn_error error;
    int64_t count = (before != NULL) + (after != NULL);
    for (const char *at = text; *at != '\0'; at += strspn(at, " ")) {
        at += strcspn(at, " ");
        count++;
    }
    assert_int_equal(attn_record_words_create(words, count, &error), ATTN_OK);
    int64_t index = 0;
    if (before != NULL)
        put(words, index++, before, strlen(before), true);
    for (const char *at = text; *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        put(words, index++, at, length, false);
        at += length;
    }
    if (after != NULL)
        put(words, index, after, strlen(after), true);
    attn_record_words_count(words);
}

attn_record_part *hand_part(attn_record *record, attn_part kind)
{
    for (int64_t i = 0; i < record->part_count; i++)
        if (record->parts[i].part == kind)
            return &record->parts[i];
    fail_msg("no part %d", (int)kind);
    return NULL;
}

void hand_look(attn_record *record, attn_part kind, int64_t layer, int64_t head,
               int64_t row, int64_t key, float weight)
{
    attn_record_part *part = hand_part(record, kind);
    const int64_t keys = part->keys->length, visible = attn_record_visible(part, row);
    float *weights =
        part->weights + ((layer * part->heads + head) * part->rows->length + row) * keys;
    if (key < 0 || key >= visible)
        return;
    for (int64_t j = 0; j < visible; j++)
        weights[j] = j == key && visible > 1
                         ? weight
                         : (visible > 1 ? (1 - weight) / (float)(visible - 1) : 1);
}

void hand_look_along(attn_record *record, attn_part kind, int64_t layer, int64_t head,
                     int64_t offset, float weight)
{
    for (int64_t row = 0; row < hand_part(record, kind)->rows->length; row++)
        hand_look(record, kind, layer, head, row, row + offset, weight);
}

static void add_part(attn_record *record, attn_part kind, int64_t layers, int64_t heads)
{
    attn_record_part *part;
    attn_error error;
    assert_int_equal(attn_record_add_part(record, kind, layers, heads, &part, &error),
                     ATTN_OK);
    for (int64_t h = 0; h < layers * heads; h++)
        for (int64_t row = 0; row < part->rows->length; row++) {
            const int64_t visible = attn_record_visible(part, row);
            hand_look(record, kind, h / heads, h % heads, row, 0, 1.0f / (float)visible);
        }
}

static attn_record *create(const char *model, const char *source, const char *written)
{
    attn_record *record;
    attn_error error;
    assert_int_equal(attn_record_create(&record, &error), ATTN_OK);
    record->model = strdup(model);
    record->source = strdup(source);
    record->translation = strdup(written);
    record->finished = true;
    return record;
}

attn_record *hand_record(const char *source, const char *written, int64_t layers,
                         int64_t heads)
{
    attn_record *const record = create("by-hand-en-fr", source, written);
    strcpy(record->source_language, "en");
    strcpy(record->target_language, "fr");
    record->beams = 4;
    split(&record->source_words, NULL, source, "</s>");
    split(&record->written_words, NULL, written, "</s>");
    split(&record->read_words, "<s>", written, NULL);
    for (int kind = 0; kind <= ATTN_PART_CROSS; kind++)
        add_part(record, (attn_part)kind, layers, heads);
    return record;
}

attn_record *hand_label(const char *source, const char *label)
{
    attn_record *const record = create("by-hand", source, label);
    strcpy(record->source_language, "text");
    strcpy(record->target_language, "label");
    split(&record->source_words, NULL, source, NULL);
    split(&record->written_words, label, "", NULL);
    add_part(record, ATTN_PART_POOL, 1, 1);
    return record;
}

attn_record *hand_text(const char *source)
{
    attn_record *const record = create("by-hand", source, "");
    strcpy(record->source_language, "text");
    split(&record->source_words, NULL, source, NULL);
    add_part(record, ATTN_PART_ENCODER, 1, 1);
    return record;
}

attn_record *hand_picture(const char *written)
{
    uint8_t grey[4 * 6];
    attn_error error;
    for (size_t i = 0; i < sizeof grey; i++)
        grey[i] = (uint8_t)(i * 10);
    const attn_record_picture picture = {4, 6, grey, 2, 3};
    attn_record *const record = create("by-hand", "picture.png", written);
    strcpy(record->source_language, "file");
    strcpy(record->target_language, "says");
    assert_int_equal(attn_record_set_picture(record, &picture, &error), ATTN_OK);
    split(&record->written_words, NULL, written, NULL);
    add_part(record, ATTN_PART_CROSS, 1, 1);
    return record;
}

attn_summary *hand_summary_with(attn_record *record, const attn_conventions *conventions)
{
    for (int64_t p = 0; p < record->part_count; p++) {
        attn_record_part *part = &record->parts[p];
        const int64_t rows = part->rows->length, keys = part->keys->length;
        for (int64_t i = 0; i < part->layers * part->heads * rows; i++) {
            const int64_t visible = attn_record_visible(part, i % rows);
            double entropy = 0;
            for (int64_t j = 0; j < visible; j++) {
                const double weight = (double)part->weights[i * keys + j];
                entropy -= weight > 0 ? weight * log(weight) : 0;
            }
            part->row_entropy[i] =
                visible > 1 ? (float)fmin(fmax(entropy / log((double)visible), 0), 1)
                            : -1;
        }
        attn_record_part_average(part);
    }
    attn_summary *summary;
    attn_error error;
    assert_int_equal(attn_summary_create(&summary, record, conventions, &error), ATTN_OK);
    return summary;
}

attn_summary *hand_summary(attn_record *record)
{
    return hand_summary_with(record, NULL);
}
