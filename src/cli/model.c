/* Loading a translator with its tokenizer. */
#include "cli/model.h"
#include "base/context.h"
#include "cli/cli.h"
#include "model/config_file.h"

attn_status cli_model_load(cli_model *model, const char *name, attn_error *error)
{
    ATTN_TRY(cli_find_model(name, model->folder, sizeof model->folder, error));
    ATTN_TRY(attn_translator_load(&model->translator, model->folder, error));
    return attn_folder_tokenizer_load(
        &model->tokenizer, model->folder,
        attn_translator_config_of(model->translator)->vocabulary, error);
}

void cli_model_free(cli_model *model)
{
    attn_tokenizer_destroy(model->tokenizer);
    attn_translator_destroy(model->translator);
    *model = (cli_model){0};
}
