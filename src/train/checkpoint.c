/* Checkpoints: one safetensors file. */
#include "train/checkpoint.h"
#include "base/context.h"
#include "base/mix.h"
#include "file/safetensors.h"
#include "train/recipe.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES, FIRST, SECOND, AVERAGE, BEST, ARRAYS, NUMBER_BYTES = 40 };

static const char *const NAMES[ARRAYS] = {"values", "first_moment", "second_moment",
                                          "average", "best"};

/* The last two may be NULL. */
static void list_arrays(float *arrays[ARRAYS], const attn_checkpoint *checkpoint)
{
    arrays[VALUES] = checkpoint->parameters->values;
    arrays[FIRST] = checkpoint->optimiser->first;
    arrays[SECOND] = checkpoint->optimiser->second;
    arrays[AVERAGE] = checkpoint->optimiser->average;
    arrays[BEST] = checkpoint->best;
}

/* Numbers that __metadata__ keeps of a position; the last two are there after a
 * validation. */
enum { STEP, EPOCH, BATCH, TARGET_TOKENS, SECONDS, BEST_LOSS, WAITED, NUMBERS };

static const char *const NUMBER_NAMES[NUMBERS] = {
    "step", "epoch", "batch", "target_tokens", "seconds", "best_loss", "waited"};

static void spell_position(char out[NUMBERS][NUMBER_BYTES], const attn_position *position)
{
    const int64_t whole[NUMBERS] = {[STEP] = position->step,
                                    [EPOCH] = position->epoch,
                                    [BATCH] = position->batch,
                                    [TARGET_TOKENS] = position->target_tokens,
                                    [WAITED] = position->waited};
    for (size_t n = 0; n < NUMBERS; n++)
        snprintf(out[n], NUMBER_BYTES, "%" PRId64, whole[n]);
    snprintf(out[SECONDS], NUMBER_BYTES, "%.3f", position->seconds);
    snprintf(out[BEST_LOSS], NUMBER_BYTES, "%.17g", position->best_loss);
}

/* Of everything a training goes on with: a byte that changed on the disk would else go
 * on as a weight.  Tensors and numbers that are not there are NULL. */
static uint64_t hash_content(const float *const arrays[ARRAYS], size_t floats,
                             const char *const numbers[NUMBERS])
{
    uint64_t hash = ATTN_MIX_HASH;
    for (size_t a = 0; a < ARRAYS; a++) {
        hash = attn_mix_hash(hash, arrays[a] ? floats : 0);
        for (size_t n = 0; arrays[a] && n < floats; n++) {
            uint32_t word;
            memcpy(&word, &arrays[a][n], sizeof word);
            hash = attn_mix_hash(hash, word);
        }
    }
    for (size_t n = 0; n < NUMBERS; n++)
        for (const char *c = numbers[n]; c && *c; c++)
            hash = attn_mix_hash(hash, (unsigned char)*c);
    return hash;
}

attn_status attn_checkpoint_save(const char *path, const attn_checkpoint *checkpoint,
                                 const attn_checkpoint_identity *identity,
                                 attn_error *error)
{
    float *arrays[ARRAYS];
    attn_safetensors_entry entries[ARRAYS];
    char data[NUMBER_BYTES], content[NUMBER_BYTES], numbers[NUMBERS][NUMBER_BYTES];
    const char *spelled[NUMBERS] = {NULL};
    size_t count = 0;
    list_arrays(arrays, checkpoint);
    for (size_t n = 0; n < ARRAYS; n++)
        if (arrays[n])
            entries[count++] = (attn_safetensors_entry){
                .name = NAMES[n],
                .dtype = ATTN_DTYPE_F32,
                .rank = 1,
                .extent = {(int64_t)checkpoint->parameters->floats},
                .data = arrays[n],
            };
    snprintf(data, sizeof data, "%016" PRIx64, identity->data);
    attn_safetensors_note notes[4 + NUMBERS] = {{"format", "attn checkpoint 1"},
                                                {"recipe", identity->recipe},
                                                {"data", data},
                                                {"content", content}};
    spell_position(numbers, checkpoint->position);
    const bool is_validated = isfinite(checkpoint->position->best_loss);
    const size_t kept = is_validated ? NUMBERS : BEST_LOSS;
    for (size_t n = 0; n < kept; n++) {
        notes[4 + n] = (attn_safetensors_note){NUMBER_NAMES[n], numbers[n]};
        spelled[n] = numbers[n];
    }
    snprintf(content, sizeof content, "%016" PRIx64,
             hash_content((const float *const *)arrays, checkpoint->parameters->floats,
                          spelled));
    return attn_safetensors_write(path, entries, count, notes, 4 + kept, error);
}

static attn_status read_position(const attn_safetensors *file, const char *path,
                                 attn_position *position, attn_error *error)
{
    double numbers[NUMBERS] = {[BEST_LOSS] = (double)INFINITY};
    for (size_t n = 0; n < NUMBERS; n++) {
        const char *const text = attn_safetensors_metadata(file, NUMBER_NAMES[n]);
        char *end = NULL;
        if (!text && n >= BEST_LOSS)
            continue;
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
        .best_loss = numbers[BEST_LOSS],
        .waited = (int64_t)numbers[WAITED],
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
        return attn_error_set(error, same, "%s was made by another recipe: %s (%s)", path,
                              difference.message,
                              structure ? "--out another folder starts anew"
                                        : "--changed goes on all the same");
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

/* Checkpoints of before have no hash of their content. */
static attn_status check_content(const attn_safetensors *file, const char *path,
                                 size_t floats, attn_error *error)
{
    const char *const content = attn_safetensors_metadata(file, "content");
    const float *arrays[ARRAYS] = {NULL};
    const char *numbers[NUMBERS];
    char own[NUMBER_BYTES];
    for (size_t n = 0; n < NUMBERS; n++)
        numbers[n] = attn_safetensors_metadata(file, NUMBER_NAMES[n]);
    for (size_t n = 0; n < ARRAYS; n++) {
        if (!attn_safetensors_find(file, NAMES[n]))
            continue;
        ATTN_TRY(check_array(file, path, NAMES[n], floats, error));
        arrays[n] = attn_safetensors_find(file, NAMES[n])->data;
    }
    snprintf(own, sizeof own, "%016" PRIx64, hash_content(arrays, floats, numbers));
    if (!content || strcmp(content, own) == 0)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT,
                          "%s is damaged: the hash of its content was %s and is %s", path,
                          content, own);
}

static attn_status load(const attn_safetensors *file, const char *path,
                        const attn_checkpoint *checkpoint, attn_error *error)
{
    const size_t floats = checkpoint->parameters->floats;
    float *arrays[ARRAYS];
    attn_position read;
    list_arrays(arrays, checkpoint);
    ATTN_TRY(check_content(file, path, floats, error));
    ATTN_TRY(read_position(file, path, &read, error));
    /* A training that begins to average starts from the weights, one that begins to keep
     * the best from none. */
    const bool starts_average =
        arrays[AVERAGE] && !attn_safetensors_find(file, NAMES[AVERAGE]);
    if (starts_average)
        arrays[AVERAGE] = NULL;
    if (arrays[BEST] && !attn_safetensors_find(file, NAMES[BEST])) {
        arrays[BEST] = NULL;
        read.best_loss = (double)INFINITY;
    }
    for (size_t n = 0; n < ARRAYS; n++)
        if (arrays[n])
            ATTN_TRY(check_array(file, path, NAMES[n], floats, error));
    for (size_t n = 0; n < ARRAYS; n++)
        if (arrays[n])
            memcpy(arrays[n], attn_safetensors_find(file, NAMES[n])->data,
                   floats * sizeof(float));
    if (starts_average)
        memcpy(checkpoint->optimiser->average, arrays[VALUES], floats * sizeof(float));
    *checkpoint->position = read;
    return ATTN_OK;
}

attn_status attn_checkpoint_load(const char *path, const attn_checkpoint *checkpoint,
                                 const attn_checkpoint_identity *identity, bool changed,
                                 attn_error *error)
{
    attn_safetensors *file;
    ATTN_TRY(attn_safetensors_open(&file, path, error));
    attn_status status = check_identity(file, path, identity, changed, error);
    if (status == ATTN_OK)
        status = load(file, path, checkpoint, error);
    attn_safetensors_close(file);
    return status;
}
