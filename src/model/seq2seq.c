/* Which of the models that read and write a folder holds. */
#include "model/seq2seq.h"
#include "base/context.h"
#include "model/folder.h"
#include "model/recurrent_translator.h"
#include "model/translator.h"
#include <string.h>

static attn_status load_translator(attn_seq2seq *model, const char *folder,
                                   attn_error *error)
{
    attn_translator *translator;
    ATTN_TRY(attn_translator_load(&translator, folder, error));
    *model = attn_translator_seq2seq(translator);
    return ATTN_OK;
}

static attn_status load_recurrent(attn_seq2seq *model, const char *folder,
                                  attn_error *error)
{
    attn_recurrent_translator *translator;
    ATTN_TRY(attn_recurrent_translator_load(&translator, folder, error));
    *model = attn_recurrent_translator_seq2seq(translator);
    return ATTN_OK;
}

static const struct {
    const char *model_type;
    attn_status (*load)(attn_seq2seq *model, const char *folder, attn_error *error);
} TYPES[] = {{"m2m_100", load_translator},
             {"marian", load_translator},
             {"attn-recurrent-translator", load_recurrent}};
enum { TYPE_COUNT = sizeof TYPES / sizeof TYPES[0] };

static attn_status read_type(const attn_config_file *file, size_t *type)
{
    static const char expected[] =
        "\"m2m_100\", \"marian\" or \"attn-recurrent-translator\"";
    const json_t *const value = json_object_get(file->root, "model_type");
    if (!json_is_string(value))
        return attn_config_file_refuse(file, "model_type", value, expected);
    for (*type = 0; *type < TYPE_COUNT; ++*type)
        if (strcmp(json_string_value(value), TYPES[*type].model_type) == 0)
            return ATTN_OK;
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: model_type is \"%.40s\", expected %s", file->path,
                          json_string_value(value), expected);
}

attn_status attn_seq2seq_load(attn_seq2seq *model, const char *path, attn_error *error)
{
    attn_folder folder;
    size_t type = 0;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = read_type(&folder.config, &type);
    attn_folder_close(&folder);
    return status == ATTN_OK ? TYPES[type].load(model, path, error) : status;
}
