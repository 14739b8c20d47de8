/* The loop of a training.  A step: each shard computes loss and gradient of its part of
 * the batch, gradients are summed, the optimiser moves the parameters.  Between steps,
 * now and then: validation, a checkpoint with the model's files. */
#include "train/train.h"
#include "base/context.h"
#include "base/mix.h"
#include "train/training.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WATCHED_EXAMPLES = 32 };

/* The square of a larger gradient is no float, and would stop its weight for good. */
static const double LARGEST_NORM = 1.8e19;

/* The first tensor with a number that is not finite: its name, or NULL. */
static const char *find_infinite(const attn_parameters *parameters, const float *array)
{
    for (size_t p = 0; p < parameters->length; p++) {
        const attn_parameter *const parameter = &parameters->list[p];
        for (size_t n = 0; n < parameter->count; n++)
            if (!isfinite(array[parameter->offset + n]))
                return parameter->name;
    }
    return NULL;
}

/* The tensor with the number farthest from 0. */
static const char *find_largest(const attn_parameters *parameters, const float *array,
                                float *largest)
{
    const char *name = "none";
    *largest = -1.0f;
    for (size_t p = 0; p < parameters->length; p++) {
        const attn_parameter *const parameter = &parameters->list[p];
        for (size_t n = 0; n < parameter->count; n++)
            if (fabsf(array[parameter->offset + n]) > *largest) {
                *largest = fabsf(array[parameter->offset + n]);
                name = parameter->name;
            }
    }
    return name;
}

/* A training that is not finite any more, by `what` it is seen; gradient may be NULL.
 * Names the first parameter that is not finite, or else the first gradient, or else what
 * is largest: its squares, or a product with it, were too large for a float. */
static attn_status refuse(const struct attn_training *training, int64_t step,
                          const char *what, const float *gradient, attn_error *error)
{
    const attn_parameters *const parameters = training->task.parameters;
    const char *of = "", *name = find_infinite(parameters, parameters->values);
    char tensor[256];
    if (!name && gradient) {
        of = "the gradient of ";
        name = find_infinite(parameters, gradient);
    }
    if (name)
        snprintf(tensor, sizeof tensor, "first tensor that is not finite: %s%s", of,
                 name);
    else {
        float largest, largest_gradient = 0.0f;
        name = find_largest(parameters, parameters->values, &largest);
        const char *const other =
            gradient ? find_largest(parameters, gradient, &largest_gradient) : "";
        const bool is_gradient = largest_gradient > largest;
        snprintf(tensor, sizeof tensor,
                 "every tensor is finite, the largest number is %g in %s%s",
                 (double)(is_gradient ? largest_gradient : largest),
                 is_gradient ? "the gradient of " : "", is_gradient ? other : name);
    }
    return attn_error_set(error, ATTN_ENOTFINITE,
                          "step %lld: %s; %s; %s (%s). A lower "
                          "training.peak_learning_rate may help",
                          (long long)step, what, tensor,
                          access(training->checkpoint, F_OK) == 0
                              ? "the last good checkpoint stays"
                              : "there was no checkpoint yet",
                          training->checkpoint);
}

/* Its sign is the processor's, and tells nothing. */
static double without_sign(double number)
{
    return isnan(number) ? (double)NAN : number;
}

static attn_status refuse_step(const struct attn_training *training, double loss,
                               double norm, attn_error *error)
{
    char what[96];
    snprintf(what, sizeof what, "the loss is %g and the norm of its gradient %g",
             without_sign(loss), without_sign(norm));
    return refuse(training, training->position.step + 1, what,
                  training->shards.gradients[0], error);
}

static attn_status keep(struct attn_training *training, attn_error *error)
{
    const double start = attn_seconds();
    const attn_checkpoint state = attn_training_state(training);
    ATTN_TRY(
        attn_checkpoint_save(training->checkpoint, &state, &training->identity, error));
    ATTN_TRY(attn_training_export(training, error));
    training->kept = training->position.step;
    attn_progress_pause(&training->progress, attn_seconds() - start);
    return ATTN_OK;
}

/* The last checkpoint, of weights whose loss may not be known. */
static attn_status keep_last(struct attn_training *training, attn_error *error)
{
    const attn_parameters *const parameters = training->task.parameters;
    if (training->kept == training->position.step)
        return ATTN_OK;
    if (find_infinite(parameters, parameters->values))
        return refuse(training, training->position.step, "its weights are not finite",
                      NULL, error);
    return keep(training, error);
}

/* What could not be logged ends a training between two steps, from where it can go on. */
static attn_status keep_unlogged(struct attn_training *training, attn_status status,
                                 const attn_error *fault, attn_error *error)
{
    ATTN_TRY(keep_last(training, error));
    return attn_error_set(error, status, "%s; the training is kept after step %lld",
                          fault->message, (long long)training->position.step);
}

/* A checkpoint is written when the loss and the gradient of its weights are known to be
 * finite, so that the one on the disk can always be gone on from. */
static bool must_keep(const struct attn_training *training)
{
    const int64_t done = training->position.step;
    return done > 0 && done != training->kept &&
           done % training->task.recipe->checkpoint_every == 0;
}

static attn_status step(struct attn_training *training, attn_error *error)
{
    const attn_recipe *const recipe = training->task.recipe;
    attn_position *const at = &training->position;
    const uint64_t seed = (uint64_t)recipe->seed;
    if (at->batch == (int64_t)training->batches.count) {
        at->epoch++;
        at->batch = 0;
    }
    if (training->arranged_epoch != at->epoch) {
        attn_batches_arrange(&training->batches, &training->task.train, seed, at->epoch,
                             recipe->length_noise);
        training->arranged_epoch = at->epoch;
    }
    const size_t *const first = training->batches.first + at->batch;
    attn_batch_loss loss;
    ATTN_TRY(attn_shards_train(&training->shards, &training->task,
                               training->batches.list + first[0], first[1] - first[0],
                               attn_mix(attn_mix(seed, 0), (uint64_t)at->step), &loss,
                               error));
    const double norm =
        attn_optimiser_reduce(&training->optimiser, training->task.pool,
                              training->shards.gradients, training->shards.count);
    if (!isfinite(loss.smoothed) || !(norm < LARGEST_NORM))
        return refuse_step(training, loss.smoothed / (double)loss.targets, norm, error);
    if (must_keep(training))
        ATTN_TRY(keep(training, error));
    const double rate = attn_schedule_rate(&training->schedule, at->step + 1);
    attn_optimiser_step(&training->optimiser, training->task.pool,
                        training->task.parameters->values, training->shards.gradients[0],
                        norm, rate, at->step + 1);
    at->step++;
    at->batch++;
    at->target_tokens += loss.targets;
    at->seconds = training->seconds_before + attn_seconds() - training->progress.started;
    attn_error fault;
    const attn_status logged =
        attn_progress_step(&training->progress, at, &loss, norm, rate, &fault);
    return logged == ATTN_OK ? ATTN_OK : keep_unlogged(training, logged, &fault, error);
}

static attn_status measure(struct attn_training *training, double *loss,
                           attn_valid_scores *scores, attn_error *error)
{
    attn_batch_loss sum;
    ATTN_TRY(attn_shards_measure_all(&training->shards, &training->task,
                                     training->task.recipe->tokens_per_batch, &sum,
                                     error));
    *loss = sum.plain / (double)sum.targets;
    if (!isfinite(*loss)) {
        char what[64];
        snprintf(what, sizeof what, "the loss of validation is %g", without_sign(*loss));
        return refuse(training, training->position.step, what, NULL, error);
    }
    scores->accuracy =
        sum.correct < 0 ? (double)NAN : (double)sum.correct / (double)sum.targets;
    return ATTN_OK;
}

static attn_status watch_heads(struct attn_training *training, attn_error *error)
{
    size_t list[WATCHED_EXAMPLES], count = 0;
    while (count < WATCHED_EXAMPLES && count < training->task.valid.count) {
        list[count] = count;
        count++;
    }
    return attn_heads_measure(&training->watcher, &training->task, list, count,
                              &training->valid_scores.lowest, error);
}

/* Of the weights that would be shipped. */
static double shipped_loss(const attn_valid_scores *scores)
{
    return isnan(scores->average_loss) ? scores->loss : scores->average_loss;
}

/* With the weights to ship in place: those of the lowest loss are kept. */
static void compare_with_best(struct attn_training *training, double loss)
{
    const attn_parameters *const parameters = training->task.parameters;
    attn_position *const at = &training->position;
    at->waited++;
    if (!(loss < at->best_loss))
        return;
    at->best_loss = loss;
    at->waited = 0;
    if (training->best)
        memcpy(training->best, parameters->values, parameters->floats * sizeof(float));
}

static attn_status validate(struct attn_training *training, attn_error *error)
{
    const double start = attn_seconds();
    attn_valid_scores *const scores = &training->valid_scores;
    scores->average_loss = (double)NAN;
    ATTN_TRY(measure(training, &scores->loss, scores, error));
    attn_training_exchange_average(training);
    attn_status status = ATTN_OK;
    if (training->optimiser.average)
        status = measure(training, &scores->average_loss, scores, error);
    if (status == ATTN_OK)
        status = watch_heads(training, error);
    if (status == ATTN_OK)
        compare_with_best(training, shipped_loss(scores));
    attn_training_exchange_average(training);
    if (status != ATTN_OK)
        return status;
    attn_error fault;
    status =
        attn_progress_valid(&training->progress, &training->position, scores, &fault);
    attn_progress_pause(&training->progress, attn_seconds() - start);
    return status == ATTN_OK ? ATTN_OK : keep_unlogged(training, status, &fault, error);
}

static bool is_past_patience(const struct attn_training *training)
{
    const int64_t patience = training->task.recipe->patience;
    return patience > 0 && training->position.waited >= patience;
}

static bool must_stop(const struct attn_training *training, attn_train_end *end)
{
    const attn_train_options *const options = training->task.options;
    const int64_t done = training->position.step;
    const double minutes = (attn_seconds() - training->progress.started) / 60.0;
    *end = ATTN_TRAIN_FINISHED;
    if (done >= training->schedule.total || is_past_patience(training))
        return true;
    *end = ATTN_TRAIN_STOPPED;
    if (options->stop && *options->stop)
        return true;
    *end = ATTN_TRAIN_LIMIT;
    return (options->max_steps > 0 && done >= options->max_steps) ||
           (options->minutes > 0.0 && minutes >= options->minutes);
}

static attn_status run(struct attn_training *training, attn_train_end *end,
                       attn_error *error)
{
    const attn_recipe *const recipe = training->task.recipe;
    const int64_t *const done = &training->position.step;
    int64_t validated = -1;
    training->kept = *done > 0 ? *done : -1;
    attn_progress_say(
        &training->progress,
        "%zu parameters, %lld step%s of %.0f %s in %lld shard%s on %zu thread%s",
        attn_parameters_count(training->task.parameters),
        (long long)training->schedule.total, attn_s(training->schedule.total),
        (double)training->targets / (double)training->batches.count,
        training->task.kind->targets, (long long)recipe->shards, attn_s(recipe->shards),
        training->task.options->threads,
        attn_s((int64_t)training->task.options->threads));
    while (!must_stop(training, end)) {
        ATTN_TRY(step(training, error));
        if (*done % recipe->valid_every == 0) {
            ATTN_TRY(validate(training, error));
            validated = *done;
        }
    }
    if (*end != ATTN_TRAIN_FINISHED)
        return keep_last(training, error);
    if (is_past_patience(training))
        attn_progress_say(&training->progress,
                          "%lld validation%s without a lower loss than %.4f: the end",
                          (long long)training->position.waited,
                          attn_s(training->position.waited),
                          training->position.best_loss);
    if (validated != *done)
        ATTN_TRY(validate(training, error));
    /* A training that had ended may have lost the model's files since. */
    ATTN_TRY(training->kept == *done ? attn_training_export(training, error)
                                     : keep_last(training, error));
    return attn_training_score(training, error);
}

attn_status attn_train(const attn_recipe *recipe, const attn_train_options *options,
                       attn_train_end *end, attn_error *error)
{
    struct attn_training training = {
        .task = {.kind = recipe->kind, .recipe = recipe, .options = options}};
    attn_status status = attn_training_prepare(&training, error);
    if (status == ATTN_OK)
        status = run(&training, end, error);
    attn_training_free(&training);
    return status;
}
