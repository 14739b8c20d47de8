/* attn_decode: the problem that attn_forward would be given, with the cache in place of
 * key and value. */
#include "attention/cache.h"
#include "attention/forward.h"

int64_t attn_cached_length(const struct attn_cached *cached, int64_t index)
{
    return attn_cache_find(cached->cache, cached->batch->sequences[index])->length;
}

/* A problem and all that it points to. */
struct call {
    const char *function;
    attn_shape shape;
    attn_tensors tensors;
    struct attn_cached cached;
    struct attn_problem problem;
    struct attn_forward forward;
};

static attn_status refuse(attn_context *context, const struct call *call,
                          const char *what)
{
    return attn_context_fail(context, ATTN_EUNSUPPORTED,
                             "%s: %s is given, expected none: a cache has no use for it",
                             call->function, what);
}

static attn_status check_options(attn_context *context, const struct call *call,
                                 const attn_tensors *tensors, const attn_options *options)
{
    const struct {
        const char *name;
        bool given;
    } refused[] = {
        {"tensors.key", tensors->key.data != NULL},
        {"tensors.value", tensors->value.data != NULL},
        {"options.dropout", options->dropout != 0.0},
        {"options.additive", options->additive != NULL},
        {"options.score ATTN_SCORE_LINEAR", options->score == ATTN_SCORE_LINEAR},
        {"options.query_lengths", options->query_lengths != NULL},
        {"options.key_lengths", options->key_lengths != NULL},
        {"options.query_starts", options->query_starts != NULL},
        {"options.key_starts", options->key_starts != NULL},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].given)
            return refuse(context, call, refused[i].name);
    return ATTN_OK;
}

static attn_status check_batch(attn_context *context, struct call *call,
                               const attn_cache *cache, const attn_batch *batch)
{
    struct attn_cached_sequence *found = NULL;
    if (batch->count < 0 || batch->count > INT32_MAX)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: batch.count is %lld, expected 0 to %d",
                                 call->function, (long long)batch->count, INT32_MAX);
    if (batch->count > 0)
        ATTN_TRY(attn_check_given(context, call->function, "batch.sequences",
                                  batch->sequences));
    for (int64_t i = 0; i < batch->count; i++) {
        ATTN_TRY(attn_cache_look_up(context, cache, call->function, batch->sequences[i],
                                    &found));
        if (found->length > call->shape.Lk)
            call->shape.Lk = found->length;
    }
    return ATTN_OK;
}

static attn_status init(struct call *call, attn_context *context, const attn_cache *cache,
                        const attn_batch *batch, const attn_tensors *tensors,
                        const attn_options *options)
{
    ATTN_TRY(attn_check_given(context, call->function, "cache", cache));
    ATTN_TRY(attn_check_given(context, call->function, "batch", batch));
    ATTN_TRY(attn_check_given(context, call->function, "tensors", tensors));
    ATTN_TRY(attn_check_given(context, call->function, "options", options));
    const attn_cache_options *const o = &cache->options;
    call->shape = (attn_shape){
        .B = batch->count, .H = batch->H, .Hk = o->Hk, .Lq = 1, .D = o->D, .Dv = o->Dv};
    ATTN_TRY(check_options(context, call, tensors, options));
    ATTN_TRY(check_batch(context, call, cache, batch));
    call->tensors = *tensors;
    /* Only that there are some matters: decoding asks the cache. */
    call->tensors.key = call->tensors.value = (attn_input){.data = cache->memory};
    call->cached = (struct attn_cached){cache, batch};
    ATTN_TRY(attn_problem_init(&call->problem, context, call->function, &call->shape,
                               &call->tensors, options,
                               ATTN_NEEDS_VALUE | ATTN_NEEDS_OUTPUT));
    call->problem.cached = &call->cached;
    ATTN_TRY(attn_check_statistics(context, call->function, &call->problem));
    return attn_forward_layout(&call->forward, context, &call->problem);
}

attn_status attn_plan_decode(attn_context *context, const attn_cache *cache,
                             const attn_batch *batch, const attn_tensors *tensors,
                             const attn_options *options, attn_plan *plan)
{
    struct call call = {.function = "attn_plan_decode"};
    ATTN_TRY(attn_check_given(context, call.function, "plan", plan));
    ATTN_TRY(init(&call, context, cache, batch, tensors, options));
    attn_forward_plan(&call.forward, plan);
    return ATTN_OK;
}

attn_status attn_decode(attn_context *context, const attn_cache *cache,
                        const attn_batch *batch, const attn_tensors *tensors,
                        const attn_options *options)
{
    struct call call = {.function = "attn_decode"};
    ATTN_TRY(init(&call, context, cache, batch, tensors, options));
    return attn_forward_run(&call.forward, context);
}
