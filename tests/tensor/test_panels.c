/* Products with packed matrices, against loops in double. */
#include "tensor/rows.h"
#include "tensor_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 29, INNER = 53, COLUMNS = 70, TURNED = 31 };

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

/* Packs what is given; free the memory. */
static struct attn_packed pack(const struct attn_rows *loops, struct attn_packed given)
{
    const size_t floats =
        loops->packed_floats(given.inner, given.columns, given.few_rows);
    given.memory = aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64);
    assert_non_null(given.memory);
    loops->pack(&given);
    return given;
}

/* Sizes of a product: tiles of all numbers of rows, panels that are whole and not. */
struct size {
    size_t rows, inner, columns;
};

static const struct size sizes[] = {
    {1, 1, 1},   {2, 4, 16},   {3, 5, 32},   {5, 37, 33},  {12, 16, 64},
    {19, 8, 70}, {27, 16, 40}, {29, 37, 70}, {13, 50, 64}, {29, 53, 70},
    {1, 48, 49}, {0, 3, 4},    {3, 0, 5}};
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
    float y[ROWS * COLUMNS + 1];
    const size_t count = s->rows * s->columns;
    const double bound = (double)s->inner * 0x1p-23;
    const struct attn_packed packed =
        pack(loops, (struct attn_packed){.matrix = n->matrix,
                                         .inner = s->inner,
                                         .columns = s->columns,
                                         .turned = turned});
    for (int way = 0; way < 3; way++) { /* plain, with a bias, added */
        memcpy(y, n->begin, count * sizeof *y);
        y[count] = 7.0f;
        loops->multiply(&(struct attn_panel_product){.y = y,
                                                     .x = n->x,
                                                     .matrix = &packed,
                                                     .bias = way == 1 ? n->bias : NULL,
                                                     .rows = s->rows,
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
    free(packed.memory);
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

static struct attn_packed pack_numbers(const struct attn_rows *loops,
                                       const struct numbers *n, bool turned)
{
    return pack(loops, (struct attn_packed){.matrix = n->matrix,
                                            .inner = INNER,
                                            .columns = COLUMNS,
                                            .turned = turned});
}

/* The last rows of x, with the bias. */
static void multiply_last(const struct attn_rows *loops, const struct numbers *n,
                          const struct attn_packed *packed, size_t rows, float *y)
{
    loops->multiply(
        &(struct attn_panel_product){.y = y,
                                     .x = n->x + (ROWS - rows) * packed->inner,
                                     .matrix = packed,
                                     .bias = n->bias,
                                     .rows = rows});
}

static void rows_that_lie_as_columns_give_the_same_bits(void **state)
{
    (void)state;
    static struct numbers n;
    fill(&n);
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        float lying[ROWS * COLUMNS], standing[ROWS * COLUMNS];
        const struct attn_packed packed = pack_numbers(loops, &n, false);
        multiply_last(loops, &n, &packed, ROWS, lying);
        loops->multiply(&(struct attn_panel_product){.y = standing,
                                                     .x = n.turned,
                                                     .matrix = &packed,
                                                     .bias = n.bias,
                                                     .rows = ROWS,
                                                     .turned = TURNED});
        assert_memory_equal(standing, lying, sizeof lying);
        free(packed.memory);
    }
}

/* More steps than are taken at once, and more rows. */
enum { MANY = 601, STEPS = ATTN_PANEL_STEPS + 37, WIDTH = 50 };

struct large {
    float x[MANY * STEPS], turned[STEPS * MANY], matrix[STEPS * WIDTH];
    float y[MANY * WIDTH], across[MANY * WIDTH];
    double expected[MANY * WIDTH];
};

static void fill_large(struct large *l)
{
    test_fill(l->x, MANY * STEPS, 1);
    test_fill(l->matrix, STEPS * WIDTH, 2);
    for (size_t i = 0; i < MANY * STEPS; i++)
        l->turned[i % STEPS * MANY + i / STEPS] = l->x[i];
    for (size_t i = 0; i < MANY * WIDTH; i++) {
        l->expected[i] = 0.0;
        for (size_t k = 0; k < STEPS; k++)
            l->expected[i] += (double)l->x[i / WIDTH * STEPS + k] *
                              (double)l->matrix[k * WIDTH + i % WIDTH];
    }
}

/* y of x as it lies, and across of x turned. */
static void multiply_large(const struct attn_rows *loops, struct large *l)
{
    const struct attn_packed packed =
        pack(loops,
             (struct attn_packed){.matrix = l->matrix, .inner = STEPS, .columns = WIDTH});
    struct attn_panel_product product = {
        .y = l->y, .x = l->x, .matrix = &packed, .rows = MANY};
    loops->multiply(&product);
    product.y = l->across;
    product.x = l->turned;
    product.turned = MANY;
    loops->multiply(&product);
    free(packed.memory);
}

static void a_product_larger_than_a_block_is_the_sum_of_its_steps(void **state)
{
    (void)state;
    static struct large l;
    fill_large(&l);
    EACH_TAPE(tape)
    {
        multiply_large(attn_tape_rows(tape), &l);
        assert_memory_equal(l.across, l.y, sizeof l.y);
        for (size_t i = 0; i < MANY * WIDTH; i++)
            test_close((double)l.y[i], l.expected[i], (double)STEPS * 0x1p-24, "element",
                       i);
    }
}

/* Rows that parts do not hold, and these only in one of the blocks that a product takes
 * its steps in. */
static void rows_that_are_extreme_in_one_block_touch_no_other(void **state)
{
    (void)state;
    enum { LARGE = 7, IS_NAN = 400 };
    static struct large l, strange;
    fill_large(&l);
    strange = l;
    strange.x[LARGE * STEPS + 300] = strange.turned[300 * MANY + LARGE] = 1e25f;
    strange.x[IS_NAN * STEPS + STEPS - 1] = NAN;
    strange.turned[(STEPS - 1) * MANY + IS_NAN] = NAN;
    EACH_TAPE(tape)
    {
        multiply_large(attn_tape_rows(tape), &l);
        multiply_large(attn_tape_rows(tape), &strange);
        for (size_t i = 0; i < MANY * WIDTH; i++) {
            const double most = 1e25 * (double)l.matrix[300 * WIDTH + i % WIDTH];
            if (i / WIDTH == IS_NAN)
                assert_true(isnan(strange.y[i]) && isnan(strange.across[i]));
            else if (i / WIDTH == LARGE)
                assert_true(fabs((double)strange.y[i] - most) <= fabs(most) * 0x1p-20 &&
                            fabs((double)strange.across[i] - most) <=
                                fabs(most) * 0x1p-20);
            else
                assert_true(strange.y[i] == l.y[i] && strange.across[i] == l.y[i]);
        }
    }
}

/* Root mean square. */
static double error_of(const struct attn_rows *loops, struct large *l, bool few_rows)
{
    const struct attn_packed packed = pack(
        loops,
        (struct attn_packed){
            .matrix = l->matrix, .inner = STEPS, .columns = WIDTH, .few_rows = few_rows});
    loops->multiply(&(struct attn_panel_product){
        .y = l->y, .x = l->x, .matrix = &packed, .rows = MANY});
    free(packed.memory);
    double squares = 0.0;
    for (size_t i = 0; i < MANY * WIDTH; i++)
        squares +=
            ((double)l->y[i] - l->expected[i]) * ((double)l->y[i] - l->expected[i]);
    return sqrt(squares / (MANY * WIDTH));
}

static void errors_are_no_larger_than_those_of_multiply_adds(void **state)
{
    (void)state;
    static struct large l;
    fill_large(&l);
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        assert_true(error_of(loops, &l, false) <= error_of(loops, &l, true));
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
        float all[ROWS * COLUMNS], some[ROWS * COLUMNS];
        const struct attn_packed packed = pack_numbers(loops, &n, true);
        multiply_last(loops, &n, &packed, ROWS, all);
        for (size_t rows = 1; rows <= ROWS; rows++) {
            const size_t first = ROWS - rows;
            multiply_last(loops, &n, &packed, rows, some);
            assert_memory_equal(some, all + first * COLUMNS,
                                rows * COLUMNS * sizeof *some);
        }
        free(packed.memory);
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
        float y[ROWS * COLUMNS];
        const struct attn_packed packed = pack_numbers(loops, &n, true);
        multiply_last(loops, &n, &packed, ROWS, y);
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            assert_int_equal(isnan(y[i]) != 0, i / COLUMNS == 3);
        free(packed.memory);
    }
}

/* What some rows are made of: each alone is more, or less, than three parts of bfloat16
 * hold.  All numbers times the factor, one of them replaced. */
static const struct {
    float factor, replaced;
} strange[] = {{1.0f, INFINITY},  {1.0f, -INFINITY},     {1.0f, NAN},
               {0x1p120f, 1.0f},  {1.0f, 3.0e38f},       {0x1p-80f, 0.0f},
               {0x1p-110f, 0.0f}, {0x1p-120f, INFINITY}, {0.0f, 0.0f},
               {0x1p45f, 0.0f},   {0x1p-55f, 0.0f}};
enum { STRANGE = sizeof strange / sizeof *strange };

/* Every second row. */
static void make_strange(struct numbers *n)
{
    for (size_t i = 0; i < STRANGE; i++) {
        float *const x = n->x + (2 * i + 1) * INNER;
        for (size_t k = 0; k < INNER; k++)
            x[k] *= strange[i].factor;
        x[i + 3] = strange[i].replaced;
    }
    for (size_t i = 0; i < ROWS * INNER; i++)
        n->turned[i % INNER * TURNED + i / INNER] = n->x[i];
}

/* Like the sum in double, to the rounding of what is summed. */
static void check_strange(const struct numbers *n, const float *y)
{
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        double sum = 0.0, magnitudes = 0.0;
        for (size_t k = 0; k < INNER; k++) {
            const double x = (double)n->x[i / COLUMNS * INNER + k];
            const double product = x * (double)n->matrix[k * COLUMNS + i % COLUMNS];
            sum += product;
            magnitudes += fabs(product);
        }
        if (!isfinite(sum))
            assert_true(isnan(sum) ? isnan(y[i]) : (double)y[i] == sum);
        else
            assert_true(fabs((double)y[i] - sum) <=
                        magnitudes * INNER * 0x1p-24 + INNER * 0x1p-126);
    }
}

static void extreme_rows_give_what_multiply_adds_give_and_touch_no_other(void **state)
{
    (void)state;
    static struct numbers usual, n;
    fill(&usual);
    fill(&n);
    make_strange(&n);
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        const struct attn_packed packed = pack_numbers(loops, &n, false);
        float expected[ROWS * COLUMNS], y[ROWS * COLUMNS], across[ROWS * COLUMNS];
        memset(usual.bias, 0, sizeof usual.bias);
        multiply_last(loops, &usual, &packed, ROWS, expected);
        loops->multiply(&(struct attn_panel_product){
            .y = y, .x = n.x, .matrix = &packed, .rows = ROWS});
        loops->multiply(&(struct attn_panel_product){.y = across,
                                                     .x = n.turned,
                                                     .matrix = &packed,
                                                     .rows = ROWS,
                                                     .turned = TURNED});
        assert_memory_equal(across, y, sizeof y);
        check_strange(&n, y);
        for (size_t row = 0; row < ROWS; row += 2)
            assert_memory_equal(y + row * COLUMNS, expected + row * COLUMNS,
                                COLUMNS * sizeof *y);
        free(packed.memory);
    }
}

/* Lying either way. */
static void an_extreme_matrix_gives_what_multiply_adds_give(void **state)
{
    (void)state;
    static struct numbers n;
    static float turned[INNER * COLUMNS];
    EACH_TAPE(tape)
    {
        const struct attn_rows *const loops = attn_tape_rows(tape);
        for (size_t i = 0; i < STRANGE; i++) {
            fill(&n);
            for (size_t k = 0; k < INNER * COLUMNS; k++)
                n.matrix[k] *= strange[i].factor;
            n.matrix[5 * COLUMNS + 40] = strange[i].replaced;
            for (size_t k = 0; k < INNER * COLUMNS; k++)
                turned[k % COLUMNS * INNER + k / COLUMNS] = n.matrix[k];
            float y[ROWS * COLUMNS], other[ROWS * COLUMNS] = {0.0f};
            struct attn_packed packed = pack_numbers(loops, &n, false);
            struct attn_panel_product product = {
                .y = y, .x = n.x, .matrix = &packed, .rows = ROWS};
            loops->multiply(&product);
            check_strange(&n, y);
            free(packed.memory);
            packed = pack(loops, (struct attn_packed){.matrix = turned,
                                                      .inner = INNER,
                                                      .columns = COLUMNS,
                                                      .turned = true});
            product.y = other;
            product.add = true;
            loops->multiply(&product);
            check_strange(&n, other);
            free(packed.memory);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_matrix_multiplies_like_the_matrix),
        cmocka_unit_test(rows_that_lie_as_columns_give_the_same_bits),
        cmocka_unit_test(a_product_larger_than_a_block_is_the_sum_of_its_steps),
        cmocka_unit_test(rows_that_are_extreme_in_one_block_touch_no_other),
        cmocka_unit_test(errors_are_no_larger_than_those_of_multiply_adds),
        cmocka_unit_test(a_row_has_the_same_bits_among_any_others),
        cmocka_unit_test(a_value_that_is_not_finite_stays_in_its_row),
        cmocka_unit_test(extreme_rows_give_what_multiply_adds_give_and_touch_no_other),
        cmocka_unit_test(an_extreme_matrix_gives_what_multiply_adds_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
