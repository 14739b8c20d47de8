/* Everything a training needs before its first step. */
#include "base/context.h"
#include "tensor/single_thread.h"
#include "train/training.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static attn_status make_folder(const char *path, attn_error *error)
{
    char folder[ATTN_PATH_BYTES];
    if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder)
        return attn_error_set(error, ATTN_EINVAL, "%.60s…: longer than %zu bytes", path,
                              sizeof folder - 1);
    for (char *c = folder + 1;; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        const char end = *c;
        *c = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return attn_error_set(error, ATTN_EIO, "%s: %s", folder, strerror(errno));
        *c = end;
        if (end == '\0')
            return ATTN_OK;
    }
}

/* Two trainings in one folder would take turns in spoiling each other's files.  The lock
 * is the folder's own and ends with the process, so nothing is left to clear away. */
static attn_status lock_folder(struct attn_training *training, attn_error *error)
{
    const char *const folder = training->options->out;
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

/* The tokenizer of the output folder when a training goes on, else a new one. */
static attn_status prepare_tokenizer(struct attn_training *training,
                                     const attn_corpus *corpus, bool goes_on,
                                     attn_error *error)
{
    char path[ATTN_FILE_BYTES];
    snprintf(path, sizeof path, "%s/tokenizer.json", training->options->out);
    if (goes_on)
        return attn_tokenizer_load(&training->tokenizer, path, error);
    const double start = attn_seconds();
    ATTN_TRY(attn_tokenizer_train(&training->tokenizer, corpus->fields,
                                  corpus->first_field[corpus->lines],
                                  training->recipe->model.vocabulary, error));
    const int64_t size = attn_tokenizer_size(training->tokenizer);
    if (size != training->recipe->model.vocabulary)
        return attn_error_set(
            error, ATTN_EFORMAT,
            "tokenizer.vocabulary is %lld, but the text gives only %lld "
            "tokens",
            (long long)training->recipe->model.vocabulary, (long long)size);
    attn_progress_say(&training->progress, "tokenizer: %lld tokens, learnt in %.1f s",
                      (long long)size, attn_seconds() - start);
    return attn_tokenizer_save(training->tokenizer, path, error);
}

static attn_status encode(struct attn_training *training, attn_pairs *pairs,
                          const attn_corpus *corpus, const char *path, attn_error *error)
{
    attn_error inner;
    const attn_status status =
        attn_pairs_encode(pairs, corpus, training->tokenizer,
                          training->recipe->model.max_positions, &inner);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "%s: %s", path, inner.message);
    attn_progress_say(
        &training->progress, "%s: %zu pairs, %lld source and %lld target tokens", path,
        pairs->count, (long long)pairs->source_tokens, (long long)pairs->target_tokens);
    if (pairs->left_out > 0)
        attn_progress_say(
            &training->progress,
            "%s: %zu pairs have a side of more than %lld tokens and are left "
            "out, the first in line %zu",
            path, pairs->left_out, (long long)training->recipe->model.max_positions,
            pairs->first_left_out + 1);
    return ATTN_OK;
}

static attn_status prepare_data(struct attn_training *training, bool goes_on,
                                attn_error *error)
{
    const attn_train_options *const options = training->options;
    attn_corpus corpus;
    ATTN_TRY(attn_corpus_load(&corpus, options->train, 2, error));
    attn_status status = prepare_tokenizer(training, &corpus, goes_on, error);
    if (status == ATTN_OK)
        status = encode(training, &training->train, &corpus, options->train, error);
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return status;
    ATTN_TRY(attn_corpus_load(&corpus, options->valid, 2, error));
    status = encode(training, &training->valid, &corpus, options->valid, error);
    attn_corpus_free(&corpus);
    return status;
}

static attn_status prepare_model(struct attn_training *training, attn_error *error)
{
    const attn_recipe *const recipe = training->recipe;
    ATTN_TRY(attn_translator_create(&training->translator, &recipe->model,
                                    (uint64_t)recipe->seed, error));
    training->parameters = attn_translator_parameters(training->translator);
    const attn_optimiser_options optimiser = {
        .beta1 = recipe->beta1,
        .beta2 = recipe->beta2,
        .epsilon = recipe->epsilon,
        .weight_decay = recipe->weight_decay,
        .clip = recipe->clip,
        .average = recipe->average,
    };
    ATTN_TRY(attn_optimiser_create(&training->optimiser, &optimiser, training->parameters,
                                   error));
    ATTN_TRY(attn_shards_create(&training->watcher, 1, 0, NULL, error));
    return attn_shards_create(&training->shards, (size_t)recipe->shards,
                              training->parameters->floats, training->pool, error);
}

static void plan_steps(struct attn_training *training)
{
    const attn_recipe *const recipe = training->recipe;
    const double batches = (double)training->batches.count;
    const double epochs = recipe->epochs > 0 ? (double)recipe->epochs
                                             : (double)recipe->target_tokens /
                                                   (double)training->train.target_tokens;
    training->schedule = (attn_schedule){
        .shape = recipe->schedule,
        .peak = recipe->peak_learning_rate,
        .warmup = recipe->warmup_steps,
        .total = (int64_t)fmax(1.0, ceil(epochs * batches)),
    };
}

static attn_status go_on(struct attn_training *training, attn_error *error)
{
    ATTN_TRY(attn_checkpoint_load(
        training->checkpoint, training->parameters, &training->optimiser,
        &training->position, &training->identity, training->options->changed, error));
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

attn_status attn_training_prepare(struct attn_training *training, attn_error *error)
{
    const attn_train_options *const options = training->options;
    training->arranged_epoch = -1;
    training->progress.talk = options->talk;
    ATTN_TRY(make_folder(options->out, error));
    ATTN_TRY(lock_folder(training, error));
    snprintf(training->checkpoint, sizeof training->checkpoint,
             "%s/checkpoint.safetensors", options->out);
    const bool goes_on = access(training->checkpoint, F_OK) == 0;
    if (options->resume && !goes_on)
        return attn_error_set(error, ATTN_EIO, "%s: %s", training->checkpoint,
                              strerror(errno));
    attn_blas_use_one_thread();
    training->pool = pthreadpool_create(options->threads);
    if (!training->pool)
        return attn_error_set(error, ATTN_ENOMEM, "cannot start %zu threads",
                              options->threads);
    ATTN_TRY(prepare_data(training, goes_on, error));
    ATTN_TRY(attn_batches_create(&training->batches, &training->train,
                                 training->recipe->tokens_per_batch, error));
    ATTN_TRY(prepare_model(training, error));
    plan_steps(training);
    training->identity = (attn_checkpoint_identity){
        .recipe = training->recipe->identity,
        .data = training->train.hash,
    };
    if (goes_on)
        ATTN_TRY(go_on(training, error));
    return attn_progress_start(&training->progress, options->talk, options->out,
                               training->schedule.total, (int64_t)training->batches.count,
                               error);
}

void attn_training_free(struct attn_training *training)
{
    attn_progress_end(&training->progress);
    attn_shards_free(&training->shards);
    attn_shards_free(&training->watcher);
    attn_optimiser_free(&training->optimiser);
    attn_translator_destroy(training->translator);
    attn_batches_free(&training->batches);
    attn_pairs_free(&training->train);
    attn_pairs_free(&training->valid);
    attn_tokenizer_destroy(training->tokenizer);
    if (training->pool)
        pthreadpool_destroy(training->pool);
    if (training->is_locked)
        close(training->folder_file);
}
