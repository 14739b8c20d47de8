/* Rows that are kept.  Dropping by what was received is H2O's (Zhang et al. 2023): a
 * token that many queries looked at is likely to be looked at again. */
#include "model/language_rows.h"
#include <stdlib.h>
#include <string.h>

attn_status attn_language_rows_create(attn_language_rows *rows,
                                      const attn_language_config *config,
                                      int64_t capacity, bool wants_received)
{
    const int64_t width = config->width / config->heads;
    const size_t bytes = (size_t)(capacity * config->key_heads * width) * sizeof(float);
    *rows = (attn_language_rows){
        .heads = config->heads, .key_heads = config->key_heads, .width = width};
    rows->key = malloc(bytes);
    rows->value = malloc(bytes);
    if (config->forgets)
        rows->log_forget = malloc((size_t)(capacity * config->heads) * sizeof(float));
    if (wants_received)
        rows->received = malloc((size_t)(capacity * config->key_heads) * sizeof(float));
    return rows->key && rows->value && (rows->log_forget || !config->forgets) &&
                   (rows->received || !wants_received)
               ? ATTN_OK
               : ATTN_ENOMEM;
}

void attn_language_rows_free(attn_language_rows *rows)
{
    free(rows->key);
    free(rows->value);
    free(rows->log_forget);
    free(rows->received);
}

void attn_language_rows_receive(attn_language_rows *rows, const float *received,
                                int64_t before, int64_t added)
{
    const int64_t key_heads = rows->key_heads, count = before + added;
    const int64_t group = rows->heads / key_heads;
    memset(rows->received + before * key_heads, 0,
           (size_t)(added * key_heads) * sizeof(float));
    for (int64_t head = 0; head < rows->heads; head++)
        for (int64_t row = 0; row < count; row++)
            rows->received[row * key_heads + head / group] +=
                received[head * count + row];
}

static int64_t row_to_drop(const attn_language_rows *rows, int64_t head, int64_t first,
                           int64_t candidates)
{
    int64_t least = first;
    for (int64_t row = first + 1; rows->received && row < first + candidates; row++)
        if (rows->received[row * rows->key_heads + head] <
            rows->received[least * rows->key_heads + head])
            least = row;
    return least;
}

/* Columns first to first + width − 1 of the rows after the dropped one move up. */
static void drop_columns(float *x, int64_t stride, int64_t first, int64_t width,
                         int64_t dropped, int64_t count)
{
    for (int64_t row = dropped; x && row + 1 < count; row++)
        memcpy(x + row * stride + first, x + (row + 1) * stride + first,
               (size_t)width * sizeof *x);
}

void attn_language_rows_drop(attn_language_rows *rows, int64_t count, int64_t first,
                             int64_t candidates)
{
    const int64_t key_heads = rows->key_heads, width = rows->width;
    const int64_t group = rows->heads / key_heads;
    for (int64_t head = 0; head < key_heads; head++) {
        const int64_t row = row_to_drop(rows, head, first, candidates);
        drop_columns(rows->key, key_heads * width, head * width, width, row, count);
        drop_columns(rows->value, key_heads * width, head * width, width, row, count);
        drop_columns(rows->log_forget, rows->heads, head * group, group, row, count);
        drop_columns(rows->received, key_heads, head, 1, row, count);
    }
}
