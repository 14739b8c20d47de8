/* A translator, of whatever kind, as a verb wants it: found by name, with the tokenizer
 * that belongs to it. */
#ifndef ATTN_CLI_MODEL_H
#define ATTN_CLI_MODEL_H

#include "model/folder.h"
#include "model/translate.h"

typedef struct cli_model {
    char folder[ATTN_PATH_BYTES];
    attn_seq2seq seq2seq; /* kind NULL: there is none yet */
    attn_tokenizer *tokenizer;
} cli_model;

/* model is {0} before; verb says what there is to note.  ATTN_EFORMAT also where
 * tokenizer and translator count different tokens.  Free it whether or not it was loaded.
 */
ATTN_CHECKED attn_status cli_model_load(cli_model *model, const char *verb,
                                        const char *name, attn_error *error);
void cli_model_free(cli_model *model);

#endif
