/* The causal language model as a kind of the training room: lines of text, or windows of
 * a long one. */
#include "base/context.h"
#include "file/safetensors.h"
#include "model/folder.h"
#include "train/language_score.h"
#include "train/learn.h"
#include "train/progress.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    int unit; /* of UNITS */
    int64_t window;
    int too_long; /* attn_too_long */
    attn_language_config model;
};

struct state {
    attn_language *language;
    attn_tokenizer *tokenizer;
};

enum { UNIT_LINE, UNIT_FILE };
static const char *const UNITS[] = {"line", "file", NULL};
static const char *const TOO_LONG[] = {"refuse", "split", NULL};
static const char *const BODIES[] = {"llama", "lstm", NULL};

#define AT(member) offsetof(struct settings, member)

static const attn_recipe_field FIELDS[] = {
    {"data", "unit", ATTN_FIELD_CHOICE, AT(unit), 0, 0, UNITS, ATTN_REQUIRED},
    {"data", "window", ATTN_FIELD_INTEGER, AT(window), 0, 1 << 22, NULL, 0},
    {"tokenizer", "vocabulary", ATTN_FIELD_INTEGER, AT(model.vocabulary), 260, 1e6, NULL,
     ATTN_REQUIRED},
    {"model", "body", ATTN_FIELD_CHOICE, AT(model.body), 0, 0, BODIES, 0},
    {"model", "width", ATTN_FIELD_INTEGER, AT(model.width), 2, 65536, NULL,
     ATTN_REQUIRED},
    {"model", "layers", ATTN_FIELD_INTEGER, AT(model.layers), 1, 256, NULL,
     ATTN_REQUIRED},
    {"model", "heads", ATTN_FIELD_INTEGER, AT(model.heads), 0, 1024, NULL, 0},
    {"model", "key_heads", ATTN_FIELD_INTEGER, AT(model.key_heads), 0, 1024, NULL, 0},
    {"model", "inner", ATTN_FIELD_INTEGER, AT(model.inner), 0, 1 << 18, NULL, 0},
    {"model", "max_positions", ATTN_FIELD_INTEGER, AT(model.max_positions), 2, 1 << 22,
     NULL, ATTN_REQUIRED},
    {"model", "too_long", ATTN_FIELD_CHOICE, AT(too_long), 0, 0, TOO_LONG, 0},
    {"model", "rotary_base", ATTN_FIELD_DECIMAL, AT(model.rotary_base), 1, 1e9, NULL,
     1e4},
    {"model", "no_positions", ATTN_FIELD_FLAG, AT(model.no_positions), 0, 0, NULL, 0},
    {"model", "alibi", ATTN_FIELD_FLAG, AT(model.alibi), 0, 0, NULL, 0},
    {"model", "sink_logits", ATTN_FIELD_FLAG, AT(model.sink_logits), 0, 0, NULL, 0},
    {"model", "forgets", ATTN_FIELD_FLAG, AT(model.forgets), 0, 0, NULL, 0},
    {"model", "linear_attention", ATTN_FIELD_FLAG, AT(model.linear_attention), 0, 0, NULL,
     0},
    {"model", "epsilon", ATTN_FIELD_SINGLE, AT(model.epsilon), 0, 1, NULL, 1e-5},
    {"model", "dropout", ATTN_FIELD_SINGLE, AT(model.dropout), 0, 0.99, NULL,
     ATTN_REQUIRED},
    {"model", "attention_dropout", ATTN_FIELD_SINGLE, AT(model.attention_dropout), 0,
     0.99, NULL, 0},
    {"model", "untied", ATTN_FIELD_FLAG, AT(model.untied), 0, 0, NULL, 0},
};

static int64_t window_of(const struct settings *settings)
{
    if (settings->unit == UNIT_LINE)
        return 0;
    return settings->window > 0 ? settings->window : settings->model.max_positions;
}

static attn_language_config model_of(const struct settings *settings)
{
    attn_language_config model = settings->model;
    if (model.key_heads == 0)
        model.key_heads = model.heads;
    model.text_window = window_of(settings);
    model.bos = ATTN_TOKEN_BOS;
    model.eos = ATTN_TOKEN_EOS;
    return model;
}

static attn_status check(const void *given, const char *name, attn_error *error)
{
    const struct settings *const settings = given;
    const attn_language_config *const model = &settings->model;
    const bool is_llama = model->body == ATTN_LANGUAGE_LLAMA;
    if (is_llama != (model->heads > 0) || is_llama != (model->inner > 0))
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.heads is %lld and model.inner %lld, expected "
                              "%s",
                              name, (long long)model->heads, (long long)model->inner,
                              is_llama ? "both, which model.body \"llama\" has"
                                       : "neither, which model.body \"lstm\" has not");
    if (!is_llama && (model->no_positions || model->alibi || model->sink_logits ||
                      model->forgets || model->linear_attention))
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.no_positions, model.alibi, model.sink_logits, "
                              "model.forgets and model.linear_attention are for "
                              "model.body \"llama\", expected none of them",
                              name);
    if (model->linear_attention && (model->alibi || model->sink_logits ||
                                    model->forgets || model->attention_dropout != 0.0f))
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.alibi, model.sink_logits, model.forgets and "
                              "model.attention_dropout are for softmax attention, "
                              "expected none of them with model.linear_attention",
                              name);
    if (settings->window > model->max_positions)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: data.window is %lld, expected at most "
                              "model.max_positions, which is %lld",
                              name, (long long)settings->window,
                              (long long)model->max_positions);
    if (settings->window > 0 && settings->unit == UNIT_LINE)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: data.window is %lld, expected none where data.unit is "
                              "\"line\"",
                              name, (long long)settings->window);
    return ATTN_OK;
}

/* ---- Data ------------------------------------------------------------------------ */

/* The lines of a text, or all of it, as samples of the tokenizer; cut in place. */
static const char **cut_samples(char *text, bool by_line, size_t *count)
{
    *count = 1;
    for (const char *at = text; by_line && (at = strchr(at, '\n')); at++)
        ++*count;
    const char **const samples = malloc(*count * sizeof *samples);
    for (size_t n = 0; samples && n < *count; n++) {
        samples[n] = text;
        text += by_line ? strcspn(text, "\n") + 1 : 0;
        if (by_line && n + 1 < *count)
            text[-1] = '\0';
    }
    return samples;
}

static attn_status prepare_tokenizer(const attn_task *task, bool goes_on,
                                     attn_error *error)
{
    struct state *const own = task->state;
    const struct settings *const settings = task->recipe->settings;
    char *text;
    size_t length, count;
    ATTN_TRY(attn_text_load(&text, &length, task->options->train, error));
    const char **const samples = cut_samples(text, settings->unit == UNIT_LINE, &count);
    const attn_status status =
        samples
            ? attn_learn_tokenizer(&own->tokenizer, task, samples, count,
                                   settings->model.vocabulary, goes_on, error)
            : attn_error_set(error, ATTN_ENOMEM, "out of memory for %zu lines", count);
    free(samples);
    free(text);
    if (status != ATTN_OK || goes_on)
        return status;
    attn_tokenizer_frame(own->tokenizer, ATTN_FRAME_START);
    return attn_folder_tokenizer_save(own->tokenizer, task->options->out, error);
}

static attn_status encode(const attn_task *task, attn_examples *examples,
                          const char *path, attn_error *error)
{
    const struct state *const own = task->state;
    const struct settings *const settings = task->recipe->settings;
    attn_passages *const texts = calloc(1, sizeof *texts);
    examples->data = texts;
    if (!texts)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for texts");
    ATTN_TRY(attn_passages_load(texts, path, own->tokenizer, window_of(settings),
                                settings->model.max_positions,
                                (attn_too_long)settings->too_long, error));
    examples->sizes = malloc(texts->count * sizeof *examples->sizes);
    if (!examples->sizes)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for texts");
    examples->count = texts->count;
    examples->hash = texts->hash;
    for (size_t n = 0; n < texts->count; n++) {
        const int32_t length = (int32_t)attn_passages_length(texts, n);
        examples->sizes[n] = (attn_example_size){length, length, length};
    }
    attn_progress_say(task->progress, "%s: %zu text%s, %zu token%s, %lld word%s", path,
                      texts->count, attn_s((int64_t)texts->count),
                      texts->begin[texts->count],
                      attn_s((int64_t)texts->begin[texts->count]),
                      (long long)texts->words, attn_s(texts->words));
    if (texts->split > 0)
        attn_progress_say(task->progress,
                          "%s: %zu line%s of more tokens than positions, split", path,
                          texts->split, attn_s((int64_t)texts->split));
    return ATTN_OK;
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    const attn_language_config model = model_of(task->recipe->settings);
    struct state *const own = calloc(1, sizeof *own);
    task->state = own;
    if (!own)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for a language model");
    ATTN_TRY(prepare_tokenizer(task, goes_on, error));
    ATTN_TRY(encode(task, &task->train, task->options->train, error));
    ATTN_TRY(encode(task, &task->valid, task->options->valid, error));
    ATTN_TRY(attn_language_create(&own->language, &model, (uint64_t)task->recipe->seed,
                                  error));
    task->parameters = attn_language_parameters(own->language);
    return ATTN_OK;
}

static void free_examples(attn_examples *examples)
{
    if (examples->data)
        attn_passages_free(examples->data);
    free(examples->data);
    examples->data = NULL;
}

static void free_task(attn_task *task)
{
    struct state *const own = task->state;
    free_examples(&task->train);
    free_examples(&task->valid);
    if (!own)
        return;
    attn_language_destroy(own->language);
    attn_tokenizer_destroy(own->tokenizer);
    free(own);
}

/* ---- Loss, files and scores ------------------------------------------------------ */

static attn_tensor *loss(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const struct state *const own = task->state;
    attn_passage_batch texts;
    if (!attn_passages_pack(&texts, batch->examples->data, batch->list, batch->count,
                            pass->tape))
        return NULL;
    const attn_packing packing = {(int64_t)batch->count, texts.starts};
    return attn_language_loss(own->language, pass, texts.ids, texts.targets, packing,
                              batch->smoothing, batch->divisor, &sums->plain);
}

static attn_status save(const attn_task *task, const char *folder, attn_error *error)
{
    const struct state *const own = task->state;
    return attn_language_save(own->language, folder, ATTN_DTYPE_BF16, error);
}

static void say_scores(const attn_score_job *job, const json_t *scores)
{
    const json_t *const accuracy = json_object_get(scores, "accuracy");
    if (accuracy)
        attn_progress_say(job->progress, "%s: %.2f %% of %lld minimal pairs (%s)",
                          job->name, 100.0 * json_real_value(accuracy),
                          (long long)json_integer_value(json_object_get(scores, "pairs")),
                          job->file);
    else
        attn_progress_say(
            job->progress,
            "%s: perplexity %.2f a token, %.2f a word, %.3f bits a byte (%s)", job->name,
            json_real_value(json_object_get(scores, "perplexity")),
            json_real_value(json_object_get(scores, "perplexity_word")),
            json_real_value(json_object_get(scores, "bits_byte")), job->file);
}

static attn_status score(const attn_score_job *job, json_t *scores, attn_error *error)
{
    attn_language_scorer scorer = {.pool = job->pool, .threads = job->threads};
    attn_status status = attn_language_load(&scorer.language, job->folder, error);
    if (status == ATTN_OK)
        status = attn_folder_tokenizer_load(
            &scorer.tokenizer, job->folder,
            attn_language_config_of(scorer.language)->vocabulary, error);
    if (status == ATTN_OK)
        status = attn_language_is_pairs(job->file)
                     ? attn_language_score_pairs(&scorer, job->file, scores, error)
                     : attn_language_score_texts(&scorer, job->file, scores, error);
    if (status == ATTN_OK)
        attn_score_note(scores, attn_language_note(scorer.language));
    if (status == ATTN_OK && job->progress)
        say_scores(job, scores);
    attn_tokenizer_destroy(scorer.tokenizer);
    attn_language_destroy(scorer.language);
    return status;
}

static attn_status check_file(const attn_task *task, const char *file, attn_error *error)
{
    const struct state *const own = task->state;
    const struct settings *const settings = task->recipe->settings;
    const attn_language_scorer scorer = {.language = own->language,
                                         .tokenizer = own->tokenizer};
    return attn_language_check_file(&scorer, file, (attn_too_long)settings->too_long,
                                    error);
}

static const char *const MODEL_TYPES[] = {"llama", "llama-variant", "lstm-language",
                                          NULL};

const attn_task_kind attn_task_language = {
    .name = "language",
    .targets = "tokens",
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
