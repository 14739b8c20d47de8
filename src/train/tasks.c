/* The kinds of models that can be trained. */
#include "file/file.h"
#include "file/path.h"
#include "train/task.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 24 };

static const attn_task_kind *const KINDS[] = {
    &attn_task_translator, &attn_task_recurrent_translator,
    &attn_task_captioner,  &attn_task_classifier,
    &attn_task_tagger,     &attn_task_language,
    &attn_task_masked,     NULL,
};

const attn_task_kind *const *attn_task_kinds(void)
{
    return KINDS;
}

void attn_score_note(json_t *scores, const char *note)
{
    if (*note)
        json_object_set_new(scores, "note", json_string(note));
}

json_t *attn_json_number(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

static const attn_task_kind *kind_of(const json_t *type)
{
    const char *const name = json_string_value(type);
    for (size_t n = 0; name && KINDS[n]; n++)
        for (const char *const *known = KINDS[n]->model_types; *known; known++)
            if (strcmp(*known, name) == 0)
                return KINDS[n];
    return NULL;
}

const attn_task_kind *attn_task_kind_of_model(const char *folder)
{
    char path[ATTN_PATH_BYTES], *text;
    size_t length;
    attn_error error;
    if (attn_path_join(path, folder, "config.json", &error) != ATTN_OK ||
        attn_file_read_text(path, CONFIG_BYTES, &text, &length, &error) != ATTN_OK)
        return NULL;
    json_t *const config = json_loadb(text, length, 0, NULL);
    const json_t *const classes = json_object_get(config, "architectures");
    const attn_task_kind *kind = kind_of(json_array_get(classes, 0));
    if (!kind)
        kind = kind_of(json_object_get(config, "model_type"));
    json_decref(config);
    free(text);
    return kind;
}
