/* Weights are drawn by a fixed generator, sharper in later layers, and then normalised.
 */
#include "sample.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t state;

static double random_share(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / (double)(1 << 24);
}

static char *copy(const char *text)
{
    char *const made = malloc(strlen(text) + 1);
    assert_non_null(made);
    return strcpy(made, text);
}

/* mark: -1 the first word is the model's, 1 the last. */
static void fill_words(attn_record_words *words, int64_t length, int mark,
                       const sample_shape *shape)
{
    attn_error error;
    assert_int_equal(attn_record_words_create(words, length, &error), ATTN_OK);
    for (int64_t i = 0; i < length; i++) {
        char name[32];
        snprintf(name, sizeof name, "w%lld", (long long)i + 1);
        const char *text = shape->words ? shape->words[i % shape->word_count] : name;
        const bool special = mark < 0 ? i == 0 : i + 1 == length;
        if (special)
            text = mark < 0 ? "<s>" : "</s>";
        assert_int_equal(
            attn_record_word_set(words, i, text, strlen(text), special, &error), ATTN_OK);
    }
    attn_record_words_count(words);
}

static void fill_row(float *row, int64_t keys, int64_t visible, double sharpness)
{
    double sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        const double weight = j < visible ? pow(random_share(), sharpness) + 1e-6 : 0;
        row[j] = (float)weight;
        sum += weight;
    }
    for (int64_t j = 0; j < keys; j++)
        row[j] = (float)((double)row[j] / sum);
}

static float entropy_of(const float *row, int64_t keys, int64_t visible)
{
    double sum = 0;
    for (int64_t j = 0; j < keys; j++)
        if (row[j] > 0)
            sum -= (double)row[j] * log((double)row[j]);
    return visible < 2 ? -1 : (float)(sum / log((double)visible));
}

static void fill_part(attn_record *record, attn_part kind, const sample_shape *shape)
{
    attn_error error;
    attn_record_part *part;
    assert_int_equal(
        attn_record_add_part(record, kind, shape->layers, shape->heads, &part, &error),
        ATTN_OK);
    const int64_t rows = part->rows->length, keys = part->keys->length;
    for (int64_t head = 0; head < part->layers * part->heads; head++)
        for (int64_t i = 0; i < rows; i++) {
            float *const row = part->weights + (head * rows + i) * keys;
            const int64_t visible = attn_record_visible(part, i);
            fill_row(row, keys, visible, 2 + 8 * (double)(head % 7));
            part->row_entropy[head * rows + i] = entropy_of(row, keys, visible);
        }
    attn_record_part_average(part);
}

draw_sample sample_create(const sample_shape *shape)
{
    attn_error error;
    draw_sample made = {0};
    state = 20;
    assert_int_equal(attn_record_create(&made.record, &error), ATTN_OK);
    attn_record *const record = made.record;
    record->model = copy("sample");
    record->source = copy("The source & its <text>.");
    record->translation = copy("Le texte.");
    strcpy(record->source_language, "en");
    strcpy(record->target_language, "fr");
    record->beams = 4;
    record->finished = true;
    fill_words(&record->source_words, shape->source, 1, shape);
    fill_words(&record->written_words, shape->written, 1, shape);
    fill_words(&record->read_words, shape->written, -1, shape);
    if (!shape->causal_only)
        fill_part(record, ATTN_PART_ENCODER, shape);
    fill_part(record, ATTN_PART_DECODER, shape);
    if (!shape->causal_only)
        fill_part(record, ATTN_PART_CROSS, shape);
    assert_int_equal(attn_summary_create(&made.summary, record, NULL, &error), ATTN_OK);
    return made;
}

void sample_destroy(draw_sample *sample)
{
    attn_summary_destroy(sample->summary);
    attn_record_destroy(sample->record);
}
