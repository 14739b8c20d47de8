/* What tells a model where a token stands. */
#include "nn/layers.h"
#include <math.h>
#include <string.h>

int32_t *attn_positions(attn_tape *tape, attn_packing packing, int64_t tokens,
                        int64_t rows, int64_t first)
{
    if (packing.starts[0] != 0 || packing.starts[packing.sequences] != tokens) {
        attn_tape_fail(tape, ATTN_EINVAL,
                       "attn_positions: sequences are tokens %lld to %lld, "
                       "expected 0 to %lld",
                       (long long)packing.starts[0],
                       (long long)packing.starts[packing.sequences], (long long)tokens);
        return NULL;
    }
    int32_t *const ids = attn_tape_allocate(tape, (size_t)tokens * sizeof *ids);
    if (!ids)
        return NULL;
    for (int64_t s = 0; s < packing.sequences; s++) {
        const int64_t begin = packing.starts[s], end = packing.starts[s + 1];
        if (begin < 0 || end < begin || end > tokens) {
            attn_tape_fail(tape, ATTN_EINVAL,
                           "attn_positions: sequence %lld is tokens %lld to %lld, "
                           "expected them in order within %lld",
                           (long long)s, (long long)begin, (long long)end,
                           (long long)tokens);
            return NULL;
        }
        if (end > begin && (first < 0 || end - begin > rows - first)) {
            attn_tape_fail(
                tape, ATTN_EINVAL,
                "attn_positions: sequence %lld has %lld tokens from "
                "position %lld, expected the last to be less than %lld, the rows "
                "of the table",
                (long long)s, (long long)(end - begin), (long long)first,
                (long long)rows);
            return NULL;
        }
        for (int64_t i = begin; i < end; i++)
            ids[i] = (int32_t)(i - begin + first);
    }
    return ids;
}

attn_tensor *attn_add_positions(const attn_pass *pass, attn_tensor *x,
                                attn_packing packing, attn_tensor *table, int64_t first)
{
    attn_tape *const tape = pass->tape;
    if (!x || !table)
        return attn_tape_fail(tape, ATTN_EINVAL,
                              "attn_add_positions: %s is NULL, expected a tensor",
                              x ? "table" : "x");
    const int64_t tokens = x->extent[0];
    const int32_t *const ids =
        attn_positions(tape, packing, tokens, table->extent[0], first);
    if (!ids)
        return NULL;
    return attn_add(tape, x, attn_embedding(tape, table, ids, tokens, 1.0f));
}

void attn_sinusoidal_positions_fairseq(float *table, int64_t rows, int64_t width,
                                       int64_t zero_row)
{
    const int64_t half = width / 2;
    const double step = half > 1 ? log(10000.0) / (double)(half - 1) : 0.0;
    for (int64_t position = 0; position < rows; position++) {
        float *const row = table + position * width;
        memset(row, 0, (size_t)width * sizeof *row);
        for (int64_t i = 0; i < half && position != zero_row; i++) {
            const double angle = (double)position * exp(-step * (double)i);
            row[i] = (float)sin(angle);
            row[half + i] = (float)cos(angle);
        }
    }
}

void attn_sinusoidal_positions(float *table, int64_t rows, int64_t width, bool halves)
{
    for (int64_t position = 0; position < rows; position++) {
        for (int64_t i = 0; i < width; i++) {
            const double power = (double)(i / 2 * 2) / (double)width;
            const double angle = (double)position * pow(10000.0, -power);
            const int64_t column = halves ? i / 2 + i % 2 * ((width + 1) / 2) : i;
            table[position * width + column] =
                (float)(i % 2 == 0 ? sin(angle) : cos(angle));
        }
    }
}
