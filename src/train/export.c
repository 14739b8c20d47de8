/* What a training leaves for use: the model's files and its scores. */
#include "base/context.h"
#include "file/file.h"
#include "file/path.h"
#include "train/training.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void exchange(attn_parameters *parameters, float **values)
{
    float *const others = *values;
    if (!others)
        return;
    *values = parameters->values;
    parameters->values = others;
}

void attn_training_exchange_average(struct attn_training *training)
{
    exchange(training->task.parameters, &training->optimiser.average);
}

attn_status attn_training_export(struct attn_training *training, attn_error *error)
{
    const attn_task *const task = &training->task;
    const bool has_best = training->best && isfinite(training->position.best_loss);
    float **const shipped = has_best ? &training->best : &training->optimiser.average;
    exchange(task->parameters, shipped);
    const attn_status status = task->kind->save(task, task->options->out, error);
    exchange(task->parameters, shipped);
    return status;
}

/* The shipped model on a file; its scores go under name. */
static attn_status score_file(struct attn_training *training, const char *path,
                              const char *name, json_t *scores, attn_error *error)
{
    const attn_task *const task = &training->task;
    const attn_score_job job = {
        .folder = task->options->out,
        .file = path,
        .name = name,
        .settings = task->recipe->settings,
        .pool = task->pool,
        .threads = task->options->threads,
        .progress = &training->progress,
    };
    json_t *const of_file = json_object();
    const attn_status status = task->kind->score(&job, of_file, error);
    json_object_set_new(scores, name, of_file);
    return status;
}

static json_t *describe(const struct attn_training *training)
{
    const attn_position *const position = &training->position;
    const attn_valid_scores *const valid = &training->valid_scores;
    double loss = isnan(valid->average_loss) ? valid->loss : valid->average_loss;
    if (training->best)
        loss = position->best_loss;
    json_t *const scores = json_pack(
        "{s:I, s:f, s:I, s:f, s:o, s:o}", "steps", (json_int_t)position->step, "epochs",
        (double)position->epoch +
            (double)position->batch / (double)training->batches.count,
        "target_tokens", (json_int_t)position->target_tokens, "minutes",
        position->seconds / 60.0, "valid_loss", attn_json_number(loss),
        "valid_perplexity", attn_json_number(exp(loss)));
    if (position->step > 0)
        json_object_set_new(scores, "seconds_per_step",
                            attn_json_number(position->seconds / (double)position->step));
    if (!isnan(valid->accuracy) && !training->best)
        json_object_set_new(scores, "valid_accuracy", json_real(valid->accuracy));
    return scores;
}

attn_status attn_training_score(struct attn_training *training, attn_error *error)
{
    const attn_train_options *const options = training->task.options;
    json_t *const scores = describe(training);
    attn_status status = score_file(training, options->valid, "valid", scores, error);
    if (status == ATTN_OK && options->test)
        status = score_file(training, options->test, "test", scores, error);
    char *const text =
        json_dumps(scores, JSON_INDENT(2) | JSON_REAL_PRECISION(6) | JSON_PRESERVE_ORDER);
    json_decref(scores);
    if (status == ATTN_OK && !text)
        status = attn_error_set(error, ATTN_ENOMEM, "out of memory for scores.json");
    char path[ATTN_PATH_BYTES];
    if (status == ATTN_OK)
        status = attn_path_join(path, options->out, "scores.json", error);
    if (status == ATTN_OK)
        status = attn_file_write(path, text, strlen(text), error);
    free(text);
    return status;
}
