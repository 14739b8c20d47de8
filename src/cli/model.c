/* Loading a translator with its tokenizer. */
#include "cli/model.h"
#include "base/context.h"
#include "cli/cli.h"

attn_status cli_model_load(cli_model *model, const char *verb, const char *folder,
                           attn_error *error)
{
    ATTN_TRY(attn_seq2seq_load(&model->seq2seq, folder, error));
    cli_note(verb, model->seq2seq.note);
    return attn_folder_tokenizer_load(&model->tokenizer, folder,
                                      model->seq2seq.vocabulary, error);
}

void cli_model_free(cli_model *model)
{
    attn_tokenizer_destroy(model->tokenizer);
    if (model->seq2seq.kind)
        model->seq2seq.kind->destroy(model->seq2seq.model);
    *model = (cli_model){0};
}
