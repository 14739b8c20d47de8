/* Making and unmaking a record.  Its file is in record_file.c. */
#include "inspect/record.h"
#include "text/words.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status attn_record_create(attn_record **record, attn_error *error)
{
    *record = calloc(1, sizeof **record);
    if (*record == NULL)
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for a record");
    return ATTN_OK;
}

static void words_free(attn_record_words *words)
{
    for (int64_t i = 0; i < words->length; i++)
        free(words->list[i].text);
    free(words->list);
    *words = (attn_record_words){0};
}

void attn_record_destroy(attn_record *record)
{
    if (record == NULL)
        return;
    free(record->model);
    free(record->source);
    free(record->translation);
    free(record->picture.grey);
    words_free(&record->source_words);
    words_free(&record->written_words);
    words_free(&record->read_words);
    for (int64_t i = 0; i < record->part_count; i++) {
        free(record->parts[i].weights);
        free(record->parts[i].row_entropy);
        free(record->parts[i].entropy);
    }
    free(record);
}

attn_status attn_record_words_create(attn_record_words *words, int64_t length,
                                     attn_error *error)
{
    assert(words->list == NULL && length >= 0);
    words->list = calloc(length > 0 ? (size_t)length : 1, sizeof *words->list);
    if (words->list == NULL)
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for %lld words",
                              (long long)length);
    words->length = length;
    for (int64_t i = 0; i < length; i++)
        words->list[i].tokens = 1;
    return ATTN_OK;
}

attn_status attn_record_word_set(attn_record_words *words, int64_t index,
                                 const char *text, size_t length_bytes, bool special,
                                 attn_error *error)
{
    assert(index >= 0 && index < words->length && words->list[index].text == NULL);
    size_t length = 0;
    words->list[index].special = special;
    return attn_utf8_repair(text, length_bytes, &words->list[index].text, &length, error);
}

static int compare_words(const void *left, const void *right)
{
    const attn_record_word *a = *(attn_record_word *const *)left;
    const attn_record_word *b = *(attn_record_word *const *)right;
    const int order = strcmp(a->text, b->text);
    return order != 0 ? order : (a > b) - (a < b);
}

/* Sorted, so that a long text costs n log n. */
void attn_record_words_count(attn_record_words *words)
{
    attn_record_word **sorted =
        calloc((size_t)words->length + 1, sizeof(attn_record_word *));
    int64_t count = 0;
    for (int64_t i = 0; i < words->length; i++) {
        words->list[i].occurrence = 0;
        if (sorted != NULL && !words->list[i].special)
            sorted[count++] = &words->list[i];
    }
    if (sorted == NULL) /* unmarked words are a lesser evil than none */
        return;
    qsort(sorted, (size_t)count, sizeof *sorted, compare_words);
    for (int64_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count; end++)
            if (strcmp(sorted[begin]->text, sorted[end]->text) != 0)
                break;
        for (int64_t i = begin; end - begin > 1 && i < end; i++)
            sorted[i]->occurrence = i - begin + 1;
    }
    free(sorted);
}

static attn_status name_places(attn_record *record, attn_error *error)
{
    const attn_record_picture *const picture = &record->picture;
    attn_record_words *const words = &record->source_words;
    attn_status status = attn_record_words_create(
        words, picture->grid_rows * picture->grid_columns, error);
    for (int64_t i = 0; status == ATTN_OK && i < words->length; i++) {
        char name[48];
        const int length = snprintf(name, sizeof name, "%lld,%lld",
                                    (long long)(i / picture->grid_columns + 1),
                                    (long long)(i % picture->grid_columns + 1));
        status = attn_record_word_set(words, i, name, (size_t)length, false, error);
    }
    return status;
}

attn_status attn_record_set_picture(attn_record *record,
                                    const attn_record_picture *picture, attn_error *error)
{
    enum { MOST_SIDE = 4096 };
    assert(record->picture.grey == NULL);
    if (picture->grid_rows < 1 || picture->grid_rows > picture->rows ||
        picture->grid_columns < 1 || picture->grid_columns > picture->columns ||
        picture->rows > MOST_SIDE || picture->columns > MOST_SIDE)
        return attn_error_set(error, ATTN_EINVAL,
                              "a picture of %lld × %lld points under a grid of %lld × "
                              "%lld places, expected "
                              "at most %d points a side and no more places than points",
                              (long long)picture->rows, (long long)picture->columns,
                              (long long)picture->grid_rows,
                              (long long)picture->grid_columns, MOST_SIDE);
    const size_t points = (size_t)(picture->rows * picture->columns);
    record->picture = *picture;
    record->picture.grey = malloc(points);
    if (record->picture.grey == NULL)
        return attn_error_set(error, ATTN_ENOMEM, "memory was refused for a picture");
    memcpy(record->picture.grey, picture->grey, points);
    return record->source_words.list == NULL ? name_places(record, error) : ATTN_OK;
}

/* *product *= factor, or false where it leaves SIZE_MAX floats. */
static bool multiply(size_t *product, int64_t factor)
{
    return factor >= 0 && !__builtin_mul_overflow(*product, (size_t)factor, product) &&
           *product <= SIZE_MAX / sizeof(float) / 2;
}

static attn_status part_allocate(attn_record_part *part, attn_error *error)
{
    size_t heads = 1, weights;
    bool fits = multiply(&heads, part->layers) && multiply(&heads, part->heads);
    size_t rows = heads;
    fits = fits && multiply(&rows, part->rows->length);
    weights = rows;
    fits = fits && multiply(&weights, part->keys->length);
    if (fits) {
        part->weights = calloc(weights + 1, sizeof(float));
        part->row_entropy = calloc(rows + 1, sizeof(float));
        part->entropy = calloc(heads + 1, sizeof(float));
    }
    if (part->weights != NULL && part->row_entropy != NULL && part->entropy != NULL)
        return ATTN_OK;
    free(part->weights);
    free(part->row_entropy);
    free(part->entropy);
    return attn_error_set(error, ATTN_ENOMEM,
                          "memory was refused for %lld layers of %lld heads, %lld x %lld "
                          "weights each",
                          (long long)part->layers, (long long)part->heads,
                          (long long)part->rows->length, (long long)part->keys->length);
}

void attn_record_part_words(const attn_record *record, attn_part kind,
                            const attn_record_words **rows,
                            const attn_record_words **keys)
{
    *rows = kind == ATTN_PART_ENCODER   ? &record->source_words
            : kind == ATTN_PART_DECODER ? &record->read_words
                                        : &record->written_words;
    *keys = kind == ATTN_PART_DECODER ? &record->read_words : &record->source_words;
}

attn_status attn_record_add_part(attn_record *record, attn_part kind, int64_t layers,
                                 int64_t heads, attn_record_part **part,
                                 attn_error *error)
{
    if (record->part_count == ATTN_RECORD_PARTS || attn_record_find_part(record, kind))
        return attn_error_set(error, ATTN_EINVAL, "the record has its part %s already",
                              attn_part_name(kind));
    attn_record_part made = {.part = kind, .layers = layers, .heads = heads};
    made.causal = kind == ATTN_PART_DECODER;
    attn_record_part_words(record, kind, &made.rows, &made.keys);
    const attn_status status = part_allocate(&made, error);
    if (status != ATTN_OK)
        return status;
    *part = &record->parts[record->part_count++];
    **part = made;
    return ATTN_OK;
}

void attn_record_part_average(attn_record_part *part)
{
    const int64_t rows = part->rows->length;
    for (int64_t head = 0; head < part->layers * part->heads; head++) {
        double sum = 0;
        int64_t count = 0;
        for (int64_t i = 0; i < rows; i++) {
            const float entropy = part->row_entropy[head * rows + i];
            if (entropy >= 0) {
                sum += (double)entropy;
                count++;
            }
        }
        part->entropy[head] = count > 0 ? (float)(sum / (double)count) : -1.0f;
    }
}

const attn_record_part *attn_record_find_part(const attn_record *record, attn_part kind)
{
    for (int64_t i = 0; i < record->part_count; i++)
        if (record->parts[i].part == kind)
            return &record->parts[i];
    return NULL;
}

const float *attn_record_weights(const attn_record_part *part, int64_t layer,
                                 int64_t head)
{
    return part->weights +
           (layer * part->heads + head) * part->rows->length * part->keys->length;
}

bool attn_record_is_self(const attn_record_part *part)
{
    return part->rows == part->keys;
}

int64_t attn_record_visible(const attn_record_part *part, int64_t row)
{
    return part->causal ? row + 1 : part->keys->length;
}
