/* Which of the models that read and write a folder holds. */
#include "model/seq2seq.h"
#include "base/context.h"
#include "model/folder.h"
#include "model/recurrent_translator.h"
#include "model/translator.h"

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

attn_status attn_seq2seq_load(attn_seq2seq *model, const char *path, attn_error *error)
{
    static const char *const types[] = {"m2m_100", "marian", "attn-recurrent-translator",
                                        NULL};
    enum { RECURRENT = 2 };
    attn_folder folder;
    size_t type = 0;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status =
        attn_config_file_choice(&folder.config, "model_type", types, &type);
    attn_folder_close(&folder);
    if (status != ATTN_OK)
        return status;
    return type == RECURRENT ? load_recurrent(model, path, error)
                             : load_translator(model, path, error);
}
