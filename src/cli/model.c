/* Loading a translator with its tokenizer. */
#include "cli/model.h"
#include "base/context.h"
#include "cli/cli.h"
#include <stdio.h>

attn_status cli_model_load(cli_model *model, const char *name, attn_error *error)
{
    char path[sizeof model->folder + 16];
    ATTN_TRY(cli_find_model(name, model->folder, sizeof model->folder, error));
    snprintf(path, sizeof path, "%s/tokenizer.json", model->folder);
    ATTN_TRY(attn_translator_load(&model->translator, model->folder, error));
    ATTN_TRY(attn_tokenizer_load(&model->tokenizer, path, error));
    const int64_t vocabulary = attn_translator_config_of(model->translator)->vocabulary;
    const int64_t tokens = attn_tokenizer_size(model->tokenizer);
    if (tokens == vocabulary)
        return ATTN_OK;
    return attn_error_set(
        error, ATTN_EFORMAT,
        "%.200s: tokenizer.json has %lld tokens, expected %lld, as the model has",
        model->folder, (long long)tokens, (long long)vocabulary);
}

void cli_model_free(cli_model *model)
{
    attn_tokenizer_destroy(model->tokenizer);
    attn_translator_destroy(model->translator);
    *model = (cli_model){0};
}
