/* Cuts products along k and packs. */
#include "tensor/multiply.h"
#include <string.h>

static size_t packed_width(const attn_tape *tape, size_t n)
{
    const size_t panel = attn_tape_rows(tape)->panel;
    return (n + panel - 1) / panel * panel;
}

static size_t depth(size_t k, size_t first)
{
    return k - first < ATTN_PRODUCT_DEPTH ? k - first : ATTN_PRODUCT_DEPTH;
}

static struct attn_factor rows_from(const struct attn_factor *b, size_t first)
{
    return (struct attn_factor){b->x + first * b->row, b->row, b->column};
}

bool attn_pack(attn_tape *tape, struct attn_packed *packed, const struct attn_factor *b,
               size_t k, size_t n)
{
    const size_t width = packed_width(tape, n);
    *packed = (struct attn_packed){.k = k, .n = n, .floats = k * width};
    packed->x = attn_tape_borrow(tape, packed->floats);
    for (size_t first = 0; packed->x && first < k; first += ATTN_PRODUCT_DEPTH) {
        const struct attn_factor rows = rows_from(b, first);
        attn_tape_rows(tape)->pack(packed->x + first * width, &rows, depth(k, first), n);
    }
    return packed->x;
}

void attn_packed_return(attn_tape *tape, struct attn_packed *packed)
{
    attn_tape_return(tape, packed->x, packed->floats);
    packed->x = NULL;
}

/* What is left of a product of no depth. */
static void multiply_nothing(const struct attn_product *product)
{
    for (size_t i = 0; i < product->m && !product->add; i++) {
        float *const row = product->c + i * product->c_row;
        if (product->bias)
            memcpy(row, product->bias, product->n * sizeof *row);
        else
            memset(row, 0, product->n * sizeof *row);
    }
}

/* Elements first and on of the sums. */
static void multiply_slice(const attn_tape *tape, const struct attn_product *product,
                           size_t first, const float *packed, float *work)
{
    struct attn_product slice = *product;
    slice.k = depth(product->k, first);
    slice.a.x += first * product->a.column;
    slice.packed = packed;
    slice.work = work;
    if (first > 0) {
        slice.add = true;
        slice.bias = NULL;
    }
    attn_tape_rows(tape)->multiply(&slice);
}

void attn_multiply_packed(attn_tape *tape, const struct attn_product *product,
                          const struct attn_packed *b)
{
    struct attn_product whole = *product;
    whole.n = b->n;
    whole.k = b->k;
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    if (whole.k == 0)
        multiply_nothing(&whole);
    for (size_t first = 0; first < whole.k; first += ATTN_PRODUCT_DEPTH)
        multiply_slice(tape, &whole, first, b->x + first * packed_width(tape, whole.n),
                       NULL);
}

void attn_multiply(attn_tape *tape, const struct attn_product *product,
                   const struct attn_factor *b)
{
    const size_t floats =
        packed_width(tape, product->n) * ATTN_PRODUCT_DEPTH + ATTN_PRODUCT_WORK;
    float *const packed = attn_tape_borrow(tape, floats);
    if (!packed)
        return;
    float *const work = packed + floats - ATTN_PRODUCT_WORK;
    if (product->k == 0)
        multiply_nothing(product);
    for (size_t first = 0; first < product->k; first += ATTN_PRODUCT_DEPTH) {
        const struct attn_factor rows = rows_from(b, first);
        attn_tape_rows(tape)->pack(packed, &rows, depth(product->k, first), product->n);
        multiply_slice(tape, product, first, packed, work);
    }
    attn_tape_return(tape, packed, floats);
}
