/* Names of labels. */
#include "model/labels.h"
#include "base/context.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void attn_labels_free(attn_labels *labels)
{
    for (int64_t i = 0; labels->names && i < labels->count; i++)
        free(labels->names[i]);
    free(labels->names);
    *labels = (attn_labels){0};
}

static attn_status allocate(attn_labels *labels, int64_t count, attn_error *error)
{
    *labels = (attn_labels){calloc((size_t)count + 1, sizeof *labels->names), count};
    return labels->names ? ATTN_OK
                         : attn_error_set(error, ATTN_ENOMEM, "no memory for %lld labels",
                                          (long long)count);
}

static attn_status name_one(attn_labels *labels, int64_t index, const char *name,
                            attn_error *error)
{
    labels->names[index] = strdup(name);
    return labels->names[index]
               ? ATTN_OK
               : attn_error_set(error, ATTN_ENOMEM, "no memory for %lld labels",
                                (long long)labels->count);
}

attn_status attn_labels_number(attn_labels *labels, int64_t count, attn_error *error)
{
    attn_status status = allocate(labels, count, error);
    for (int64_t i = 0; i < count && status == ATTN_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        status = name_one(labels, i, name, error);
    }
    if (status != ATTN_OK)
        attn_labels_free(labels);
    return status;
}

static attn_status check_names(const char *const *names, int64_t count, attn_error *error)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0)
                return attn_error_set(error, ATTN_EINVAL,
                                      "labels %lld and %lld are both \"%.60s\", expected "
                                      "different names",
                                      (long long)j, (long long)i, names[i]);
    return ATTN_OK;
}

attn_status attn_labels_set(attn_labels *labels, const char *const *names,
                            attn_error *error)
{
    attn_labels set;
    ATTN_TRY(check_names(names, labels->count, error));
    attn_status status = allocate(&set, labels->count, error);
    for (int64_t i = 0; i < set.count && status == ATTN_OK; i++)
        status = name_one(&set, i, names[i], error);
    if (status != ATTN_OK) {
        attn_labels_free(&set);
        return status;
    }
    attn_labels_free(labels);
    *labels = set;
    return ATTN_OK;
}

/* ---- config.json ----------------------------------------------------------------- */

attn_status attn_labels_count(const attn_config_file *file, int64_t *count)
{
    const json_t *const object = json_object_get(file->root, "id2label");
    if (!object || json_is_null(object))
        return attn_config_file_integer(file, "num_labels", 2, count);
    if (!json_is_object(object))
        return attn_config_file_refuse(file, "id2label", object, "an object");
    *count = (int64_t)json_object_size(object);
    return ATTN_OK;
}

static attn_status find_names(const attn_config_file *file, const json_t *object,
                              const char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%lld", (long long)i);
        const json_t *const name = json_object_get(object, key);
        names[i] = json_string_value(name);
        snprintf(key, sizeof key, "id2label.%lld", (long long)i);
        if (!names[i])
            return attn_config_file_refuse(file, key, name, "a text");
    }
    return ATTN_OK;
}

attn_status attn_labels_read(attn_labels *labels, const attn_config_file *file)
{
    const json_t *const object = json_object_get(file->root, "id2label");
    if (!json_is_object(object))
        return ATTN_OK;
    const char **const names = calloc((size_t)labels->count + 1, sizeof *names);
    if (!names)
        return attn_error_set(file->error, ATTN_ENOMEM, "%s: no memory", file->path);
    attn_status status = find_names(file, object, names, labels->count);
    if (status == ATTN_OK)
        status =
            attn_config_file_blame(file, attn_labels_set(labels, names, file->error));
    free(names);
    return status;
}

bool attn_labels_write(const attn_labels *labels, json_t *document)
{
    json_t *const names = json_object(), *const ids = json_object();
    bool is_whole = names && ids;
    for (int64_t i = 0; is_whole && i < labels->count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%lld", (long long)i);
        is_whole =
            json_object_set_new(names, key, json_string(labels->names[i])) == 0 &&
            json_object_set_new(ids, labels->names[i], json_integer((json_int_t)i)) == 0;
    }
    /* Both are taken over, whatever comes of it. */
    const bool named = json_object_set_new(document, "id2label", names) == 0;
    return json_object_set_new(document, "label2id", ids) == 0 && named && is_whole;
}
