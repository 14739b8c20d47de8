/* Recipes: a table says what keys there are, and one loop reads, checks and reports. */
#include "train/recipe.h"
#include "base/context.h"
#include "file/file.h"
#include "file/path.h"
#include "train/task.h"
#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECIPE_BYTES = 1 << 20, MOST_KINDS = 32, MOST_KEYS = 128 };

static const char *const SHAPES[] = {"inverse_sqrt", "linear", "cosine", NULL};
static const char *const KEEPS[] = {"last", "best", NULL};

#define AT(member) offsetof(attn_recipe, member)

/* What every kind has. */
static const attn_recipe_field FIELDS[] = {
    {"data", "train", ATTN_FIELD_TEXT, AT(train), 1, ATTN_PATH_BYTES, NULL,
     ATTN_REQUIRED},
    {"data", "valid", ATTN_FIELD_TEXT, AT(valid), 1, ATTN_PATH_BYTES, NULL,
     ATTN_REQUIRED},
    {"data", "test", ATTN_FIELD_TEXT, AT(test), 1, ATTN_PATH_BYTES, NULL, 0},
    {"training", "seed", ATTN_FIELD_INTEGER, AT(seed), 0, 9007199254740992.0, NULL,
     ATTN_REQUIRED},
    {"training", "tokens_per_batch", ATTN_FIELD_INTEGER, AT(tokens_per_batch), 1, 1e9,
     NULL, ATTN_REQUIRED},
    {"training", "length_noise", ATTN_FIELD_DECIMAL, AT(length_noise), 0, 1e9, NULL,
     ATTN_REQUIRED},
    {"training", "shards", ATTN_FIELD_INTEGER, AT(shards), 1, 64, NULL, ATTN_REQUIRED},
    {"training", "epochs", ATTN_FIELD_INTEGER, AT(epochs), 1, 1e6, NULL, 0},
    {"training", "target_tokens", ATTN_FIELD_INTEGER, AT(target_tokens), 1, 1e15, NULL,
     0},
    {"training", "schedule", ATTN_FIELD_CHOICE, AT(schedule), 0, 0, SHAPES,
     ATTN_REQUIRED},
    {"training", "peak_learning_rate", ATTN_FIELD_DECIMAL, AT(peak_learning_rate), 0, 10,
     NULL, ATTN_REQUIRED},
    {"training", "warmup_steps", ATTN_FIELD_INTEGER, AT(warmup_steps), 0, 1e9, NULL,
     ATTN_REQUIRED},
    {"training", "beta1", ATTN_FIELD_DECIMAL, AT(beta1), 0, 0.999999, NULL,
     ATTN_REQUIRED},
    {"training", "beta2", ATTN_FIELD_DECIMAL, AT(beta2), 0, 0.999999, NULL,
     ATTN_REQUIRED},
    {"training", "epsilon", ATTN_FIELD_DECIMAL, AT(epsilon), 1e-30, 1, NULL,
     ATTN_REQUIRED},
    {"training", "weight_decay", ATTN_FIELD_DECIMAL, AT(weight_decay), 0, 10, NULL,
     ATTN_REQUIRED},
    {"training", "clip", ATTN_FIELD_DECIMAL, AT(clip), 0, 1e9, NULL, ATTN_REQUIRED},
    {"training", "label_smoothing", ATTN_FIELD_DECIMAL, AT(label_smoothing), 0, 0.99,
     NULL, ATTN_REQUIRED},
    {"training", "average", ATTN_FIELD_DECIMAL, AT(average), 0, 0.999999, NULL,
     ATTN_REQUIRED},
    {"training", "checkpoint_every", ATTN_FIELD_INTEGER, AT(checkpoint_every), 1, 1e9,
     NULL, ATTN_REQUIRED},
    {"training", "valid_every", ATTN_FIELD_INTEGER, AT(valid_every), 1, 1e9, NULL,
     ATTN_REQUIRED},
    {"training", "keep", ATTN_FIELD_CHOICE, AT(keep), 0, 0, KEEPS, ATTN_KEEP_LAST},
    {"training", "patience", ATTN_FIELD_INTEGER, AT(patience), 0, 1e9, NULL, 0},
};

enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

static const char *const KEYS[] = {"kind", "data", "tokenizer", "model", "training"};
static const char *const *const SECTIONS = KEYS + 1;

enum { KEY_COUNT = sizeof KEYS / sizeof KEYS[0], SECTION_COUNT = KEY_COUNT - 1 };

struct reader {
    const char *name; /* of the file, for messages */
    attn_recipe *recipe;
    attn_error *error;
};

/* The keys of every kind, then the kind's own, then NULL. */
static const attn_recipe_field *field_at(const attn_recipe *recipe, size_t n)
{
    if (n < FIELD_COUNT)
        return &FIELDS[n];
    return n - FIELD_COUNT < recipe->kind->field_count
               ? &recipe->kind->fields[n - FIELD_COUNT]
               : NULL;
}

/* "training.seed", or "kind" at the top. */
static void spell_key(char *out, size_t size, const char *section, const char *key)
{
    snprintf(out, size, "%s%s%s", section, *section ? "." : "", key);
}

/* A value as the reader of a message wants to see it, never longer than the array. */
static void spell_value(char *out, size_t size, json_t *value)
{
    char *const text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, size, "%.60s%s", text ? text : "?",
             text && strlen(text) > 60 ? "…" : "");
    free(text);
}

__attribute__((format(printf, 4, 5))) static attn_status
refuse(const struct reader *reader, const attn_recipe_field *field, json_t *value,
       const char *format, ...)
{
    char key[64], got[80], expected[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    spell_key(key, sizeof key, field->section, field->key);
    spell_value(got, sizeof got, value);
    return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is %s, expected %s",
                          reader->name, key, got, expected);
}

static attn_status read_number(const struct reader *reader,
                               const attn_recipe_field *field, json_t *value, void *to)
{
    const bool whole = field->type == ATTN_FIELD_INTEGER;
    const double number = json_number_value(value);
    if (!(whole ? json_is_integer(value) : json_is_number(value)) ||
        !(number >= field->low && number <= field->high))
        return refuse(reader, field, value, "a %s from %.15g to %.15g",
                      whole ? "whole number" : "number", field->low, field->high);
    if (whole)
        *(int64_t *)to = json_integer_value(value);
    else if (field->type == ATTN_FIELD_DECIMAL)
        *(double *)to = number;
    else
        *(float *)to = (float)number;
    return ATTN_OK;
}

static attn_status read_flag(const struct reader *reader, const attn_recipe_field *field,
                             json_t *value, void *to)
{
    if (!json_is_boolean(value))
        return refuse(reader, field, value, "true or false");
    *(bool *)to = json_is_true(value);
    return ATTN_OK;
}

/* "one", "two" or "three" */
static void spell_choices(char *out, size_t size, const char *const *choices)
{
    size_t used = 0;
    for (size_t n = 0; choices[n] && used < size; n++) {
        const char *const joint = n == 0 ? "" : choices[n + 1] ? ", " : " or ";
        used += (size_t)snprintf(out + used, size - used, "%s\"%s\"", joint, choices[n]);
    }
}

static attn_status read_text(const struct reader *reader, const attn_recipe_field *field,
                             json_t *value, void *to)
{
    const char *const text = json_string_value(value);
    int chosen = field->choices ? -1 : 0;
    for (int n = 0; text && field->choices && field->choices[n]; n++)
        if (strcmp(text, field->choices[n]) == 0)
            chosen = n;
    if (field->choices && chosen < 0) {
        char choices[160];
        spell_choices(choices, sizeof choices, field->choices);
        return refuse(reader, field, value, "%s", choices);
    }
    if (field->type == ATTN_FIELD_CHOICE) {
        memcpy(to, &chosen, sizeof chosen);
        return ATTN_OK;
    }
    const size_t size = (size_t)field->high;
    if (!text || !*text || json_string_length(value) >= size)
        return refuse(reader, field, value, "text of 1 to %zu bytes", size - 1);
    snprintf(to, size, "%s", text);
    return ATTN_OK;
}

/* The value of a key that is not there. */
static void set_otherwise(const attn_recipe_field *field, void *to)
{
    const double value = field->otherwise;
    switch (field->type) {
    case ATTN_FIELD_INTEGER:
        *(int64_t *)to = (int64_t)value;
        break;
    case ATTN_FIELD_DECIMAL:
        *(double *)to = value;
        break;
    case ATTN_FIELD_SINGLE:
        *(float *)to = (float)value;
        break;
    case ATTN_FIELD_FLAG:
        *(bool *)to = value > 0.0;
        break;
    case ATTN_FIELD_CHOICE:
        *(int *)to = (int)value;
        break;
    case ATTN_FIELD_TEXT:
        *(char *)to = '\0';
    }
}

static attn_status read_field(const struct reader *reader, const attn_recipe_field *field,
                              json_t *section, void *to)
{
    json_t *const value = json_object_get(section, field->key);
    if (!value && field->otherwise < ATTN_REQUIRED) {
        set_otherwise(field, to);
        return ATTN_OK;
    }
    if (!value) {
        char key[64];
        spell_key(key, sizeof key, field->section, field->key);
        return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is missing",
                              reader->name, key);
    }
    if (field->type == ATTN_FIELD_TEXT || field->type == ATTN_FIELD_CHOICE)
        return read_text(reader, field, value, to);
    if (field->type == ATTN_FIELD_FLAG)
        return read_flag(reader, field, value, to);
    return read_number(reader, field, value, to);
}

/* Names what is known in a section when `key` is not. */
static attn_status refuse_key(const struct reader *reader, const char *section,
                              const char *key, const char *const *known, size_t count)
{
    char spelled[96], list[320] = "";
    size_t used = 0;
    spell_key(spelled, sizeof spelled, section, key);
    for (size_t n = 0; n < count && used < sizeof list; n++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 used ? ", " : "", known[n]);
    return attn_error_set(reader->error, ATTN_EFORMAT,
                          "%s: %s is not a key of a recipe; known here: %s", reader->name,
                          spelled, list);
}

static attn_status check_keys(const struct reader *reader, const char *section,
                              json_t *object, const char *const *known, size_t count)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t n = 0;
        while (n < count && strcmp(known[n], key) != 0)
            n++;
        if (n == count)
            return refuse_key(reader, section, key, known, count);
    }
    return ATTN_OK;
}

/* What is at the top: the kind, and the sections that others read. */
static attn_status read_kind(const struct reader *reader,
                             const attn_task_kind *const *kinds, json_t *root)
{
    const char *names[MOST_KINDS + 1] = {NULL};
    int chosen = 0;
    if (!json_is_object(root))
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: the recipe is not an object", reader->name);
    ATTN_TRY(check_keys(reader, "", root, KEYS, KEY_COUNT));
    for (size_t n = 0; n < MOST_KINDS && kinds[n]; n++)
        names[n] = kinds[n]->name;
    const attn_recipe_field field = {"", "kind", ATTN_FIELD_CHOICE, 0, 0,
                                     0,  names,  ATTN_REQUIRED};
    ATTN_TRY(read_field(reader, &field, root, &chosen));
    reader->recipe->kind = kinds[chosen];
    reader->recipe->settings = calloc(1, kinds[chosen]->settings_bytes + 1);
    if (!reader->recipe->settings)
        return attn_error_set(reader->error, ATTN_ENOMEM, "%s: out of memory",
                              reader->name);
    return ATTN_OK;
}

static attn_status read_section(const struct reader *reader, const char *name,
                                json_t *root)
{
    attn_recipe *const recipe = reader->recipe;
    json_t *const section = json_object_get(root, name);
    const char *known[MOST_KEYS];
    const attn_recipe_field *field;
    size_t count = 0;
    bool is_required = false;
    for (size_t n = 0; (field = field_at(recipe, n)) && count < MOST_KEYS; n++) {
        if (strcmp(field->section, name) != 0)
            continue;
        known[count++] = field->key;
        is_required = is_required || !(field->otherwise < ATTN_REQUIRED);
    }
    if (!section && is_required)
        return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is missing",
                              reader->name, name);
    if (section && !json_is_object(section))
        return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is not an object",
                              reader->name, name);
    ATTN_TRY(check_keys(reader, name, section, known, count));
    for (size_t n = 0; (field = field_at(recipe, n)); n++) {
        void *const base = n < FIELD_COUNT ? (void *)recipe : recipe->settings;
        if (strcmp(field->section, name) == 0)
            ATTN_TRY(read_field(reader, field, section, (char *)base + field->offset));
    }
    return ATTN_OK;
}

/* What no single key can tell. */
static attn_status check_together(const struct reader *reader)
{
    const attn_recipe *const recipe = reader->recipe;
    if (recipe->kind->check)
        ATTN_TRY(recipe->kind->check(recipe->settings, reader->name, reader->error));
    if ((recipe->epochs > 0) == (recipe->target_tokens > 0))
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: %s of training.epochs and training.target_tokens is "
                              "there, expected one",
                              reader->name, recipe->epochs > 0 ? "each" : "neither");
    return ATTN_OK;
}

static attn_status keep_identity(const struct reader *reader, json_t *root)
{
    json_t *const copy = json_deep_copy(root);
    json_object_del(copy, "data");
    json_object_del(json_object_get(copy, "training"), "checkpoint_every");
    json_object_del(json_object_get(copy, "training"), "valid_every");
    reader->recipe->identity =
        json_dumps(copy, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(copy);
    if (!reader->recipe->identity)
        return attn_error_set(reader->error, ATTN_ENOMEM, "%s: out of memory",
                              reader->name);
    return ATTN_OK;
}

attn_status attn_recipe_parse(attn_recipe *recipe, const attn_task_kind *const *kinds,
                              const char *text, const char *name, attn_error *error)
{
    memset(recipe, 0, sizeof *recipe);
    const struct reader reader = {name, recipe, error};
    json_error_t where;
    json_t *const root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return attn_error_set(error, ATTN_EFORMAT, "%s:%d:%d: %s", name, where.line,
                              where.column, where.text);
    attn_status status = read_kind(&reader, kinds, root);
    for (size_t n = 0; n < SECTION_COUNT && status == ATTN_OK; n++)
        status = read_section(&reader, SECTIONS[n], root);
    if (status == ATTN_OK)
        status = check_together(&reader);
    if (status == ATTN_OK)
        status = keep_identity(&reader, root);
    json_decref(root);
    if (status != ATTN_OK)
        attn_recipe_free(recipe);
    return status;
}

attn_status attn_recipe_load(attn_recipe *recipe, const char *path, attn_error *error)
{
    char *text;
    size_t length;
    memset(recipe, 0, sizeof *recipe);
    ATTN_TRY(attn_file_read_text(path, RECIPE_BYTES, &text, &length, error));
    attn_status status =
        strlen(text) == length
            ? attn_recipe_parse(recipe, attn_task_kinds(), text, path, error)
            : attn_error_set(error, ATTN_EFORMAT, "%s: a zero byte at %zu", path,
                             strlen(text));
    free(text);
    if (status == ATTN_OK)
        status = attn_path_join(recipe->path, "", path, error);
    if (status != ATTN_OK)
        attn_recipe_free(recipe);
    return status;
}

void attn_recipe_free(attn_recipe *recipe)
{
    free(recipe->identity);
    free(recipe->settings);
    recipe->identity = recipe->settings = NULL;
}

attn_status attn_recipe_find(const char *recipe_path, const char *file, char *found,
                             attn_error *error)
{
    if (*file == '/')
        return attn_path_join(found, "", file, error);
    char beside[ATTN_PATH_BYTES], place[ATTN_PATH_BYTES + 32];
    const char *const slash = strrchr(recipe_path, '/');
    const int folder = slash ? (int)(slash - recipe_path) + 1 : 0;
    ATTN_TRY(attn_path_beside(beside, recipe_path, file, error));
    snprintf(place, sizeof place, "beside the recipe (%.*s)", folder ? folder : 1,
             folder ? recipe_path : ".");
    return attn_path_data(found, beside, file, place, error);
}

/* Keys of one of the objects; path is "training." or "". */
static attn_status compare_objects(const char *path, json_t *was, json_t *is,
                                   attn_error *error)
{
    const char *key;
    json_t *value;
    json_t *const both = json_object();
    json_object_update(both, was);
    json_object_update(both, is);
    attn_status status = ATTN_OK;
    json_object_foreach(both, key, value)
    {
        json_t *const before = json_object_get(was, key);
        json_t *const after = json_object_get(is, key);
        if (json_is_object(value) ||
            (before && after &&
             (json_equal(before, after) ||
              (json_is_number(before) && json_is_number(after) &&
               json_number_value(before) == json_number_value(after)))))
            continue;
        char old[80] = "absent", new[80] = "absent";
        if (before)
            spell_value(old, sizeof old, before);
        if (after)
            spell_value(new, sizeof new, after);
        status = attn_error_set(error, ATTN_EINVAL, "%s%s was %s and is %s", path, key,
                                old, new);
        break;
    }
    json_decref(both);
    return status;
}

attn_status attn_recipe_compare(const char *was, const char *is, bool *structure,
                                attn_error *error)
{
    json_t *const before = json_loads(was, 0, NULL);
    json_t *const after = json_loads(is, 0, NULL);
    attn_status status = ATTN_OK;
    *structure = true;
    if (!before || !after)
        status = attn_error_set(error, ATTN_EFORMAT, "its recipe is not JSON");
    if (status == ATTN_OK)
        status = compare_objects("", before, after, error);
    for (size_t n = 1; n < SECTION_COUNT && status == ATTN_OK; n++) {
        char path[32];
        snprintf(path, sizeof path, "%s.", SECTIONS[n]);
        *structure = strcmp(SECTIONS[n], "training") != 0;
        status = compare_objects(path, json_object_get(before, SECTIONS[n]),
                                 json_object_get(after, SECTIONS[n]), error);
    }
    json_decref(before);
    json_decref(after);
    return status;
}
