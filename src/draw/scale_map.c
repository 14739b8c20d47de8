/* Maps and their tiles. */
#include "draw/scale_map.h"
#include "inspect/sentence.h"
#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void put_label(attn_buffer *buffer, const attn_map_side *side,
                      const attn_record_words *words, int64_t index)
{
    const int64_t first = index * side->tile;
    const int64_t last = smaller(first + side->tile, side->words) - 1;
    if (side->tile == 1)
        attn_put_word(buffer, &words->list[first], ATTN_SPELL_PLAIN);
    else if (first == last)
        attn_buffer_print(buffer, "%lld", (long long)first + 1);
    else
        attn_buffer_print(buffer, "%lld–%lld", (long long)first + 1, (long long)last + 1);
}

attn_status attn_map_side_create(attn_map_side *side, const attn_record_words *words,
                                 attn_error *error)
{
    const int64_t n = words->length;
    *side = (attn_map_side){
        .words = n,
        .tile = n <= ATTN_MAP_EXACT ? 1 : (n + ATTN_MAP_TILES - 1) / ATTN_MAP_TILES};
    const int64_t length = (n + side->tile - 1) / side->tile;
    side->labels = calloc((size_t)length + 1, sizeof *side->labels);
    side->special = calloc((size_t)length + 1, sizeof *side->special);
    if (!side->labels || !side->special) {
        attn_map_side_destroy(side);
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %lld labels",
                              (long long)length);
    }
    side->length = length;
    for (int64_t i = 0; i < length; i++) {
        attn_buffer buffer = {0};
        put_label(&buffer, side, words, i);
        size_t bytes;
        const attn_status status =
            attn_buffer_take(&buffer, &side->labels[i], &bytes, error);
        if (status != ATTN_OK) {
            attn_map_side_destroy(side);
            return status;
        }
        side->special[i] = true;
        for (int64_t j = i * side->tile; j < smaller((i + 1) * side->tile, n); j++)
            side->special[i] = side->special[i] && words->list[j].special;
    }
    return ATTN_OK;
}

void attn_map_side_destroy(attn_map_side *side)
{
    for (int64_t i = 0; i < side->length; i++)
        free(side->labels[i]);
    free(side->labels);
    free(side->special);
    *side = (attn_map_side){0};
}

double attn_map_weight(const attn_record_part *part, int64_t layer, int64_t head,
                       int64_t row, int64_t key)
{
    const int64_t cell = row * part->keys->length + key;
    if (head >= 0)
        return (double)attn_record_weights(part, layer, head)[cell];
    double sum = 0;
    for (int64_t h = 0; h < part->heads; h++)
        sum += (double)attn_record_weights(part, layer, h)[cell];
    return sum / (double)part->heads;
}

void attn_map_weights(float *out, const attn_record_part *part, int64_t layer,
                      int64_t head, const attn_map_side *rows, const attn_map_side *keys)
{
    memset(out, 0, (size_t)(rows->length * keys->length) * sizeof *out);
    for (int64_t i = 0; i < rows->words; i++)
        for (int64_t j = 0; j < keys->words; j++) {
            float *tile = &out[i / rows->tile * keys->length + j / keys->tile];
            const float weight = (float)attn_map_weight(part, layer, head, i, j);
            if (weight > *tile)
                *tile = weight;
        }
}

bool attn_map_unseen(const attn_record_part *part, const attn_map_side *rows, int64_t row,
                     const attn_map_side *keys, int64_t key)
{
    const int64_t last_row = smaller((row + 1) * rows->tile, rows->words) - 1;
    return attn_record_visible(part, last_row) <= key * keys->tile;
}
