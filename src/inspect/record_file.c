/* A record as a file: safetensors, with texts, words and what was asked for as one JSON
 * object in the metadata.  A file is not trusted: everything that a picture rests on is
 * checked, and what is wrong is named. */
#include "file/safetensors.h"
#include "inspect/record.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "attn.record"
#define PICTURE "picture"

enum { VERSION = 1, MOST_LAYERS = 4096, MOST_TOKENS = 1 << 30 };

/* Rows sum to 1 but for the rounding of fp32 sums over keys and pieces. */
static const double sum_tolerance = 1e-3;

static json_t *words_to_json(const attn_record_words *words)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < words->length; i++) {
        const attn_record_word *word = &words->list[i];
        json_array_append_new(list, json_pack("{s:s, s:b, s:I}", "text", word->text,
                                              "special", (int)word->special, "tokens",
                                              (json_int_t)word->tokens));
    }
    return list;
}

static json_t *record_to_json(const attn_record *record)
{
    json_t *parts = json_array();
    for (int64_t i = 0; i < record->part_count; i++)
        json_array_append_new(parts, json_string(attn_part_name(record->parts[i].part)));
    json_t *const json = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:I, s:o, s:o, s:o, s:o}", "version",
        VERSION, "model", record->model, "source", record->source, "translation",
        record->translation, "source_language", record->source_language,
        "target_language", record->target_language, "forced", (int)record->forced,
        "finished", (int)record->finished, "beams", (json_int_t)record->beams,
        "source_words", words_to_json(&record->source_words), "written_words",
        words_to_json(&record->written_words), "read_words",
        words_to_json(&record->read_words), "parts", parts);
    if (json != NULL && record->picture.grey != NULL)
        json_object_set_new(json, "grid",
                            json_pack("[I, I]", (json_int_t)record->picture.grid_rows,
                                      (json_int_t)record->picture.grid_columns));
    return json;
}

enum { TENSORS_A_PART = 3, NAME = 32 };

static void part_entries(const attn_record_part *part, char (*names)[NAME],
                         attn_safetensors_entry *entries)
{
    static const char *const kinds[] = {"weights", "row_entropy", "entropy"};
    const float *const data[] = {part->weights, part->row_entropy, part->entropy};
    for (int i = 0; i < TENSORS_A_PART; i++) {
        snprintf(names[i], NAME, "%s.%s", attn_part_name(part->part), kinds[i]);
        entries[i] = (attn_safetensors_entry){
            .name = names[i],
            .dtype = ATTN_DTYPE_F32,
            .rank = 4 - i,
            .extent = {part->layers, part->heads, part->rows->length, part->keys->length},
            .data = data[i]};
        for (int axis = 4 - i; axis < 4; axis++)
            entries[i].extent[axis] = 0;
    }
}

attn_status attn_record_save(const attn_record *record, const char *path,
                             attn_error *error)
{
    json_t *json = record_to_json(record);
    char *text =
        json == NULL ? NULL : json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(json);
    if (text == NULL)
        return attn_error_set(error, ATTN_ENOMEM,
                              "memory was refused for the record's texts");
    char names[ATTN_RECORD_PARTS * TENSORS_A_PART][NAME];
    attn_safetensors_entry entries[ATTN_RECORD_PARTS * TENSORS_A_PART + 1];
    size_t count = (size_t)record->part_count * TENSORS_A_PART;
    for (int64_t i = 0; i < record->part_count; i++)
        part_entries(&record->parts[i], names + i * TENSORS_A_PART,
                     entries + i * TENSORS_A_PART);
    if (record->picture.grey != NULL)
        entries[count++] = (attn_safetensors_entry){
            .name = PICTURE,
            .dtype = ATTN_DTYPE_U8,
            .rank = 2,
            .extent = {record->picture.rows, record->picture.columns},
            .data = record->picture.grey};
    const attn_safetensors_note note = {METADATA, text};
    const attn_status status =
        attn_safetensors_write(path, entries, count, &note, 1, error);
    free(text);
    return status;
}

/* What is being read, for messages. */
typedef struct reader {
    const char *name;
    const attn_safetensors *file;
    json_t *json;
    attn_record *record;
    attn_error *error;
} reader;

static attn_status wrong(const reader *r, const char *what, const char *expected)
{
    return attn_error_set(r->error, ATTN_EFORMAT, "%s: %s; expected %s", r->name, what,
                          expected);
}

static attn_status read_string(const reader *r, const char *key, const char **value)
{
    char what[96];
    const json_t *string = json_object_get(r->json, key);
    *value = json_string_value(string);
    snprintf(what, sizeof what, "the record's \"%s\" is %s", key,
             string == NULL ? "missing" : "no text");
    return *value != NULL ? ATTN_OK : wrong(r, what, "a string");
}

static attn_status read_text(const reader *r, const char *key, char **copy)
{
    const char *value;
    const attn_status status = read_string(r, key, &value);
    if (status != ATTN_OK)
        return status;
    *copy = strdup(value);
    return *copy != NULL
               ? ATTN_OK
               : attn_error_set(r->error, ATTN_ENOMEM,
                                "%s: memory was refused for \"%s\"", r->name, key);
}

static attn_status read_language(const reader *r, const char *key, char code[16])
{
    const char *value;
    const attn_status status = read_string(r, key, &value);
    if (status != ATTN_OK)
        return status;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_";
    if (strlen(value) > 15 || strspn(value, letters) != strlen(value))
        return wrong(r, "a language code is malformed",
                     "at most 15 letters as in \"en\"");
    snprintf(code, 16, "%s", value);
    return ATTN_OK;
}

static attn_status read_word(const reader *r, const char *key, const json_t *json,
                             attn_record_words *words, int64_t index)
{
    const char *text = json_string_value(json_object_get(json, "text"));
    const json_t *special = json_object_get(json, "special");
    const json_t *tokens = json_object_get(json, "tokens");
    char what[96];
    snprintf(what, sizeof what, "word %lld of \"%.32s\" is malformed",
             (long long)index + 1, key);
    if (text == NULL || text[0] == '\0' || !json_is_boolean(special) ||
        !json_is_integer(tokens) || json_integer_value(tokens) < 1 ||
        json_integer_value(tokens) > MOST_TOKENS)
        return wrong(r, what, "text, special (true or false) and tokens (1 or more)");
    words->list[index].tokens = json_integer_value(tokens);
    return attn_record_word_set(words, index, text, strlen(text), json_is_true(special),
                                r->error);
}

static attn_status read_words(const reader *r, const char *key, attn_record_words *words)
{
    char what[96];
    const json_t *list = json_object_get(r->json, key);
    snprintf(what, sizeof what, "the record's \"%s\" is %s", key,
             list == NULL ? "missing" : "no list");
    if (!json_is_array(list))
        return wrong(r, what, "a list of words");
    const int64_t length = (int64_t)json_array_size(list);
    attn_status status = attn_record_words_create(words, length, r->error);
    for (int64_t i = 0; status == ATTN_OK && i < length; i++)
        status = read_word(r, key, json_array_get(list, (size_t)i), words, i);
    if (status == ATTN_OK)
        attn_record_words_count(words);
    return status;
}

static attn_status read_header(const reader *r)
{
    attn_record *record = r->record;
    const json_t *version = json_object_get(r->json, "version");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return wrong(r, "the record is of another version", "version 1");
    const json_t *beams = json_object_get(r->json, "beams");
    const json_t *forced = json_object_get(r->json, "forced");
    const json_t *finished = json_object_get(r->json, "finished");
    if (!json_is_integer(beams) || json_integer_value(beams) < 0 ||
        !json_is_boolean(forced) || !json_is_boolean(finished))
        return wrong(r, "how the translation was found is malformed",
                     "beams (0 or more), forced and finished (true or false)");
    record->beams = json_integer_value(beams);
    record->forced = json_is_true(forced);
    record->finished = json_is_true(finished);
    attn_status status = read_text(r, "model", &record->model);
    if (status == ATTN_OK)
        status = read_text(r, "source", &record->source);
    if (status == ATTN_OK)
        status = read_text(r, "translation", &record->translation);
    if (status == ATTN_OK)
        status = read_language(r, "source_language", record->source_language);
    if (status == ATTN_OK)
        status = read_language(r, "target_language", record->target_language);
    if (status == ATTN_OK)
        status = read_words(r, "source_words", &record->source_words);
    if (status == ATTN_OK)
        status = read_words(r, "written_words", &record->written_words);
    if (status == ATTN_OK)
        status = read_words(r, "read_words", &record->read_words);
    return status;
}

/* The tensor of a part, whose shape is then [layers][heads] and what else it is given. */
static attn_status find_tensor(const reader *r, const attn_record_part *part,
                               const char *kind, int rank, const attn_safetensor **tensor)
{
    char name[NAME], what[96];
    snprintf(name, sizeof name, "%s.%s", attn_part_name(part->part), kind);
    *tensor = attn_safetensors_find(r->file, name);
    snprintf(what, sizeof what, "tensor \"%s\" is %s", name,
             *tensor == NULL ? "missing" : "of another type or shape");
    if (*tensor == NULL || (*tensor)->dtype != ATTN_DTYPE_F32 || (*tensor)->rank != rank)
        return wrong(r, what, "F32, [layers][heads][rows][keys] or its first axes");
    const int64_t extent[4] = {part->layers, part->heads, part->rows->length,
                               part->keys->length};
    for (int axis = 0; axis < rank; axis++)
        if ((*tensor)->extent[axis] != extent[axis]) {
            snprintf(what, sizeof what, "tensor \"%s\" has extent %lld on axis %d", name,
                     (long long)(*tensor)->extent[axis], axis);
            char expected[48];
            snprintf(expected, sizeof expected, "%lld", (long long)extent[axis]);
            return wrong(r, what, expected);
        }
    return ATTN_OK;
}

static attn_status check_row(const reader *r, const attn_record_part *part, int64_t head,
                             int64_t row)
{
    const int64_t keys = part->keys->length, visible = attn_record_visible(part, row);
    const float *weights = part->weights + (head * part->rows->length + row) * keys;
    char what[128];
    double sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        const double weight = (double)weights[j];
        if (!(weight >= 0 && weight <= 1 + sum_tolerance) ||
            (j >= visible && weight != 0)) {
            snprintf(what, sizeof what,
                     "%s weight of head %lld, row %lld, key %lld is %g",
                     attn_part_name(part->part), (long long)head + 1, (long long)row + 1,
                     (long long)j + 1, weight);
            return wrong(r, what, j < visible ? "0 to 1" : "0, as it cannot be seen");
        }
        sum += weight;
    }
    snprintf(what, sizeof what, "%s weights of head %lld, row %lld sum to %g",
             attn_part_name(part->part), (long long)head + 1, (long long)row + 1, sum);
    return fabs(sum - 1) <= sum_tolerance || sum == 0 ? ATTN_OK : wrong(r, what, "1");
}

static bool entropy_is_sound(float entropy)
{
    return entropy == -1.0f || (entropy >= 0 && (double)entropy <= 1 + sum_tolerance);
}

static attn_status check_part(const reader *r, const attn_record_part *part)
{
    const int64_t heads = part->layers * part->heads, rows = part->rows->length;
    for (int64_t i = 0; i < heads * rows; i++)
        if (!entropy_is_sound(part->row_entropy[i]))
            return wrong(r, "the entropy of a row is out of range", "0 to 1, or -1");
    for (int64_t h = 0; h < heads; h++) {
        if (!entropy_is_sound(part->entropy[h]))
            return wrong(r, "the entropy of a head is out of range", "0 to 1, or -1");
        for (int64_t i = 0; i < rows; i++) {
            const attn_status status = check_row(r, part, h, i);
            if (status != ATTN_OK)
                return status;
        }
    }
    return ATTN_OK;
}

static attn_status read_part(const reader *r, attn_part kind)
{
    char name[NAME], what[96];
    snprintf(name, sizeof name, "%s.weights", attn_part_name(kind));
    const attn_safetensor *weights = attn_safetensors_find(r->file, name);
    snprintf(what, sizeof what, "tensor \"%s\" is missing or of another shape", name);
    if (weights == NULL || weights->rank != 4 || weights->extent[0] < 1 ||
        weights->extent[1] < 1 || weights->extent[0] > MOST_LAYERS ||
        weights->extent[1] > MOST_LAYERS)
        return wrong(r, what, "[layers][heads][rows][keys]");
    /* Shapes are held against the words before anything of their size is allocated. */
    attn_record *record = r->record;
    attn_record_part shape = {
        .part = kind, .layers = weights->extent[0], .heads = weights->extent[1]};
    attn_record_part_words(record, kind, &shape.rows, &shape.keys);
    snprintf(what, sizeof what, "the %s has no words", attn_part_name(kind));
    if (shape.rows->length < 1 || shape.keys->length < 1)
        return wrong(r, what, "one at least");
    const attn_safetensor *tensors[TENSORS_A_PART];
    static const char *const kinds[] = {"weights", "row_entropy", "entropy"};
    for (int i = 0; i < TENSORS_A_PART; i++) {
        const attn_status status = find_tensor(r, &shape, kinds[i], 4 - i, &tensors[i]);
        if (status != ATTN_OK)
            return status;
    }
    attn_record_part *part;
    attn_status status =
        attn_record_add_part(record, kind, shape.layers, shape.heads, &part, r->error);
    if (status != ATTN_OK)
        return status;
    memcpy(part->weights, tensors[0]->data, tensors[0]->bytes);
    memcpy(part->row_entropy, tensors[1]->data, tensors[1]->bytes);
    memcpy(part->entropy, tensors[2]->data, tensors[2]->bytes);
    return check_part(r, part);
}

static attn_status read_parts(const reader *r)
{
    const json_t *parts = json_object_get(r->json, "parts");
    if (!json_is_array(parts) || json_array_size(parts) > ATTN_RECORD_PARTS)
        return wrong(r, "the record's \"parts\" are malformed", "at most 4 names");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *name = json_string_value(json_array_get(parts, i));
        int kind = 0;
        while (name != NULL && kind <= ATTN_PART_POOL &&
               strcmp(name, attn_part_name((attn_part)kind)) != 0)
            kind++;
        if (name == NULL || kind > ATTN_PART_POOL ||
            attn_record_find_part(r->record, (attn_part)kind) != NULL)
            return wrong(r, "the record names an unknown part, or one twice",
                         "encoder, decoder, cross, pooling");
        const attn_status status = read_part(r, (attn_part)kind);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* The picture, where there is one, and its grid, which is held against the words. */
static attn_status read_picture(const reader *r)
{
    const attn_safetensor *const tensor = attn_safetensors_find(r->file, PICTURE);
    const json_t *const grid = json_object_get(r->json, "grid");
    if (tensor == NULL && grid == NULL)
        return ATTN_OK;
    if (tensor == NULL || tensor->dtype != ATTN_DTYPE_U8 || tensor->rank != 2 ||
        !json_is_array(grid) || json_array_size(grid) != 2 ||
        !json_is_integer(json_array_get(grid, 0)) ||
        !json_is_integer(json_array_get(grid, 1)))
        return wrong(r, "tensor \"" PICTURE "\" or \"grid\" is missing or malformed",
                     "U8, [rows][columns], and two whole numbers");
    attn_record_picture picture = {
        .rows = tensor->extent[0],
        .columns = tensor->extent[1],
        .grid_rows = json_integer_value(json_array_get(grid, 0)),
        .grid_columns = json_integer_value(json_array_get(grid, 1))};
    const int64_t places = r->record->source_words.length;
    if (picture.grid_rows < 1 || picture.grid_columns < 1 || picture.grid_rows > places ||
        picture.grid_columns != places / picture.grid_rows ||
        places % picture.grid_rows != 0)
        return wrong(r, "the picture's \"grid\" is not that of the source's words",
                     "rows × columns = words");
    attn_error reason;
    uint8_t *const grey = (uint8_t *)(uintptr_t)tensor->data; /* is only copied */
    picture.grey = grey;
    const attn_status status = attn_record_set_picture(r->record, &picture, &reason);
    return status == ATTN_OK
               ? status
               : attn_error_set(r->error, status == ATTN_EINVAL ? ATTN_EFORMAT : status,
                                "%s: %s", r->name, reason.message);
}

static attn_status read_record(attn_record **record, const attn_safetensors *file,
                               const char *name, attn_error *error)
{
    reader r = {.name = name, .file = file, .error = error};
    const char *text = attn_safetensors_metadata(file, METADATA);
    if (text == NULL)
        return wrong(&r, "no \"" METADATA "\" in its metadata", "a record of attn look");
    json_error_t reason;
    r.json = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(r.json)) {
        json_decref(r.json);
        return attn_error_set(error, ATTN_EFORMAT, "%s: \"" METADATA "\": %s", name,
                              reason.text);
    }
    attn_status status = attn_record_create(&r.record, error);
    if (status == ATTN_OK)
        status = read_header(&r);
    if (status == ATTN_OK)
        status = read_picture(&r);
    if (status == ATTN_OK)
        status = read_parts(&r);
    json_decref(r.json);
    if (status == ATTN_OK)
        *record = r.record;
    else
        attn_record_destroy(r.record);
    return status;
}

attn_status attn_record_load(attn_record **record, const char *path, attn_error *error)
{
    attn_safetensors *file;
    attn_status status = attn_safetensors_open(&file, path, error);
    if (status != ATTN_OK)
        return status;
    status = read_record(record, file, path, error);
    attn_safetensors_close(file);
    return status;
}

attn_status attn_record_parse(attn_record **record, const void *data, size_t bytes,
                              const char *name, attn_error *error)
{
    attn_safetensors *file;
    attn_status status = attn_safetensors_parse(&file, data, bytes, name, error);
    if (status != ATTN_OK)
        return status;
    status = read_record(record, file, name, error);
    attn_safetensors_close(file);
    return status;
}
