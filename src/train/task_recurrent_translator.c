/* The recurrent translator as a kind of the training room.  Keys under "model" that are
 * optional: encoder_layers and decoder_layers (1), bidirectional (true), attention_width
 * (0; additive attention needs one), context ("output") and untied (false). */
#include "base/context.h"
#include "model/recurrent_translator.h"
#include "train/pairs_task.h"
#include <stddef.h>

/* What a recipe says; cell and context in its own words. */
struct settings {
    attn_pairs_settings pairs;
    attn_recurrent_translator_config model;
    int cell, context;
};

static const char *const CELLS[] = {"gru", "lstm", NULL};
static const char *const CONTEXTS[] = {"output", "input", NULL};
static const char *const ATTENTIONS[] = {"none",    "additive",   "dot",
                                         "general", "scaled_dot", NULL};

#define AT(member) offsetof(struct settings, member)

static const attn_recipe_field FIELDS[] = {
    {"data", "source_language", ATTN_FIELD_TEXT, AT(model.languages.source), 1,
     ATTN_LANGUAGE_BYTES, NULL, ATTN_REQUIRED},
    {"data", "target_language", ATTN_FIELD_TEXT, AT(model.languages.target), 1,
     ATTN_LANGUAGE_BYTES, NULL, ATTN_REQUIRED},
    {"data", "swap", ATTN_FIELD_FLAG, AT(pairs.swap), 0, 0, NULL, 0},
    {"data", "lower_case", ATTN_FIELD_FLAG, AT(pairs.lower_case), 0, 0, NULL, 0},
    {"data", "bleu", ATTN_FIELD_CHOICE, AT(pairs.bleu), 0, 0, attn_bleu_words_names, -1},
    {"tokenizer", "vocabulary", ATTN_FIELD_INTEGER, AT(model.vocabulary), 260, 1e6, NULL,
     ATTN_REQUIRED},
    {"model", "cell", ATTN_FIELD_CHOICE, AT(cell), 0, 0, CELLS, ATTN_REQUIRED},
    {"model", "attention", ATTN_FIELD_CHOICE, AT(model.attention), 0, 0, ATTENTIONS,
     ATTN_REQUIRED},
    {"model", "attention_width", ATTN_FIELD_INTEGER, AT(model.attention_width), 1, 65536,
     NULL, 0},
    {"model", "context", ATTN_FIELD_CHOICE, AT(context), 0, 0, CONTEXTS, 0},
    {"model", "embedding", ATTN_FIELD_INTEGER, AT(model.embedding), 1, 65536, NULL,
     ATTN_REQUIRED},
    {"model", "encoder_width", ATTN_FIELD_INTEGER, AT(model.encoder_width), 1, 65536,
     NULL, ATTN_REQUIRED},
    {"model", "encoder_layers", ATTN_FIELD_INTEGER, AT(model.encoder_layers), 1, 8, NULL,
     1},
    {"model", "bidirectional", ATTN_FIELD_FLAG, AT(model.both_ways), 0, 0, NULL, 1},
    {"model", "width", ATTN_FIELD_INTEGER, AT(model.width), 1, 65536, NULL,
     ATTN_REQUIRED},
    {"model", "decoder_layers", ATTN_FIELD_INTEGER, AT(model.decoder_layers), 1, 8, NULL,
     1},
    {"model", "max_positions", ATTN_FIELD_INTEGER, AT(model.max_positions), 4, 1 << 20,
     NULL, ATTN_REQUIRED},
    {"model", "dropout", ATTN_FIELD_SINGLE, AT(model.dropout), 0, 0.99, NULL,
     ATTN_REQUIRED},
    {"model", "untied", ATTN_FIELD_FLAG, AT(model.untied), 0, 0, NULL, 0},
};

static attn_recurrent_translator_config config_of(const struct settings *settings)
{
    attn_recurrent_translator_config config = settings->model;
    config.cell = settings->cell == 1 ? ATTN_CELL_LSTM : ATTN_CELL_GRU;
    config.context_enters = settings->context == 1;
    return config;
}

/* Dot products of two widths, additive attention without a width, … */
static attn_status check(const void *settings, const char *name, attn_error *error)
{
    const attn_recurrent_translator_config config = config_of(settings);
    attn_error inner;
    const attn_status status = attn_recurrent_translator_check(&config, &inner);
    return status == ATTN_OK
               ? ATTN_OK
               : attn_error_set(error, ATTN_EFORMAT, "%s: %s", name, inner.message);
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    const attn_recurrent_translator_config config = config_of(task->recipe->settings);
    attn_recurrent_translator *translator;
    ATTN_TRY(attn_pairs_task_prepare(task, config.vocabulary, config.max_positions,
                                     goes_on, error));
    ATTN_TRY(attn_recurrent_translator_create(&translator, &config,
                                              (uint64_t)task->recipe->seed, error));
    ((attn_pairs_state *)task->state)->model =
        attn_recurrent_translator_seq2seq(translator);
    task->parameters = attn_recurrent_translator_parameters(translator);
    return ATTN_OK;
}

static const char *const MODEL_TYPES[] = {"attn-recurrent-translator", NULL};

const attn_task_kind attn_task_recurrent_translator = {
    .name = "recurrent-translator",
    .targets = "target tokens",
    .model_types = MODEL_TYPES,
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .settings_bytes = sizeof(struct settings),
    .check = check,
    .prepare = prepare,
    .loss = attn_pairs_task_loss,
    .save = attn_pairs_task_save,
    .score = attn_pairs_task_score,
    .check_file = attn_pairs_task_check,
    .free = attn_pairs_task_free,
};
