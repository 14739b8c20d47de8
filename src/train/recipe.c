/* Recipes: a table says what keys there are, and one loop reads, checks and reports. */
#include "train/recipe.h"
#include "base/context.h"
#include "file/file.h"
#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECIPE_BYTES = 1 << 20 };

enum type { INTEGER, DECIMAL, SINGLE, FLAG, CHOICE, TEXT };

struct field {
    const char *section, *key;
    enum type type;
    size_t offset;
    double low, high;           /* of numbers; for text, high is the size of its array */
    const char *const *choices; /* NULL-ended; a choice is kept as its index, an int */
    bool optional;
};

static const char *const KINDS[] = {"translator", NULL};
static const char *const SHAPES[] = {"inverse_sqrt", "linear", "cosine", NULL};
static const char *const ACTIVATIONS[] = {"relu", "gelu", "silu", "tanh", NULL};

#define AT(member) offsetof(attn_recipe, member)

static const struct field FIELDS[] = {
    {"", "kind", TEXT, AT(kind), 1, 16, KINDS, false},
    {"data", "train", TEXT, AT(train), 1, ATTN_PATH_BYTES, NULL, false},
    {"data", "valid", TEXT, AT(valid), 1, ATTN_PATH_BYTES, NULL, false},
    {"data", "test", TEXT, AT(test), 1, ATTN_PATH_BYTES, NULL, true},
    {"data", "source_language", TEXT, AT(source_language), 1, ATTN_LANGUAGE_BYTES, NULL,
     false},
    {"data", "target_language", TEXT, AT(target_language), 1, ATTN_LANGUAGE_BYTES, NULL,
     false},
    {"tokenizer", "vocabulary", INTEGER, AT(model.vocabulary), 260, 1e6, NULL, false},
    {"model", "width", INTEGER, AT(model.width), 4, 65536, NULL, false},
    {"model", "heads", INTEGER, AT(model.heads), 1, 1024, NULL, false},
    {"model", "encoder_layers", INTEGER, AT(model.encoder_layers), 1, 256, NULL, false},
    {"model", "decoder_layers", INTEGER, AT(model.decoder_layers), 1, 256, NULL, false},
    {"model", "inner", INTEGER, AT(model.inner), 1, 1 << 20, NULL, false},
    {"model", "max_positions", INTEGER, AT(model.max_positions), 4, 1 << 24, NULL, false},
    {"model", "activation", CHOICE, AT(model.activation), 0, 0, ACTIVATIONS, false},
    {"model", "dropout", SINGLE, AT(model.dropout), 0, 0.99, NULL, false},
    {"model", "attention_dropout", SINGLE, AT(model.attention_dropout), 0, 0.99, NULL,
     false},
    {"model", "activation_dropout", SINGLE, AT(model.activation_dropout), 0, 0.99, NULL,
     true},
    {"model", "normalise_first", FLAG, AT(model.normalise_first), 0, 0, NULL, true},
    {"model", "learned_positions", FLAG, AT(model.learned_positions), 0, 0, NULL, true},
    {"training", "seed", INTEGER, AT(seed), 0, 9007199254740992.0, NULL, false},
    {"training", "tokens_per_batch", INTEGER, AT(tokens_per_batch), 1, 1e9, NULL, false},
    {"training", "length_noise", DECIMAL, AT(length_noise), 0, 1e9, NULL, false},
    {"training", "shards", INTEGER, AT(shards), 1, 64, NULL, false},
    {"training", "epochs", INTEGER, AT(epochs), 1, 1e6, NULL, true},
    {"training", "target_tokens", INTEGER, AT(target_tokens), 1, 1e15, NULL, true},
    {"training", "schedule", CHOICE, AT(schedule), 0, 0, SHAPES, false},
    {"training", "peak_learning_rate", DECIMAL, AT(peak_learning_rate), 0, 10, NULL,
     false},
    {"training", "warmup_steps", INTEGER, AT(warmup_steps), 0, 1e9, NULL, false},
    {"training", "beta1", DECIMAL, AT(beta1), 0, 0.999999, NULL, false},
    {"training", "beta2", DECIMAL, AT(beta2), 0, 0.999999, NULL, false},
    {"training", "epsilon", DECIMAL, AT(epsilon), 1e-30, 1, NULL, false},
    {"training", "weight_decay", DECIMAL, AT(weight_decay), 0, 10, NULL, false},
    {"training", "clip", DECIMAL, AT(clip), 0, 1e9, NULL, false},
    {"training", "label_smoothing", DECIMAL, AT(label_smoothing), 0, 0.99, NULL, false},
    {"training", "average", DECIMAL, AT(average), 0, 0.999999, NULL, false},
    {"training", "checkpoint_every", INTEGER, AT(checkpoint_every), 1, 1e9, NULL, false},
    {"training", "valid_every", INTEGER, AT(valid_every), 1, 1e9, NULL, false},
};

enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

static const char *const SECTIONS[] = {"data", "tokenizer", "model", "training"};

enum { SECTION_COUNT = sizeof SECTIONS / sizeof SECTIONS[0] };

struct reader {
    const char *name; /* of the file, for messages */
    attn_recipe *recipe;
    attn_error *error;
};

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
refuse(const struct reader *reader, const struct field *field, json_t *value,
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

static attn_status read_number(const struct reader *reader, const struct field *field,
                               json_t *value, void *to)
{
    const bool whole = field->type == INTEGER;
    const double number = json_number_value(value);
    if (!(whole ? json_is_integer(value) : json_is_number(value)) ||
        !(number >= field->low && number <= field->high))
        return refuse(reader, field, value, "a %s from %.15g to %.15g",
                      whole ? "whole number" : "number", field->low, field->high);
    if (whole)
        *(int64_t *)to = json_integer_value(value);
    else if (field->type == DECIMAL)
        *(double *)to = number;
    else
        *(float *)to = (float)number;
    return ATTN_OK;
}

static attn_status read_flag(const struct reader *reader, const struct field *field,
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

static attn_status read_text(const struct reader *reader, const struct field *field,
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
    if (field->type == CHOICE) {
        memcpy(to, &chosen, sizeof chosen);
        return ATTN_OK;
    }
    const size_t size = (size_t)field->high;
    if (!text || !*text || json_string_length(value) >= size)
        return refuse(reader, field, value, "text of 1 to %zu bytes", size - 1);
    snprintf(to, size, "%s", text);
    return ATTN_OK;
}

static attn_status read_field(const struct reader *reader, const struct field *field,
                              json_t *section)
{
    json_t *const value = json_object_get(section, field->key);
    if (!value && field->optional)
        return ATTN_OK;
    if (!value) {
        char key[64];
        spell_key(key, sizeof key, field->section, field->key);
        return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is missing",
                              reader->name, key);
    }
    void *const to = (char *)reader->recipe + field->offset;
    if (field->type == TEXT || field->type == CHOICE)
        return read_text(reader, field, value, to);
    if (field->type == FLAG)
        return read_flag(reader, field, value, to);
    return read_number(reader, field, value, to);
}

static bool is_known(const char *section, const char *key)
{
    for (size_t n = 0; n < FIELD_COUNT; n++)
        if (strcmp(FIELDS[n].section, section) == 0 && strcmp(FIELDS[n].key, key) == 0)
            return true;
    for (size_t n = 0; !*section && n < SECTION_COUNT; n++)
        if (strcmp(SECTIONS[n], key) == 0)
            return true;
    return false;
}

static attn_status refuse_unknown(const struct reader *reader, const char *section,
                                  json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (is_known(section, key))
            continue;
        char spelled[96], known[320];
        size_t used = 0;
        spell_key(spelled, sizeof spelled, section, key);
        for (size_t n = 0; n < FIELD_COUNT && used < sizeof known; n++)
            if (strcmp(FIELDS[n].section, section) == 0)
                used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                         used ? ", " : "", FIELDS[n].key);
        for (size_t n = 0; !*section && n < SECTION_COUNT && used < sizeof known; n++)
            used +=
                (size_t)snprintf(known + used, sizeof known - used, ", %s", SECTIONS[n]);
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: %s is not a key of a recipe; known here: %s",
                              reader->name, spelled, known);
    }
    return ATTN_OK;
}

static attn_status read_section(const struct reader *reader, const char *name,
                                json_t *root)
{
    json_t *const section = *name ? json_object_get(root, name) : root;
    if (!section)
        return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is missing",
                              reader->name, name);
    if (!json_is_object(section))
        return attn_error_set(reader->error, ATTN_EFORMAT, "%s: %s is not an object",
                              reader->name, *name ? name : "the recipe");
    ATTN_TRY(refuse_unknown(reader, name, section));
    for (size_t n = 0; n < FIELD_COUNT; n++)
        if (strcmp(FIELDS[n].section, name) == 0)
            ATTN_TRY(read_field(reader, &FIELDS[n], section));
    return ATTN_OK;
}

/* What no single key can tell. */
static attn_status check_together(const struct reader *reader)
{
    const attn_recipe *const recipe = reader->recipe;
    if (recipe->model.width % recipe->model.heads != 0)
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: model.width is %lld, expected a multiple of "
                              "model.heads, which is %lld",
                              reader->name, (long long)recipe->model.width,
                              (long long)recipe->model.heads);
    if (recipe->model.learned_positions && recipe->model.normalise_first)
        return attn_error_set(reader->error, ATTN_EFORMAT,
                              "%s: model.learned_positions is true, expected "
                              "model.normalise_first to be false with it",
                              reader->name);
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

attn_status attn_recipe_parse(attn_recipe *recipe, const char *text, const char *name,
                              attn_error *error)
{
    memset(recipe, 0, sizeof *recipe);
    recipe->model.normalise_first = true;
    const struct reader reader = {name, recipe, error};
    json_error_t where;
    json_t *const root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return attn_error_set(error, ATTN_EFORMAT, "%s:%d:%d: %s", name, where.line,
                              where.column, where.text);
    attn_status status = read_section(&reader, "", root);
    for (size_t n = 0; n < SECTION_COUNT && status == ATTN_OK; n++)
        status = read_section(&reader, SECTIONS[n], root);
    if (status == ATTN_OK)
        status = check_together(&reader);
    if (status == ATTN_OK)
        status = keep_identity(&reader, root);
    json_decref(root);
    return status;
}

attn_status attn_recipe_load(attn_recipe *recipe, const char *path, attn_error *error)
{
    char *text;
    size_t length;
    memset(recipe, 0, sizeof *recipe);
    ATTN_TRY(attn_file_read(path, RECIPE_BYTES, &text, &length, error));
    const attn_status status =
        strlen(text) == length
            ? attn_recipe_parse(recipe, text, path, error)
            : attn_error_set(error, ATTN_EFORMAT, "%s: a zero byte at %zu", path,
                             strlen(text));
    free(text);
    return status;
}

void attn_recipe_free(attn_recipe *recipe)
{
    free(recipe->identity);
    recipe->identity = NULL;
}

attn_status attn_recipe_find(const char *recipe_path, const char *file, char *found,
                             attn_error *error)
{
    if (*file == '/') {
        snprintf(found, ATTN_PATH_BYTES, "%s", file);
        return ATTN_OK;
    }
    const char *const slash = strrchr(recipe_path, '/');
    const int folder = slash ? (int)(slash - recipe_path) + 1 : 0;
    snprintf(found, ATTN_PATH_BYTES, "%.*s%s", folder, recipe_path, file);
    if (access(found, R_OK) == 0)
        return ATTN_OK;
    const char *const data = getenv("ATTN_DATA");
    if (data && *data) {
        snprintf(found, ATTN_PATH_BYTES, "%s/%s", data, file);
        if (access(found, R_OK) == 0)
            return ATTN_OK;
    }
    return attn_error_set(
        error, ATTN_EIO, "%s is neither beside the recipe (%.*s) nor %s%s", file,
        folder ? folder : 1, folder ? recipe_path : ".",
        data && *data ? "in ATTN_DATA, " : "in ATTN_DATA, which is not set",
        data && *data ? data : "");
}

static attn_status compare_section(const char *name, json_t *was, json_t *is,
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
        if (before && after &&
            (json_equal(before, after) ||
             (json_is_number(before) && json_is_number(after) &&
              json_number_value(before) == json_number_value(after))))
            continue;
        char old[80] = "absent", new[80] = "absent";
        if (before)
            spell_value(old, sizeof old, before);
        if (after)
            spell_value(new, sizeof new, after);
        status = attn_error_set(error, ATTN_EINVAL, "%s.%s was %s and is %s", name, key,
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
    for (size_t n = 1; n < SECTION_COUNT && status == ATTN_OK; n++) {
        *structure = strcmp(SECTIONS[n], "training") != 0;
        status = compare_section(SECTIONS[n], json_object_get(before, SECTIONS[n]),
                                 json_object_get(after, SECTIONS[n]), error);
    }
    json_decref(before);
    json_decref(after);
    return status;
}
