/* AdamW in two sweeps over memory: one sums gradients and their squares, one updates. Per
 * parameter a step reads and writes some 60 bytes and is bound by memory, not arithmetic;
 * loops are plain so that the compiler turns them into vectors. */
#include "train/optimiser.h"
#include "base/pages.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 16k floats of five arrays are 320 kB: inside a core's second cache. */
enum { CHUNK_FLOATS = 16384, LANES = 16 };

struct attn_optimiser_chunk {
    size_t offset, count;
    bool decays;
};

struct reduction {
    attn_optimiser *optimiser;
    float *const *gradients;
    size_t shards;
};

struct update {
    attn_optimiser *optimiser;
    float *values;
    const float *gradient;
    float scale;                   /* of the gradient, by clipping */
    float keep_first, keep_second; /* β₁, β₂ */
    float rate, epsilon;           /* with the corrections of the moments' bias */
    float decay;                   /* rate·decay */
    float follow;                  /* 1 − d */
};

float *attn_floats_allocate(size_t floats)
{
    const size_t bytes = floats * sizeof(float);
    float *const memory = attn_pages_allocate(bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static size_t chunks_of(const attn_parameter *parameter)
{
    return (parameter->count + CHUNK_FLOATS - 1) / CHUNK_FLOATS;
}

static void cut_chunks(attn_optimiser *optimiser, const attn_parameters *parameters)
{
    struct attn_optimiser_chunk *chunk = optimiser->chunks;
    for (size_t p = 0; p < parameters->length; p++) {
        const attn_parameter *const parameter = &parameters->list[p];
        for (size_t at = 0; at < parameter->count; at += CHUNK_FLOATS) {
            const size_t left = parameter->count - at;
            *chunk++ = (struct attn_optimiser_chunk){
                .offset = parameter->offset + at,
                .count = left < CHUNK_FLOATS ? left : CHUNK_FLOATS,
                .decays = parameter->decays,
            };
        }
    }
}

attn_status attn_optimiser_create(attn_optimiser *optimiser,
                                  const attn_optimiser_options *options,
                                  const attn_parameters *parameters, attn_error *error)
{
    size_t chunk_count = 0;
    for (size_t p = 0; p < parameters->length; p++)
        chunk_count += chunks_of(&parameters->list[p]);
    *optimiser = (attn_optimiser){
        .options = *options,
        .first = attn_floats_allocate(parameters->floats),
        .second = attn_floats_allocate(parameters->floats),
        .average =
            options->average > 0.0 ? attn_floats_allocate(parameters->floats) : NULL,
        .floats = parameters->floats,
        .chunk_count = chunk_count,
        .chunks = calloc(chunk_count + 1, sizeof *optimiser->chunks),
        .squares = calloc(chunk_count + 1, sizeof *optimiser->squares),
    };
    if (!optimiser->first || !optimiser->second || !optimiser->chunks ||
        !optimiser->squares || (options->average > 0.0 && !optimiser->average)) {
        attn_optimiser_free(optimiser);
        return attn_error_set(error, ATTN_ENOMEM,
                              "out of memory for the moments of %zu parameters",
                              parameters->floats);
    }
    cut_chunks(optimiser, parameters);
    if (optimiser->average)
        memcpy(optimiser->average, parameters->values,
               parameters->floats * sizeof *parameters->values);
    return ATTN_OK;
}

void attn_optimiser_free(attn_optimiser *optimiser)
{
    free(optimiser->first);
    free(optimiser->second);
    free(optimiser->average);
    free(optimiser->chunks);
    free(optimiser->squares);
    *optimiser = (attn_optimiser){0};
}

static void add(float *restrict sum, const float *restrict more, size_t count)
{
    for (size_t n = 0; n < count; n++)
        sum[n] += more[n];
}

/* Sixteen running sums of at most 1024 squares each, then doubles: error under 1e-4 of
 * the sum, and any compiler's vectors give the same bits. */
static double sum_of_squares(const float *x, size_t count)
{
    float lanes[LANES] = {0.0f};
    size_t n = 0;
    for (; n + LANES <= count; n += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += x[n + lane] * x[n + lane];
    double sum = 0.0;
    for (size_t lane = 0; lane < LANES; lane++)
        sum += (double)lanes[lane];
    for (; n < count; n++)
        sum += (double)x[n] * (double)x[n];
    return sum;
}

float *attn_gradients_sum(float *const *gradients, size_t shards, size_t first,
                          size_t count)
{
    float *const sum = gradients[0] + first;
    for (size_t shard = 1; shard < shards; shard++)
        add(sum, gradients[shard] + first, count);
    return sum;
}

static void reduce_chunk(void *argument, size_t index)
{
    const struct reduction *const reduction = argument;
    const struct attn_optimiser_chunk *const chunk = &reduction->optimiser->chunks[index];
    const float *const sum = attn_gradients_sum(reduction->gradients, reduction->shards,
                                                chunk->offset, chunk->count);
    reduction->optimiser->squares[index] = sum_of_squares(sum, chunk->count);
}

double attn_optimiser_reduce(attn_optimiser *optimiser, pthreadpool_t pool,
                             float *const *gradients, size_t shards)
{
    struct reduction reduction = {optimiser, gradients, shards};
    pthreadpool_parallelize_1d(pool, reduce_chunk, &reduction, optimiser->chunk_count, 0);
    double sum = 0.0;
    for (size_t n = 0; n < optimiser->chunk_count; n++)
        sum += optimiser->squares[n];
    return sqrt(sum);
}

static void move(float *restrict values, float *restrict first, float *restrict second,
                 const float *restrict gradient, size_t count,
                 const struct update *update, float decay)
{
    const float keep_first = update->keep_first, keep_second = update->keep_second;
    const float scale = update->scale, rate = update->rate, epsilon = update->epsilon;
    for (size_t n = 0; n < count; n++) {
        const float g = gradient[n] * scale;
        first[n] = keep_first * first[n] + (1.0f - keep_first) * g;
        second[n] = keep_second * second[n] + (1.0f - keep_second) * (g * g);
        values[n] -= rate * first[n] / (sqrtf(second[n]) + epsilon) + decay * values[n];
    }
}

static void follow(float *restrict average, const float *restrict values, size_t count,
                   float part)
{
    for (size_t n = 0; n < count; n++)
        average[n] += part * (values[n] - average[n]);
}

static void update_chunk(void *argument, size_t index)
{
    const struct update *const update = argument;
    const attn_optimiser *const optimiser = update->optimiser;
    const struct attn_optimiser_chunk *const chunk = &optimiser->chunks[index];
    const size_t at = chunk->offset;
    move(update->values + at, optimiser->first + at, optimiser->second + at,
         update->gradient + at, chunk->count, update,
         chunk->decays ? update->decay : 0.0f);
    if (optimiser->average)
        follow(optimiser->average + at, update->values + at, chunk->count,
               update->follow);
}

void attn_optimiser_step(attn_optimiser *optimiser, pthreadpool_t pool, float *values,
                         const float *gradient, double norm, double rate, int64_t step)
{
    const attn_optimiser_options *const options = &optimiser->options;
    const double t = (double)step;
    const double second_bias = sqrt(1.0 - pow(options->beta2, t));
    const double kept = fmin(options->average, (1.0 + t) / (10.0 + t));
    const bool clips = options->clip > 0.0 && norm > options->clip;
    struct update update = {
        .optimiser = optimiser,
        .values = values,
        .gradient = gradient,
        .scale = clips ? (float)(options->clip / norm) : 1.0f,
        .keep_first = (float)options->beta1,
        .keep_second = (float)options->beta2,
        .rate = (float)(rate * second_bias / (1.0 - pow(options->beta1, t))),
        .epsilon = (float)(options->epsilon * second_bias),
        .decay = (float)(rate * options->weight_decay),
        .follow = (float)(1.0 - kept),
    };
    pthreadpool_parallelize_1d(pool, update_chunk, &update, optimiser->chunk_count, 0);
}
