/* The masked language model as a kind of the training room: a text a line, sorted by
 * tokens, and the loss of those that are hidden. */
#include "base/context.h"
#include "file/safetensors.h"
#include "model/folder.h"
#include "train/learn.h"
#include "train/masked.h"
#include "train/progress.h"
#include "train/shards.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* Tokens whose loss is computed together when scoring. */
enum { SCORE_TOKENS = 4000, SCORE_SHARDS = 2 };

enum { LONG_SPLIT, LONG_REFUSE };

struct settings {
    double share; /* of tokens that are hidden */
    int too_long; /* lines longer than the positions */
    attn_bert_config model;
};

struct state {
    attn_tokenizer *tokenizer;
    attn_bert *bert;
};

/* ---- Recipes --------------------------------------------------------------------- */

static const char *const ACTIVATIONS[] = {"relu", "gelu", "silu", "tanh", NULL};
static const char *const TOO_LONG[] = {"split", "refuse", NULL};
static const double USUAL_SHARE = 0.15;

#define AT(member) offsetof(struct settings, member)

static const attn_recipe_field FIELDS[] = {
    {"data", "masked", ATTN_FIELD_DECIMAL, AT(share), 0.001, 0.999, NULL, 0.15},
    {"tokenizer", "vocabulary", ATTN_FIELD_INTEGER, AT(model.vocabulary), 261, 1e6, NULL,
     ATTN_REQUIRED},
    {"model", "width", ATTN_FIELD_INTEGER, AT(model.width), 1, 65536, NULL,
     ATTN_REQUIRED},
    {"model", "layers", ATTN_FIELD_INTEGER, AT(model.layers), 1, 256, NULL,
     ATTN_REQUIRED},
    {"model", "heads", ATTN_FIELD_INTEGER, AT(model.heads), 1, 1024, NULL, ATTN_REQUIRED},
    {"model", "inner", ATTN_FIELD_INTEGER, AT(model.inner), 1, 1 << 18, NULL,
     ATTN_REQUIRED},
    {"model", "max_positions", ATTN_FIELD_INTEGER, AT(model.max_positions), 3, 1 << 20,
     NULL, ATTN_REQUIRED},
    {"model", "types", ATTN_FIELD_INTEGER, AT(model.types), 1, 65536, NULL, 2},
    {"model", "activation", ATTN_FIELD_CHOICE, AT(model.activation), 0, 0, ACTIVATIONS,
     ATTN_GELU},
    {"model", "epsilon", ATTN_FIELD_SINGLE, AT(model.epsilon), 0, 0.1, NULL, 1e-12},
    {"model", "dropout", ATTN_FIELD_SINGLE, AT(model.dropout), 0, 0.99, NULL,
     ATTN_REQUIRED},
    {"model", "attention_dropout", ATTN_FIELD_SINGLE, AT(model.attention_dropout), 0,
     0.99, NULL, ATTN_REQUIRED},
    {"model", "linear_attention", ATTN_FIELD_FLAG, AT(model.linear_attention), 0, 0, NULL,
     0},
    {"model", "too_long", ATTN_FIELD_CHOICE, AT(too_long), 0, 0, TOO_LONG, LONG_SPLIT},
};

static attn_status check(const void *settings, const char *name, attn_error *error)
{
    const attn_bert_config *const model = &((const struct settings *)settings)->model;
    if (model->width % model->heads != 0)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.width is %lld, expected a multiple of "
                              "model.heads, which is %lld",
                              name, (long long)model->width, (long long)model->heads);
    if (model->linear_attention && model->attention_dropout != 0.0f)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.attention_dropout is %g, expected 0 with "
                              "model.linear_attention",
                              name, (double)model->attention_dropout);
    return ATTN_OK;
}

/* ---- Data ------------------------------------------------------------------------ */

/* Learnt from the texts, one token short, for the mask. */
static attn_status prepare_tokenizer(const attn_task *task, const attn_corpus *corpus,
                                     bool goes_on, attn_error *error)
{
    struct state *const state = task->state;
    const struct settings *const settings = task->recipe->settings;
    ATTN_TRY(attn_learn_tokenizer(&state->tokenizer, task, corpus->fields,
                                  corpus->first_field[corpus->lines],
                                  settings->model.vocabulary - 1, goes_on, error));
    if (goes_on)
        return ATTN_OK;
    ATTN_TRY(attn_tokenizer_add_mask(state->tokenizer, error));
    return attn_folder_tokenizer_save(state->tokenizer, task->options->out, error);
}

/* A file's texts; messages begin with its path. */
static attn_status encode(attn_masked_texts *texts, const attn_corpus *corpus,
                          const char *path, const struct state *state, bool refuses_long,
                          attn_error *error)
{
    attn_error inner;
    const attn_status status = attn_masked_encode(
        texts, corpus, state->tokenizer, attn_bert_config_of(state->bert)->max_positions,
        refuses_long, &inner);
    return status == ATTN_OK
               ? ATTN_OK
               : attn_error_set(error, status, "%s: %s", path, inner.message);
}

static attn_status read_examples(const attn_task *task, attn_examples *examples,
                                 const attn_corpus *corpus, const char *path,
                                 attn_error *error)
{
    const struct state *const state = task->state;
    const struct settings *const settings = task->recipe->settings;
    attn_masked_texts texts;
    ATTN_TRY(
        encode(&texts, corpus, path, state, settings->too_long == LONG_REFUSE, error));
    attn_progress_say(task->progress, "%s: %zu text%s, %lld token%s", path, texts.count,
                      attn_s((int64_t)texts.count), (long long)texts.tokens,
                      attn_s(texts.tokens));
    if (texts.cut > 0)
        attn_progress_say(task->progress, "%s: %zu line%s of more than %lld tokens, cut",
                          path, texts.cut, attn_s((int64_t)texts.cut),
                          (long long)settings->model.max_positions);
    if (texts.empty > 0)
        attn_progress_say(task->progress, "%s: %zu empty line%s, left out", path,
                          texts.empty, attn_s((int64_t)texts.empty));
    return attn_masked_examples(examples, &texts, settings->share,
                                attn_tokenizer_mask(state->tokenizer), false, error);
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    const attn_train_options *const options = task->options;
    const struct settings *const settings = task->recipe->settings;
    struct state *const state = calloc(1, sizeof *state);
    attn_bert_config model = settings->model;
    attn_corpus corpus;
    task->state = state;
    if (!state)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for a model");
    model.classifier_dropout = model.dropout; /* of those who start from it */
    ATTN_TRY(attn_bert_create(&state->bert, &model, (uint64_t)task->recipe->seed, error));
    task->parameters = attn_bert_parameters(state->bert);
    ATTN_TRY(attn_corpus_load(&corpus, options->train, 1, error));
    attn_status status = prepare_tokenizer(task, &corpus, goes_on, error);
    if (status == ATTN_OK)
        status = read_examples(task, &task->train, &corpus, options->train, error);
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return status;
    ATTN_TRY(attn_corpus_load(&corpus, options->valid, 1, error));
    status = read_examples(task, &task->valid, &corpus, options->valid, error);
    attn_corpus_free(&corpus);
    return status;
}

static void free_task(attn_task *task)
{
    struct state *const state = task->state;
    attn_masked_examples_free(&task->train);
    attn_masked_examples_free(&task->valid);
    if (!state)
        return;
    attn_bert_destroy(state->bert);
    attn_tokenizer_destroy(state->tokenizer);
    free(state);
}

/* ---- Loss ------------------------------------------------------------------------ */

/* When measuring, what is right is counted; the loss is then a number alone. */
static attn_tensor *measure(const struct state *state, const attn_pass *pass,
                            const attn_bert_input *input, const int32_t *targets,
                            double divisor, attn_shard_sums *sums)
{
    attn_bert_measures measures;
    if (!attn_bert_measure(state->bert, pass, input, targets, &measures))
        return NULL;
    attn_tensor *const loss = attn_tape_tensor(pass->tape, 1, (const int64_t[]){1});
    if (!loss)
        return NULL;
    loss->data[0] = (float)(measures.plain / divisor);
    sums->plain = measures.plain;
    sums->correct = measures.correct;
    return loss;
}

static attn_tensor *loss(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const struct state *const state = task->state;
    attn_bert_input input;
    const int32_t *targets;
    if (!attn_masked_pack(&input, &targets, pass->tape, batch))
        return NULL;
    if (!attn_tape_training(pass->tape))
        return measure(state, pass, &input, targets, batch->divisor, sums);
    return attn_bert_loss(state->bert, pass, &input, targets, batch->smoothing,
                          batch->divisor, &sums->plain);
}

static attn_status save(const attn_task *task, const char *folder, attn_error *error)
{
    const struct state *const state = task->state;
    return attn_bert_save(state->bert, folder, ATTN_DTYPE_BF16, error);
}

/* ---- Scores ---------------------------------------------------------------------- */

/* Loss of all texts, with a share hidden or each token alone. */
static attn_status measure_texts(struct state *state, const attn_score_job *job,
                                 attn_masked_texts *texts, double share, bool each,
                                 attn_batch_loss *loss_sum, attn_error *error)
{
    attn_task task = {.kind = &attn_task_masked,
                      .parameters = attn_bert_parameters(state->bert),
                      .state = state};
    attn_shards shards = {0};
    attn_status status = attn_masked_examples(
        &task.valid, texts, share, attn_tokenizer_mask(state->tokenizer), each, error);
    if (status == ATTN_OK)
        status = attn_shards_create(&shards, SCORE_SHARDS, 0, job->pool, error);
    if (status == ATTN_OK)
        status = attn_shards_measure_all(&shards, &task, SCORE_TOKENS, loss_sum, error);
    attn_shards_free(&shards);
    attn_masked_examples_free(&task.valid);
    free(task.valid.sizes);
    return status;
}

/* Loss and accuracy of a share hidden as in training, and the pseudo-perplexity of
 * Salazar et al. 2020: each token guessed from all others. */
static attn_status score_file(struct state *state, const attn_score_job *job,
                              json_t *scores, attn_error *error)
{
    const struct settings *const settings = job->settings;
    const double share = settings ? settings->share : USUAL_SHARE;
    const bool refuses_long = settings && settings->too_long == LONG_REFUSE;
    attn_batch_loss sums[2];
    attn_corpus corpus;
    size_t lines = 0;
    ATTN_TRY(attn_corpus_load(&corpus, job->file, 1, error));
    attn_status status = ATTN_OK;
    for (int each = 0; each < 2 && status == ATTN_OK; each++) {
        attn_masked_texts texts;
        status = encode(&texts, &corpus, job->file, state, refuses_long, error);
        lines = status == ATTN_OK ? texts.lines : 0;
        if (status == ATTN_OK)
            status = measure_texts(state, job, &texts, share, each, &sums[each], error);
    }
    attn_corpus_free(&corpus);
    ATTN_TRY(status);
    const double loss_of_share = sums[0].plain / (double)sums[0].targets;
    const double accuracy = (double)sums[0].correct / (double)sums[0].targets;
    const double pseudo = exp(sums[1].plain / (double)sums[1].targets);
    attn_progress_say(job->progress,
                      "%s: loss %.4f and accuracy %.4f of %lld masked tokens, "
                      "pseudo-perplexity %.2f of %lld (%s)",
                      job->name, loss_of_share, accuracy, (long long)sums[0].targets,
                      pseudo, (long long)sums[1].targets, job->file);
    json_object_set_new(scores, "loss", attn_json_number(loss_of_share));
    json_object_set_new(scores, "accuracy", attn_json_number(accuracy));
    json_object_set_new(scores, "masked_tokens",
                        json_integer((json_int_t)sums[0].targets));
    json_object_set_new(scores, "pseudo_perplexity", attn_json_number(pseudo));
    json_object_set_new(scores, "tokens", json_integer((json_int_t)sums[1].targets));
    json_object_set_new(scores, "texts", json_integer((json_int_t)lines));
    return ATTN_OK;
}

static attn_status score(const attn_score_job *job, json_t *scores, attn_error *error)
{
    struct state shipped = {NULL, NULL};
    attn_status status = attn_bert_load(&shipped.bert, job->folder, error);
    if (status == ATTN_OK)
        status = attn_folder_tokenizer_load(&shipped.tokenizer, job->folder,
                                            attn_bert_config_of(shipped.bert)->vocabulary,
                                            error);
    if (status == ATTN_OK && attn_tokenizer_mask(shipped.tokenizer) < 0)
        status =
            attn_error_set(error, ATTN_EFORMAT,
                           "%s/tokenizer.json: no <mask>, expected one", job->folder);
    if (status == ATTN_OK)
        status = score_file(&shipped, job, scores, error);
    if (status == ATTN_OK)
        attn_score_note(scores, attn_bert_note(shipped.bert));
    attn_tokenizer_destroy(shipped.tokenizer);
    attn_bert_destroy(shipped.bert);
    return status;
}

static attn_status check_file(const attn_task *task, const char *file, attn_error *error)
{
    const struct settings *const settings = task->recipe->settings;
    attn_corpus corpus;
    attn_masked_texts texts;
    ATTN_TRY(attn_corpus_load(&corpus, file, 1, error));
    const attn_status status = encode(&texts, &corpus, file, task->state,
                                      settings->too_long == LONG_REFUSE, error);
    attn_corpus_free(&corpus);
    if (status == ATTN_OK)
        attn_masked_texts_free(&texts);
    return status;
}

static const char *const MODEL_TYPES[] = {"BertForMaskedLM", NULL};

const attn_task_kind attn_task_masked = {
    .name = "masked-language",
    .targets = "masked tokens",
    .model_types = MODEL_TYPES,
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .settings_bytes = sizeof(struct settings),
    .check = check,
    .prepare = prepare,
    .loss = loss,
    .save = save,
    .score = score,
    .check_file = check_file,
    .free = free_task,
};
