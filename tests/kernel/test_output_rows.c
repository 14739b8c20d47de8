/* store_weighted against what it stands in for, value and then store: the same bits, and
 * nothing else is written. */
#include "kernel/table.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_SIZE = 144, GAP = 5, STRIDE = MOST_SIZE + GAP };

struct inputs {
    float weights[ATTN_BLOCK_KEYS * ATTN_PANEL_LANES], factors[ATTN_PANEL_LANES];
    float values[ATTN_BLOCK_KEYS * STRIDE];
    struct attn_block block;
    struct attn_calls calls;
};

static float number(void)
{
    return (float)(rand() % 2001 - 1000) * 0x1p-7f;
}

/* Lane i sees keys [i / 2, i + shown): the ends move as those of a window do. */
static void hide(struct inputs *in, size_t width, size_t keys, size_t shown)
{
    struct attn_block *const block = &in->block;
    for (size_t lane = 0; lane < width; lane++) {
        const size_t end = lane + shown < keys ? lane + shown : keys;
        const size_t first = lane / 2 < end ? lane / 2 : end;
        block->first[lane] = (int32_t)first;
        block->end[lane] = (int32_t)end;
        for (size_t key = 0; key < keys; key++)
            if (key < first || key >= end)
                in->weights[key * width + lane] = 0.0f;
    }
    block->full_begin = (size_t)block->first[width - 1];
    block->full_end = (size_t)block->end[0];
    if (block->full_end < block->full_begin)
        block->full_end = block->full_begin;
}

static void make(struct inputs *in, size_t width, size_t keys, size_t shown)
{
    for (size_t n = 0; n < keys * width; n++)
        in->weights[n] = fabsf(number());
    for (size_t lane = 0; lane < width; lane++)
        in->factors[lane] = number();
    for (size_t n = 0; n < keys * STRIDE; n++)
        in->values[n] = number();
    in->block = (struct attn_block){
        .keys = keys,
        .value = in->values,
        .value_stride = STRIDE,
        .value_element_stride = 1,
        .full_end = keys,
        .opens = true,
    };
    if (shown > 0)
        hide(in, width, keys, shown);
}

/* Lines that lie nowhere: calls of them are no reads. */
static void call(struct inputs *in, size_t lines)
{
    in->calls = (struct attn_calls){.end = 2};
    in->calls.runs[0] = (struct attn_lines){.first = 64, .stride = 64, .count = lines};
    in->calls.runs[1] = (struct attn_lines){.first = 64, .stride = 4096, .count = lines};
    in->block.calls = &in->calls;
}

static void check(const struct attn_kernels *kernels, size_t rows, size_t keys,
                  size_t size, size_t shown, size_t lines)
{
    static struct inputs in;
    static struct attn_panel panel;
    static float output[MOST_SIZE * ATTN_PANEL_LANES];
    static float expected[ATTN_PANEL_LANES * STRIDE], got[ATTN_PANEL_LANES * STRIDE];
    const size_t vectors = (rows + kernels->lanes - 1) / kernels->lanes;
    const size_t width = vectors * kernels->lanes;
    static float sums[MOST_SIZE * ATTN_PANEL_LANES];
    make(&in, width, keys, shown);
    in.block.sums = sums;
    for (size_t n = 0; n < ATTN_PANEL_LANES * STRIDE; n++)
        expected[n] = got[n] = -77.0f;
    struct attn_target to = {expected, STRIDE, 1, rows, size, ATTN_F32};
    panel.vectors = vectors;
    panel.Dv = size;
    panel.output = output;
    kernels->value(&panel, in.weights, &in.block);
    kernels->store(&to, output, width, in.factors);
    if (lines > 0)
        call(&in, lines);
    to.x = got;
    const struct attn_weighted_rows from = {in.weights, width, in.values, STRIDE,
                                            in.factors};
    kernels->store_weighted(&to, &from, &in.block);
    assert_memory_equal(got, expected, sizeof got);
}

static void check_level(const struct attn_kernels *kernels)
{
    static const size_t keys[] = {1, 2, 7, 16, 33, 64, 128};
    static const size_t sizes[] = {16, 17, 31, 32, 40, 64, 80, 127, 144};
    const size_t most = kernels->lanes * kernels->panel_vectors;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t rows = 1; rows <= most; rows++) {
                check(kernels, rows, keys[k], sizes[s], 0, rows % 3 * 50);
                check(kernels, rows, keys[k], sizes[s], 1 + rows % 5, rows % 2 * 9);
            }
}

static void rows_have_the_bits_of_value_and_store(void **state)
{
    (void)state;
    static const char *const levels[] = {"generic",    "avx2", "avx512",
                                         "avx512bf16", "amx",  "neon"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const struct attn_kernels *const kernels = attn_kernels_find(levels[i]);
        if (kernels)
            check_level(kernels);
        else
            print_message("%s: not on this machine\n", levels[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_of_value_and_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
