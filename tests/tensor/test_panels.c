/* Products with packed matrices, against loops in double. */
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <string.h>

enum { ROWS = 29, INNER = 37, COLUMNS = 70, PADDED = 96, TURNED = 31 };

struct numbers {
    float x[ROWS * INNER], turned[INNER * TURNED], matrix[INNER * COLUMNS], bias[COLUMNS],
        begin[ROWS * COLUMNS];
};

static void fill(struct numbers *n)
{
    test_fill(n->x, ROWS * INNER, 1);
    for (size_t i = 0; i < ROWS * INNER; i++)
        n->turned[i % INNER * TURNED + i / INNER] = n->x[i];
    test_fill(n->matrix, INNER * COLUMNS, 2);
    test_fill(n->bias, COLUMNS, 3);
    test_fill(n->begin, ROWS * COLUMNS, 4);
}

/* Sizes of a product: tiles of all numbers of rows, panels that are whole and not. */
struct size {
    size_t rows, inner, columns;
};

static const struct size sizes[] = {{1, 1, 1},    {2, 4, 16},  {3, 5, 32},   {5, 37, 33},
                                    {12, 16, 64}, {19, 8, 70}, {27, 16, 40}, {29, 37, 70},
                                    {0, 3, 4},    {3, 0, 5}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static double expected(const struct numbers *n, const struct size *s, bool turned,
                       size_t row, size_t column)
{
    double sum = 0.0;
    for (size_t k = 0; k < s->inner; k++)
        sum +=
            (double)n->x[row * s->inner + k] *
            (double)n->matrix[turned ? column * s->inner + k : k * s->columns + column];
    return sum;
}

static void check(const struct attn_rows *loops, const struct numbers *n,
                  const struct size *s, bool turned)
{
    float panels[INNER * PADDED], y[ROWS * COLUMNS + 1];
    const size_t count = s->rows * s->columns;
    const double bound = (double)s->inner * 0x1p-23;
    loops->pack(panels, n->matrix, s->inner, s->columns, turned);
    for (int way = 0; way < 3; way++) { /* plain, with a bias, added */
        memcpy(y, n->begin, count * sizeof *y);
        y[count] = 7.0f;
        loops->multiply(&(struct attn_panel_product){.y = y,
                                                     .x = n->x,
                                                     .panels = panels,
                                                     .bias = way == 1 ? n->bias : NULL,
                                                     .rows = s->rows,
                                                     .inner = s->inner,
                                                     .columns = s->columns,
                                                     .add = way == 2});
        assert_true(y[count] == 7.0f);
        for (size_t i = 0; i < count; i++) {
            const size_t row = i / s->columns, column = i % s->columns;
            const double more = way == 1   ? (double)n->bias[column]
                                : way == 2 ? (double)n->begin[i]
                                           : 0.0;
            test_close((double)y[i], expected(n, s, turned, row, column) + more, bound,
                       "element", i);
        }
    }
}

static void a_packed_matrix_multiplies_like_the_matrix(void **state)
{
    (void)state;
    static struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        for (size_t i = 0; i < SIZES; i++)
            for (int turned = 0; turned < 2; turned++)
                check(attn_tape_rows(tape), &n, &sizes[i], turned);
    }
}

/* The last rows of x, with the bias. */
static void multiply_last(const struct attn_rows *loops, const struct numbers *n,
                          const float *panels, size_t rows, float *y)
{
    const struct attn_panel_product product = {.y = y,
                                               .x = n->x + (ROWS - rows) * INNER,
                                               .panels = panels,
                                               .bias = n->bias,
                                               .rows = rows,
                                               .inner = INNER,
                                               .columns = COLUMNS};
    loops->multiply(&product);
}

static void rows_that_lie_as_columns_give_the_same_bits(void **state)
{
    (void)state;
    static struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        float panels[INNER * PADDED], lying[ROWS * COLUMNS], standing[ROWS * COLUMNS];
        static float bands[ATTN_BAND_FLOATS];
        loops->pack(panels, n.matrix, INNER, COLUMNS, false);
        multiply_last(loops, &n, panels, ROWS, lying);
        loops->multiply(&(struct attn_panel_product){.y = standing,
                                                     .x = n.turned,
                                                     .panels = panels,
                                                     .bias = n.bias,
                                                     .rows = ROWS,
                                                     .inner = INNER,
                                                     .columns = COLUMNS,
                                                     .turned = TURNED,
                                                     .bands = bands});
        assert_memory_equal(standing, lying, sizeof lying);
    }
}

/* More steps than are taken at once, and more rows. */
static void a_product_larger_than_a_block_is_the_sum_of_its_steps(void **state)
{
    (void)state;
    enum { N = 101, STEPS = ATTN_PANEL_STEPS + 37, WIDTH = 50, PANELS = 64 };
    static float x[N * STEPS], turned[STEPS * N], matrix[STEPS * WIDTH];
    static float panels[STEPS * PANELS], y[N * WIDTH], across[N * WIDTH];
    static float bands[ATTN_BAND_FLOATS];
    test_fill(x, N * STEPS, 1);
    test_fill(matrix, STEPS * WIDTH, 2);
    for (size_t i = 0; i < N * STEPS; i++)
        turned[i % STEPS * N + i / STEPS] = x[i];
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        struct attn_panel_product product = {.y = y,
                                             .x = x,
                                             .panels = panels,
                                             .rows = N,
                                             .inner = STEPS,
                                             .columns = WIDTH};
        loops->pack(panels, matrix, STEPS, WIDTH, false);
        loops->multiply(&product);
        product.y = across;
        product.x = turned;
        product.turned = N;
        product.bands = bands;
        loops->multiply(&product);
        assert_memory_equal(across, y, sizeof y);
        for (size_t i = 0; i < N * WIDTH; i++) {
            double sum = 0.0;
            for (size_t k = 0; k < STEPS; k++)
                sum += (double)x[i / WIDTH * STEPS + k] *
                       (double)matrix[k * WIDTH + i % WIDTH];
            test_close((double)y[i], sum, (double)STEPS * 0x1p-24, "element", i);
        }
    }
}

static void a_row_has_the_same_bits_among_any_others(void **state)
{
    (void)state;
    static struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        float panels[INNER * PADDED], all[ROWS * COLUMNS], some[ROWS * COLUMNS];
        loops->pack(panels, n.matrix, INNER, COLUMNS, true);
        multiply_last(loops, &n, panels, ROWS, all);
        for (size_t rows = 1; rows <= ROWS; rows++) {
            const size_t first = ROWS - rows;
            multiply_last(loops, &n, panels, rows, some);
            assert_memory_equal(some, all + first * COLUMNS,
                                rows * COLUMNS * sizeof *some);
        }
    }
}

static void a_value_that_is_not_finite_stays_in_its_row(void **state)
{
    (void)state;
    static struct numbers n;
    fill(&n);
    n.x[3 * INNER + 4] = NAN;
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        float panels[INNER * PADDED], y[ROWS * COLUMNS];
        loops->pack(panels, n.matrix, INNER, COLUMNS, true);
        multiply_last(loops, &n, panels, ROWS, y);
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            assert_int_equal(isnan(y[i]) != 0, i / COLUMNS == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_matrix_multiplies_like_the_matrix),
        cmocka_unit_test(rows_that_lie_as_columns_give_the_same_bits),
        cmocka_unit_test(a_product_larger_than_a_block_is_the_sum_of_its_steps),
        cmocka_unit_test(a_row_has_the_same_bits_among_any_others),
        cmocka_unit_test(a_value_that_is_not_finite_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
