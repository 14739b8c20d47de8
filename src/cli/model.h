/* A translator, of whatever kind, as a verb wants it: with the tokenizer that belongs to
 * it. */
#ifndef ATTN_CLI_MODEL_H
#define ATTN_CLI_MODEL_H

#include "model/folder.h"
#include "model/translate.h"

typedef struct cli_model {
    attn_seq2seq seq2seq; /* kind NULL: there is none yet */
    attn_tokenizer *tokenizer;
} cli_model;

/* From the folder that cli_find_model found.  model is {0} before; verb says what there
 * is to note.  ATTN_EFORMAT also where tokenizer and translator count different tokens.
 * Free it whether or not it was loaded.
 */
ATTN_CHECKED attn_status cli_model_load(cli_model *model, const char *verb,
                                        const char *folder, attn_error *error);
void cli_model_free(cli_model *model);

#endif
