/* Checkpoints: one safetensors file. */
#include "train/checkpoint.h"
#include "base/context.h"
#include "file/safetensors.h"
#include "train/recipe.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 4, NUMBER_BYTES = 40 };

static const char *const NAMES[ARRAYS] = {"values", "first_moment", "second_moment",
                                          "average"};

static void list_arrays(float *arrays[ARRAYS], const attn_parameters *parameters,
                        const attn_optimiser *optimiser)
{
    arrays[0] = parameters->values;
    arrays[1] = optimiser->first;
    arrays[2] = optimiser->second;
    arrays[3] = optimiser->average; /* or NULL */
}

attn_status attn_checkpoint_save(const char *path, const attn_parameters *parameters,
                                 const attn_optimiser *optimiser,
                                 const attn_position *position,
                                 const attn_checkpoint_identity *identity,
                                 attn_error *error)
{
    float *arrays[ARRAYS];
    list_arrays(arrays, parameters, optimiser);
    attn_safetensors_entry entries[ARRAYS];
    size_t count = 0;
    for (size_t n = 0; n < ARRAYS; n++)
        if (arrays[n])
            entries[count++] = (attn_safetensors_entry){
                .name = NAMES[n],
                .dtype = ATTN_DTYPE_F32,
                .rank = 1,
                .extent = {(int64_t)parameters->floats},
                .data = arrays[n],
            };
    char step[NUMBER_BYTES], epoch[NUMBER_BYTES], batch[NUMBER_BYTES];
    char tokens[NUMBER_BYTES], seconds[NUMBER_BYTES], data[NUMBER_BYTES];
    snprintf(step, sizeof step, "%" PRId64, position->step);
    snprintf(epoch, sizeof epoch, "%" PRId64, position->epoch);
    snprintf(batch, sizeof batch, "%" PRId64, position->batch);
    snprintf(tokens, sizeof tokens, "%" PRId64, position->target_tokens);
    snprintf(seconds, sizeof seconds, "%.3f", position->seconds);
    snprintf(data, sizeof data, "%016" PRIx64, identity->data);
    const attn_safetensors_note notes[] = {
        {"format", "attn checkpoint 1"},
        {"recipe", identity->recipe},
        {"data", data},
        {"step", step},
        {"epoch", epoch},
        {"batch", batch},
        {"target_tokens", tokens},
        {"seconds", seconds},
    };
    return attn_safetensors_write(path, entries, count, notes,
                                  sizeof notes / sizeof notes[0], error);
}

/* Numbers that __metadata__ keeps of a position. */
enum { STEP, EPOCH, BATCH, TARGET_TOKENS, SECONDS, NUMBERS };

static const char *const NUMBER_NAMES[NUMBERS] = {"step", "epoch", "batch",
                                                  "target_tokens", "seconds"};

static attn_status read_position(const attn_safetensors *file, const char *path,
                                 attn_position *position, attn_error *error)
{
    double numbers[NUMBERS] = {0.0};
    for (size_t n = 0; n < NUMBERS; n++) {
        const char *const text = attn_safetensors_metadata(file, NUMBER_NAMES[n]);
        char *end = NULL;
        if (text)
            numbers[n] = strtod(text, &end);
        /* 2^53: what a double counts exactly. */
        if (!text || end == text || *end ||
            !(numbers[n] >= 0.0 && numbers[n] <= 9007199254740992.0))
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: its %s is %s, expected a number of at least 0",
                                  path, NUMBER_NAMES[n], text ? text : "missing");
    }
    *position = (attn_position){
        .step = (int64_t)numbers[STEP],
        .epoch = (int64_t)numbers[EPOCH],
        .batch = (int64_t)numbers[BATCH],
        .target_tokens = (int64_t)numbers[TARGET_TOKENS],
        .seconds = numbers[SECONDS],
    };
    return ATTN_OK;
}

static attn_status check_identity(const attn_safetensors *file, const char *path,
                                  const attn_checkpoint_identity *identity, bool changed,
                                  attn_error *error)
{
    const char *const format = attn_safetensors_metadata(file, "format");
    const char *const recipe = attn_safetensors_metadata(file, "recipe");
    const char *const data = attn_safetensors_metadata(file, "data");
    if (!format || strcmp(format, "attn checkpoint 1") != 0 || !recipe || !data)
        return attn_error_set(
            error, ATTN_EFORMAT,
            "%s: its format is %s, expected \"attn checkpoint 1\" with a "
            "recipe",
            path, format ? format : "missing");
    attn_error difference;
    bool structure;
    const attn_status same =
        attn_recipe_compare(recipe, identity->recipe, &structure, &difference);
    if (same != ATTN_OK && (structure || !changed))
        return attn_error_set(error, same, "%s was made by another recipe: %s", path,
                              difference.message);
    char own[NUMBER_BYTES];
    snprintf(own, sizeof own, "%016" PRIx64, identity->data);
    if (strcmp(data, own) != 0)
        return attn_error_set(
            error, ATTN_EINVAL,
            "%s was made from other training data or another tokenizer: "
            "their hash was %s and is %s",
            path, data, own);
    return ATTN_OK;
}

static attn_status check_array(const attn_safetensors *file, const char *path,
                               const char *name, size_t floats, attn_error *error)
{
    const attn_safetensor *const tensor = attn_safetensors_find(file, name);
    if (!tensor)
        return attn_error_set(error, ATTN_EFORMAT, "%s: it has no tensor %s", path, name);
    if (tensor->dtype != ATTN_DTYPE_F32 || tensor->count != floats)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: %s has %zu elements, expected %zu of F32", path, name,
                              tensor->count, floats);
    return ATTN_OK;
}

static attn_status load(const attn_safetensors *file, const char *path,
                        attn_parameters *parameters, attn_optimiser *optimiser,
                        attn_position *position, attn_error *error)
{
    float *arrays[ARRAYS];
    attn_position read;
    list_arrays(arrays, parameters, optimiser);
    /* A training that begins to average starts from the weights. */
    const bool starts_average = arrays[3] && !attn_safetensors_find(file, NAMES[3]);
    const size_t count = arrays[3] && !starts_average ? ARRAYS : ARRAYS - 1;
    for (size_t n = 0; n < count; n++)
        ATTN_TRY(check_array(file, path, NAMES[n], parameters->floats, error));
    ATTN_TRY(read_position(file, path, &read, error));
    for (size_t n = 0; n < count; n++)
        memcpy(arrays[n], attn_safetensors_find(file, NAMES[n])->data,
               parameters->floats * sizeof(float));
    if (starts_average)
        memcpy(arrays[3], arrays[0], parameters->floats * sizeof(float));
    *position = read;
    return ATTN_OK;
}

attn_status attn_checkpoint_load(const char *path, attn_parameters *parameters,
                                 attn_optimiser *optimiser, attn_position *position,
                                 const attn_checkpoint_identity *identity, bool changed,
                                 attn_error *error)
{
    attn_safetensors *file;
    ATTN_TRY(attn_safetensors_open(&file, path, error));
    attn_status status = check_identity(file, path, identity, changed, error);
    if (status == ATTN_OK)
        status = load(file, path, parameters, optimiser, position, error);
    attn_safetensors_close(file);
    return status;
}
