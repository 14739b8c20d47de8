/* Shards of a batch, run on a pool. */
#include "train/shards.h"
#include "base/context.h"
#include "base/mix.h"
#include "train/optimiser.h"
#include <stdlib.h>
#include <string.h>

/* Of attn_mix(seed, …): beyond the numbers of shards. */
enum { EXAMPLES_SEED = 1000 };

struct attn_shard {
    attn_context *context;
    attn_tape *tape;
    size_t *list; /* examples given to it */
    size_t count, capacity;
    int64_t load; /* tokens given so far */
    double smoothed;
    attn_shard_sums sums;
    attn_status status;
};

struct run {
    attn_shards *shards;
    const attn_shard_work *work;
    bool training;
    uint64_t seed;
};

/* The loss of a batch of a task. */
struct task_batch {
    attn_shards *shards;
    const attn_task *task;
    attn_shard_batch batch; /* but for list and count, which are the shard's */
};

static attn_status out_of_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "out of memory for the shards of a batch");
}

attn_status attn_shards_create(attn_shards *shards, size_t count, size_t floats,
                               pthreadpool_t pool, attn_error *error)
{
    *shards = (attn_shards){
        .count = count,
        .pool = pool,
        .list = calloc(count, sizeof *shards->list),
        .gradients = calloc(count, sizeof *shards->gradients),
        .floats = floats,
    };
    attn_status status = ATTN_OK;
    if (!shards->list || !shards->gradients)
        status = out_of_memory(error);
    for (size_t n = 0; n < count && status == ATTN_OK; n++) {
        struct attn_shard *const shard = &shards->list[n];
        status = attn_context_open(&shard->context, NULL, error);
        if (status != ATTN_OK)
            break;
        status = attn_tape_create(&shard->tape, shard->context);
        if (status != ATTN_OK)
            attn_error_from_context(error, status, shard->context);
        if (status == ATTN_OK && floats > 0) {
            shards->gradients[n] = attn_floats_allocate(floats);
            if (!shards->gradients[n])
                status = attn_error_set(error, ATTN_ENOMEM,
                                        "out of memory for gradients of %zu parameters",
                                        floats);
        }
    }
    if (status != ATTN_OK)
        attn_shards_free(shards);
    return status;
}

void attn_shards_free(attn_shards *shards)
{
    for (size_t n = 0; shards->list && n < shards->count; n++) {
        struct attn_shard *const shard = &shards->list[n];
        attn_tape_destroy(shard->tape);
        attn_context_destroy(shard->context);
        free(shard->list);
        if (shards->gradients)
            free(shards->gradients[n]);
    }
    free(shards->list);
    free(shards->gradients);
    *shards = (attn_shards){0};
}

/* Any shard may get the whole batch, in the worst case. */
static bool reserve(struct attn_shard *shard, size_t count)
{
    if (count <= shard->capacity)
        return true;
    size_t *const list = realloc(shard->list, count * sizeof *list);
    if (!list)
        return false;
    shard->list = list;
    shard->capacity = count;
    return true;
}

/* Each example goes to the shard with the fewest tokens. */
static attn_status deal(attn_shards *shards, const attn_examples *examples,
                        const size_t *list, size_t count, attn_error *error)
{
    for (size_t s = 0; s < shards->count; s++) {
        struct attn_shard *const shard = &shards->list[s];
        if (!reserve(shard, count))
            return out_of_memory(error);
        shard->count = 0;
        shard->load = 0;
    }
    for (size_t n = 0; n < count; n++) {
        struct attn_shard *least = &shards->list[0];
        for (size_t s = 1; s < shards->count; s++)
            if (shards->list[s].load < least->load)
                least = &shards->list[s];
        least->list[least->count++] = list[n];
        least->load += examples->sizes[list[n]].load;
    }
    return ATTN_OK;
}

static void run_shard(void *argument, size_t index)
{
    const struct run *const run = argument;
    const attn_shard_work *const work = run->work;
    struct attn_shard *const shard = &run->shards->list[index];
    float *const gradients = run->training ? run->shards->gradients[index] : NULL;
    if (gradients)
        memset(gradients, 0, run->shards->floats * sizeof *gradients);
    shard->smoothed = 0.0;
    shard->sums = (attn_shard_sums){0.0, -1};
    attn_tape_begin(shard->tape, run->training, attn_mix(run->seed, index));
    const attn_pass pass = {
        .tape = shard->tape,
        .parameters = work->parameters,
        .gradients = gradients,
        .observer = work->observer,
    };
    attn_tensor *const loss = work->loss(work->user, &pass, index, &shard->sums);
    shard->status = attn_tape_status(shard->tape);
    if (shard->status != ATTN_OK)
        return;
    if (!loss) {
        shard->sums.correct = 0;
        return;
    }
    shard->smoothed = (double)loss->data[0];
    if (run->training)
        shard->status = attn_tape_backward(shard->tape, loss, 1.0f);
}

void attn_batch_loss_add(attn_batch_loss *sum, const attn_batch_loss *part)
{
    sum->smoothed += part->smoothed;
    sum->plain += part->plain;
    sum->targets += part->targets;
    sum->tokens += part->tokens;
    const bool is_counted = sum->correct >= 0 && part->correct >= 0;
    sum->correct = is_counted ? sum->correct + part->correct : -1;
}

attn_status attn_shards_run(attn_shards *shards, const attn_shard_work *work,
                            bool training, uint64_t seed, attn_batch_loss *loss,
                            attn_error *error)
{
    struct run run = {shards, work, training, seed};
    pthreadpool_parallelize_1d(shards->pool, run_shard, &run, shards->count, 0);
    *loss = (attn_batch_loss){0};
    for (size_t s = 0; s < shards->count; s++) {
        const struct attn_shard *const shard = &shards->list[s];
        if (shard->status != ATTN_OK)
            return attn_error_from_context(error, shard->status, shard->context);
        const attn_batch_loss part = {.smoothed = shard->smoothed,
                                      .plain = shard->sums.plain,
                                      .correct = shard->sums.correct};
        attn_batch_loss_add(loss, &part);
    }
    return ATTN_OK;
}

static attn_tensor *batch_loss(void *user, const attn_pass *pass, size_t index,
                               attn_shard_sums *sums)
{
    const struct task_batch *const whole = user;
    const struct attn_shard *const shard = &whole->shards->list[index];
    attn_shard_batch batch = whole->batch;
    batch.list = shard->list;
    batch.count = shard->count;
    return batch.count > 0 ? whole->task->kind->loss(whole->task, pass, &batch, sums)
                           : NULL;
}

static attn_status run_batch(struct task_batch *whole, const size_t *list, size_t count,
                             const struct attn_observer *observer, bool training,
                             uint64_t seed, attn_batch_loss *loss, attn_error *error)
{
    const attn_task *const task = whole->task;
    const attn_examples *const examples = training ? &task->train : &task->valid;
    const attn_shard_work work = {task->parameters, observer, batch_loss, whole};
    int64_t targets = 0, tokens = 0;
    for (size_t n = 0; n < count; n++) {
        targets += examples->sizes[list[n]].targets;
        tokens += examples->sizes[list[n]].size;
    }
    whole->batch.examples = examples;
    whole->batch.divisor = (double)targets;
    whole->batch.seed = attn_mix(seed, EXAMPLES_SEED);
    ATTN_TRY(deal(whole->shards, examples, list, count, error));
    ATTN_TRY(attn_shards_run(whole->shards, &work, training, seed, loss, error));
    loss->smoothed *= whole->batch.divisor;
    loss->targets = targets;
    loss->tokens = tokens;
    return ATTN_OK;
}

attn_status attn_shards_train(attn_shards *shards, const attn_task *task,
                              const size_t *list, size_t count, uint64_t seed,
                              attn_batch_loss *loss, attn_error *error)
{
    struct task_batch whole = {
        shards, task, {.smoothing = (float)task->recipe->label_smoothing}};
    return run_batch(&whole, list, count, NULL, true, seed, loss, error);
}

attn_status attn_shards_measure(attn_shards *shards, const attn_task *task,
                                const size_t *list, size_t count,
                                const struct attn_observer *observer,
                                attn_batch_loss *loss, attn_error *error)
{
    struct task_batch whole = {shards, task, {.smoothing = 0.0f}};
    return run_batch(&whole, list, count, observer, false, 0, loss, error);
}

attn_status attn_shards_measure_all(attn_shards *shards, const attn_task *task,
                                    int64_t tokens, attn_batch_loss *loss,
                                    attn_error *error)
{
    const attn_examples *const examples = &task->valid;
    size_t *const list = malloc(examples->count * sizeof *list);
    if (!list)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for %zu examples",
                              examples->count);
    *loss = (attn_batch_loss){0};
    attn_status status = ATTN_OK;
    for (size_t first = 0; first < examples->count && status == ATTN_OK;) {
        size_t end = first;
        int64_t size = 0;
        attn_batch_loss part = {0};
        while (end < examples->count && size < tokens) {
            size += examples->sizes[end].size;
            list[end] = end;
            end++;
        }
        status = attn_shards_measure(shards, task, list + first, end - first, NULL, &part,
                                     error);
        attn_batch_loss_add(loss, &part);
        first = end;
    }
    free(list);
    return status;
}
