/* The product of training against sums in double, at the edges of its tiles, panels and
 * slices, on every instruction set of this processor.
 *
 * Bound: an element is summed in slices of ATTN_PRODUCT_DEPTH, each term rounded at most
 * twice, so its error is at most (k + slices + 2) halves of an ulp of Σ|a·b| + |c|. */
#include "tensor/multiply.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CANARIES = 70, GAP = 3 };

struct sizes {
    size_t m, n, k;
};

/* Rows of tiles are 6, panels 64 (or less), vectors 16 (or less), bands 48, blocks 240
 * rows and 512 columns, slices 256. */
static const struct sizes SIZES[] = {
    {1, 1, 1},    {6, 64, 256}, {7, 65, 257}, {5, 63, 255},  {13, 16, 3},  {12, 17, 40},
    {1, 130, 16}, {48, 1, 31},  {49, 33, 64}, {241, 5, 2},   {3, 513, 10}, {20, 48, 513},
    {245, 70, 9}, {2, 96, 700}, {6, 80, 0},   {47, 112, 33}, {0, 5, 5},    {5, 0, 5},
};

/* A matrix with NaN all around it; transposed, rows of k lie in a column each. */
struct matrix {
    float *memory;
    struct attn_factor factor;
};

static struct matrix matrix_create(size_t rows, size_t columns, bool transposed,
                                   uint64_t seed)
{
    const size_t outer = transposed ? columns : rows;
    const size_t inner = (transposed ? rows : columns) + GAP;
    const size_t count = outer * inner + 2 * CANARIES;
    struct matrix matrix = {malloc(count * sizeof(float)), {0}};
    float *const x = matrix.memory + CANARIES;
    test_fill(matrix.memory, count, seed);
    for (size_t n = 0; n < CANARIES; n++)
        matrix.memory[n] = matrix.memory[count - 1 - n] = NAN;
    for (size_t i = 0; i < outer; i++)
        for (size_t j = inner - GAP; j < inner; j++)
            x[i * inner + j] = NAN;
    matrix.factor =
        (struct attn_factor){x, transposed ? 1 : inner, transposed ? inner : 1};
    return matrix;
}

static double element(const struct attn_factor *f, size_t i, size_t j)
{
    return (double)f->x[i * f->row + j * f->column];
}

struct product_case {
    struct sizes sizes;
    bool a_transposed, b_transposed, adds, has_bias;
};

static void check(attn_tape *tape, const struct product_case *p)
{
    const size_t m = p->sizes.m, n = p->sizes.n, k = p->sizes.k, row = n + GAP;
    struct matrix a = matrix_create(m, k, p->a_transposed, 1);
    struct matrix b = matrix_create(k, n, p->b_transposed, 2);
    float *const c = malloc((m * row + 1) * sizeof *c);
    float *const before = malloc((m * row + 1) * sizeof *c);
    float *const bias = malloc((n + 1) * sizeof *bias);
    test_fill(before, m * row, 3), test_fill(bias, n, 4);
    if (!p->adds) /* what is there is not read */
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                before[i * row + j] = NAN;
    memcpy(c, before, m * row * sizeof *c);
    const struct attn_product product = {.m = m,
                                         .n = n,
                                         .k = k,
                                         .a = a.factor,
                                         .c = c,
                                         .c_row = row,
                                         .bias = p->has_bias ? bias : NULL,
                                         .add = p->adds};
    attn_tape_begin(tape, true, 0);
    attn_multiply(tape, &product, &b.factor);
    assert_int_equal(attn_tape_status(tape), ATTN_OK);
    const double half_ulps = (double)(k + k / ATTN_PRODUCT_DEPTH + 3) * 0x1p-24;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = p->adds ? (double)before[i * row + j] : 0.0;
            sum += p->has_bias ? (double)bias[j] : 0.0;
            double size = fabs(sum);
            for (size_t l = 0; l < k; l++) {
                const double term = element(&a.factor, i, l) * element(&b.factor, l, j);
                sum += term;
                size += fabs(term);
            }
            if (!(fabs((double)c[i * row + j] - sum) <= half_ulps * size))
                fail_msg("%zu x %zu x %zu: (%zu, %zu) is %.9g, expected %.9g", m, n, k, i,
                         j, (double)c[i * row + j], sum);
        }
        assert_memory_equal(c + i * row + n, before + i * row + n, GAP * sizeof *c);
    }
    free(a.memory), free(b.memory), free(c), free(before), free(bias);
}

static void products_are_the_sums_at_every_edge(void **state)
{
    (void)state;
    EACH_TAPE(tape)
    {
        for (size_t s = 0; s < sizeof SIZES / sizeof SIZES[0]; s++) {
            for (unsigned bits = 0; bits < 16; bits++) {
                const struct product_case p = {SIZES[s], bits & 1, bits & 2, bits & 4,
                                               (bits & 12) == 8};
                check(tape, &p);
            }
        }
    }
}

/* The product with the factor packed before, over runs of rows, has the bits of the
 * whole; so an element does not depend on the rows and columns around it. */
static void an_element_has_the_same_bits_in_any_run_of_rows_and_columns(void **state)
{
    (void)state;
    enum { M = 101, N = 150, K = 300 };
    struct matrix a = matrix_create(M, K, false, 5), b = matrix_create(K, N, true, 6);
    float *const whole = malloc(M * N * sizeof *whole);
    float *const part = malloc(M * N * sizeof *part);
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, true, 0);
        struct attn_product product = {
            .m = M, .n = N, .k = K, .a = a.factor, .c = whole, .c_row = N};
        attn_multiply(tape, &product, &b.factor);
        for (size_t run = 1; run < 60; run += 13) {
            struct attn_packed packed;
            assert_true(attn_pack(tape, &packed, &b.factor, K, N));
            for (size_t i = 0; i < M; i += run) {
                product.m = M - i < run ? M - i : run;
                product.a.x = a.factor.x + i * a.factor.row;
                product.c = part + i * N;
                attn_multiply_packed(tape, &product, &packed);
            }
            attn_packed_return(tape, &packed);
            assert_memory_equal(part, whole, M * N * sizeof *part);
        }
        const struct attn_factor columns = {b.factor.x + 70 * b.factor.column,
                                            b.factor.row, b.factor.column};
        product = (struct attn_product){
            .m = M, .n = 7, .k = K, .a = a.factor, .c = part, .c_row = N};
        attn_multiply(tape, &product, &columns);
        for (size_t i = 0; i < M; i++)
            assert_memory_equal(part + i * N, whole + i * N + 70, 7 * sizeof *part);
    }
    free(a.memory), free(b.memory), free(whole), free(part);
}

static void a_nan_reaches_its_own_row_or_column_alone(void **state)
{
    (void)state;
    enum { M = 14, N = 70, K = 20 };
    struct matrix a = matrix_create(M, K, true, 5), b = matrix_create(K, N, false, 6);
    float c[M * N];
    float *const x = a.memory + CANARIES, *const y = b.memory + CANARIES;
    x[8 * a.factor.row + 3 * a.factor.column] = NAN;
    y[4 * b.factor.row + 66 * b.factor.column] = INFINITY;
    EACH_TAPE(tape)
    {
        attn_tape_begin(tape, true, 0);
        const struct attn_product product = {
            .m = M, .n = N, .k = K, .a = a.factor, .c = c, .c_row = N};
        attn_multiply(tape, &product, &b.factor);
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N; j++)
                assert_true(isfinite(c[i * N + j]) == (i != 8 && j != 66));
    }
    free(a.memory), free(b.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_sums_at_every_edge),
        cmocka_unit_test(an_element_has_the_same_bits_in_any_run_of_rows_and_columns),
        cmocka_unit_test(a_nan_reaches_its_own_row_or_column_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
