/* Which rows a convolution reads. */
#include "nn/convolution.h"

static attn_tensor *convolve(const attn_linear_layer *layer, const attn_pass *pass,
                             attn_tensor *x, const int32_t *rows, int64_t count,
                             int64_t each)
{
    if (!rows)
        return NULL;
    return attn_linear_layer_forward(layer, pass,
                                     attn_gather(pass->tape, x, rows, count, each));
}

attn_tensor *attn_convolve(const attn_linear_layer *layer, const attn_pass *pass,
                           attn_tensor *x, attn_packing packing, int64_t taps)
{
    const int64_t tokens = packing.starts[packing.sequences];
    int32_t *const rows =
        attn_tape_allocate(pass->tape, (size_t)(tokens * taps) * sizeof *rows);
    for (int64_t s = 0; rows && s < packing.sequences; s++)
        for (int64_t i = packing.starts[s]; i < packing.starts[s + 1]; i++)
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t from = i + tap - taps / 2;
                const bool is_there =
                    from >= packing.starts[s] && from < packing.starts[s + 1];
                rows[i * taps + tap] = is_there ? (int32_t)from : -1;
            }
    return convolve(layer, pass, x, rows, tokens, taps);
}

/* Row of x that tap (down, right) of place (row, column) sees, or −1. */
static int32_t place_of(const attn_grid *grid, int64_t picture, int64_t row,
                        int64_t column)
{
    if (row < 0 || row >= grid->rows || column < 0 || column >= grid->columns)
        return -1;
    return (int32_t)((picture * grid->rows + row) * grid->columns + column);
}

attn_tensor *attn_convolve_grid(const attn_linear_layer *layer, const attn_pass *pass,
                                attn_tensor *x, attn_grid *grid, int64_t taps,
                                int64_t stride)
{
    const attn_grid result = {grid->pictures, (grid->rows + stride - 1) / stride,
                              (grid->columns + stride - 1) / stride};
    const int64_t count = result.pictures * result.rows * result.columns;
    int32_t *const rows =
        attn_tape_allocate(pass->tape, (size_t)(count * taps * taps) * sizeof *rows);
    for (int64_t n = 0; rows && n < count; n++) {
        const int64_t picture = n / (result.rows * result.columns);
        const int64_t row = n / result.columns % result.rows * stride - taps / 2;
        const int64_t column = n % result.columns * stride - taps / 2;
        for (int64_t tap = 0; tap < taps * taps; tap++)
            rows[n * taps * taps + tap] =
                place_of(grid, picture, row + tap / taps, column + tap % taps);
    }
    attn_tensor *const y = convolve(layer, pass, x, rows, count, taps * taps);
    *grid = result;
    return y;
}
