/* Rows that are kept, in 32, 16 or 8 bits.  Dropping by what was received is H2O's (Zhang
 * et al. 2023): a token that many queries looked at is likely to be looked at again. */
#include "model/language_rows.h"
#include "base/context.h"
#include "file/half.h"
#include "kernel/table.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t element_bytes(attn_cache_type type)
{
    return type == ATTN_CACHE_I8 ? 1 : attn_type_bytes((attn_type)type);
}

static attn_status create_kept(attn_language_kept *kept, const attn_language_rows *rows,
                               int64_t capacity)
{
    const size_t heads = (size_t)(capacity * rows->key_heads);
    const bool is_scaled = rows->type == ATTN_CACHE_I8;
    kept->x = malloc(heads * (size_t)rows->width * element_bytes(rows->type));
    kept->scales = is_scaled ? malloc(heads * sizeof *kept->scales) : NULL;
    return kept->x && (kept->scales || !is_scaled) ? ATTN_OK : ATTN_ENOMEM;
}

attn_status attn_language_rows_create(attn_language_rows *rows,
                                      const attn_language_config *config,
                                      attn_cache_type type, int64_t capacity,
                                      bool wants_received)
{
    *rows = (attn_language_rows){.type = type,
                                 .heads = config->heads,
                                 .key_heads = config->key_heads,
                                 .width = config->width / config->heads};
    ATTN_TRY(create_kept(&rows->key, rows, capacity));
    ATTN_TRY(create_kept(&rows->value, rows, capacity));
    if (config->forgets)
        rows->log_forget = malloc((size_t)(capacity * config->heads) * sizeof(float));
    if (wants_received)
        rows->received = malloc((size_t)(capacity * config->key_heads) * sizeof(float));
    return (rows->log_forget || !config->forgets) && (rows->received || !wants_received)
               ? ATTN_OK
               : ATTN_ENOMEM;
}

void attn_language_rows_free(attn_language_rows *rows)
{
    free(rows->key.x), free(rows->key.scales);
    free(rows->value.x), free(rows->value.scales);
    free(rows->log_forget);
    free(rows->received);
}

size_t attn_language_rows_bytes(const attn_language_rows *rows)
{
    const size_t scales = rows->key.scales ? 2 * sizeof(float) : 0;
    const size_t received = rows->received ? sizeof(float) : 0;
    const size_t of_key_head =
        2 * (size_t)rows->width * element_bytes(rows->type) + scales + received;
    return (size_t)rows->key_heads * of_key_head +
           (rows->log_forget ? (size_t)rows->heads * sizeof(float) : 0);
}

/* ---- Rounding and widening ------------------------------------------------------- */

/* As ATTN_CACHE_I8 has it, with a scale that is not rounded. */
static void round_to_bytes(int8_t *to, float *scale, const float *x, int64_t width)
{
    float largest = 0.0f, poison = 0.0f;
    for (int64_t i = 0; i < width; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
        poison += x[i] * 0.0f;
    }
    *scale = isnan(poison) ? NAN : largest / 127.0f;
    const float inverse = *scale >= FLT_MIN ? 1.0f / *scale : 0.0f;
    for (int64_t i = 0; i < width; i++)
        to[i] = inverse > 0.0f ? (int8_t)lrintf(x[i] * inverse) : 0;
}

void attn_language_rows_keep(const attn_language_rows *rows,
                             const attn_language_kept *kept, int64_t before,
                             const attn_tensor *added)
{
    const int64_t row = rows->key_heads * rows->width, count = added->extent[0];
    const float *const from = added->data;
    if (rows->type == ATTN_CACHE_F32)
        memcpy((float *)kept->x + before * row, from,
               (size_t)(count * row) * sizeof *from);
    for (int64_t n = 0; rows->type == ATTN_CACHE_F16 && n < count * row; n++)
        ((uint16_t *)kept->x)[before * row + n] = attn_f16_from_float(from[n]);
    for (int64_t n = 0; rows->type == ATTN_CACHE_BF16 && n < count * row; n++)
        ((uint16_t *)kept->x)[before * row + n] = attn_bf16_from_float(from[n]);
    for (int64_t n = 0; rows->type == ATTN_CACHE_I8 && n < count * rows->key_heads; n++) {
        const int64_t at = before * rows->key_heads + n;
        round_to_bytes((int8_t *)kept->x + at * rows->width, kept->scales + at,
                       from + n * rows->width, rows->width);
    }
}

/* Sixteen at a time by way of an array of their own, which compilers turn into vectors:
 * .11 ns an element instead of .46. */
static void widen_bytes(float *to, const int8_t *from, float scale, int64_t width)
{
    enum { AT_ONCE = 16 };
    int64_t i = 0;
    for (; i + AT_ONCE <= width; i += AT_ONCE) {
        float wide[AT_ONCE];
        for (size_t n = 0; n < AT_ONCE; n++)
            wide[n] = (float)from[i + (int64_t)n] * scale;
        memcpy(to + i, wide, sizeof wide);
    }
    for (; i < width; i++)
        to[i] = (float)from[i] * scale;
}

attn_tensor *attn_language_rows_read(const attn_language_rows *rows,
                                     const attn_language_kept *kept, attn_tape *tape,
                                     int64_t count)
{
    const int64_t extent[] = {count, rows->key_heads * rows->width};
    const size_t size = (size_t)(extent[0] * extent[1]);
    if (rows->type == ATTN_CACHE_F32)
        return attn_tape_leaf(tape, kept->x, NULL, 2, extent);
    float *const wide =
        attn_tape_allocate(tape, (size + ATTN_PANEL_LANES) * sizeof *wide);
    if (!wide)
        return NULL;
    if (rows->type == ATTN_CACHE_I8) {
        for (int64_t n = 0; n < count * rows->key_heads; n++)
            widen_bytes(wide + n * rows->width, (const int8_t *)kept->x + n * rows->width,
                        kept->scales[n], rows->width);
    } else {
        const struct attn_matrix from = {.x = kept->x,
                                         .element_stride = 1,
                                         .rows = 1,
                                         .size = size,
                                         .type = (attn_type)rows->type};
        attn_tape_context(tape)->kernels->widen(wide, &from);
    }
    return attn_tape_leaf(tape, wide, NULL, 2, extent);
}

/* ---- Dropping -------------------------------------------------------------------- */

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
static void drop_columns(void *x, size_t element, int64_t stride, int64_t first,
                         int64_t width, int64_t dropped, int64_t count)
{
    const size_t row_bytes = (size_t)stride * element;
    char *const column = x ? (char *)x + (size_t)first * element : NULL;
    for (int64_t row = dropped; column && row + 1 < count; row++)
        memcpy(column + (size_t)row * row_bytes, column + (size_t)(row + 1) * row_bytes,
               (size_t)width * element);
}

void attn_language_rows_drop(attn_language_rows *rows, int64_t count, int64_t first,
                             int64_t candidates)
{
    const int64_t key_heads = rows->key_heads, width = rows->width;
    const int64_t group = rows->heads / key_heads;
    const attn_language_kept *const kept[] = {&rows->key, &rows->value};
    for (int64_t head = 0; head < key_heads; head++) {
        const int64_t row = row_to_drop(rows, head, first, candidates);
        for (size_t n = 0; n < 2; n++) {
            drop_columns(kept[n]->x, element_bytes(rows->type), key_heads * width,
                         head * width, width, row, count);
            drop_columns(kept[n]->scales, sizeof(float), key_heads, head, 1, row, count);
        }
        drop_columns(rows->log_forget, sizeof(float), rows->heads, head * group, group,
                     row, count);
        drop_columns(rows->received, sizeof(float), key_heads, head, 1, row, count);
    }
}
