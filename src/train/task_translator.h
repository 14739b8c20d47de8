/* The Transformer translator as a kind: what its recipes say, and what it trains on. */
#ifndef ATTN_TRAIN_TASK_TRANSLATOR_H
#define ATTN_TRAIN_TASK_TRANSLATOR_H

#include "model/translator.h"
#include "train/task.h"

enum { ATTN_LANGUAGE_BYTES = 16 };

/** A recipe's settings.  activation_dropout (0), normalise_first (true) and
 * learned_positions (false) are optional. */
typedef struct attn_translator_settings {
    char source_language[ATTN_LANGUAGE_BYTES], target_language[ATTN_LANGUAGE_BYTES];
    attn_translator_config model;
} attn_translator_settings;

/** A task's state. */
typedef struct attn_translator_state {
    attn_tokenizer *tokenizer;
    attn_translator *translator;
} attn_translator_state;

#endif
