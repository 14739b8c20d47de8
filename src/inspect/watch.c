/* Weights between tokens, as a pass tells them, become weights between words. */
#include "inspect/watch.h"
#include <math.h>
#include <stdlib.h>

attn_status attn_watch_add(attn_watch *watch, attn_record *record, attn_part kind,
                           int64_t layers, int64_t heads, const attn_joining *rows,
                           const attn_joining *keys, attn_error *error)
{
    watch->rows[kind] = rows;
    watch->keys[kind] = keys;
    return attn_record_add_part(record, kind, layers, heads, &watch->parts[kind], error);
}

static bool make_room(attn_watch *watch, size_t floats)
{
    if (floats <= watch->capacity)
        return true;
    free(watch->weights);
    watch->weights = malloc(floats * sizeof *watch->weights);
    watch->capacity = watch->weights ? floats : 0;
    return watch->weights != NULL;
}

static attn_status keep_head(attn_watch *watch, const attn_observation *seen, int64_t h)
{
    attn_record_part *const part = watch->parts[seen->part];
    const attn_joining *const rows = watch->rows[seen->part];
    const attn_joining *const keys = watch->keys[seen->part];
    const attn_statistics *const statistics = &seen->tensors->statistics;
    const int64_t row_words = part->rows->length, key_words = part->keys->length;
    const int64_t head = seen->layer * part->heads + h;
    const attn_rectangle all = {.h = h, .queries = rows->tokens, .keys = keys->tokens};
    const attn_status status =
        attn_weights(seen->context, seen->shape, seen->tensors, seen->options, &all,
                     watch->weights, keys->tokens);
    if (status != ATTN_OK)
        return status;
    for (int64_t n = 0; n < rows->tokens * keys->tokens; n++)
        if (isnan(watch->weights[n]))
            return ATTN_ENOTFINITE;
    attn_join_weights(part->weights + head * row_words * key_words, key_words,
                      watch->weights, rows, keys);
    attn_join_entropies(part->row_entropy + head * row_words,
                        statistics->entropy + h * rows->tokens,
                        statistics->visible_keys + h * rows->tokens, rows, row_words);
    return ATTN_OK;
}

attn_status attn_watch_keep(void *user, const attn_observation *seen)
{
    attn_watch *const watch = user;
    const attn_record_part *const part = watch->parts[seen->part];
    if (part == NULL || seen->layer >= part->layers || seen->shape->H != part->heads ||
        seen->shape->Lq != watch->rows[seen->part]->tokens ||
        seen->shape->Lk != watch->keys[seen->part]->tokens)
        return ATTN_EINVAL;
    if (!make_room(watch, (size_t)(seen->shape->Lq * seen->shape->Lk) + 1))
        return ATTN_ENOMEM;
    for (int64_t h = 0; h < part->heads; h++) {
        const attn_status status = keep_head(watch, seen, h);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

void attn_watch_end(attn_watch *watch)
{
    for (int kind = 0; kind < ATTN_RECORD_PARTS; kind++)
        if (watch->parts[kind] != NULL)
            attn_record_part_average(watch->parts[kind]);
}

void attn_watch_free(attn_watch *watch)
{
    free(watch->weights);
    *watch = (attn_watch){0};
}
