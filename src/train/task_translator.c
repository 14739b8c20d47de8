/* The Transformer translator as a kind of the training room. */
#include "train/task_translator.h"
#include "base/context.h"
#include <stddef.h>

static const char *const ACTIVATIONS[] = {"relu", "gelu", "silu", "tanh", NULL};

#define AT(member) offsetof(attn_translator_settings, member)

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
    {"model", "width", ATTN_FIELD_INTEGER, AT(model.width), 4, 65536, NULL,
     ATTN_REQUIRED},
    {"model", "heads", ATTN_FIELD_INTEGER, AT(model.heads), 1, 1024, NULL, ATTN_REQUIRED},
    {"model", "encoder_layers", ATTN_FIELD_INTEGER, AT(model.encoder_layers), 1, 256,
     NULL, ATTN_REQUIRED},
    {"model", "decoder_layers", ATTN_FIELD_INTEGER, AT(model.decoder_layers), 1, 256,
     NULL, ATTN_REQUIRED},
    {"model", "inner", ATTN_FIELD_INTEGER, AT(model.inner), 1, 1 << 20, NULL,
     ATTN_REQUIRED},
    {"model", "max_positions", ATTN_FIELD_INTEGER, AT(model.max_positions), 4, 1 << 24,
     NULL, ATTN_REQUIRED},
    {"model", "activation", ATTN_FIELD_CHOICE, AT(model.activation), 0, 0, ACTIVATIONS,
     ATTN_REQUIRED},
    {"model", "dropout", ATTN_FIELD_SINGLE, AT(model.dropout), 0, 0.99, NULL,
     ATTN_REQUIRED},
    {"model", "attention_dropout", ATTN_FIELD_SINGLE, AT(model.attention_dropout), 0,
     0.99, NULL, ATTN_REQUIRED},
    {"model", "activation_dropout", ATTN_FIELD_SINGLE, AT(model.activation_dropout), 0,
     0.99, NULL, 0},
    {"model", "normalise_first", ATTN_FIELD_FLAG, AT(model.normalise_first), 0, 0, NULL,
     1},
    {"model", "learned_positions", ATTN_FIELD_FLAG, AT(model.learned_positions), 0, 0,
     NULL, 0},
};

static attn_status check(const void *settings, const char *name, attn_error *error)
{
    const attn_translator_config *const model =
        &((const attn_translator_settings *)settings)->model;
    if (model->width % model->heads != 0)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.width is %lld, expected a multiple of "
                              "model.heads, which is %lld",
                              name, (long long)model->width, (long long)model->heads);
    if (model->learned_positions && model->normalise_first)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.learned_positions is true, expected "
                              "model.normalise_first to be false with it",
                              name);
    return ATTN_OK;
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    const attn_translator_settings *const settings = task->recipe->settings;
    attn_translator *translator;
    ATTN_TRY(attn_pairs_task_prepare(task, settings->model.vocabulary,
                                     settings->model.max_positions, goes_on, error));
    ATTN_TRY(attn_translator_create(&translator, &settings->model,
                                    (uint64_t)task->recipe->seed, error));
    ((attn_pairs_state *)task->state)->model = attn_translator_seq2seq(translator);
    task->parameters = attn_translator_parameters(translator);
    return ATTN_OK;
}

static const char *const MODEL_TYPES[] = {"m2m_100", "marian", NULL};

const attn_task_kind attn_task_translator = {
    .name = "translator",
    .targets = "target tokens",
    .model_types = MODEL_TYPES,
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .settings_bytes = sizeof(attn_translator_settings),
    .check = check,
    .prepare = prepare,
    .loss = attn_pairs_task_loss,
    .save = attn_pairs_task_save,
    .score = attn_pairs_task_score,
    .check_file = attn_pairs_task_check,
    .free = attn_pairs_task_free,
};
