/* Composed pictures hold what their caption says. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "tests/folder.h"
#include "train/pictures.h"
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

enum { SIDE = 28, COUNT = 10, ROWS = 2, COLUMNS = 3, CELLS = ROWS * COLUMNS };

static attn_error error;
static attn_digits digits;
static const attn_composition GRID = {ROWS, COLUMNS, 2, 5, 0.25};

static void put_number(uint8_t *at, uint32_t number)
{
    for (int byte = 0; byte < 4; byte++)
        at[byte] = (uint8_t)(number >> (24 - 8 * byte));
}

static void write_idx(const char *name, int rank, const uint8_t *content, size_t length)
{
    uint8_t *const file = malloc(16 + length);
    assert_non_null(file);
    memcpy(file, (uint8_t[]){0, 0, 8, (uint8_t)rank}, 4);
    put_number(file + 4, COUNT);
    for (int axis = 1; axis < rank; axis++)
        put_number(file + 4 + 4 * axis, SIDE);
    const size_t header = 4 + 4 * (size_t)rank;
    memcpy(file + header, content, length);
    assert_int_equal(attn_file_write(in_folder(name), file, header + length, &error),
                     ATTN_OK);
    free(file);
}

/* Digit d is a square of ink 25·d: what a cell shows is known from its brightest point.
 */
static void write_digits(void)
{
    uint8_t images[COUNT * SIDE * SIDE], labels[COUNT];
    for (int n = 0; n < COUNT; n++) {
        labels[n] = (uint8_t)n;
        memset(images + n * SIDE * SIDE, 25 * n, SIDE * SIDE);
    }
    write_idx("t.images.idx", 3, images, sizeof images);
    write_idx("t.labels.idx", 1, labels, sizeof labels);
}

static int prepare(void **state)
{
    if (folder_make(state) != 0)
        return -1;
    write_digits();
    if (attn_digits_load(&digits, in_folder("t.images.idx"), &error) == ATTN_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

static int end(void **state)
{
    attn_digits_free(&digits);
    return folder_remove(state);
}

static int brightest(const uint8_t *grey, int cell)
{
    int most = 0;
    const uint8_t *const from =
        grey + cell / COLUMNS * ATTN_CELL_SIDE * COLUMNS * ATTN_CELL_SIDE +
        cell % COLUMNS * ATTN_CELL_SIDE;
    for (int row = 0; row < ATTN_CELL_SIDE; row++)
        for (int column = 0; column < ATTN_CELL_SIDE; column++) {
            const int ink = from[row * COLUMNS * ATTN_CELL_SIDE + column];
            most = ink > most ? ink : most;
        }
    return most;
}

static void each_cell_shows_its_digit_or_nothing(void **state)
{
    (void)state;
    static uint8_t grey[CELLS * ATTN_CELL_SIDE * ATTN_CELL_SIDE];
    int8_t cells[CELLS];
    int empty = 0, seen[COUNT] = {0};
    for (uint64_t number = 0; number < 500; number++) {
        attn_compose(&digits, &GRID, number, grey, cells);
        for (int cell = 0; cell < CELLS; cell++) {
            assert_int_equal(brightest(grey, cell),
                             cells[cell] < 0 ? 0 : 25 * cells[cell]);
            if (cells[cell] < 0)
                empty++;
            else
                seen[cells[cell]]++;
        }
    }
    for (int digit = 0; digit < COUNT; digit++)
        if (digit >= 2 && digit < 7)
            assert_in_range(seen[digit], 350, 550); /* 450 expected, 6 deviations of 20 */
        else
            assert_int_equal(seen[digit], 0); /* not among first to first + count − 1 */
    assert_in_range(empty, 600, 900);         /* 750 expected */
}

static void a_picture_is_a_function_of_its_number(void **state)
{
    (void)state;
    static uint8_t grey[2][CELLS * ATTN_CELL_SIDE * ATTN_CELL_SIDE];
    int8_t cells[2][CELLS];
    attn_compose(&digits, &GRID, 7, grey[0], cells[0]);
    attn_compose(&digits, &GRID, 7, grey[1], cells[1]);
    assert_memory_equal(grey[0], grey[1], sizeof grey[0]);
    attn_compose(&digits, &GRID, 8, grey[1], cells[1]);
    assert_memory_not_equal(grey[0], grey[1], sizeof grey[0]);
}

static void the_caption_reads_row_by_row(void **state)
{
    (void)state;
    char caption[ATTN_CAPTION_BYTES];
    const int8_t cells[] = {3, -1, 1, 7, 7, 2};
    attn_caption(&GRID, cells, caption);
    assert_string_equal(caption, "three nothing one over seven seven two");
}

static void files_of_mnist_are_found_by_their_names(void **state)
{
    (void)state;
    attn_digits found;
    assert_int_equal(
        rename(in_folder("t.images.idx"), in_folder("train-images-idx3-ubyte")), 0);
    assert_int_equal(
        rename(in_folder("t.labels.idx"), in_folder("train-labels-idx1-ubyte")), 0);
    assert_int_equal(
        attn_digits_load(&found, in_folder("train-images-idx3-ubyte"), &error), ATTN_OK);
    attn_digits_free(&found);
    write_digits();
}

static void labels_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    attn_digits bad;
    uint8_t labels[COUNT] = {0, 1, 2, 10};
    write_idx("t.labels.idx", 1, labels, sizeof labels);
    const char *const images = in_folder("t.images.idx");
    assert_int_equal(attn_digits_load(&bad, images, &error), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "label 4 is 10, expected a digit"));
    unlink(in_folder("t.labels.idx"));
    assert_int_equal(attn_digits_load(&bad, images, &error), ATTN_EIO);
    assert_int_equal(attn_digits_load(&bad, in_folder("t.idx"), &error), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "expected a name with \"images\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_cell_shows_its_digit_or_nothing),
        cmocka_unit_test(a_picture_is_a_function_of_its_number),
        cmocka_unit_test(the_caption_reads_row_by_row),
        cmocka_unit_test(files_of_mnist_are_found_by_their_names),
        cmocka_unit_test(labels_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, prepare, end);
}
