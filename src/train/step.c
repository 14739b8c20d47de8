/* The decoder of step.h, its random batch, and its step. */
#include "train/step.h"
#include "base/context.h"
#include "base/mix.h"
#include "model/language.h"
#include "train/optimiser.h"
#include "train/pool.h"
#include "train/shards.h"
#include <math.h>
#include <stdlib.h>

enum { SHARDS = 2 };

static const attn_optimiser_options OPTIMISER = {
    .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1.0};
static const double LEARNING_RATE = 3e-4;

struct attn_step {
    attn_step_options options;
    attn_language *language;
    pthreadpool_t pool;
    attn_shards shards;
    attn_optimiser optimiser;
    int64_t tokens, shard_tokens;
    int64_t *starts; /* [texts of a shard + 1] */
    int32_t *ids, *targets;
    int64_t done;
};

void attn_step_options_init(attn_step_options *options)
{
    *options = (attn_step_options){
        .decoder = {.vocabulary = 8000,
                    .width = 256,
                    .layers = 6,
                    .heads = 4,
                    .key_heads = 4,
                    .inner = 688,
                    .max_positions = 256,
                    .rotary_base = 10000.0,
                    .epsilon = 1e-6f},
        .texts = 16,
        .length = 256,
        .threads = 2,
    };
}

static attn_tensor *shard_loss(void *user, const attn_pass *pass, size_t shard,
                               attn_shard_sums *sums)
{
    const attn_step *const step = user;
    const attn_packing packing = {step->options.texts / SHARDS, step->starts};
    const size_t first = shard * (size_t)step->shard_tokens;
    return attn_language_loss(step->language, pass, step->ids + first,
                              step->targets + first, packing, 0.0f, (double)step->tokens,
                              &sums->plain);
}

static attn_status check_options(const attn_step_options *options, attn_error *error)
{
    if (options->texts > 0 && options->texts % SHARDS == 0 && options->length > 0 &&
        options->length <= options->decoder.max_positions &&
        options->texts <= (INT64_C(1) << 30) / options->length && options->threads > 0)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EINVAL,
                          "training step: %lld texts of %lld tokens on %zu threads, "
                          "expected an even number of texts, 1 to %lld tokens, and a "
                          "thread or more",
                          (long long)options->texts, (long long)options->length,
                          options->threads, (long long)options->decoder.max_positions);
}

static attn_status fill_batch(attn_step *step, attn_error *error)
{
    const size_t shard_texts = (size_t)(step->options.texts / SHARDS);
    const size_t length = (size_t)step->options.length, tokens = (size_t)step->tokens;
    const uint64_t vocabulary = (uint64_t)step->options.decoder.vocabulary;
    step->ids = malloc(tokens * sizeof *step->ids);
    step->targets = malloc(tokens * sizeof *step->targets);
    step->starts = malloc((shard_texts + 1) * sizeof *step->starts);
    if (!step->ids || !step->targets || !step->starts)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu tokens", tokens);
    for (size_t text = 0; text <= shard_texts; text++)
        step->starts[text] = (int64_t)(text * length);
    for (size_t n = 0; n < tokens; n++) {
        /* Each text has one token more than it is fed: the last target. */
        const uint64_t place = n + n / length;
        step->ids[n] = (int32_t)(attn_mix(1, place) % vocabulary);
        step->targets[n] = (int32_t)(attn_mix(1, place + 1) % vocabulary);
    }
    return ATTN_OK;
}

static attn_status prepare(attn_step *step, attn_error *error)
{
    const attn_step_options *const options = &step->options;
    ATTN_TRY(fill_batch(step, error));
    ATTN_TRY(attn_language_create(&step->language, &options->decoder, 1, error));
    const attn_parameters *const parameters = attn_language_parameters(step->language);
    ATTN_TRY(attn_pool_create(&step->pool, options->threads, error));
    ATTN_TRY(
        attn_shards_create(&step->shards, SHARDS, parameters->floats, step->pool, error));
    return attn_optimiser_create(&step->optimiser, &OPTIMISER, parameters, error);
}

attn_status attn_step_create(attn_step **step, const attn_step_options *options,
                             attn_error *error)
{
    *step = NULL;
    ATTN_TRY(check_options(options, error));
    attn_step *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for a training");
    created->options = *options;
    created->tokens = options->texts * options->length;
    created->shard_tokens = created->tokens / SHARDS;
    const attn_status status = prepare(created, error);
    if (status != ATTN_OK) {
        attn_step_destroy(created);
        return status;
    }
    *step = created;
    return ATTN_OK;
}

void attn_step_destroy(attn_step *step)
{
    if (!step)
        return;
    attn_optimiser_free(&step->optimiser);
    attn_shards_free(&step->shards);
    if (step->pool)
        pthreadpool_destroy(step->pool);
    attn_language_destroy(step->language);
    free(step->starts);
    free(step->ids);
    free(step->targets);
    free(step);
}

attn_status attn_step_run(attn_step *step, double *loss, attn_error *error)
{
    attn_parameters *const parameters = attn_language_parameters(step->language);
    const attn_shard_work work = {
        .parameters = parameters, .loss = shard_loss, .user = step};
    attn_batch_loss sum;
    ATTN_TRY(attn_shards_run(&step->shards, &work, true, 0, &sum, error));
    const double norm = attn_optimiser_reduce(&step->optimiser, step->pool,
                                              step->shards.gradients, SHARDS);
    if (!isfinite(sum.smoothed) || !isfinite(norm))
        return attn_error_set(error, ATTN_ENOTFINITE,
                              "the loss is %g and the norm of its gradient %g, expected "
                              "finite numbers",
                              sum.smoothed, norm);
    step->done++;
    attn_optimiser_step(&step->optimiser, step->pool, parameters->values,
                        step->shards.gradients[0], norm, LEARNING_RATE, step->done);
    *loss = sum.smoothed;
    return ATTN_OK;
}

int64_t attn_step_tokens(const attn_step *step)
{
    return step->tokens;
}

int64_t attn_step_parameters(const attn_step *step)
{
    return (int64_t)attn_parameters_count(attn_language_parameters(step->language));
}
