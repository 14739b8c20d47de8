/* Shards of a batch, run on a pool. */
#include "train/shards.h"
#include "base/context.h"
#include "train/mix.h"
#include "train/optimiser.h"
#include <stdlib.h>
#include <string.h>

struct attn_shard {
    attn_context *context;
    attn_tape *tape;
    attn_pair_batch batch; /* points into the four arrays below */
    int32_t *source, *target_in, *target_out;
    int64_t *source_starts, *target_starts;
    size_t token_capacity, pair_capacity;
    int64_t load; /* tokens given so far */
    double smoothed, plain;
    attn_status status;
};

struct work {
    attn_shards *shards;
    const attn_shard_task *task;
    bool training;
    uint64_t seed;
};

/* The loss of a shard of sentence pairs. */
struct pairs_task {
    attn_shards *shards;
    const attn_translator *translator;
    float smoothing;
    double divisor;
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
        status = attn_context_create(&shard->context, NULL);
        if (status == ATTN_OK)
            status = attn_tape_create(&shard->tape, shard->context);
        if (status == ATTN_OK && floats > 0) {
            shards->gradients[n] = attn_floats_allocate(floats);
            status = shards->gradients[n] ? ATTN_OK : ATTN_ENOMEM;
        }
        if (status != ATTN_OK)
            attn_error_set(error, status,
                           "a context, tape and gradient of %zu floats: %s", floats,
                           attn_status_name(status));
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
        free(shard->source);
        free(shard->target_in);
        free(shard->target_out);
        free(shard->source_starts);
        free(shard->target_starts);
        if (shards->gradients)
            free(shards->gradients[n]);
    }
    free(shards->list);
    free(shards->gradients);
    *shards = (attn_shards){0};
}

static bool grow(void *array, size_t count, size_t element_bytes)
{
    void *old;
    memcpy(&old, array, sizeof old);
    void *const grown = realloc(old, count * element_bytes);
    if (grown)
        memcpy(array, &grown, sizeof grown);
    return grown != NULL;
}

/* Any shard may get the whole batch, in the worst case. */
static bool reserve(struct attn_shard *shard, size_t pairs, size_t tokens)
{
    if (pairs > shard->pair_capacity) {
        shard->pair_capacity = 0;
        if (!grow(&shard->source_starts, pairs + 1, sizeof *shard->source_starts) ||
            !grow(&shard->target_starts, pairs + 1, sizeof *shard->target_starts))
            return false;
        shard->pair_capacity = pairs;
    }
    if (tokens > shard->token_capacity) {
        shard->token_capacity = 0;
        if (!grow(&shard->source, tokens, sizeof *shard->source) ||
            !grow(&shard->target_in, tokens, sizeof *shard->target_in) ||
            !grow(&shard->target_out, tokens, sizeof *shard->target_out))
            return false;
        shard->token_capacity = tokens;
    }
    return true;
}

static void take(struct attn_shard *shard, const attn_pairs *pairs, size_t pair)
{
    const int32_t *const source = pairs->ids + pairs->begin[pair];
    const int32_t *const target = pairs->ids + pairs->middle[pair];
    const int64_t source_length = attn_pairs_source_length(pairs, pair);
    const int64_t target_length = attn_pairs_target_length(pairs, pair);
    const int64_t n = shard->batch.sentences;
    const int64_t from = shard->source_starts[n], to = shard->target_starts[n];
    memcpy(shard->source + from, source, (size_t)source_length * sizeof *source);
    memcpy(shard->target_out + to, target, (size_t)target_length * sizeof *target);
    /* What is fed is what is to be written, one later, after the decoder's start. */
    shard->target_in[to] = ATTN_TOKEN_EOS;
    memcpy(shard->target_in + to + 1, target,
           (size_t)(target_length - 1) * sizeof *target);
    shard->source_starts[n + 1] = from + source_length;
    shard->target_starts[n + 1] = to + target_length;
    shard->batch.sentences = n + 1;
    shard->load += source_length + target_length;
}

/* Each pair goes to the shard with the fewest tokens. */
static attn_status deal(attn_shards *shards, const attn_pairs *pairs, const size_t *list,
                        size_t count, int64_t *target_tokens, attn_error *error)
{
    int64_t source_tokens = 0;
    *target_tokens = 0;
    for (size_t n = 0; n < count; n++) {
        source_tokens += attn_pairs_source_length(pairs, list[n]);
        *target_tokens += attn_pairs_target_length(pairs, list[n]);
    }
    const int64_t most = source_tokens > *target_tokens ? source_tokens : *target_tokens;
    for (size_t s = 0; s < shards->count; s++) {
        struct attn_shard *const shard = &shards->list[s];
        if (!reserve(shard, count, (size_t)most))
            return out_of_memory(error);
        shard->batch = (attn_pair_batch){
            .source = shard->source,
            .source_starts = shard->source_starts,
            .target_in = shard->target_in,
            .target_out = shard->target_out,
            .target_starts = shard->target_starts,
        };
        shard->source_starts[0] = shard->target_starts[0] = 0;
        shard->load = 0;
    }
    for (size_t n = 0; n < count; n++) {
        struct attn_shard *least = &shards->list[0];
        for (size_t s = 1; s < shards->count; s++)
            if (shards->list[s].load < least->load)
                least = &shards->list[s];
        take(least, pairs, list[n]);
    }
    return ATTN_OK;
}

static void run_shard(void *argument, size_t index)
{
    const struct work *const work = argument;
    const attn_shard_task *const task = work->task;
    struct attn_shard *const shard = &work->shards->list[index];
    float *const gradients = work->training ? work->shards->gradients[index] : NULL;
    if (gradients)
        memset(gradients, 0, work->shards->floats * sizeof *gradients);
    shard->smoothed = shard->plain = 0.0;
    attn_tape_begin(shard->tape, work->training, attn_mix(work->seed, index));
    const attn_pass pass = {
        .tape = shard->tape,
        .parameters = task->parameters,
        .gradients = gradients,
        .observer = task->observer,
    };
    attn_tensor *const loss = task->loss(task->user, &pass, index, &shard->plain);
    shard->status = attn_tape_status(shard->tape);
    if (shard->status != ATTN_OK || !loss)
        return;
    shard->smoothed = (double)loss->data[0];
    if (work->training)
        shard->status = attn_tape_backward(shard->tape, loss, 1.0f);
}

attn_status attn_shards_run(attn_shards *shards, const attn_shard_task *task,
                            bool training, uint64_t seed, attn_batch_loss *loss,
                            attn_error *error)
{
    struct work work = {shards, task, training, seed};
    pthreadpool_parallelize_1d(shards->pool, run_shard, &work, shards->count, 0);
    *loss = (attn_batch_loss){0};
    for (size_t s = 0; s < shards->count; s++) {
        const struct attn_shard *const shard = &shards->list[s];
        if (shard->status != ATTN_OK)
            return attn_error_from_context(error, shard->status, shard->context);
        loss->smoothed += shard->smoothed;
        loss->plain += shard->plain;
    }
    return ATTN_OK;
}

static attn_tensor *pairs_loss(void *user, const attn_pass *pass, size_t index,
                               double *plain)
{
    const struct pairs_task *const pairs = user;
    const attn_pair_batch *const batch = &pairs->shards->list[index].batch;
    if (batch->sentences == 0)
        return NULL;
    return attn_translator_loss(pairs->translator, pass, batch, pairs->smoothing,
                                pairs->divisor, plain);
}

static attn_status run_pairs(struct pairs_task *pairs, attn_shard_task *task,
                             int64_t tokens, bool training, uint64_t seed,
                             attn_batch_loss *loss, attn_error *error)
{
    pairs->divisor = (double)tokens;
    task->loss = pairs_loss;
    task->user = pairs;
    ATTN_TRY(attn_shards_run(pairs->shards, task, training, seed, loss, error));
    loss->smoothed *= pairs->divisor;
    loss->tokens = tokens;
    return ATTN_OK;
}

attn_status attn_shards_train(attn_shards *shards, const attn_translator *translator,
                              const attn_parameters *parameters, const attn_pairs *pairs,
                              const size_t *list, size_t count, double smoothing,
                              uint64_t seed, attn_batch_loss *loss, attn_error *error)
{
    struct pairs_task of_pairs = {
        .shards = shards, .translator = translator, .smoothing = (float)smoothing};
    attn_shard_task task = {.parameters = parameters};
    int64_t tokens;
    ATTN_TRY(deal(shards, pairs, list, count, &tokens, error));
    return run_pairs(&of_pairs, &task, tokens, true, seed, loss, error);
}

attn_status attn_shards_measure(attn_shards *shards, const attn_translator *translator,
                                const attn_parameters *parameters,
                                const attn_pairs *pairs, const size_t *list, size_t count,
                                const struct attn_observer *observer,
                                attn_batch_loss *loss, attn_error *error)
{
    struct pairs_task of_pairs = {.shards = shards, .translator = translator};
    attn_shard_task task = {.parameters = parameters, .observer = observer};
    int64_t tokens;
    ATTN_TRY(deal(shards, pairs, list, count, &tokens, error));
    return run_pairs(&of_pairs, &task, tokens, false, 0, loss, error);
}
