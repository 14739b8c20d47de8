/* The kinds of models that can be trained. */
#include "file/file.h"
#include "train/task.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4200, CONFIG_BYTES = 1 << 24 };

static const attn_task_kind *const KINDS[] = {
    &attn_task_translator,
    &attn_task_recurrent_translator,
    NULL,
};

const attn_task_kind *const *attn_task_kinds(void)
{
    return KINDS;
}

static const attn_task_kind *kind_of_type(const char *type)
{
    for (size_t n = 0; KINDS[n]; n++)
        for (const char *const *known = KINDS[n]->model_types; *known; known++)
            if (strcmp(*known, type) == 0)
                return KINDS[n];
    return NULL;
}

const attn_task_kind *attn_task_kind_of_model(const char *folder)
{
    char path[PATH_BYTES], *text;
    size_t length;
    attn_error error;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (attn_file_read(path, CONFIG_BYTES, &text, &length, &error) != ATTN_OK)
        return NULL;
    json_t *const config = json_loadb(text, length, 0, NULL);
    const char *const type = json_string_value(json_object_get(config, "model_type"));
    const attn_task_kind *const kind = type ? kind_of_type(type) : NULL;
    json_decref(config);
    free(text);
    return kind;
}
