/* The Transformer translator as a kind: what its recipes say. */
#ifndef ATTN_TRAIN_TASK_TRANSLATOR_H
#define ATTN_TRAIN_TASK_TRANSLATOR_H

#include "model/translator.h"
#include "train/pairs_task.h"

/** A recipe's settings.  activation_dropout (0), normalise_first (true) and
 * learned_positions (false) are optional. */
typedef struct attn_translator_settings {
    attn_pairs_settings pairs;
    attn_translator_config model;
} attn_translator_settings;

#endif
