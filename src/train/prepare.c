/* Everything a training needs before its first step. */
#include "base/context.h"
#include "file/path.h"
#include "train/pool.h"
#include "train/task_reader.h"
#include "train/training.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder of the output and those that it lies in. */
static attn_status make_folder(struct attn_training *training, attn_error *error)
{
    char folder[ATTN_PATH_BYTES];
    ATTN_TRY(attn_path_join(folder, "", training->task.options->out, error));
    for (char *c = folder + (*folder == '/');; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        const char end = *c;
        *c = '\0';
        if (mkdir(folder, 0777) == 0)
            training->made_from =
                training->made_from ? training->made_from : (size_t)(c - folder);
        else if (errno != EEXIST)
            return attn_error_set(error, ATTN_EIO, "%s: %s", folder, strerror(errno));
        *c = end;
        if (end == '\0')
            return ATTN_OK;
    }
}

/* Of a training that was refused: the folders that were made for it, and what it has put
 * there by then.  One that has anything else in it stays. */
static void unmake_folder(const struct attn_training *training)
{
    static const char *const files[] = {"tokenizer.json", ATTN_SEEN_WORDS};
    char path[ATTN_PATH_BYTES];
    attn_error error;
    if (training->made_from == 0)
        return;
    const char *const out = training->task.options->out;
    const size_t count = sizeof files / sizeof files[0];
    for (size_t n = 0; training->is_locked && n < count;
         n++) /* else they are another's */
        if (attn_path_join(path, out, files[n], &error) == ATTN_OK)
            unlink(path);
    if (attn_path_join(path, "", out, &error) != ATTN_OK)
        return;
    for (size_t length = strlen(path); length >= training->made_from; length--) {
        if (path[length] != '/' && path[length] != '\0')
            continue;
        path[length] = '\0';
        rmdir(path);
    }
}

/* Two trainings in one folder would take turns in spoiling each other's files.  The lock
 * is the folder's own and ends with the process, so nothing is left to clear away. */
static attn_status lock_folder(struct attn_training *training, attn_error *error)
{
    const char *const folder = training->task.options->out;
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return attn_error_set(error, ATTN_EIO, "%s: %s", folder, strerror(errno));
    const bool is_taken = flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (is_taken) {
        close(file);
        return attn_error_set(error, ATTN_EIO,
                              "%s: another training writes to this folder", folder);
    }
    training->is_locked = true; /* or its file system has no locks */
    training->folder_file = file;
    return ATTN_OK;
}

/* A model that no checkpoint belongs to is another's, and would be written over.  A
 * training writes its checkpoint before its model. */
static attn_status spare_model(const char *folder, attn_error *error)
{
    static const char *const files[] = {"model.safetensors", "config.json"};
    for (size_t n = 0; n < sizeof files / sizeof files[0]; n++) {
        char path[ATTN_PATH_BYTES];
        ATTN_TRY(attn_path_join(path, folder, files[n], error));
        if (access(path, F_OK) == 0)
            return attn_error_set(error, ATTN_EIO,
                                  "%s is there and no checkpoint.safetensors to go on "
                                  "from: expected another --out, or one without a model",
                                  path);
    }
    return ATTN_OK;
}

/* What belongs to the parameters. */
static attn_status prepare_arrays(struct attn_training *training, attn_error *error)
{
    const attn_recipe *const recipe = training->task.recipe;
    const attn_parameters *const parameters = training->task.parameters;
    const attn_optimiser_options optimiser = {
        .beta1 = recipe->beta1,
        .beta2 = recipe->beta2,
        .epsilon = recipe->epsilon,
        .weight_decay = recipe->weight_decay,
        .clip = recipe->clip,
        .average = recipe->average,
    };
    ATTN_TRY(attn_optimiser_create(&training->optimiser, &optimiser, parameters, error));
    if (recipe->keep == ATTN_KEEP_BEST) {
        training->best = attn_floats_allocate(parameters->floats);
        if (!training->best)
            return attn_error_set(error, ATTN_ENOMEM, "out of memory for %zu weights",
                                  parameters->floats);
    }
    ATTN_TRY(attn_shards_create(&training->watcher, 1, 0, NULL, error));
    return attn_shards_create(&training->shards, (size_t)recipe->shards,
                              parameters->floats, training->task.pool, error);
}

/* What a model is refused for when it is made was read from the recipe. */
static attn_status prepare_task(attn_task *task, bool goes_on, attn_error *error)
{
    attn_error refusal;
    const attn_status status = task->kind->prepare(task, goes_on, &refusal);
    if (status == ATTN_OK)
        return ATTN_OK;
    if (status != ATTN_EINVAL)
        *error = refusal;
    else
        attn_error_set(error, ATTN_EFORMAT, "%s: model: %s",
                       *task->recipe->path ? task->recipe->path : "the recipe",
                       refusal.message);
    return error->status;
}

static void plan_steps(struct attn_training *training)
{
    const attn_recipe *const recipe = training->task.recipe;
    const double batches = (double)training->batches.count;
    for (size_t n = 0; n < training->task.train.count; n++)
        training->targets += training->task.train.sizes[n].targets;
    const double epochs = recipe->epochs > 0
                              ? (double)recipe->epochs
                              : (double)recipe->target_tokens / (double)training->targets;
    training->schedule = (attn_schedule){
        .shape = recipe->schedule,
        .peak = recipe->peak_learning_rate,
        .warmup = recipe->warmup_steps,
        .total = (int64_t)fmax(1.0, ceil(epochs * batches)),
    };
}

static attn_status go_on(struct attn_training *training, attn_error *error)
{
    const attn_checkpoint state = attn_training_state(training);
    ATTN_TRY(attn_checkpoint_load(training->checkpoint, &state, &training->identity,
                                  training->task.options->changed, error));
    if (training->position.batch > (int64_t)training->batches.count)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: its batch is %lld, an epoch has %zu",
                              training->checkpoint, (long long)training->position.batch,
                              training->batches.count);
    training->seconds_before = training->position.seconds;
    attn_progress_say(&training->progress, "%s: goes on after step %lld",
                      training->checkpoint, (long long)training->position.step);
    return ATTN_OK;
}

static attn_status prepare(struct attn_training *training, attn_error *error)
{
    attn_task *const task = &training->task;
    const attn_train_options *const options = task->options;
    training->arranged_epoch = -1;
    training->position.best_loss = (double)INFINITY;
    training->progress.talk = options->talk;
    task->progress = &training->progress;
    /* The longest name that is written there, so that no path is found too long later. */
    ATTN_TRY(attn_path_join(training->checkpoint, options->out,
                            "checkpoint.safetensors.part", error));
    ATTN_TRY(attn_path_join(training->checkpoint, options->out, "checkpoint.safetensors",
                            error));
    ATTN_TRY(make_folder(training, error));
    ATTN_TRY(lock_folder(training, error));
    const bool goes_on = access(training->checkpoint, F_OK) == 0;
    if (options->resume && !goes_on)
        return attn_error_set(error, ATTN_EIO, "%s: %s", training->checkpoint,
                              strerror(errno));
    if (!goes_on)
        ATTN_TRY(spare_model(options->out, error));
    ATTN_TRY(attn_pool_create(&task->pool, options->threads, error));
    ATTN_TRY(prepare_task(task, goes_on, error));
    if (task->kind->check_file)
        ATTN_TRY(task->kind->check_file(task, options->valid, error));
    if (task->kind->check_file && options->test)
        ATTN_TRY(task->kind->check_file(task, options->test, error));
    ATTN_TRY(attn_batches_create(&training->batches, &task->train,
                                 task->recipe->tokens_per_batch, error));
    ATTN_TRY(prepare_arrays(training, error));
    plan_steps(training);
    training->identity = (attn_checkpoint_identity){
        .recipe = task->recipe->identity,
        .data = task->train.hash,
    };
    if (goes_on)
        ATTN_TRY(go_on(training, error));
    return attn_progress_start(&training->progress, options->talk, options->out,
                               training->schedule.total, (int64_t)training->batches.count,
                               error);
}

attn_status attn_training_prepare(struct attn_training *training, attn_error *error)
{
    const attn_status status = prepare(training, error);
    if (status != ATTN_OK)
        unmake_folder(training);
    return status;
}

void attn_training_free(struct attn_training *training)
{
    attn_task *const task = &training->task;
    attn_progress_end(&training->progress);
    attn_shards_free(&training->shards);
    attn_shards_free(&training->watcher);
    attn_optimiser_free(&training->optimiser);
    free(training->best);
    attn_batches_free(&training->batches);
    task->kind->free(task);
    free(task->train.sizes);
    free(task->valid.sizes);
    if (task->pool)
        pthreadpool_destroy(task->pool);
    if (training->is_locked)
        close(training->folder_file);
}
