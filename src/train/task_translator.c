/* The Transformer translator as a kind of the training room: pairs of sentences, sorted
 * by target length, and the loss of their targets. */
#include "train/task_translator.h"
#include "base/context.h"
#include "file/safetensors.h"
#include "train/learn.h"
#include "train/pairs.h"
#include "train/progress.h"
#include "train/score.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const ACTIVATIONS[] = {"relu", "gelu", "silu", "tanh", NULL};

#define AT(member) offsetof(attn_translator_settings, member)

static const attn_recipe_field FIELDS[] = {
    {"data", "source_language", ATTN_FIELD_TEXT, AT(source_language), 1,
     ATTN_LANGUAGE_BYTES, NULL, ATTN_REQUIRED},
    {"data", "target_language", ATTN_FIELD_TEXT, AT(target_language), 1,
     ATTN_LANGUAGE_BYTES, NULL, ATTN_REQUIRED},
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

/* ---- Data ------------------------------------------------------------------------ */

static attn_status encode(const attn_task *task, attn_examples *examples,
                          const attn_corpus *corpus, const char *path, attn_error *error)
{
    const attn_translator_state *const state = task->state;
    const attn_translator_settings *const settings = task->recipe->settings;
    const int64_t positions = settings->model.max_positions;
    attn_error inner;
    attn_status status =
        attn_pairs_examples(examples, corpus, state->tokenizer, positions, &inner);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "%s: %s", path, inner.message);
    const attn_pairs *const pairs = examples->data;
    attn_progress_say(task->progress, "%s: %zu pairs, %lld source and %lld target tokens",
                      path, pairs->count, (long long)pairs->source_tokens,
                      (long long)pairs->target_tokens);
    if (pairs->left_out > 0)
        attn_progress_say(
            task->progress,
            "%s: %zu pairs have a side of more than %lld tokens and are left "
            "out, the first in line %zu",
            path, pairs->left_out, (long long)positions, pairs->first_left_out + 1);
    return ATTN_OK;
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    const attn_train_options *const options = task->options;
    const attn_translator_settings *const settings = task->recipe->settings;
    attn_translator_state *const state = calloc(1, sizeof *state);
    attn_corpus corpus;
    task->state = state;
    if (!state)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for a translator");
    ATTN_TRY(attn_corpus_load(&corpus, options->train, 2, error));
    attn_status status = attn_learn_tokenizer(&state->tokenizer, task, corpus.fields,
                                              corpus.first_field[corpus.lines],
                                              settings->model.vocabulary, goes_on, error);
    if (status == ATTN_OK)
        status = encode(task, &task->train, &corpus, options->train, error);
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return status;
    ATTN_TRY(attn_corpus_load(&corpus, options->valid, 2, error));
    status = encode(task, &task->valid, &corpus, options->valid, error);
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return status;
    ATTN_TRY(attn_translator_create(&state->translator, &settings->model,
                                    (uint64_t)task->recipe->seed, error));
    task->parameters = attn_translator_parameters(state->translator);
    return ATTN_OK;
}

static void free_task(attn_task *task)
{
    attn_translator_state *const state = task->state;
    attn_pairs_examples_free(&task->train);
    attn_pairs_examples_free(&task->valid);
    if (!state)
        return;
    attn_translator_destroy(state->translator);
    attn_tokenizer_destroy(state->tokenizer);
    free(state);
}

/* ---- Loss ------------------------------------------------------------------------ */

static attn_tensor *loss(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const attn_translator_state *const state = task->state;
    attn_pair_batch pairs;
    if (!attn_pairs_pack(&pairs, pass->tape, batch))
        return NULL;
    return attn_translator_loss(state->translator, pass, &pairs, batch->smoothing,
                                batch->divisor, &sums->plain);
}

static attn_status save(const attn_task *task, const char *folder, attn_error *error)
{
    const attn_translator_state *const state = task->state;
    return attn_translator_save(state->translator, folder, ATTN_DTYPE_BF16, error);
}

/* ---- Scores ---------------------------------------------------------------------- */

/* Beam search over a file, as it is shipped: weights rounded to bf16. */
static attn_status score_file(const attn_translator_state *shipped,
                              const attn_score_job *job, json_t *scores,
                              attn_error *error)
{
    attn_corpus corpus;
    attn_translations translations;
    attn_search_options search;
    attn_bleu bleu;
    attn_search_options_init(&search);
    ATTN_TRY(attn_corpus_load(&corpus, job->file, 2, error));
    attn_error inner;
    attn_status status = attn_score_translate(&translations, shipped->translator,
                                              shipped->tokenizer, &corpus, corpus.lines,
                                              &search, job->pool, job->threads, &inner);
    if (status == ATTN_OK) {
        status = attn_score_bleu(&translations, &corpus, &bleu, &inner);
        attn_translations_free(&translations);
    }
    const size_t lines = corpus.lines;
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "%s: %s", job->file, inner.message);
    const double score = attn_bleu_score(&bleu);
    attn_progress_say(job->progress, "%s: BLEU %.2f of %zu sentences, %lld beams (%s)",
                      job->name, score, lines, (long long)search.beams, job->file);
    json_object_set_new(scores, "bleu", json_real(score));
    json_object_set_new(scores, "sentences", json_integer((json_int_t)lines));
    json_object_set_new(scores, "brevity", json_real(attn_bleu_brevity(&bleu)));
    json_object_set_new(scores, "beams", json_integer((json_int_t)search.beams));
    json_object_set_new(scores, "length_power", json_real(search.length_power));
    return ATTN_OK;
}

static attn_status score(const attn_score_job *job, json_t *scores, attn_error *error)
{
    attn_translator_state shipped = {NULL, NULL};
    char path[ATTN_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/tokenizer.json", job->folder);
    attn_status status = attn_translator_load(&shipped.translator, job->folder, error);
    if (status == ATTN_OK)
        status = attn_tokenizer_load(&shipped.tokenizer, path, error);
    if (status == ATTN_OK)
        status = score_file(&shipped, job, scores, error);
    attn_tokenizer_destroy(shipped.tokenizer);
    attn_translator_destroy(shipped.translator);
    return status;
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
    .loss = loss,
    .save = save,
    .score = score,
    .free = free_task,
};
